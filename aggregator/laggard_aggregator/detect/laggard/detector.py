"""`laggard`, the default detector: slower than its peers by more than is harmless, and by more than chance.

Nothing is trained. A component's log ratio to the leave-one-out median of its peers is averaged over 1 to 32
windows at once; it is anomalous when an average exceeds both the harmless difference and the chance
difference of healthy members of its own group, given the operator's budget of false alarms. docs/detection.md
gives reasons and figures.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from laggard_aggregator.detect.interface import (
    MIN_PEERS,
    TOO_FEW,
    BoolArray,
    FloatArray,
    GroupWindow,
    Level,
    Verdicts,
    not_judged,
)
from laggard_aggregator.detect.laggard.ahead import Ahead, Apart, Loads, ToAll, ahead_of_peers
from laggard_aggregator.detect.laggard.component_arrays import Places
from laggard_aggregator.detect.laggard.duty_cycles import DutyCycles
from laggard_aggregator.detect.laggard.evidence import (
    FASTER_HALF,
    HARMLESS_LOG_RATIO,
    KINDS,
    LENGTHS,
    RECENT_SCALE,
    ROW_WINDOWS,
    SEVERITY_SCALE,
    GroupEvidence,
)
from laggard_aggregator.detect.laggard.expected import Expected, ExpectedTime
from laggard_aggregator.detect.laggard.load import (
    MAX_LOG_DEVIATION,
    LoadModel,
    features,
    log_moved,
    service,
    usable,
    with_uncounted,
)
from laggard_aggregator.detect.laggard.spread import (
    MIN_TICKS,
    PRIOR_VALUES,
    cross_spread,
    pooled_spread,
    spread_now,
    standard_error,
    young,
)
from laggard_aggregator.detect.laggard.stops import Stops
from laggard_aggregator.detect.laggard.thresholds import chance_per_window, critical
from laggard_aggregator.detect.peers import (
    faster_half_mean,
    most_trusted,
    new_samples,
    row_median,
    shortest_half,
    slower_part,
    trimmed_mean,
)
from laggard_aggregator.detect.registry import Detector, register
from laggard_aggregator.detect.settings import LOADS, DetectSettings
from laggard_aggregator.detect.split import ahead_of_other_side

HARMLESS_COARSE_LOG_RATIO = 0.18
"""HARMLESS_LOG_RATIO where spikes cannot be told from slowness: healthy drives differ by up to 0.15 there,
slow ones by 0.25 and more."""
FINE_SECONDS = 30.0
"""Longest samples that show a spike as one."""
HEALTHY_SERVICE_LOG_RATIO = float(np.log(1.08))
"""Log ratio by which healthy components' service times may differ."""
HARMLESS_SERVICE_LOG_RATIO = 0.115
"""HARMLESS_LOG_RATIO of service times, which others' requests do not move."""
NOISE_STD_ERRORS = 3.0
"""Standard errors of a component's own noise by which it must exceed the harmless difference of latencies, or
the difference of healthy components' service times where these are known."""
MAX_WINDOW_SPREADS = 8.0
"""Upper limit of one window's evidence in spreads, so that one spike cannot raise an alarm by itself."""
SUSPECT_SHARE = 0.5
"""Share of the typical anomalous score from which one counts with the slow ones, maybe the majority."""
OUTLIER_SPREADS = 3.0
"""Spreads from the majority's centre beyond which a component is no reference in this window."""
MIN_FAST_SHARE = 0.4
"""Share of a group so much faster than the rest that these are not peers."""
OUTSTANDING_LOG_RATIO = float(np.log(2.0))
"""Log ratio to the slower part of a group that is not one of peers, from which a member is blamed alone."""
CLEAR_SCORE = 1.2
"""Score from which a window is clear, if also the faster half of its intervals is slower than is harmless: an
episode as long as a window does not fill two of them by more than half."""
MIN_KNOWN_WINDOWS = 16.0
"""Windows of a group's times at its loads, two hours of them, before a member is held against these alone."""
MIN_WINDOWS = 0.5
"""Windows of evidence that a component needs to be judged, and share of a window that is clear."""
RECOVERY_SCORE = 0.3
"""Share of its threshold up to which the recent average of a straggler speaks for its recovery."""
RECOVERY_STD_ERRORS = 4.0
"""Standard errors by which that must contradict the longer averages for these to start again."""
MAX_NOISE_VARIANCE_RATIO = 4.0
"""Upper limit of a component's own variance over the typical one: intermittence must not hide it."""

NOT_PEERS = "not a group of peers"

Span = tuple[float, float]


class Accumulated(NamedTuple):
    """A window's log ratios to peers, as far as they were added to the evidence.

    `felt`, `faster` (C,): means, and means of the faster half; `rest` (C, T): by tick. `excused` (C,): the
    part that doubt took. `now`: the spread that the window shows, `weight` (C,): its share with samples.
    `apart` (C,): as of `Apart.latency`; `parted` as in Verdicts.
    """

    felt: FloatArray
    faster: FloatArray
    rest: FloatArray
    excused: FloatArray
    now: float
    weight: FloatArray
    apart: FloatArray
    parted: FloatArray | None


class MemberScores(NamedTuple):
    """How the evidence on components stands against its thresholds; (C,) each.

    `score`: the largest share of a threshold. `level`: the average behind it, a log ratio. `fast`: as much
    faster as a straggler is slower. `beyond`: outstanding even in a group that is not one of peers.
    """

    score: FloatArray
    level: FloatArray
    fast: BoolArray
    beyond: BoolArray


@register
class LaggardDetector(Detector[GroupWindow]):
    """Judges one metric of one peer group. Scores are shares of the threshold: 1.0 and more is anomalous."""

    name = "laggard"
    version = 20
    restores_from = 5  # without what was learned of loads, steadiness and the second kind of evidence

    def __init__(self, settings: DetectSettings, metric: str) -> None:
        super().__init__(settings, metric)
        self._chance, self._tests_at_once = chance_per_window(settings), 0
        self._evidence = GroupEvidence(settings.shift_seconds)
        self._load = LoadModel()
        self._time = ExpectedTime(settings.shift_seconds)
        self._duty_cycles = DutyCycles()
        self._stops = Stops(settings)
        fine = settings.interval_seconds <= FINE_SECONDS
        self._harmless = HARMLESS_LOG_RATIO if fine else HARMLESS_COARSE_LOG_RATIO
        self._unit_before: FloatArray = np.zeros(ROW_WINDOWS.size)
        self._end: float | None = None

    def observe(self, window: GroupWindow) -> Verdicts:
        """The verdicts on `window`. Only samples after the previous window's end are new evidence."""
        self._share_budget(window.tests_at_once)
        worse, places = window.worse.get(self._metric, 1), self._evidence.places(window.components)
        values, load = window.metrics[self._metric], window.load
        new = new_samples(window, self._metric, self._end, self._settings.interval_seconds)
        self._end = window.end if self._end is None else max(self._end, window.end)
        fresh = slice(values.shape[1] - new, None)
        values, load = values[:, fresh], {name: amounts[:, fresh] for name, amounts in load.items()}
        start = window.end - new * self._settings.interval_seconds
        if self._metric == "await":
            self._stops.add(window.components, values, load, start)
            values = with_uncounted(values, load)
        told = usable(values, load)
        if told.any():
            begin = slice(int(told.any(axis=0).argmax()), None)  # a group's first window is nearly empty
            values, told, load = values[:, begin], told[:, begin], {k: v[:, begin] for k, v in load.items()}
        weight = told.sum(axis=1) / self._settings.shift_samples
        values = np.where(told, values, np.nan)
        logs = np.log(values) * (-1.0 if worse < 0 else 1.0)
        served = service(load, told, logs) if self._metric == "await" else None
        recent_part = self._load.explained_by_recent(self._evidence.load_ahead(places))
        demand = {name: np.where(told, own, np.nan) for name, own in load.items() if name in LOADS}
        expected = self._expected(window.components, demand, logs, worse)
        accumulated = self._accumulate(
            partial(
                ahead_of_peers,
                logs,
                served,
                features(load, told),
                expected=expected,
                model=self._load,
                recent_part=recent_part if served is None else np.zeros(places.size),
                spread_before=float(self._unit_before[0]),
                steadier=partial(self._evidence.steadier, places, weight),
            ),
            weight,
            places,
            (start, window.end),
            sides=window.sides if worse else (),
            level_is_known=bool(np.isfinite(expected.usual) and expected.windows >= MIN_KNOWN_WINDOWS),
        )
        own_side = logs if accumulated is None else logs - accumulated.apart[:, None]
        self._learn_expected(window.components, demand, own_side, served, weight > 0, places)
        if accumulated is None:
            nothing = np.zeros(places.size)
            self._evidence.add(places, np.zeros((KINDS, places.size)), nothing, nothing, 0.0)
            return not_judged(places.size, TOO_FEW)
        felt, weight = accumulated.felt, accumulated.weight
        live = weight > 0
        group = self._members(live, places)
        if group.sum() < MIN_PEERS:
            return not_judged(places.size, TOO_FEW)
        trusted, alike = self._trusted(accumulated.now, group, places)
        scores = self._judge(
            accumulated,
            trusted,
            places,
            group,
            of_service=served is not None,
            two_sided=worse == 0,
            closed_loop=expected.closed_loop,
        )
        score, judged = scores.score, live & (self._evidence.windows[places] >= MIN_WINDOWS)
        anomalous = judged & (score >= 1.0)
        members, note = int(group.sum()), ""
        suspect = SUSPECT_SHARE * float(np.median(score[anomalous])) if anomalous.any() else 1.0
        few_alike = 2 * alike <= members or 2 * (judged & (score >= suspect)).sum() >= members
        if few_alike or (judged & scores.fast).sum() >= MIN_FAST_SHARE * members:
            anomalous, note = anomalous & scores.beyond, NOT_PEERS
        slow_at_best = accumulated.faster >= self._harmless
        clear = anomalous & (score >= CLEAR_SCORE) & slow_at_best & (weight >= MIN_WINDOWS)
        stopping = self._stops.judge(window.components, window.end, self._tests_at_once)
        score = np.where(stopping.score > 0.0, np.maximum(score, stopping.score), score)
        anomalous = anomalous | (judged & (stopping.score >= 1.0))
        observed = row_median(values)
        slowness = self._evidence.slowness[places] - np.median(self._evidence.slowness[places][trusted])
        return Verdicts(
            judged=judged,
            anomalous=anomalous,
            score=score,
            severity=np.where(judged, np.exp(slowness), np.nan),
            observed=observed,
            reference=observed * np.exp(felt if worse < 0 else -felt),
            note=note,
            onsets=self._onsets(window, anomalous, scores.level, places) if worse else {},
            duty_cycles=self._duty_cycles.add(window.components, accumulated.rest, anomalous)
            if worse
            else {},
            stops=stopping.told,
            clear=clear if worse else None,
            parted=accumulated.parted,
        )

    def _share_budget(self, tests_at_once: int) -> None:
        if tests_at_once != self._tests_at_once:
            self._chance = chance_per_window(self._settings, tests_at_once)
            self._tests_at_once = tests_at_once

    def _expected(
        self, components: tuple[str, ...], demand: Mapping[str, FloatArray], logs: FloatArray, worse: int
    ) -> Expected:
        if worse > 0:
            self._time.learn_loop(demand, logs)
        return self._time.expected(components, demand, logs, self._load.likely_slope)

    def _learn_expected(  # noqa: PLR0917
        self,
        components: tuple[str, ...],
        demand: Mapping[str, FloatArray],
        logs: FloatArray,
        served: FloatArray | None,
        present: BoolArray,
        places: Places,
    ) -> None:
        """Learns after the window was judged: its noise explains nothing of itself."""
        heard = present & (self._evidence.heard[places] > 0)
        noise = float(np.median(self._evidence.noise[places[heard]])) if heard.any() else 0.0
        healthy = present & (self._evidence.score[places] < 1.0)
        self._time.learn(components, demand, logs, served, healthy, noise * self._settings.shift_samples)

    def _onsets(
        self, window: GroupWindow, anomalous: BoolArray, level: FloatArray, places: Places
    ) -> Mapping[str, float]:
        """When the slowness `level` (C,) of the anomalous ones began, where that was before this window."""
        slow = np.flatnonzero(anomalous)
        began = self._evidence.slow_since(places[slow], level[slow]).tolist()
        return {window.components[c]: at for c, at in zip(slow, began, strict=True) if at < window.start}

    def _members(self, live: BoolArray, places: Places) -> BoolArray:
        """The components that a window's verdicts rest on, (C,): the live ones, where these are too few those
        with evidence from before, too.
        """
        if live.sum() >= MIN_PEERS:
            return live
        return live | (self._evidence.windows[places] >= MIN_WINDOWS)

    def _accumulate(
        self,
        ahead: Callable[..., Ahead],
        weight: FloatArray,
        places: Places,
        span: Span,
        *,
        sides: tuple[Level, ...],
        level_is_known: bool,
    ) -> Accumulated | None:
        """Adds the samples of `span`.

        `ahead`: `ahead_of_peers` of the samples. Where the group falls apart along one of `sides`, members
        are held against their own. Components without a sample while trusted peers have one get
        weight 0. Where fewer than MIN_PEERS have samples, as `_accumulate_few` if `level_is_known`; None
        without it, or with fewer than two trusted ones that have samples at the same times.
        """
        present = weight > 0
        if present.sum() < MIN_PEERS:
            return self._accumulate_few(ahead, weight, places, span) if level_is_known else None
        none = np.zeros(present.size)
        apart = Apart(none, none)
        of_present = ahead(present, apart=apart, with_all=bool(sides))
        to_all = of_present.to_all
        if to_all is not None:
            apart = _apart(to_all, present, sides)
            if apart.latency.any() or apart.service.any():
                of_present = ahead(present, apart=apart)
        ahead = partial(ahead, apart=apart)
        excess = of_present.excess
        live = present & np.isfinite(excess)
        if live.sum() < MIN_PEERS:
            return None
        # References of this window: not known stragglers, not its outliers, but always a majority.
        centre, _ = shortest_half(excess[live])
        suspicion = np.abs(excess - centre) / (
            OUTLIER_SPREADS * spread_now(excess, of_present.variance, live)
        )
        trusted = most_trusted(np.fmax(suspicion, self._evidence.score[places]), live)
        of_trusted = of_present if np.array_equal(trusted, present) else ahead(trusted)
        excess, felt, variance, latency, rest, excused, loads, steady, _ = of_trusted
        live = live & np.isfinite(excess) & np.isfinite(felt)
        trusted, weight = trusted & live, np.where(live, weight, 0.0)
        if live.sum() < MIN_PEERS or trusted.sum() < 2:  # of whose samples none may be at the same time
            return None
        now = spread_now(excess, variance, trusted)
        self._load.learn(loads, latency, trusted)
        self._learn_recent(latency, loads, live, places)
        spread = young(self._evidence.seen[places[live]]) * max(now, float(self._unit_before[0]))
        bound = max(MAX_WINDOW_SPREADS * spread, 2.0 * HARMLESS_LOG_RATIO)
        variance = self._variance(excess, variance, rest.shape[1], places)
        faster = faster_half_mean(rest)
        kinds = np.stack([excess, faster])
        if steady is not None:
            self._evidence.steady[places] = steady
            kinds[FASTER_HALF] = excess  # service times have one kind of evidence
        self._evidence.add(places, kinds, felt, weight, bound)
        beside = np.clip(excess - row_median(excess[None, trusted])[0], -bound, bound)
        self._evidence.add_sums(places, beside, weight, span)
        self._evidence.add_noise(places, variance * np.minimum(weight, 1.0))
        parted = to_all.latency if to_all is not None and apart.latency.any() else None
        return Accumulated(felt, faster, rest, excused, now, weight, apart.latency, parted)

    def _accumulate_few(
        self, ahead: Callable[..., Ahead], weight: FloatArray, places: Places, span: Span
    ) -> Accumulated | None:
        """`_accumulate` where too few have samples to be a group: they are held against its usual level.

        That is how the members were at such loads at other times. Nothing is learned of how times go with
        load. None without a sample.
        """
        present = weight > 0
        if not present.any():
            return None
        none = np.zeros(present.size)
        excess, felt, variance, _, rest, excused, *_ = ahead(present, apart=Apart(none, none))
        live = present & np.isfinite(excess) & np.isfinite(felt)
        if not live.any():
            return None
        weight = np.where(live, weight, 0.0)
        now = float(self._unit_before[0])  # of a group that was never judged: 0
        spread = young(self._evidence.seen[places[self._members(live, places)]]) * now
        bound = max(MAX_WINDOW_SPREADS * spread, 2.0 * HARMLESS_LOG_RATIO)
        faster = faster_half_mean(rest)
        variance = self._variance(excess, variance, rest.shape[1], places)
        self._evidence.add(places, np.stack([excess, faster]), felt, weight, bound)
        self._evidence.add_sums(places, np.clip(excess, -bound, bound), weight, span)
        self._evidence.add_noise(places, variance * np.minimum(weight, 1.0))
        return Accumulated(felt, faster, rest, excused, now, weight, none, None)

    def _variance(self, excess: FloatArray, variance: FloatArray, ticks: int, places: Places) -> FloatArray:
        """Each one's squared standard error (C,), before its `excess` is added; NaN where unknown.

        `variance` (C,): as `batch_variance` tells it. Where a window has too few `ticks` for that, by the
        course from window to window; where only a member has, a step of its own would count as noise.
        """
        if ticks >= MIN_TICKS:
            return variance
        usual = self._evidence.average[SEVERITY_SCALE, places]
        return np.where(self._evidence.windows[places] > 0, (excess - usual) ** 2, np.nan)

    def _learn_recent(self, latency: FloatArray, loads: Loads, live: BoolArray, places: Places) -> None:
        """Learns how log ratios go with recent load, then adds this window's load.

        From components with a score below 1. `latency`, and each of `loads`: log ratios to peers, (C, T).
        """
        moved = log_moved(loads)
        if moved is None:
            return
        evidence = self._evidence
        ratio = trimmed_mean(latency)
        ratio_ahead = np.clip(ratio - evidence.usual_ratio[places], -MAX_LOG_DEVIATION, MAX_LOG_DEVIATION)
        load_ahead = np.clip(evidence.load_ahead(places), -MAX_LOG_DEVIATION, MAX_LOG_DEVIATION)
        healthy = live & (evidence.score[places] < 1.0)
        self._load.learn_recent(load_ahead[healthy], ratio_ahead[healthy], evidence.noise_windows)
        evidence.add_load(places, row_median(moved), ratio_ahead)

    def _judge(
        self,
        accumulated: Accumulated,
        trusted: BoolArray,
        places: Places,
        members: BoolArray,
        *,
        of_service: bool,
        two_sided: bool,
        closed_loop: bool,
    ) -> MemberScores:
        """The scores of a window whose evidence was `accumulated`; `members` (C,): as of `_members`."""
        now, weight, excused = accumulated.now, accumulated.weight, accumulated.excused
        harmless = sure_from = self._harmless
        if of_service:
            harmless, sure_from = HARMLESS_SERVICE_LOG_RATIO, HEALTHY_SERVICE_LOG_RATIO
        evidence, live = self._evidence, weight > 0
        length = evidence.lengths(places)
        average, growth = evidence.average[:, places], standard_error(length)
        average = average - row_median(np.where(trusted, average, np.nan))[:, None]
        noise = self._noise(places, members)
        # Doubt excuses a member; it makes none alike, which would accuse the others.
        excused = np.nan_to_num(excused)
        apart_squares = (average**2 + excused**2) / growth**2
        if closed_loop:  # a change of the number in flight is no noise
            apart_squares = np.where(excused != 0.0, np.nan, apart_squares)
        unit, freedom = self._unit(apart_squares, noise, now, weight, trusted, places, members)
        error = unit[:, None] * growth
        harm = np.maximum(harmless, sure_from + NOISE_STD_ERRORS * np.sqrt(noise / length))
        spread = young(evidence.seen[places[members]]) * error
        confirm = self._settings.confirm
        by_chance = critical(self._chance, freedom, length, unit, confirm, of_service=of_service) * spread
        threshold = np.maximum(harm, by_chance)
        share = np.where(live, average / threshold, 0.0)
        sided = np.abs(share) if two_sided else share
        score = sided.max(axis=0)
        level = np.take_along_axis(average, sided.argmax(axis=0)[None, :], axis=0)[0]
        by_kind = sided.reshape(KINDS, LENGTHS, -1)
        recent, side = by_kind[:, RECENT_SCALE].max(axis=0), by_kind * threshold.reshape(by_kind.shape)
        fall = side[:, RECENT_SCALE + 1 :].max(axis=1) - side[:, RECENT_SCALE]
        fallen = (fall > RECOVERY_STD_ERRORS * error.reshape(by_kind.shape)[:, RECENT_SCALE]).any(axis=0)
        recovered = live & (score >= 1.0) & (recent <= RECOVERY_SCORE) & fallen
        evidence.restart(places[recovered])
        score = np.where(recovered, by_kind[:, : RECENT_SCALE + 1].max(axis=(0, 1)), score)
        again = evidence.recurs(places[live], score[live] >= 1.0)
        score[live] = np.where(again, np.maximum(score[live], 1.0), score[live])
        evidence.score[places[live]] = score[live]
        fast = np.zeros_like(live) if two_sided else share.min(axis=0) <= -1.0
        # Outstanding: slower than even the slower part of the group, by the threshold and twice.
        slowness, edge = evidence.slowness[places], slower_part(average[:, members])
        far = ((average - edge[:, None]) >= threshold).any(axis=0)
        beyond = far & (slowness - slower_part(slowness[None, members])[0] >= OUTSTANDING_LOG_RATIO)
        return MemberScores(score, level, fast, live & beyond)

    def _trusted(self, now: float, live: BoolArray, places: Places) -> tuple[BoolArray, int]:
        """Whether like the majority in averages of every length (C,); the number that are so lastingly."""
        average = self._evidence.average[:LENGTHS, places]
        length, before_now = self._evidence.lengths(places)[:LENGTHS], self._unit_before[:LENGTHS]
        suspicion = self._evidence.score[places]
        far = np.zeros_like(live)
        usual = standard_error(np.median(length[:, live], axis=1))
        for scale, (row, unit, before) in enumerate(zip(average, usual, before_now, strict=True)):
            centre, _ = shortest_half(row[live])
            away = np.abs(row - centre)
            spread = min(cross_spread(row[live]), max(2.0 * now, float(before)) * unit)
            suspicion = np.fmax(suspicion, away / max(OUTLIER_SPREADS * spread, HARMLESS_LOG_RATIO / 2.0))
            # Over four windows and more: one odd window does not show that a group is none of peers.
            far |= (scale >= SEVERITY_SCALE) & (
                away > max(OUTLIER_SPREADS * 2.0 * now * unit, HARMLESS_LOG_RATIO)
            )
        return most_trusted(suspicion, live), int((live & ~far).sum())

    def _noise(self, places: Places, live: BoolArray) -> FloatArray:
        """Each one's squared standard error in one window, leaning on its peers'; (C,)."""
        own, heard = self._evidence.noise[places], self._evidence.heard[places]
        known = live & (heard > 0)
        typical = float(np.median(own[known])) if known.any() else 0.0
        own = np.minimum(own, MAX_NOISE_VARIANCE_RATIO * typical)
        return (PRIOR_VALUES * typical + heard * own) / (PRIOR_VALUES + heard)

    def _unit(  # noqa: PLR0917
        self,
        apart_squares: FloatArray,
        noise: FloatArray,
        now: float,
        weight: FloatArray,
        trusted: BoolArray,
        places: Places,
        members: BoolArray,
    ) -> tuple[FloatArray, FloatArray]:
        """The spread of each row of averages in single-window units, and the values behind it; (R,) each.

        `apart_squares` (R, C): squares of averages about the group's centre in these units, NaN = unknown;
        `noise` (C,) as of `_noise`; `members` (C,) as of `_members`.
        """
        evidence = self._evidence
        typical = float(np.sqrt(np.median(noise[members]))) or now / 2.0
        moment, seen = evidence.moment[:, places], evidence.seen[places]
        counted = (trusted | (members & (evidence.score[places] < 1.0))) & (seen > 0)
        by_kind = (values.reshape(KINDS, LENGTHS, -1) for values in (moment, apart_squares))
        pooled = [
            pooled_spread(kind, seen, counted, typical, now) for kind, now in zip(*by_kind, strict=True)
        ]
        unit, freedom = (np.concatenate(part) for part in zip(*pooled, strict=True))
        evidence.add_squares(places, apart_squares, np.where(np.isnan(apart_squares[0]), 0.0, weight))
        self._unit_before = unit
        return unit, freedom

    def forget(self, components: Collection[str]) -> None:
        """Frees the evidence on `components`, which are gone."""
        self._evidence.forget(components)
        self._time.forget(components)
        self._duty_cycles.forget(components)
        self._stops.forget(components)

    def state(self) -> dict[str, Any]:
        """The state as plain data."""
        return {
            **super().state(),
            "end": self._end,
            "evidence": self._evidence.state(),
            "load": self._load.state(),
            "time": self._time.state(),
            "unit": self._unit_before.tolist(),
            "duty_cycles": self._duty_cycles.state(),
            "stops": self._stops.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from a saved state.

        Raises ValueError when it is of another detector or version; also TypeError or KeyError when damaged.
        """
        super().restore(state)
        self._end = None if state["end"] is None else float(state["end"])
        self._evidence = GroupEvidence(self._settings.shift_seconds).restored(state["evidence"])
        self._load = LoadModel.restore(state["load"])
        self._time = ExpectedTime(self._settings.shift_seconds)
        if "time" in state:
            self._time.restored(state["time"])
        unit = np.array(state["unit"], dtype=np.float64)
        self._unit_before = np.tile(unit, KINDS if unit.size == LENGTHS else 1).reshape(ROW_WINDOWS.size)
        self._duty_cycles.restore(state.get("duty_cycles", {}))  # of version 5: none
        self._stops = Stops(self._settings)
        if "stops" in state:
            self._stops.restored(state["stops"])


def _apart(to_all: ToAll, present: BoolArray, sides: tuple[Level, ...]) -> Apart:
    """The sides of the `present` (C,) members."""

    def ahead(logs: FloatArray | None, sure: FloatArray | None) -> FloatArray:
        if logs is None or sure is None:
            return np.zeros(present.size)
        return ahead_of_other_side(logs, sure, present & np.isfinite(logs), sides)

    return Apart(ahead(to_all.latency, to_all.sure), ahead(to_all.service, to_all.service))
