"""Metrics of sums over components of one or several sources: of a node, or of a path to a server.

A node's network counters and its disks' traffic are two sources; only together do they separate foreign
traffic from work. Each client's retransmits towards one server are few; their sum is large enough to compare.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from laggard_aggregator.metrics.definition import (
    Differences,
    FloatArray,
    IntArray,
    Metric,
    SourceMetrics,
    amount,
)


@dataclass(frozen=True, slots=True)
class JoinedMetrics(SourceMetrics):
    """Metrics of sums. `parts`: by source, the counters that are summed over its components; no two sources
    have a counter of the same name. Without the first part there is no group.

    `by_node`: nodes are compared, named `node/source`, each the sum of its components; otherwise components
    with one id on all nodes, named `*/id`, the sum over the nodes.
    """

    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    by_node: bool = True

    def counters(self, metrics: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """As for any source; none is required, as a component has only the counters of its own part."""
        required, optional = SourceMetrics.counters(self, metrics)
        return (), (*required, *optional)

    def told_by(self, metrics: Sequence[str]) -> Sequence[tuple[str, ...]]:
        """Those of each part that are not optional; where all are, the counters of one metric."""
        required, _ = SourceMetrics.counters(self, metrics)
        parts = (tuple(name for name in part if name in required) for part in self.parts.values())
        return [part for part in parts if part] or [self.metrics[name].needs for name in metrics]

    def kept(self, metrics: Sequence[str]) -> tuple[dict[str, Metric], Mapping[str, Metric]]:
        """The increase of each counter; metrics are derived from the sums."""
        _, counters = self.counters(metrics)
        return {name: amount("1", [name]) for name in counters}, {}

    @property
    def leading(self) -> str:
        """Source of the first part, without which nothing is compared."""
        return next(iter(self.parts))

    def name_of(self, key: str) -> str:
        """Name of the sum to which the component `node/id` belongs."""
        node, _, component = key.partition("/")
        return f"{node}/{self.source}" if self.by_node else f"*/{component}"


def summed(rises: FloatArray, sums: IntArray, count: int) -> FloatArray:
    """The sums (count, T) of the rows of `rises` (R, T), `sums` (R,) telling which each belongs to.

    NaN values are ignored; NaN where all are NaN.
    """
    known = np.isfinite(rises)
    total = np.zeros((count, rises.shape[1]))
    counts = np.zeros((count, rises.shape[1]))
    np.add.at(total, sums, np.where(known, rises, 0.0))
    np.add.at(counts, sums, known)
    return np.where(counts > 0, total, np.nan)


def joined(
    source: JoinedMetrics, metrics: Sequence[str], amounts: Mapping[str, FloatArray], seconds: float
) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """Values stored per interval for `metrics` and the load, from the sums of the counters' increases.

    All arrays (N, T), N names; `amounts` NaN where a part is unknown, and so is what needs it. `seconds`: of
    an interval.
    """
    names = tuple(amounts)
    shape = amounts[names[0]].shape
    rises = np.stack([np.nan_to_num(amounts[name]).ravel() for name in names], axis=1)
    differences = Differences(names, rises, np.full(rises.shape[0], seconds))
    known = {name: np.isfinite(values) for name, values in amounts.items()}

    def of(derived: Mapping[str, Metric]) -> dict[str, FloatArray]:
        return {
            name: np.where(
                np.logical_and.reduce([known[counter] for counter in metric.needs]),
                metric.derive(differences).reshape(shape),
                np.nan,
            )
            for name, metric in derived.items()
        }

    columns, load = SourceMetrics.kept(source, metrics)
    return of(columns), of(load)
