"""Figures of a role's agents: sums and quantiles."""

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from laggard_aggregator.ingest.node_view import QUANTILES, CollectorsView, CollectorView, RoleView

MOST_COLLECTORS = 64
"""Limit of a role's collectors, those on the most nodes: names that one node invents do not add up."""


@dataclass(slots=True)
class RoleStats:
    """Aggregates agents one by one, without figures that are None or NaN."""

    spool_bytes: list[int] = field(default_factory=list)
    dropped_samples: int = 0
    missed_ticks: int = 0
    cpu_seconds: float = 0.0
    resident_bytes: list[int] = field(default_factory=list)
    offsets: list[float] = field(default_factory=list)
    nodes: Counter[str] = field(default_factory=Counter)
    failing: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def add_collectors(self, collectors: Mapping[str, CollectorView]) -> None:
        """Adds an agent's collectors."""
        for name, collector in collectors.items():
            self.nodes[name] += 1
            self.failing[name] += not collector.success
            if not math.isnan(collector.seconds):
                self.seconds.setdefault(name, []).append(collector.seconds)

    def view(self, role: str) -> RoleView:
        """The figures of `role`."""
        told = heapq.nlargest(MOST_COLLECTORS, self.nodes, key=self.nodes.__getitem__)
        return RoleView(
            role=role,
            spool_bytes=sum(self.spool_bytes),
            dropped_samples=self.dropped_samples,
            missed_ticks=self.missed_ticks,
            cpu_seconds=self.cpu_seconds,
            spool=quantiles(self.spool_bytes),
            resident_bytes=quantiles(self.resident_bytes),
            clock_offset_seconds=quantiles(self.offsets),
            collectors={
                name: CollectorsView(self.failing[name], quantiles(self.seconds.get(name, ())))
                for name in sorted(told)
            },
        )


def quantiles(values: Iterable[float]) -> dict[float, float]:
    """QUANTILES of `values` by nearest rank; empty without values."""
    ordered = sorted(values)
    return {q: float(ordered[math.ceil(q * len(ordered)) - 1]) for q in QUANTILES if ordered}
