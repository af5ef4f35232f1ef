"""A slow, obvious twin of how `laggard` follows and judges stops: one component and one sample at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, isfinite, lgamma, log, sqrt
from statistics import median

from laggard_aggregator.detect.laggard import stops


@dataclass
class Sample:
    """Operations, busy seconds, bytes and mean seconds of an operation in one interval; NaN = missing."""

    done: float
    busy: float
    moved: float
    wait: float

    @property
    def known(self) -> bool:
        return isfinite(self.done) and isfinite(self.busy) and isfinite(self.wait)

    @property
    def working(self) -> bool:
        return self.known and self.done > 0 and self.busy > 0


@dataclass
class NaiveComponent:
    service: float = 0.0
    per_byte: float = 0.0
    wait: float = 0.0
    done: float = 0.0
    open: list[tuple[float, Sample, float]] = field(default_factory=list)
    """Begin, sample and seconds without work of each sample of a stop that lasts."""
    stops: list[tuple[float, float]] = field(default_factory=list)
    active: float = 0.0
    counts: list[float] = field(default_factory=lambda: [0.0] * len(stops.STOP_SECONDS))
    score: float = 0.0


class NaiveStops:
    def __init__(self, interval: float, tests: int, false_alarms: float = 1.0) -> None:
        self.interval, self.tests, self.false_alarms = interval, tests, false_alarms
        self.known: dict[str, NaiveComponent] = {}

    def add(self, series: Mapping[str, Sequence[Sample]], start: float) -> None:
        for name, samples in series.items():
            own = self.known.setdefault(name, NaiveComponent())
            working = [s for s in samples if s.working]
            if len(working) >= stops.MIN_SAMPLES:
                own.service = median(s.busy / s.done for s in working)
                own.wait = median(s.wait for s in working)
                own.done = median(s.done for s in working)
                per_byte = [s.busy / s.moved for s in working if s.moved > 0]
                own.per_byte = median(per_byte) if per_byte else 0.0
            idle = [s.busy - max(s.done * own.service, s.moved * own.per_byte) for s in samples]
            usual = [abs(seconds) for seconds, s in zip(idle, samples, strict=True) if s.working]
            noise = max(stops.NOISE_SPREADS * 1.4826 * median(usual or [0.0]), stops.MIN_NOISE_SECONDS)
            for t, (seconds, sample) in enumerate(zip(idle, samples, strict=True)):
                at = start + t * self.interval
                if sample.known and own.service > 0 and seconds > noise:
                    own.open.append((at, sample, seconds))
                elif own.open:
                    self.complete(own, [s for _, s, _ in own.open] + [sample])
            seconds = len(samples) * self.interval
            fading = exp(-seconds / stops.MEMORY_SECONDS)
            own.active = own.active * fading + self.interval * sum(s.known and s.busy > 0 for s in samples)
            own.counts = [count * fading for count in own.counts]

    def complete(self, own: NaiveComponent, samples: Sequence[Sample]) -> None:
        began, lost = own.open[0][0], sum(seconds for _, _, seconds in own.open)
        own.open = []
        known = [s for s in samples if isfinite(s.wait) and isfinite(s.done)]
        waited = sum(s.done * max(s.wait - own.wait, 0.0) for s in known)
        lacking = sum(own.done - s.done for s in known)
        rate = own.done / self.interval
        none_came = lacking > stops.FEWER_SHARE * rate * lost and lacking > stops.FEWER_SPREADS * sqrt(
            own.done
        )
        arrived = 0.0 if none_came else rate * lost
        expected = (max(rate * own.wait, 1.0) + arrived / 2.0) * lost
        if lost < min(stops.STOP_SECONDS) or waited < stops.WAITED_SHARE * expected:
            return
        for scale, least in enumerate(stops.STOP_SECONDS.tolist()):
            near = any(began - at <= stops.MERGED_SECONDS and s >= least for at, s in own.stops)
            own.counts[scale] += lost >= least and not near
        own.stops.append((began, lost))

    def judge(self, names: Sequence[str], end: float) -> dict[str, float]:
        chance = self.false_alarms * stops.HORIZON_SECONDS / (7 * 86400)
        chance /= stops.HORIZON_TESTS * len(stops.STOP_SECONDS)
        chance = min(chance / self.tests, 0.05)
        before = {name: self.known[name].score for name in names}
        found = dict.fromkeys(names, 0.0)
        for name in self.known:
            own = self.known[name]
            own.stops = [stop for stop in own.stops if stop[0] > end - stops.HORIZON_SECONDS]
        for scale, least in enumerate(stops.STOP_SECONDS.tolist()):
            long = {n: [at for at, seconds in self.known[n].stops if seconds >= least] for n in names}
            counts = {n: events(long[n]) for n in names}
            for name in names:
                if counts[name] < stops.MIN_STOPS:
                    continue
                span = long[name][-1] - long[name][0]
                quiet = max(stops.MAX_GAPS * span / (counts[name] - 1), stops.MIN_QUIET_SECONDS)
                if span < stops.MIN_SPAN_SECONDS or end - long[name][-1] > quiet:
                    continue
                others = [n for n in names if n != name and before[n] < 1.0]
                edge = sorted(counts[n] for n in others)[3 * (len(others) - 1) // 4]
                if counts[name] < stops.MIN_TIMES_PEERS * edge:
                    continue
                own_time = min(stops.HORIZON_SECONDS, self.known[name].active)
                share = own_time / (own_time + sum(self.known[n].active for n in others))
                total = sum(self.known[n].counts[scale] for n in others)
                score = log(max(incomplete_beta(counts[name], total + 1.0, share), 1e-300)) / log(chance)
                found[name] = max(found[name], min(score, stops.MAX_SCORE))
        for name in names:
            self.known[name].score = found[name]
        return found


def events(begins: Sequence[float]) -> int:
    """Stops nearer to the one before than MERGED_SECONDS are the same event."""
    return sum(at == 0 or begin - begins[at - 1] > stops.MERGED_SECONDS for at, begin in enumerate(begins))


def incomplete_beta(a: float, b: float, x: float, steps: int = 20_000) -> float:
    """The regularised incomplete beta function, a >= 1, by Simpson's rule."""
    width = x / steps
    heights = [(i * width) ** (a - 1.0) * (1.0 - i * width) ** (b - 1.0) for i in range(steps + 1)]
    integral = heights[0] + heights[-1] + 4.0 * sum(heights[1:-1:2]) + 2.0 * sum(heights[2:-1:2])
    return float(integral * width / 3.0 * exp(lgamma(a + b) - lgamma(a) - lgamma(b)))
