"""Sources whose components are functions: their counters on one node together are what is compared.

The HotDep paper's three metrics: `samples` (a profiler's, of everything that runs), `count` and `time` (a
tracer's, of an instrumented program). A component is called `program/image/function`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

RATE_HZ = 997.0
"""Samples a second of CPU time that `samples` are given at, whatever rate a node is sampled at."""


@dataclass(frozen=True, slots=True)
class FunctionMetric:
    """One metric: `scale` times the rise of `counter`, in `unit`."""

    unit: str
    counter: str
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class FunctionMetrics:
    """All metrics of one source. `seconds` is what decides which functions are looked at.

    `defaults`: what the automatic groups compare; there is one for each of `roles`.
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

# The profiler tells the CPU time that its samples stand for: nodes may be sampled at different rates.
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
