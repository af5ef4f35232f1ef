"""Sums of jobs during a scan.

All are sums of whole numbers below 2^53, so that their order does not matter.
"""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from laggard_aggregator.detect.interface import BoolArray, FloatArray, IntArray
from laggard_aggregator.jobs.join.active_times import Active
from laggard_aggregator.jobs.join.volumes import LAYERS

SECOND_NS = 1_000_000_000
FINE_LENGTHS = {1: 900, 2: 1800, 5: 7200}
"""Seconds of a value by the length up to which jobs have series of them: at least some 700 values, so that a
phase of ten seconds is more than one of them; longer jobs have USUAL_SECONDS or its doubles."""
USUAL_SECONDS = 10
MOST_BINS = 43_000
"""Values of a series: with three of them in four layers a job takes about 4 MiB of memory and less on
disk."""


_FINE_BINS = 8_700
"""Values of a job's sums, from which rates are: an hour or two by the second, no more memory than a day by
USUAL_SECONDS takes."""
_STEPS = (1, 2, 5, 10)


def resolution_of(seconds: float) -> int:
    """Seconds of one value in the series of a job of this length."""
    for step, most_seconds in FINE_LENGTHS.items():
        if seconds <= most_seconds:
            return step
    step = USUAL_SECONDS
    while seconds / step > MOST_BINS:
        step *= 2
    return step


@dataclass(frozen=True, slots=True)
class JoinedJob:
    """A job to be joined. `held`: nodes with the times for which it had them, in ns.

    `next_start_ns`: start of the next run with the same id; `last_end_ns`: end of the one before, 0 without.
    `is_last_part`: it began before `start_ns`, and only what it did since is joined.
    """

    key: str
    raw_id: int
    start_ns: int
    end_ns: int
    held: tuple[tuple[str, int, int], ...]
    cpus: int | None = None
    next_start_ns: int = 2**63 - 1
    last_end_ns: int = 0
    is_last_part: bool = False

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end_ns - self.start_ns) / SECOND_NS

    @property
    def step_ns(self) -> int:
        """Time of one value of its series."""
        return resolution_of(self.seconds) * SECOND_NS

    @property
    def bins(self) -> int:
        """Number of values of its series."""
        return max(-(-(self.end_ns - self.start_ns) // self.step_ns), 1)

    @property
    def fine_parts(self) -> int:
        """Values of its sums to one of its series."""
        step = self.step_ns // SECOND_NS
        fits = (step // fine for fine in _STEPS if step % fine == 0 and self.bins * step <= _FINE_BINS * fine)
        return next(fits, 1)

    @property
    def fine_ns(self) -> int:
        """Time of one value of its sums."""
        return self.step_ns // self.fine_parts


@dataclass(slots=True)
class ComponentSums:
    """Of a job and component: `sums`: bytes read, written, metadata operations, reads, writes, latencies of
    reads, writes and metadata operations (raw), ns observed. `busy_ns`: of a client's traces, by amount."""

    sums: FloatArray = field(default_factory=lambda: np.zeros(9))
    time_scale: float = 1.0
    busy_ns: tuple[int, int, int] | None = None


ComponentOfJob = tuple[str, str, str, bool]
"""Layer, node, component, and whether it was shared."""


@dataclass(slots=True)
class JobAccount:
    """The sums of one job. `fine`: by layer, (3, bins * fine_parts); `observed_ns` (bins,): time with known
    counters of its own, over the components of its nodes; `last_bin`: of the layers of servers, the last one
    with a reading; `intervals`: by layer, number and ns of the times between readings.

    `busy`: by layer, (3, 2, bins * fine_parts), first and last time in each value at which something moved,
    as shares of it. `changes`: by layer, (3, 2), summed changes of the rates of its components from one
    interval to the next, and their number.

    `unshared_ns`: by layer (bins,), time with readings while it was the job's alone, less the time while it
    was shared. `by_traces_and_counters`: bytes by either, of the nodes that have both; None without."""

    job: JoinedJob
    fine: dict[str, FloatArray] = field(default_factory=dict)
    observed_ns: FloatArray = field(default_factory=lambda: np.zeros(0))
    components: dict[ComponentOfJob, ComponentSums] = field(
        default_factory=lambda: defaultdict(ComponentSums)
    )
    last_bin: dict[str, int] = field(default_factory=dict)
    intervals: dict[str, IntArray] = field(default_factory=dict)
    by_traces_and_counters: tuple[float, float] | None = None
    unshared_ns: dict[str, FloatArray] = field(default_factory=dict)
    busy: dict[str, FloatArray] = field(default_factory=dict)
    changes: dict[str, FloatArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.observed_ns = np.zeros(self.job.bins)

    def series(self, layer: str) -> FloatArray:
        """The series of a layer with data, (3, bins)."""
        fine = self.fine[layer]
        return np.asarray(fine.reshape(3, self.job.bins, -1).sum(axis=2))

    def busy_seconds(self, layer: str) -> FloatArray:
        """Seconds of each value of a layer's series in which something moved, (3, bins)."""
        shares = np.maximum(self.busy[layer][:, 1] - self.busy[layer][:, 0], 0.0)
        fine = shares.reshape(3, self.job.bins, -1).sum(axis=2)
        return np.asarray(fine * (self.job.fine_ns / SECOND_NS))

    def interval_ns(self, layer: str) -> float:
        """Mean time between readings of a layer with data."""
        count, total = self.intervals[layer].tolist()
        return total / count if count else 0.0

    def change_of(self, layer: str) -> FloatArray:
        """Mean change (3,) of a component's rate between intervals, as a share of it; NaN where unknown."""
        total, count = self.changes[layer].T
        return np.asarray(np.divide(total, count, out=np.full(3, np.nan), where=count > 0))

    def add(self, layer: str, active: Active, moved: FloatArray) -> None:
        """Spreads amounts (3, N) evenly over the bins of the times in which they moved.

        Each bin gets whole numbers, the parts of each add up to it.
        """
        assert layer in LAYERS
        bins = self.job.bins * self.job.fine_parts
        into = self.fine.setdefault(layer, np.zeros((3, bins)))
        self.intervals.setdefault(layer, np.zeros(2, np.int64))
        busy = self.busy.setdefault(layer, np.stack([np.ones((3, bins)), np.zeros((3, bins))], axis=1))
        changes = self.changes.setdefault(layer, np.zeros((3, 2)))
        known = np.isfinite(active.changes)
        changes[:, 0] += np.where(known, active.changes, 0.0).sum(axis=1)
        changes[:, 1] += known.sum(axis=1)
        for place in range(3):
            rows = np.flatnonzero(moved[place])
            begin, end = active.begin_ns[place, rows], active.end_ns[place, rows]
            spread = _spread(self.job, self.job.fine_ns, bins, begin, end)
            spread.add(into[place], moved[place, rows])
            spread.note(busy[place], ~active.quiet[place, rows])

    def note_intervals(self, layer: str, start_ns: IntArray, end_ns: IntArray) -> None:
        """Notes the times (N,) between readings of a layer."""
        total = np.array([start_ns.size, np.maximum(end_ns - start_ns, 0).sum()])
        self.intervals[layer] = self.intervals.get(layer, np.zeros(2, np.int64)) + total

    def observe(self, start_ns: IntArray, end_ns: IntArray, observed_ns: FloatArray) -> None:
        """Adds time with known counters, (N,)."""
        _spread(self.job, self.job.step_ns, self.job.bins, start_ns, end_ns).add(
            self.observed_ns, observed_ns
        )

    def held(self, layer: str, start_ns: IntArray, end_ns: IntArray, *, shared: bool) -> None:
        """Notes the times of readings of a layer's components, of the job alone or shared with others."""
        into = self.unshared_ns.setdefault(layer, np.zeros(self.job.bins))
        held = np.maximum(end_ns - start_ns, 0).astype(np.float64)
        spread = _spread(self.job, self.job.step_ns, self.job.bins, start_ns, end_ns)
        spread.add(into, -held if shared else held)

    def read_until(self, layer: str, end_ns: int) -> None:
        """Notes a reading of a server at `end_ns`."""
        last = (end_ns - 1 - self.job.start_ns) // self.job.step_ns
        self.last_bin[layer] = max(self.last_bin.get(layer, 0), min(max(last, 0), self.job.bins - 1))

    def expected_ns(self, components: dict[str, int]) -> FloatArray:
        """As `observed_ns` would be without a gap; `components` of each node, at least one."""
        total = np.zeros(self.job.bins)
        step, begin = self.job.step_ns, self.job.start_ns
        edges = begin + step * np.arange(self.job.bins + 1)
        for node, start, end in self.job.held:
            inside = np.minimum(edges[1:], end) - np.maximum(edges[:-1], start)
            total += np.maximum(inside, 0) * max(components.get(node, 1), 1)
        return total


@dataclass(frozen=True, slots=True)
class _Spread:
    """Parts of N times in bins. `row`: of which, `at`: in which bin.

    `low`, `high`: from and to which share of the time; `first`, `last`: of the bin.
    """

    row: IntArray
    at: IntArray
    low: FloatArray
    high: FloatArray
    first: FloatArray
    last: FloatArray

    def add(self, into: FloatArray, amounts: FloatArray) -> None:
        """Adds amounts (N,) to the bins, evenly over their times."""
        amount = amounts[self.row]
        np.add.at(into, self.at, np.floor(amount * self.high) - np.floor(amount * self.low))

    def note(self, busy: FloatArray, chosen: BoolArray) -> None:
        """Notes first and last time in each bin, (2, bins), of the times that are chosen, (N,)."""
        parts = chosen[self.row]
        np.minimum.at(busy[0], self.at[parts], self.first[parts])
        np.maximum.at(busy[1], self.at[parts], self.last[parts])


def _spread(job: JoinedJob, step: int, bins: int, start_ns: IntArray, end_ns: IntArray) -> _Spread:
    """Times in bins of `step` ns. Those before the first bin or after the last one are in these."""
    begin = job.start_ns
    first = np.clip((start_ns - begin) // step, 0, bins - 1)
    last = np.clip((end_ns - 1 - begin) // step, first, bins - 1)
    count = last - first + 1
    row = np.repeat(np.arange(first.size), count)
    at = first[row] + np.arange(row.size) - np.repeat(np.cumsum(count) - count, count)
    length = np.maximum(end_ns - start_ns, 1)[row].astype(np.float64)
    from_ns = np.where(at == first[row], start_ns[row] - begin - at * step, 0)
    until_ns = np.where(at == last[row], end_ns[row] - begin - at * step, step)
    low = np.where(at == first[row], 0.0, (begin + at * step - start_ns[row]) / length)
    high = np.where(at == last[row], 1.0, (begin + (at + 1) * step - start_ns[row]) / length)
    return _Spread(row, at, low, high, from_ns / step, until_ns / step)
