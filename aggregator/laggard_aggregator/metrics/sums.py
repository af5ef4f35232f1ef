"""Metrics of sums over components, of one source or of several: of a node, or of a path to a server.

A node's network counters and what its disks moved are two sources; only together do they tell foreign traffic
from work. What clients send again towards one server is one number for each of them; only their sum is large
enough to tell anything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from laggard_aggregator.metrics.definition import Differences, FloatArray, IntArray, Metric, SourceMetrics
from laggard_aggregator.metrics.operations import amount


@dataclass(frozen=True, slots=True)
class JoinedMetrics(SourceMetrics):
    """Metrics of sums. `parts`: by source, the counters that are summed over its components; no two sources
    have a counter of the same name. Without the first part there is no group.

    `by_node`: what is compared are nodes, called `node/source`, each the sum of its own components; else what
    has one id on all nodes, called `*/id`, the sum over them.
    """

    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    by_node: bool = True

    def counters(self, metrics: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """As of any source; none is required, as a component has those of its own part alone."""
        required, optional = SourceMetrics.counters(self, metrics)
        return (), (*required, *optional)

    def told_by(self, metrics: Sequence[str]) -> Sequence[tuple[str, ...]]:
        """Those of each part that are not optional."""
        required, _ = SourceMetrics.counters(self, metrics)
        parts = (tuple(name for name in part if name in required) for part in self.parts.values())
        return [part for part in parts if part]

    def kept(self, metrics: Sequence[str]) -> tuple[dict[str, Metric], Mapping[str, Metric]]:
        """By how much each counter rose: the rest comes of the sums."""
        _, counters = self.counters(metrics)
        return {name: amount("1", [name]) for name in counters}, {}

    @property
    def leading(self) -> str:
        """The source of the first part, without which there is nothing to compare."""
        return next(iter(self.parts))

    def name_of(self, key: str) -> str:
        """What a component with the key `node/id` is a part of."""
        node, _, component = key.partition("/")
        return f"{node}/{self.source}" if self.by_node else f"*/{component}"


def summed(rises: FloatArray, sums: IntArray, count: int) -> FloatArray:
    """The sums (count, T) of the rows of `rises` (R, T), `sums` (R,) telling which each belongs to.

    What is NaN is left out; NaN where there is nothing else.
    """
    known = np.isfinite(rises)
    total = np.zeros((count, rises.shape[1]))
    told = np.zeros((count, rises.shape[1]))
    np.add.at(total, sums, np.where(known, rises, 0.0))
    np.add.at(told, sums, known)
    return np.where(told > 0, total, np.nan)


def joined(
    source: JoinedMetrics, metrics: Sequence[str], amounts: Mapping[str, FloatArray], seconds: float
) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """What is kept of every interval for `metrics`, and the load, from the sums of the counters' rises.

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
