"""Sources whose components are functions: a node is compared by the vector of its functions' counters.

The HotDep paper's three metrics: `samples` (a profiler's, of everything that runs), `count` and `time` (a
tracer's, of an instrumented program). A component is called `program/image/function`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from laggard_aggregator.metrics.definition import NextStep


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
    next_steps: tuple[NextStep, ...] = ()

    def counters(self, metrics: Sequence[str]) -> tuple[str, ...]:
        """The counters that `metrics` and `seconds` need."""
        asked = [*(self.metrics[name] for name in metrics), self.seconds]
        return tuple(dict.fromkeys(metric.counter for metric in asked))
