"""Read-only values of nodes and of the agents of a role. Times are epoch seconds."""

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

NodeState = Literal["up", "silent", "stopped", "down"]
"""`silent`: no sample for several batches though the agent should be up; `stopped`: the agent ended in order;
`down`: the broker lost the agent."""

QUANTILES = (0.5, 0.99, 1.0)
"""Quantiles of the figures of a role's agents."""


@dataclass(frozen=True, slots=True)
class CollectorView:
    """An agent's collector as of its latest reading; `error` is empty on success."""

    success: bool
    seconds: float
    error: str


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node. NaN and None: unknown, as before the first status or sample.

    `last_sample`: newest time of reading. `clock_offset_seconds`: the node's clock minus the aggregator's.
    `healthy`: up, every collector succeeds, and the clock is off by less than one sampling interval. The
    agent's own figures, `collectors` to `resident_bytes`, are defined in docs/wire-format.md.
    """

    node: str
    role: str
    state: NodeState
    healthy: bool
    last_sample: float
    clock_offset_seconds: float
    version: str = ""
    collectors: Mapping[str, CollectorView] = field(default_factory=dict)
    spool_bytes: int | None = None
    dropped_samples: int | None = None
    missed_ticks: int | None = None
    cpu_seconds: float | None = None
    resident_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class CollectorsView:
    """A collector on all nodes of a role. `seconds`: the time of a reading, by quantile."""

    failing: int
    seconds: Mapping[float, float]


@dataclass(frozen=True, slots=True)
class RoleView:
    """The figures of a role's agents as in NodeView, without those of agents that do not report them.

    Sums, and values by quantile (nearest rank, QUANTILES), empty where no agent reports the figure.
    `clock_offset_seconds`: absolute.
    """

    role: str
    spool_bytes: int
    dropped_samples: int
    missed_ticks: int
    cpu_seconds: float
    spool: Mapping[float, float]
    resident_bytes: Mapping[float, float]
    clock_offset_seconds: Mapping[float, float]
    collectors: Mapping[str, CollectorsView]


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
