"""Stops: a device that holds requests and serves none for seconds, again and again, while its peers do not.

Means hide them: 5 s every 10 minutes cost 1 % of the time, and are one sample of 15 s in forty. Averages less
their spikes are blind to them, and one spike is no fault. The evidence is how many stops there were in the
last hours, beside those of the peers. A stop shows as busy time that the work done does not explain, so that
a burst of requests, whose queue makes as long waits, is none; and requests must have waited for it.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy import special

from laggard_aggregator.detect.interface import BoolArray, FloatArray, StopTally
from laggard_aggregator.detect.laggard.component_arrays import ComponentArrays, Places
from laggard_aggregator.detect.laggard.thresholds import WEEK_SECONDS
from laggard_aggregator.detect.peers import MAD_TO_SIGMA, row_median
from laggard_aggregator.detect.settings import DetectSettings

STOP_SECONDS = np.array([1.5, 3.0, 6.0])
"""Lengths from which stops are counted, each apart: where peers have short stops, long ones still tell. A
shorter one is none: garbage collection takes a second at most."""
MIN_SAMPLES = 4
"""Fewest samples with I/O in a window that tell what is usual."""
NOISE_SPREADS, MIN_NOISE_SECONDS = 3.0, 0.1
"""Busy time without work that is noise: in spreads of the window's samples, and at least."""
WAITED_SHARE = 0.75
"""Share of the waiting that one stop of as many seconds makes: two of half the length make half of it."""
FEWER_SHARE, FEWER_SPREADS = 0.5, 3.0
"""Share of the requests of a stop's time, and spreads of a sample's, that are lacking where clients sent none
meanwhile."""
MERGED_SECONDS = 60.0
"""Stops nearer to each other count as one: a burst of them is one event."""
HORIZON_SECONDS = 7200.0
"""Time in which own stops are counted."""
HORIZON_TESTS = 10.0
"""Independent tests that a horizon counts as while it moves on with each window: stops come in bunches."""
MEMORY_SECONDS = 86_400.0
"""Time over which the peers' stops are remembered."""
MIN_STOPS, MIN_SPAN_SECONDS = 3, 1800.0
"""Fewest stops, and the shortest time from the first to the last, that are no single episode."""
MIN_TIMES_PEERS = 3.0
"""How many times as often it must stop as three quarters of its peers at most do."""
MAX_GAPS, MIN_QUIET_SECONDS = 3.0, 1200.0
"""After as many of its mean gaps without a stop, and at least this time, a device stops no more."""
MAX_KEPT = 64
"""Limit of the stops of a component that are kept, the newest ones."""
MAX_SCORE = 10.0


class Stop(NamedTuple):
    """A stop that began at `begin`, epoch seconds, and took `seconds` from its device."""

    begin: float
    seconds: float


class Stopping(NamedTuple):
    """Scores (C,), 1.0 and more is anomalous, and the stops of components with such a score."""

    score: FloatArray
    told: Mapping[str, StopTally]


class _Samples(NamedTuple):
    """A window's samples of components, (C, T): `done` operations, `busy` seconds, bytes `moved`, mean `wait`
    of an operation in seconds; `working`: known and with I/O."""

    done: FloatArray
    busy: FloatArray
    moved: FloatArray
    wait: FloatArray
    working: BoolArray


class Stops(ComponentArrays):
    """Stops of each of N components of a group; float64 arrays, (N,) but for `count`.

    Usual values of a component's last window with MIN_SAMPLES, 0 where unknown: `service` and `per_byte`,
    busy seconds of an operation and of a byte; `wait`, seconds of an operation; `done`, operations of a
    sample. Of a stop that lasts: `lost`, seconds without work; `waited`, request-seconds beyond the usual;
    `lacking`, operations fewer than usual; `began`, its begin, epoch seconds. `active`: seconds with I/O, and
    `count` (STOP_SECONDS, N): number of stops of each length and more, faded over MEMORY_SECONDS. `score`:
    the last one.
    """

    SHAPES: ClassVar[Mapping[str, tuple[int, ...]]] = {
        **dict.fromkeys(("service", "per_byte", "wait", "done", "active", "score"), ()),
        **dict.fromkeys(("lost", "waited", "lacking", "began"), ()),
        "count": (STOP_SECONDS.size,),
    }
    service: FloatArray
    per_byte: FloatArray
    wait: FloatArray
    done: FloatArray
    lost: FloatArray
    waited: FloatArray
    lacking: FloatArray
    began: FloatArray
    active: FloatArray
    count: FloatArray
    score: FloatArray

    def __init__(self, settings: DetectSettings) -> None:
        super().__init__()
        self._interval = settings.interval_seconds
        tests = WEEK_SECONDS / HORIZON_SECONDS * HORIZON_TESTS * STOP_SECONDS.size
        self._chance = settings.false_alarms_per_week / tests
        self._tests = settings.tests_at_once
        self._stops: dict[str, list[Stop]] = {}

    def add(
        self, components: Sequence[str], wait_ms: FloatArray, load: Mapping[str, FloatArray], start: float
    ) -> None:
        """Adds the samples (C, T) that begin at `start`; nothing where busy time is unknown.

        `wait_ms`: mean time of the operations completed in each, 0 without any, NaN = missing. `load` as in
        `GroupWindow`.
        """
        if not {"busy_share", "operations"} <= load.keys() or wait_ms.shape[1] == 0:
            return
        places, seconds = self.places(components), wait_ms.shape[1] * self._interval
        done, busy = load["operations"], load["busy_share"] * self._interval
        moved = np.nan_to_num(load.get("throughput", np.zeros_like(done))) * self._interval
        known = np.isfinite(wait_ms) & np.isfinite(done) & np.isfinite(busy)
        samples = _Samples(done, busy, moved, wait_ms / 1000.0, known & (done > 0) & (busy > 0))
        self._learn(places, samples)
        service = self.service[places, None]
        idle = busy - np.maximum(done * service, moved * self.per_byte[places, None])
        noise = np.nan_to_num(row_median(np.where(samples.working, np.abs(idle), np.nan)))
        noise = np.maximum(NOISE_SPREADS * MAD_TO_SIGMA * noise, MIN_NOISE_SECONDS)
        self._follow(components, samples, idle, known & (service > 0) & (idle > noise[:, None]), start)
        fading = float(np.exp(-seconds / MEMORY_SECONDS))
        self.active[places] *= fading
        self.active[places] += (known & (busy > 0)).sum(axis=1) * self._interval
        self.count[:, places] *= fading

    def judge(self, components: Sequence[str], end: float, tests_at_once: int) -> Stopping:
        """Scores as of `end`: how unlikely it is that one stops as often as its peers do, as a log.

        `tests_at_once`: series that share the budget of false alarms now, 0 for the number in the settings.
        """
        score, told = np.zeros(len(components)), dict[str, StopTally]()
        if not self.names:
            return Stopping(score, told)
        places = self.places(components)
        healthy, by_place = self.score[places] < 1.0, np.full(len(self.names), -1)
        by_place[places] = np.arange(places.size)
        recent = self._recent(end)
        chance = min(self._chance / max(tests_at_once or self._tests, 1), 0.05)
        for scale, least in enumerate(STOP_SECONDS.tolist()):
            counts = np.zeros(places.size)
            long = {}
            for name, stops in recent.items():
                c = int(by_place[self._rows[name]])
                mine = [stop for stop in stops if stop.seconds >= least]
                if c >= 0 and mine:
                    counts[c], long[c] = _events(mine), mine
            for c in sorted(long):
                if counts[c] < MIN_STOPS or not _lasts(long[c], end):
                    continue
                others = healthy.copy()
                others[c] = False
                edge = _three_quarters(counts[others])
                if not others.any() or counts[c] < MIN_TIMES_PEERS * edge:
                    continue
                by_chance = self._by_chance(scale, float(counts[c]), places[c], places[others])
                own = min(float(np.log(max(by_chance, 1e-300)) / np.log(chance)), MAX_SCORE)
                if own > score[c]:
                    score[c] = own
                    told[components[c]] = _tally(long[c], int(counts[c]), edge)
        self.score[places] = score
        slow = [components[c] for c in np.flatnonzero(score >= 1.0).tolist()]
        return Stopping(score, {name: told[name] for name in slow})

    def forget(self, components: Collection[str]) -> None:
        """Frees the stops of `components`."""
        super().forget(components)
        for name in components:
            self._stops.pop(name, None)

    def state(self) -> dict[str, Any]:
        """Plain data from which `restored` goes on exactly."""
        stops = {name: [list(stop) for stop in kept] for name, kept in self._stops.items()}
        return {**super().state(), "stops": stops}

    def restored(self, state: Mapping[str, Any]) -> Self:
        """Itself, going on from `state`. Raises ValueError, TypeError or KeyError on any other."""
        super().restored(state)
        self._stops = {
            str(name): [Stop(float(begin), float(seconds)) for begin, seconds in kept]
            for name, kept in state["stops"].items()
        }
        if not self._stops.keys() <= self._rows.keys():
            raise ValueError("stops of components that are not known")
        return self

    def _learn(self, places: Places, samples: _Samples) -> None:
        """Sets the usual values of components with MIN_SAMPLES to the medians of these."""
        enough = samples.working.sum(axis=1) >= MIN_SAMPLES
        done, busy, moved, wait, working = (part[enough] for part in samples)
        rows = places[enough]
        with np.errstate(divide="ignore", invalid="ignore"):
            self.service[rows] = row_median(np.where(working, busy / done, np.nan))
            per_byte = row_median(np.where(working & (moved > 0), busy / moved, np.nan))
        self.per_byte[rows] = np.nan_to_num(per_byte)
        self.wait[rows] = row_median(np.where(working, wait, np.nan))
        self.done[rows] = row_median(np.where(working, done, np.nan))

    def _follow(
        self,
        components: Sequence[str],
        samples: _Samples,
        idle: FloatArray,
        stopped: BoolArray,
        start: float,
    ) -> None:
        """Adds up samples that are `stopped` (C, T), of `idle` seconds, and follow each other.

        A stop is complete with the first sample that is not; that counts for the waiting, as requests
        complete in it.
        """
        places = self.places(components)
        for c in np.flatnonzero(stopped.any(axis=1) | (self.lost[places] > 0.0)).tolist():
            row = int(places[c])
            usual_wait, usual_done = float(self.wait[row]), float(self.done[row])
            lost, waited, lacking, began = (
                float(part[row]) for part in (self.lost, self.waited, self.lacking, self.began)
            )
            for t, still in enumerate(stopped[c].tolist()):
                if not still and lost == 0.0:
                    continue
                if lost == 0.0:
                    began = start + t * self._interval
                if np.isfinite(samples.wait[c, t]) and np.isfinite(samples.done[c, t]):
                    waited += float(samples.done[c, t]) * max(float(samples.wait[c, t]) - usual_wait, 0.0)
                    lacking += usual_done - float(samples.done[c, t])
                if still:
                    lost += float(idle[c, t])
                    continue
                if lost >= STOP_SECONDS[0] and waited >= WAITED_SHARE * self._waiting(row, lost, lacking):
                    self._keep(components[c], row, Stop(began, lost))
                lost = waited = lacking = 0.0
            self.lost[row], self.waited[row], self.lacking[row], self.began[row] = (
                lost,
                waited,
                lacking,
                began,
            )

    def _waiting(self, row: int, seconds: float, lacking: float) -> float:
        """Request-seconds that one stop makes: of the requests under way, and of those that arrive meanwhile.

        Clients that wait for their requests send none: `lacking` operations are fewer than usual then.
        """
        done, rate = float(self.done[row]), float(self.done[row]) / self._interval
        arrived = rate * seconds
        if lacking > max(FEWER_SHARE * arrived, FEWER_SPREADS * float(np.sqrt(done))):
            arrived = 0.0
        return (max(rate * float(self.wait[row]), 1.0) + arrived / 2.0) * seconds

    def _keep(self, name: str, row: int, stop: Stop) -> None:
        kept = self._stops.setdefault(name, [])
        near = [before.seconds for before in kept if stop.begin - before.begin <= MERGED_SECONDS]
        self.count[:, row] += (stop.seconds >= STOP_SECONDS) & (max(near, default=0.0) < STOP_SECONDS)
        kept.append(stop)
        del kept[:-MAX_KEPT]

    def _recent(self, end: float) -> Mapping[str, list[Stop]]:
        """The stops of the last HORIZON_SECONDS; others are dropped."""
        self._stops = {
            name: [stop for stop in kept if stop.begin > end - HORIZON_SECONDS]
            for name, kept in self._stops.items()
            if kept[-1].begin > end - HORIZON_SECONDS
        }
        return self._stops

    def _by_chance(self, scale: int, count: float, place: np.intp, peers: Places) -> float:
        """The chance that of all stops, its own and the peers', as many as `count` are its own.

        Given their sum, two Poisson counts of equal rates are binomial by the times that they are of
        (J. Przyborowski and H. Wilenski, "Homogeneity of Results in Testing Samples from Poisson Series",
        Biometrika 31, 1940).
        """
        own, others = min(HORIZON_SECONDS, float(self.active[place])), float(self.active[peers].sum())
        share = own / (own + others) if own + others > 0.0 else 1.0
        chance: float = special.betainc(count, float(self.count[scale, peers].sum()) + 1.0, share)
        return float(chance)


def _events(stops: Sequence[Stop]) -> int:
    """The number of `stops`, in order of time, those nearer to each other than MERGED_SECONDS as one."""
    return 1 + sum(after.begin - before.begin > MERGED_SECONDS for before, after in pairwise(stops))


def _lasts(stops: Sequence[Stop], end: float) -> bool:
    """Whether `stops` are more than one episode, and the next one may still come at `end`."""
    span = stops[-1].begin - stops[0].begin
    quiet = max(MAX_GAPS * span / max(_events(stops) - 1, 1), MIN_QUIET_SECONDS)
    return span >= MIN_SPAN_SECONDS and end - stops[-1].begin <= quiet


def _three_quarters(counts: FloatArray) -> float:
    """The count that three quarters of `counts` (C,) do not exceed; 0 without any."""
    return float(np.sort(counts)[3 * (counts.size - 1) // 4]) if counts.size else 0.0


def _tally(stops: Sequence[Stop], count: int, peers: float) -> StopTally:
    seconds = [stop.seconds for stop in stops]
    return StopTally(count, min(seconds), max(seconds), sum(seconds), HORIZON_SECONDS, peers)
