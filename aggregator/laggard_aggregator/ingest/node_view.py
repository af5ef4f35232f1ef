"""Read-only values of nodes and of the agents of a role. Times are epoch seconds."""

import math
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
    agent's own figures, from `collectors` on, are defined in docs/wire-format.md.
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
    unacknowledged_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class CollectorsView:
    """A collector on all nodes of a role. `seconds`: the time of a reading, by quantile."""

    failing: int
    seconds: Mapping[float, float]


@dataclass(frozen=True, slots=True)
class RoleView:
    """The figures of a role's agents as in NodeView, without those of agents that do not report them.

    Sums, and values by quantile (nearest rank, QUANTILES), empty where no agent reports the figure.
    `dropped_samples`, `missed_ticks` and `cpu_seconds` add up since the aggregator's start: an agent that
    restarts or goes takes nothing away.
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
"""Limit of a role's collectors, those on the most nodes: one node's invented names cannot fill it."""


def quantiles(values: Iterable[float]) -> dict[float, float]:
    """QUANTILES of `values` by nearest rank; empty without values."""
    ordered = sorted(values)
    return {q: float(ordered[math.ceil(q * len(ordered)) - 1]) for q in QUANTILES if ordered}
