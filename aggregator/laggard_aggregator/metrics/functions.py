"""Sources whose components are functions: a node is compared by the vector of its functions' counters.

The HotDep paper's three metrics: `samples` (a profiler's, of everything that runs), `count` and `time` (a
tracer's, of an instrumented program). A component is called `program/image/function`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

RATE_HZ = 997.0
"""Sampling rate to which `samples` are scaled, in Hz of CPU time."""


@dataclass(frozen=True, slots=True)
class FunctionMetric:
    """One metric: `scale` times the increase of `counter`, in `unit`."""

    unit: str
    counter: str
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class FunctionMetrics:
    """All metrics of one source. `seconds` selects the functions to consider.

    `defaults`: metrics that the automatic groups compare; each of `roles` has one.
    """

    source: str
    defaults: tuple[str, ...]
    metrics: Mapping[str, FunctionMetric]
    seconds: FunctionMetric
    roles: tuple[str, ...]

    def counters(self, metrics: Sequence[str]) -> tuple[str, ...]:
        """The counters that `metrics` and `seconds` need."""
        asked = [*(self.metrics[name] for name in metrics), self.seconds]
        return tuple(dict.fromkeys(metric.counter for metric in asked))


_SERVERS = ("forwarding", "storage", "metadata")
"""Compute nodes run different jobs, and so different functions: they are peers only in a `[[group]]`."""

# Samples are weighted by their CPU time, as nodes may be sampled at different rates.
FNPROFILE = FunctionMetrics(
    source="fnprofile",
    defaults=("samples",),
    metrics={"samples": FunctionMetric("samples", "cpu_ns", RATE_HZ * 1e-9)},
    seconds=FunctionMetric("s", "cpu_ns", 1e-9),
    roles=_SERVERS,
)
FNTRACE = FunctionMetrics(
    source="fntrace",
    defaults=("count", "time"),
    metrics={"count": FunctionMetric("calls", "calls"), "time": FunctionMetric("s", "self_ns", 1e-9)},
    seconds=FunctionMetric("s", "self_ns", 1e-9),
    roles=_SERVERS,
)

FUNCTIONS: Mapping[str, FunctionMetrics] = {known.source: known for known in (FNPROFILE, FNTRACE)}
