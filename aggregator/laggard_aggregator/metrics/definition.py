"""Building blocks of a source's metrics."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Differences:
    """Increase of each counter between two readings, by name: `d["rd_ios"]` is (M,) float64, never NaN.

    `seconds` (M,) between the two readings, always above 0. M readings of any components.
    """

    def __init__(self, counters: Sequence[str], rises: IntArray | FloatArray, seconds: FloatArray) -> None:
        """`rises` (M, len(counters)): later value less earlier one."""
        self._rises = rises
        self._column = {name: at for at, name in enumerate(counters)}
        self.seconds = seconds

    def __getitem__(self, name: str) -> FloatArray:
        return self._rises[:, self._column[name]].astype(np.float64)


def ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    """`above / below`, 0 where `below` is 0, as sysstat shows an idle disk."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


class Compared(Protocol):
    """A comparable quantity: a Metric or a `shares.Share`. Names, units and sides as in Metric."""

    @property
    def unit(self) -> str: ...  # noqa: D102

    @property
    def worse(self) -> int: ...  # noqa: D102

    @property
    def explains(self) -> bool: ...  # noqa: D102

    @property
    def needs(self) -> tuple[str, ...]:
        """The counters it is derived from."""
        ...

    @property
    def sufficient(self) -> Sequence[tuple[str, ...]]:
        """Sets of these counters, one of which suffices where the others have not counted yet."""
        ...

    def columns(self, name: str) -> "Mapping[str, Metric]":
        """Values to store per interval for a metric called `name`."""
        ...

    def values(self, name: str, columns: Mapping[str, FloatArray], intervals: int) -> FloatArray:
        """Compared values (C, T) from stored values (C, T); `intervals`: from one window to the next."""
        ...


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `worse`: +1 where larger is worse, -1 where smaller is, 0 for behaviour without a side.

    `derive` makes (M,) values, finite, from (M,) differences; it reads no counter that is not in `needs`
    or in the source's optional ones. `amount`: an amount over the whole time, not a rate; it is divided when
    one difference spans several intervals. `explains`: nobody waits for it by itself; it is judged and shown,
    and raises no alarm.
    """

    unit: str
    worse: int
    needs: tuple[str, ...]
    derive: Callable[[Differences], FloatArray]
    amount: bool = False
    explains: bool = False

    @property
    def sufficient(self) -> Sequence[tuple[str, ...]]:
        """All of its counters."""
        return (self.needs,)

    def columns(self, name: str) -> "Mapping[str, Metric]":
        """The metric itself: one interval suffices."""
        return {name: self}

    def values(
        self,
        name: str,
        columns: Mapping[str, FloatArray],
        intervals: int,  # noqa: ARG002 - each stands for itself
    ) -> FloatArray:
        """The stored values."""
        return columns[name]


def total(d: Differences, counters: Sequence[str], scale: float = 1.0) -> FloatArray:
    """The summed increases of all `counters`, times `scale`."""
    first, *others = counters
    rise = d[first]
    for name in others:
        rise += d[name]
    if scale != 1.0:
        rise *= scale
    return rise


def mean(unit: str, counts: Sequence[str], sums: Sequence[str], scale: float = 1.0) -> Metric:
    """Mean time or size of operations: `sums` times `scale` over `counts`; larger is worse, 0 without any."""
    return Metric(unit, +1, (*counts, *sums), lambda d: ratio(total(d, sums, scale), total(d, counts)))


def amount(unit: str, counters: Sequence[str]) -> Metric:
    """Number of operations in all."""
    return Metric(unit, 0, tuple(counters), lambda d: total(d, counters), amount=True)


def transfers(counts: tuple[str, str], transferred: tuple[str, str]) -> Mapping[str, Metric]:
    """The load of reads and writes, whose counters come in this order: operations and bytes of each."""
    every = (*counts, *transferred)
    return {
        "operations": amount("operations", counts),
        "throughput": Metric("bytes/s", 0, transferred, lambda d: total(d, transferred) / d.seconds),
        "request_bytes": Metric("bytes", 0, every, lambda d: ratio(total(d, transferred), total(d, counts))),
        "read_share": Metric("1", 0, counts, lambda d: ratio(d[counts[0]], total(d, counts))),
    }


def rate(unit: str, counters: Sequence[str], scale: float = 1.0) -> Metric:
    """The summed increases of `counters`, times `scale`, per second; it has no worse side."""
    return Metric(unit, 0, tuple(counters), lambda d: total(d, counters, scale) / d.seconds)


def transfer_charts(
    counts: tuple[str, str], transferred: tuple[str, str], unit_bytes: float = 1.0
) -> Mapping[str, Metric]:
    """Charts of reads and writes, whose counters come in this order: operations and units of data."""
    every = (*counts, *transferred)
    return {
        "reads": rate("operations/s", counts[:1]),
        "writes": rate("operations/s", counts[1:]),
        "read_throughput": rate("MB/s", transferred[:1], unit_bytes * 1e-6),
        "write_throughput": rate("MB/s", transferred[1:], unit_bytes * 1e-6),
        "request_size": Metric(
            "kB", 0, every, lambda d: ratio(total(d, transferred, unit_bytes * 1e-3), total(d, counts))
        ),
    }


@dataclass(frozen=True, slots=True)
class NextStep:
    """A command that only looks: `run` with `{node}` and `{device}`, and the subject that it `shows`."""

    shows: str
    run: str


KERNEL_MESSAGES = NextStep(
    "what the kernel says", "ssh {node} journalctl --dmesg --since -2d --priority warning"
)


PLACES = ("disk", "server", "inside", "network", "target", "forwarder", "client")
"""Places on a request's path where a source counts: the LUN's times, the server's times of requests, anything
else inside of a server (queues, functions), the network, a client's times by target, a client's times.
"""


@dataclass(frozen=True, slots=True)
class SourceMetrics:
    """All metrics of one source, and the load of its components (see `detect.interface`).

    `charts`: the load as the page draws it beside the compared metrics, from the archive; nothing is kept of
    it in memory.
    `optional` counters read as 0 where a kernel lacks them or shows them only after their first use.
    `defaults`: metrics that automatic groups compare, empty without such groups. `peers`: labels that the
    components of one automatic group share; `one_node`: they also share the node. `many_groups`: a site may
    have many of them, which must leave room for others. `roles`: roles with an automatic group; empty
    for all. `place`: one of PLACES, empty where it is none.
    """

    source: str
    defaults: tuple[str, ...]
    metrics: Mapping[str, Compared]
    load: Mapping[str, Metric] = field(default_factory=dict)
    charts: Mapping[str, Metric] = field(default_factory=dict)
    optional: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    one_node: bool = False
    many_groups: bool = False
    roles: tuple[str, ...] = ()
    next_steps: tuple[NextStep, ...] = ()
    place: str = ""

    def counters(self, metrics: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The counters that `metrics` and the load need, and the optional ones among them."""
        asked = [*(self.metrics[name] for name in metrics), *self.load.values()]
        needed = dict.fromkeys(name for metric in asked for name in metric.needs)
        optional = tuple(name for name in self.optional if name in needed)
        return tuple(name for name in needed if name not in optional), optional

    def told_by(self, metrics: Sequence[str]) -> Sequence[tuple[str, ...]]:
        """Sets of counters, one of which must be complete for a component to be usable.

        Where all counters are optional, those that suffice for one metric: the others have not counted yet.
        """
        required, _ = self.counters(metrics)
        return [required] if required else [own for name in metrics for own in self.metrics[name].sufficient]

    def kept(self, metrics: Sequence[str]) -> tuple[dict[str, Metric], Mapping[str, Metric]]:
        """Values stored per component and interval, for `metrics` and the load."""
        columns: dict[str, Metric] = {}
        for name in metrics:
            columns.update(self.metrics[name].columns(name))
        return columns, self.load


@dataclass(frozen=True, slots=True)
class FunctionMetric:
    """A metric of functions: `scale` times the increase of `counter`, in `unit`."""

    unit: str
    counter: str
    name: str = ""
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class FunctionMetrics:
    """A source whose components are functions, called `program/image/function`.

    A node is compared by the vector of its functions' counters. The HotDep paper's three metrics: `samples`
    (a profiler's, of everything that runs), `count` and `time` (a tracer's, of an instrumented program).
    `seconds` selects the functions to consider. `defaults`: metrics that automatic groups compare; each of
    `roles` has one. `place` as in SourceMetrics.
    """

    name: str
    defaults: tuple[str, ...]
    metric: tuple[FunctionMetric, ...]
    seconds: FunctionMetric
    roles: tuple[str, ...]
    next_steps: tuple[NextStep, ...] = ()
    place: str = ""

    @property
    def metrics(self) -> Mapping[str, FunctionMetric]:
        """The metrics by name."""
        return {metric.name: metric for metric in self.metric}

    def counters(self, metrics: Sequence[str]) -> tuple[str, ...]:
        """The counters that `metrics` and `seconds` need."""
        asked = [*(self.metrics[name] for name in metrics), self.seconds]
        return tuple(dict.fromkeys(metric.counter for metric in asked))
