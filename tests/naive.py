"""Slow, obvious second implementations, which every fast path is held against. A section a detector."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.laggard import detector as laggard
from laggard_aggregator.detect.laggard.evidence import HARMLESS_LOG_RATIO
from laggard_aggregator.detect.laggard.thresholds import normal_quantile

# --- cdf (Intrepid 4.2) ---


def cdf_moving_average(series: Sequence[float], history: int, width: int) -> list[float]:
    """Each sample's mean of the present ones among the last `width`, oldest first; NaN where missing."""
    smoothed = []
    for at in range(history, len(series)):
        total, count = 0.0, 0
        for value in series[max(0, at - width + 1) : at + 1]:
            if not math.isnan(value):
                total += value
                count += 1
        smoothed.append(math.nan if math.isnan(series[at]) else total / count)
    return smoothed


def cdf_bins(values: Sequence[float], window: int, limit: int, mode: str) -> tuple[float, int]:
    """Size and number of bins for all samples of a group."""
    ordered = sorted(values)
    span = ordered[-1] - ordered[0]
    if span == 0:
        return 1.0, 1
    quartile = []
    for q in (0.25, 0.75):
        position = q * (len(ordered) - 1)
        below = math.floor(position)
        above = min(below + 1, len(ordered) - 1)
        quartile.append(ordered[below] + (ordered[above] - ordered[below]) * (position - below))
    size = 2 * (quartile[1] - quartile[0]) * window ** (-1 / 3)
    if size == 0:
        return span / limit, limit
    if span / size > limit:
        return (size if mode == "clip" else span / limit), limit
    return size, math.ceil(span / size)


def cdf_distances(
    values: NDArray[np.float64], history: int, width: int = 15, limit: int = 1000, mode: str = "widen"
) -> tuple[list[int], NDArray[np.float64]]:
    """Which rows of `values` (C, history + W) are live, and their pair distances from literal histograms."""
    window = values.shape[1] - history
    live: list[int] = []
    samples: list[list[float]] = []
    for c, series in enumerate(values.tolist()):
        own = [v for v in cdf_moving_average(series, history, width) if not math.isnan(v)]
        if 4 * len(own) >= 3 * window:
            live.append(c)
            samples.append(own)
    if len(live) < 4:
        return live, np.empty((0, 0))
    together = [v for own in samples for v in own]
    size, bins = cdf_bins(together, window, limit, mode)
    low = min(together)
    histograms = np.zeros((len(live), bins), dtype=np.int64)
    for row, own in enumerate(samples):
        for value in own:
            histograms[row, int(min((value - low) / size, bins - 1))] += 1
    cumulative = np.cumsum(histograms, axis=1)
    counts = cumulative[:, -1]
    distances = np.empty((len(live), len(live)))
    for i in range(len(live)):
        # |P(i) - Q(i)| over the common denominator, so that the sum is exact and rounded once
        difference = np.abs(cumulative[i] * counts[:, np.newaxis] - cumulative * counts[i])
        distances[i] = difference.sum(axis=1) / (counts[i] * counts)
    return live, distances


def cdf_verdicts(
    live: Sequence[int], distances: NDArray[np.float64], thresholds: Sequence[float]
) -> list[bool | None]:
    """True where more than half of a component's pair distances exceed its threshold; None: not judged."""
    verdicts: list[bool | None] = [None] * len(thresholds)
    for i, c in enumerate(live if len(live) >= 4 else ()):
        if not math.isnan(thresholds[c]):
            beyond = sum(distances[i, j] > thresholds[c] for j in range(len(live)) if j != i)
            verdicts[c] = bool(2 * beyond > len(live) - 1)
    return verdicts


# --- manhattan (HotDep) ------------------------------------------------------------------------------------


def manhattan_distances(vectors: Sequence[Sequence[float]]) -> list[list[float]]:
    """For each server the sorted Manhattan distances to the others."""
    found = []
    for i, p in enumerate(vectors):
        others = [q for j, q in enumerate(vectors) if j != i]
        found.append(sorted(sum(abs(a - b) for a, b in zip(p, q, strict=True)) for q in others))
    return found


def manhattan_median(distances: Sequence[float]) -> float:
    """The median of sorted `distances`."""
    middle = len(distances) // 2
    return distances[middle] if len(distances) % 2 else (distances[middle - 1] + distances[middle]) / 2


def manhattan_threshold(medians: Sequence[float]) -> float:
    """Twice the smallest integer that none of a server's fault-free `medians` exceeds; by binary search."""
    low, high = -1, 1
    while any(median > high for median in medians):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if any(median > middle for median in medians):
            low = middle
        else:
            high = middle
    return 2.0 * high


def manhattan_kept(seconds: Sequence[NDArray[np.float64]], least: float) -> list[int]:
    """Which functions take at least `least` seconds in one of the windows (S, F) on one server."""
    functions = range(seconds[0].shape[1])
    return [f for f in functions if any(row[f] >= least for window in seconds for row in window.tolist())]


def manhattan_untrained(
    windows: Sequence[Sequence[Sequence[float]]],
    *,
    times: float = 3.0,
    least: float = 0.05,
    idle: float = 0.25,
    remembered: int = 32,
) -> list[list[bool | None]]:
    """For each window's vectors (S, F) who stands out by the shares of functions; None is not judged."""
    levels: list[float] = []
    found = []
    for vectors in windows:
        totals = [sum(vector) for vector in vectors]
        typical = statistics.median(totals)
        busy = [s for s, total in enumerate(totals) if total > idle * typical]
        flags: list[bool | None] = [None] * len(vectors)
        if len(busy) >= 4:
            shares = [[value / totals[s] for value in vectors[s]] for s in busy]
            medians = [manhattan_median(row) for row in manhattan_distances(shares)]
            usual = statistics.median(levels[-remembered:]) if levels else 0.0
            for i, s in enumerate(busy):
                others = medians[:i] + medians[i + 1 :]
                middle = statistics.median(others)
                spread = 1.4826 * statistics.median(abs(other - middle) for other in others)
                level = times * max(middle, usual)
                flags[s] = medians[i] > max(level, middle + times * spread, least)
            levels.append(statistics.median(medians))
        found.append(flags)
    return found


@dataclass(frozen=True)
class FunctionReading:
    """A node's cumulative counters by function at `at` (s), read `late` seconds after that."""

    at: int
    late: float
    counters: dict[str, int]


def function_sums(
    readings: Sequence[FunctionReading], end: int, interval: int, intervals: int, bridge: int = 4
) -> tuple[dict[str, float], float]:
    """By function the rise over the last `intervals` up to `end` (s), and the seconds of them that are known.

    `readings` in order of time, at most one an interval.
    """
    sums: dict[str, float] = {}
    covered, begin = 0.0, end - intervals * interval
    known: dict[str, int] = {}
    before: FunctionReading | None = None
    for now in readings:
        counters, last = now.counters, before.counters if before else {}
        if any(value < last.get(name, 0) for name, value in counters.items()):
            known = {}
        elif before is not None:
            to, since = -(-now.at // interval), -(-before.at // interval)
            span, seconds = to - since, now.at + now.late - before.at - before.late
            if span <= bridge and seconds > 0:
                inside = sum(begin < at * interval <= end for at in range(since + 1, to + 1))
                covered += seconds / span * inside
                for name, value in counters.items():
                    stood = known.get(name, 0)
                    rise = value - stood if value >= stood else value
                    sums[name] = sums.get(name, 0.0) + rise / span * inside
        known.update(counters)
        before = now
    return sums, covered


# --- laggard -----------------------------------------------------------------------------------------------


def laggard_median(values: Sequence[float]) -> float:
    """The median of the values that are not NaN; NaN when there is none."""
    known = [v for v in values if not math.isnan(v)]
    return statistics.median(known) if known else math.nan


def laggard_trimmed_mean(logs: Sequence[float], weights: Sequence[float] | None = None) -> float:
    """The log of the weighted mean of the ratios less the highest 15 %; NaN without any."""
    pairs = zip(logs, weights or [1.0] * len(logs), strict=True)
    rising = sorted((math.exp(x), w) for x, w in pairs if not math.isnan(x) and w > 0)
    left = kept = 0.85 * sum(w for _, w in rising)
    total = 0.0
    for ratio, weight in rising:
        total += min(weight, left) * ratio
        left -= min(weight, left)
    return math.log(total / kept) if rising else math.nan


def laggard_faster_half(logs: Sequence[float]) -> float:
    """The mean of the lower half of the values that are not NaN; NaN without any."""
    rising = sorted(x for x in logs if not math.isnan(x))
    half = rising[: (len(rising) + 1) // 2]
    return sum(half) / len(half) if half else math.nan


def laggard_peers_median(series: Mapping[str, list[float]], name: str, trusted: set[str]) -> list[float]:
    """At each tick the median over the trusted components other than `name`."""
    peers = [other for other in series if other in trusted and other != name]
    ticks = range(len(series[name]))
    return [laggard_median([series[other][t] for other in peers]) for t in ticks]


def laggard_shortest_half(values: Sequence[float]) -> tuple[float, float]:
    """Mean and length of the shortest run of sorted values that holds just over half of them."""
    ordered = sorted(values)
    half = len(ordered) // 2 + 1
    runs = [ordered[i : i + half] for i in range(len(ordered) - half + 1)]
    shortest = min(runs, key=lambda run: run[-1] - run[0])
    return sum(shortest) / half, shortest[-1] - shortest[0]


def laggard_cross_spread(values: Sequence[float]) -> float:
    """The spread of a group from the length of its shortest half."""
    _, length = laggard_shortest_half(values)
    return length / (1.349 * (1 - math.sqrt(1 / (len(values) + 1))) + 0.3)


def laggard_batch_variance(deviations: Sequence[float]) -> float:
    """Variance of the mean of four batches' means; NaN where a batch is empty, and below eight ticks."""
    told = [one for one in deviations if not math.isnan(one)]
    length = len(told) // 4
    if len(deviations) < 8 or not length:
        return math.nan
    middles = [laggard_trimmed_mean(told[b * length : (b + 1) * length]) for b in range(4)]
    return statistics.variance(middles) / 4


def laggard_se(length: float) -> float:
    """How the spread of an average falls with its length in windows."""
    return math.pow(length, -0.5 if length < 1 else -0.25)


@dataclass
class LaggardKnown:
    """Averages, mean squares and counts of one component; six of each kind of evidence."""

    average: list[float] = field(default_factory=lambda: [0.0] * 12)
    moment: list[float] = field(default_factory=lambda: [0.0] * 12)
    slowness: float = 0.0
    windows: float = 0.0
    last: float = 0.0
    seen: float = 0.0
    noise: float = 0.0
    heard: float = 0.0
    score: float = 0.0
    onsets: float = 0.0
    was_slow: bool = False


class NaiveLaggard:
    """`laggard` one component at a time, without load. Latency only; every window is all new samples."""

    scales = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0) * 2  # of the trimmed mean, then of the faster half
    shares = (
        (0.74, 0.83, 0.90, 0.96, 0.99, 1.02),  # 3 of 5, averages that shrink as n ** -1/4
        (0.56, 0.67, 0.78, 0.91, 0.96, 1.00),  # as n ** -1/2
    )

    def __init__(self, shift_samples: int, chance: float, interval_seconds: float = 15.0) -> None:
        self.shift_samples = shift_samples
        self.noise_windows = max(32.0, 9600.0 / (shift_samples * interval_seconds))
        self.chance = chance
        self.harmless = 0.14 if interval_seconds <= 30.0 else 0.18
        self.known: dict[str, LaggardKnown] = {}
        self.unit_before = [0.0] * 12

    def observe(
        self, latency: Mapping[str, Sequence[float]]
    ) -> dict[str, tuple[bool, bool, float, float, bool]]:
        """Judged, anomalous, score, severity and clear by component; `latency`: this window's new samples."""
        logs = {n: [math.log(v) if v > 0 else math.nan for v in row] for n, row in latency.items()}
        told = {n: sum(not math.isnan(v) for v in row) for n, row in logs.items()}
        for name in latency:
            self.known.setdefault(name, LaggardKnown())
        live = [n for n in logs if told[n]]
        weight = {n: told[n] / self.shift_samples for n in logs}
        if len(live) < 4:
            return self._too_few(logs)

        rough, _, variance = self._excess(logs, live, set(live))
        live = [n for n in live if not math.isnan(rough[n])]
        if len(live) < 4:
            return self._too_few(logs)
        now = self._spread_now(rough, variance, live)
        centre, _ = laggard_shortest_half([rough[n] for n in live])
        suspicion = {
            n: max(
                abs(rough[n] - centre) / (laggard.OUTLIER_SPREADS * now),
                self.known[n].score,
            )
            for n in live
        }
        trusted = self._most_trusted(suspicion)
        excess, steady, variance = self._excess(logs, live, trusted)
        live = [n for n in live if not math.isnan(excess[n])]  # others have no sample beside a trusted one
        trusted &= set(live)
        if len(live) < 4 or len(trusted) < 2:
            return self._too_few(logs)
        weight = {n: weight[n] if n in live else 0.0 for n in logs}
        now = self._spread_now(excess, variance, sorted(trusted))
        spreads = laggard.MAX_WINDOW_SPREADS * self._young(live)
        bound = max(spreads * max(now, self.unit_before[0]), 2 * HARMLESS_LOG_RATIO)
        for name, row in logs.items():
            if len(row) < 8 and name in variance and self.known[name].windows > 0:
                variance[name] = (excess[name] - self.known[name].average[2]) ** 2
            self._add(name, (excess.get(name, 0.0), steady.get(name, 0.0)), weight[name], bound)
            if name in variance and not math.isnan(variance[name]):
                k = self.known[name]
                k.heard = min(k.heard + 1, self.noise_windows)
                k.noise += (variance[name] * min(weight[name], 1.0) - k.noise) / k.heard
        found = {}
        for name, (judged, slow, score, severity) in self._judge(list(logs), live, weight, now).items():
            filled = name in live and steady[name] >= self.harmless and weight[name] >= 0.5
            found[name] = (judged, slow, score, severity, slow and score >= laggard.CLEAR_SCORE and filled)
        return found

    def _too_few(self, names: Iterable[str]) -> dict[str, tuple[bool, bool, float, float, bool]]:
        for name in names:
            self._add(name, (0.0, 0.0), 0.0, 0.0)
        return dict.fromkeys(names, (False, False, 0.0, math.nan, False))

    def _judge(
        self, names: list[str], live: list[str], weight: Mapping[str, float], now: float
    ) -> dict[str, tuple[bool, bool, float, float]]:
        length = {
            n: [
                max(min(s, self.known[n].windows if s > 1 else self.known[n].last), 0.01) for s in self.scales
            ]
            for n in names
        }
        trusted, alike = self._trusted(names, live, length, now)
        centre = [statistics.median(self.known[n].average[s] for n in trusted) for s in range(12)]
        average = {n: [self.known[n].average[s] - centre[s] for s in range(12)] for n in live}
        noise = self._noise(live)
        unit, freedom = self._unit(average, length, live, trusted, weight, now, noise)
        quantile = [normal_quantile(self.chance, max(int(f), 3)) for f in freedom]
        young = self._young(live)
        shares: dict[str, list[float]] = {}
        threshold: dict[str, list[float]] = {}
        for name in live:
            shares[name], threshold[name] = [], []
            for s in range(12):
                spread = unit[s] * laggard_se(length[name][s]) * young
                harm = self.harmless + laggard.NOISE_STD_ERRORS * math.sqrt(noise[name] / length[name][s])
                level = quantile[s] * self._share(length[name][s], unit[s // 6 * 6 :])
                level *= 1.25 if s < 6 else 1.1
                threshold[name].append(max(harm, level * spread))
                shares[name].append(average[name][s] / threshold[name][s])
            self.known[name].score = max(shares[name])
            fallen = False
            for first in (0, 6):
                level_now = unit[first + 1] * laggard_se(length[name][first + 1])
                sizes = [share * at for share, at in zip(shares[name], threshold[name], strict=True)]
                fall = max(sizes[first + 2 : first + 6]) - sizes[first + 1]
                fallen = fallen or fall > laggard.RECOVERY_STD_ERRORS * level_now
            well = max(shares[name][1], shares[name][7]) <= laggard.RECOVERY_SCORE and fallen
            if max(shares[name]) >= 1 and well:
                self._start_again(name)
                self.known[name].score = max(shares[name][:2] + shares[name][6:8])
            self._recur(self.known[name])
        beyond = {n for n in live if self._beyond(n, live, average, threshold)}
        judged = {n: n in live and self.known[n].windows >= 0.5 for n in names}
        slow = {n for n in live if judged[n] and self.known[n].score >= 1}
        fast = {n for n in live if judged[n] and min(shares[n]) <= -1}
        typical = statistics.median([self.known[n].score for n in slow]) if slow else math.inf
        suspects = [n for n in live if judged[n] and self.known[n].score >= laggard.SUSPECT_SHARE * typical]
        if 2 * alike <= len(live) or 2 * len(suspects) >= len(live) or len(fast) >= 0.4 * len(live):
            slow &= beyond
        usual = statistics.median(self.known[n].slowness for n in trusted)
        found = {}
        for name in names:
            if name in live:
                slowness = self.known[name].slowness - usual
                found[name] = (judged[name], name in slow, self.known[name].score, math.exp(slowness))
            else:
                found[name] = (False, False, 0.0, math.nan)
        return found

    def _share(self, length: float, unit: Sequence[float]) -> float:
        """The share of the normal quantile, between those of the two lengths beside `length`."""
        fall = math.log(unit[0] / unit[3]) / math.log(8) / 0.25
        independent, lasting = min(max(fall, 0.0), 1.0), min(max(-fall, 0.0), 1.0)
        share = [
            max((1 - independent - lasting) * one + independent * other + lasting, 0.85)
            for one, other in zip(*self.shares, strict=True)
        ]
        for s in range(5):
            if length <= self.scales[s + 1]:
                along = max(length - self.scales[s], 0.0) / (self.scales[s + 1] - self.scales[s])
                return share[s] + along * (share[s + 1] - share[s])
        return share[5]

    def _recur(self, known: LaggardKnown) -> None:
        slow = known.score >= 1
        known.onsets = min(known.onsets * (1 - 1 / 32) + (slow and not known.was_slow), 5.0)
        known.was_slow = slow
        if known.onsets >= 3.4:
            known.score = max(known.score, 1.0)

    def _young(self, live: list[str]) -> float:
        return 1 + 0.06 / max(statistics.median(self.known[n].seen for n in live) / 12, 1)

    def _excess(
        self, logs: Mapping[str, list[float]], live: list[str], trusted: set[str]
    ) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
        excess, steady, variance = {}, {}, {}
        for name in live:
            peers = laggard_peers_median({n: logs[n] for n in live}, name, trusted)
            deviations = [own - peer for own, peer in zip(logs[name], peers, strict=True)]
            excess[name] = laggard_trimmed_mean(deviations)
            steady[name] = laggard_faster_half(deviations)
            variance[name] = laggard_batch_variance(deviations)
        return excess, steady, variance

    def _spread_now(
        self, excess: Mapping[str, float], variance: Mapping[str, float], members: Sequence[str]
    ) -> float:
        across = laggard_cross_spread([excess[n] for n in members])
        along = laggard_median([variance[n] for n in members])
        if not math.isnan(along):
            along = math.sqrt(along * 3.0 / 2.366)
            across = min(max(across, 1.2 * along), 2.0 * along)
        return max(across, 1e-6)

    def _most_trusted(self, suspicion: Mapping[str, float]) -> set[str]:
        limit = sorted(suspicion.values())[len(suspicion) // 2]
        return {n for n, s in suspicion.items() if s < 1 or s <= limit}

    def _trusted(
        self, names: list[str], live: list[str], length: Mapping[str, list[float]], now: float
    ) -> tuple[set[str], int]:
        suspicion = {n: self.known[n].score for n in live}
        alike = set(live)
        for s in range(6):
            usual = laggard_se(statistics.median(length[n][s] for n in names))
            row = {n: self.known[n].average[s] for n in live}
            centre, _ = laggard_shortest_half(list(row.values()))
            spread = min(laggard_cross_spread(list(row.values())), max(2 * now, self.unit_before[s]) * usual)
            for name in live:
                away = abs(row[name] - centre)
                most = max(laggard.OUTLIER_SPREADS * spread, HARMLESS_LOG_RATIO / 2)
                suspicion[name] = max(suspicion[name], away / most)
                if s >= 2 and away > max(laggard.OUTLIER_SPREADS * 2 * now * usual, HARMLESS_LOG_RATIO):
                    alike.discard(name)
        return self._most_trusted(suspicion), len(alike)

    def _noise(self, live: list[str]) -> dict[str, float]:
        heard = [self.known[n].noise for n in live if self.known[n].heard]
        typical = statistics.median(heard) if heard else 0.0
        found = {}
        for name in live:
            k = self.known[name]
            found[name] = (12 * typical + k.heard * min(k.noise, 4 * typical)) / (12 + k.heard)
        return found

    def _unit(
        self,
        average: Mapping[str, list[float]],
        length: Mapping[str, list[float]],
        live: list[str],
        trusted: set[str],
        weight: Mapping[str, float],
        now: float,
        noise: Mapping[str, float],
    ) -> tuple[list[float], list[float]]:
        typical = math.sqrt(statistics.median(noise.values())) or now / 2
        counted = [n for n in live if self.known[n].seen and (n in trusted or self.known[n].score < 1)]
        unit, freedom = [max(1.7 * typical, 1e-6)] * 12, [12.0] * 12
        if counted:
            total = sum(self.known[n].seen for n in counted)
            longest = max(self.known[n].seen for n in counted)
            for s in range(12):
                if s in {0, 6}:
                    before = (1.7 * typical) ** 2
                most = 2 * statistics.median(self.known[n].moment[s] for n in counted)
                square = sum(min(self.known[n].moment[s], most) * self.known[n].seen for n in counted) / total
                values = max(total / longest * math.sqrt(max(longest / self.scales[s], 1.0)) - 1, 0.0)
                freedom[s] = 12 + values
                before = (12.0 * before + values * square) / (12.0 + values)
                squares = [(average[n][s] / laggard_se(length[n][s])) ** 2 for n in counted]
                present = min(statistics.median(squares) / 0.455, statistics.fmean(squares))
                known = 0.37 * len(counted)
                now_too = (12.0 * before + known * present) / (12.0 + known)
                unit[s] = max(math.sqrt(max(before, now_too)), 1e-6)
        for name in live:
            k, share = self.known[name], min(weight[name], 1.0)
            k.seen = min(k.seen + share, self.noise_windows)
            for s in range(12):
                square = (average[name][s] / laggard_se(length[name][s])) ** 2
                k.moment[s] += share / k.seen * (square - k.moment[s])
        self.unit_before = unit
        return unit, freedom

    def _beyond(
        self,
        name: str,
        live: list[str],
        average: Mapping[str, list[float]],
        threshold: Mapping[str, list[float]],
    ) -> bool:
        quarter = 3 * (len(live) - 1) // 4
        edge = [sorted(average[n][s] for n in live)[quarter] for s in range(12)]
        far = any(average[name][s] - edge[s] >= threshold[name][s] for s in range(12))
        slowness = sorted(self.known[n].slowness for n in live)[quarter]
        return far and self.known[name].slowness - slowness >= laggard.OUTSTANDING_LOG_RATIO

    def _start_again(self, name: str) -> None:
        k = self.known[name]
        k.average[2:6], k.average[8:] = [k.average[1]] * 4, [k.average[7]] * 4
        k.slowness, k.windows = k.average[1], min(k.windows, 2.0)
        k.moment, k.seen, k.noise, k.heard = [0.0] * 12, 0.0, 0.0, 0.0

    def _add(self, name: str, evidence: tuple[float, float], weight: float, bound: float) -> None:
        k = self.known[name]
        k.windows = min(k.windows * 0.5 ** (max(1 - weight, 0.0) / 32) + weight, 32.0)
        if weight:
            for s, scale in enumerate(self.scales):
                gain = min(max(weight * 2 / (scale + 1), weight / k.windows), 1.0)
                most = bound
                if scale == 1:
                    k.last = min(weight, 1.0)
                    gain, most = 1.0, bound / math.sqrt(k.last)
                k.average[s] += gain * (max(-most, min(most, evidence[s // 6])) - k.average[s])
                if s == 2:
                    k.slowness += gain * (evidence[0] - k.slowness)


@dataclass(frozen=True)
class CurveSample:
    """One sample of a member: `position` in cells, `ratio` the log of its time, `weight` what stayed."""

    position: float
    ratio: float
    weight: float


@dataclass
class NaiveOthersCurve:
    """The curve that one component is held against: a point and a level a cell, and its upper end."""

    point: list[float]
    level: list[float]
    known: bool
    begin: float
    end: float
    utilisation: float
    span: float


def laggard_curve_of_others(
    members: Sequence[Sequence[CurveSample]],
    name: int,
    prior: float,
    pooled: Sequence[float],
    slope: float,
    *,
    closed_loop: bool,
) -> NaiveOthersCurve:
    """The curve of the component `name` from the samples of the others alone."""
    cells = len(pooled)
    others = len(members) - 1
    needed = min(others // 2 + 1, 3) if closed_loop else 3
    known: dict[int, tuple[float, float]] = {}
    sure: list[int] = []
    for cell in range(cells):
        levels, points, many = [], [], 0
        for member, samples in enumerate(members):
            here = [s for s in samples if round(s.position) == cell]
            total = sum(s.weight for s in here)
            if member == name or total < 1.0:
                continue
            ratios = sum(s.weight * s.ratio for s in here)
            levels.append((ratios + prior * pooled[cell]) / (total + prior))
            points.append(sum(s.weight * s.position for s in here) / total)
            many += total >= 10.0
        if len(levels) >= needed:
            known[cell] = statistics.median(points), statistics.median(levels)
        if many >= needed:
            sure.append(cell)
    point, level = [], []
    for cell in range(cells):
        below = [c for c in known if c < cell]
        above = [c for c in known if c > cell]
        if cell in known:
            at, height = known[cell]
        elif not known:
            at, height = cell, 0.0
        elif not below or not above:
            at, height = cell, known[max(below) if below else min(above)][1]
        else:
            (start, left), (stop, right) = known[max(below)], known[min(above)]
            at, height = cell, left + (cell - start) / (stop - start) * (right - left)
        point.append(at)
        level.append(height)
    edge = math.nan
    if len(known) > 1 and max(known) < cells - 1:
        second, highest = sorted(known)[-2:]
        (start, low), (stop, high) = known[second], known[highest]
        edge = highest + 0.5
        further = (2 ** (edge / 2) - 2 ** (stop / 2)) / max(2 ** (stop / 2) - 2 ** (start / 2), 1e-6)
        rate = math.exp(-high) + min(further, 1.0) * min(math.exp(-high) - math.exp(-low), 0.0)
        level[highest + 1 :] = [-math.log(max(rate, 0.05 * math.exp(-low)))] * (cells - highest - 1)
        point[highest + 1] = edge
    more, widening = slope, 1.0
    if len(sure) > 1:
        (before, low), (last, high) = known[sure[-2]], known[sure[-1]]
        octaves = (last - before) / 2
        if high > low and octaves > 0:
            more += (high - low) / (octaves * math.log(2))
            widening = 2 ** (octaves / 2)
    upper = known[sure[-1]][0] if sure else math.nan
    if sure and edge == sure[-1] + 0.5:
        upper, widening = edge, widening * 2 ** ((edge - upper) / 2)
    utilisation = min(more / (1 + more) * widening, 0.95)
    means = [
        sum(s.weight * s.ratio for s in samples) / sum(s.weight for s in samples)
        for member, samples in enumerate(members)
        if member != name and samples
    ]
    span = max(means) - min(means) if means else 0.0
    if sure:
        return NaiveOthersCurve(point, level, True, known[sure[0]][0], upper, utilisation, span)
    loads = [
        sum(s.weight * s.position for s in samples) / sum(s.weight for s in samples)
        for member, samples in enumerate(members)
        if member != name and samples and not known
    ]
    middle = statistics.median(loads) if loads else math.nan
    return NaiveOthersCurve(point, level, False, middle, middle, utilisation, span)


def laggard_own_times(samples: Sequence[CurveSample]) -> dict[int, tuple[float, float]]:
    """The point and the level of each cell of which a member has 60 samples."""
    shown = {}
    for cell in {round(s.position) for s in samples}:
        here = [s for s in samples if round(s.position) == cell]
        total = sum(s.weight for s in here)
        if total >= 60.0:
            shown[cell] = (
                sum(s.weight * s.position for s in here) / total,
                sum(s.weight * s.ratio for s in here) / total,
            )
    return shown


def laggard_unseen(
    curve: NaiveOthersCurve,
    position: float,
    own: Mapping[int, tuple[float, float]],
    *,
    closed_loop: bool,
) -> tuple[float, float, float]:
    """The usual log of a time over the curve's at `position`, the doubt, and the rest that `own` shows."""

    def growth(at: float) -> float:
        octaves = max(at - curve.end, 0.0) / 2 if not math.isnan(curve.end) else 0.0
        if closed_loop:
            short = max(curve.begin - at, 0.0) / 2 if not math.isnan(curve.begin) else 0.0
            return max(octaves, short) * math.log(2)
        idle = max(1 - curve.utilisation * 2**octaves, 1e-9)
        queueing = min(math.log((1 - curve.utilisation) / idle), math.log(5))
        return max(queueing, min(max(octaves * math.log(2) - math.log(1.2), 0.0), math.log(2.5)))

    def most(cell: int) -> float:
        point = own[cell][0]
        if curve.known or math.isnan(curve.end):
            return growth(point) if curve.known else 0.0
        return min(2.5 * math.log(2) / 2 * abs(point - curve.end), 5.0 * curve.span)

    def ahead(cell: int) -> float:
        demands = [2 ** (point / 2) for point in curve.point]
        rate = np.interp(2 ** (own[cell][0] / 2), demands, [math.exp(-level) for level in curve.level])
        return own[cell][1] + math.log(rate)

    here = round(position)
    left = max(ahead(here) - most(here), 0.0) if here in own else math.inf
    shown = [cell for cell in own if cell <= here or (curve.known and not closed_loop)]
    if not shown:
        return 0.0, growth(position), left
    cell = max(shown)
    usual = max(-most(cell), min(most(cell), ahead(cell)))
    if closed_loop:
        point, now = own[cell][0], growth(position)
        more = max(position - point, 0.0) / 2 * math.log(2)
        if not curve.known:
            return usual, more, left
        usual = max(-now, min(now, usual))
        if point < curve.begin and position > curve.end:
            usual = 0.0
        return usual, max(0.0, min(now - usual, more)), left
    doubt = max(growth(position) - growth(own[cell][0]), 0.0)
    if curve.known:
        return 0.0, min(growth(position), max(usual, 0.0) + doubt), left
    return usual, doubt, left


@dataclass(frozen=True)
class PooledWindow:
    """Positions and log ratios, by member and tick, and the group's level at each tick."""

    position: list[list[float]]
    ratio: list[list[float]]
    level: list[float]


def laggard_pooled_curve(
    windows: Sequence[PooledWindow], kept: float, prior: float, cells: int
) -> list[float]:
    """The pooled curve after `windows`: one row of least squares a sample, one unknown a cell and a tick."""
    curve = [0.0] * cells
    rows: list[tuple[dict[int, float], float, float]] = []  # factors by unknown, value, weight
    unknowns = cells
    for window in windows:
        rows = [(factors, value, kept * weight) for factors, value, weight in rows]
        for tick, level in enumerate(window.level):
            for positions, ratios in zip(window.position, window.ratio, strict=True):
                position, ratio = positions[tick], ratios[tick]
                if math.isnan(position) or math.isnan(ratio):
                    continue
                low = min(math.floor(position), cells - 2)
                upper = position - low
                expected = (1 - upper) * curve[low] + upper * curve[low + 1] + level
                value = expected + max(-1.0, min(1.0, ratio - expected))
                rows.append(({low: 1 - upper, low + 1: upper, unknowns: 1.0}, value, 1.0))
            rows.append(({unknowns: 1.0}, 0.0, 1.0))  # a tick's level leans on the usual one
            unknowns += 1
        beliefs: list[tuple[dict[int, float], float, float]] = []
        for cell in range(cells):
            beliefs.append(({cell: 1.0}, 0.0, 1e-3))
            if cell + 1 < cells:
                beliefs.append(({cell: -1.0, cell + 1: 1.0}, 0.0, 1.0))
            if cell + 2 < cells:
                beliefs.append(({cell: 1.0, cell + 1: -2.0, cell + 2: 1.0}, 0.0, prior))
        stacked, values = np.zeros((len(rows) + len(beliefs), unknowns)), []
        for at, (factors, value, weight) in enumerate(rows + beliefs):
            for unknown, factor in factors.items():
                stacked[at, unknown] = math.sqrt(weight) * factor
            values.append(math.sqrt(weight) * value)
        curve = np.linalg.lstsq(stacked, np.array(values), rcond=None)[0][:cells].tolist()
    return curve


# --- escalation from slow children to their parent ---

Row = tuple[bool, bool, float, float, float, float]
"""Judged, anomalous, score, severity, observed, reference of one component or parent."""
ParentLevel = tuple[str, Sequence[str], Sequence[int]]
"""Name of the level, its parents, and the place of each component's parent in it, -1 for none."""


def escalated(
    rows: Sequence[Row], levels: Sequence[ParentLevel], suspects: dict[str, str]
) -> tuple[list[Row], dict[str, str]]:
    """The rows of the components and of the parents that are appended, and those parents with their level."""
    slow = {at for at, row in enumerate(rows) if row[0] and row[1]}
    judged = {at for at, row in enumerate(rows) if row[0]}

    def below(level: ParentLevel, parent: str) -> set[int]:
        return {at for at, place in enumerate(level[2]) if place >= 0 and level[1][place] == parent}

    blamed: list[list[str]] = []
    for level in levels:
        enough = [parent for parent in level[1] if len(below(level, parent) & judged) >= 2]
        bad = [p for p in enough if 3 * len(below(level, p) & slow) >= 2 * len(below(level, p) & judged)]
        blamed.append(bad if len(enough) >= 3 and 2 * len(bad) < len(enough) else [])
    for wide in range(len(levels)):
        for narrow in range(wide):
            for parent in list(blamed[wide]):
                places = {levels[narrow][2][at] for at in below(levels[wide], parent) & slow}
                causes = {levels[narrow][1][place] for place in places if place >= 0}
                if len(places) == 1 and causes <= set(blamed[narrow]) and causes:
                    blamed[wide].remove(parent)
                else:
                    blamed[narrow] = [each for each in blamed[narrow] if each not in causes]

    explained: set[int] = set()
    parents: dict[str, str] = {}
    appended: list[Row] = []
    for level, bad in zip(levels, blamed, strict=True):
        for parent in bad:
            suspects[parent] = level[0]
            children = below(level, parent) & slow
            usual = _median_of(rows[at][3] for at in children)
            explained |= {at for at in children if not rows[at][3] > 1.5 * usual}
        for parent in level[1]:
            if suspects.get(parent) != level[0]:
                continue
            parents[parent] = level[0]
            chosen = below(level, parent) & (slow if parent in bad else judged)
            score, severity, observed, reference = (
                _median_of(rows[at][column] for at in chosen) for column in range(2, 6)
            )
            enough_judged = len(below(level, parent) & judged) >= 2
            score = 0.0 if math.isnan(score) else score
            appended.append((enough_judged, parent in bad, score, severity, observed, reference))
    components = [(row[0], at in slow - explained, *row[2:]) for at, row in enumerate(rows)]
    return components + appended, parents


def _median_of(values: Iterable[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return statistics.median(finite) if finite else math.nan


# --- the schedule of windows ---


@dataclass
class WindowGroup:
    """One group: `start_ns`, the end before its first window, and every end that was closed since."""

    shift_ns: int
    window_ns: int
    stagger_ns: int
    start_ns: int
    spans_ns: dict[str, int] = field(default_factory=dict)
    closed_ns: list[int] = field(default_factory=list)

    def wait_ns(self, lateness_ns: int) -> int:
        """How long after its end a window is due.

        A span counts up to ten minutes, and beyond one minute only up to four times the upper median.
        """
        spans = sorted([*self.spans_ns.values()]) or [0]
        return (
            lateness_ns
            + self.stagger_ns
            + max(min(span, 600 * 10**9, max(60 * 10**9, 4 * spans[len(spans) // 2])) for span in spans)
        )

    def due(self, now_ns: int, lateness_ns: int) -> list[tuple[int, int]]:
        """End and deadline of each window that is due now for the first time."""
        wait_ns = self.wait_ns(lateness_ns)
        last_ns = max([self.start_ns, *self.closed_ns])
        first_shift, latest_shift = last_ns // self.shift_ns + 1, (now_ns - wait_ns) // self.shift_ns
        ends = [shift * self.shift_ns for shift in range(first_shift, latest_shift + 1)]
        ends = [end for end in ends if end >= latest_shift * self.shift_ns - self.window_ns]
        self.closed_ns += ends
        return [(end, end + wait_ns) for end in ends]
