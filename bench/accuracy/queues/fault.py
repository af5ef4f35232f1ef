"""Faults: from when to when which members are slower, and by which factor."""

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from bench.accuracy.queues.device import Demands, Floats

FAULTS = ("none", "x1.5", "x2", "x3", "server", "half", "intermittent", "tail")

STALL_MS = 500.0
"""How much longer an unlucky request takes on a member with `tail`."""

INTERMITTENT_FACTOR = 4.0
INTERMITTENT_PERIOD_S = 900
INTERMITTENT_SLOW_S = 300
SERVER_FACTOR = 3.0
HALF_FACTOR = 2.5


@dataclass(frozen=True, slots=True)
class QueueFault:
    """The ill members and their factor of service time, a step function of a request's arrival.

    `factors[k]` holds from `edges_ms[k]` to the next; all is well before `edges_ms[1]` and after the last.
    With `stalls`, unlucky requests between these two take `STALL_MS` more.
    """

    members: frozenset[int]
    edges_ms: tuple[float, ...]
    factors: tuple[float, ...]
    stalls: bool = False

    def factor(self, member: int, time_ms: float) -> float:
        """Returns the factor of a request that arrives then."""
        return self.factors[bisect_right(self.edges_ms, time_ms) - 1] if member in self.members else 1.0

    def stall_ms(self, member: int, time_ms: float) -> float:
        """Returns how much longer an unlucky request takes that arrives then, ms."""
        ill = self.stalls and member in self.members and self.edges_ms[1] <= time_ms < self.edges_ms[-1]
        return STALL_MS if ill else 0.0

    def service_ms(self, member: int, arrival_ms: Floats, demands: Demands) -> Floats:
        """Returns the service times of requests at a member, ms, shape (requests,)."""
        if member not in self.members:
            return demands.service_ms
        factors = np.array(self.factors)[np.searchsorted(self.edges_ms, arrival_ms, "right") - 1]
        service: Floats = demands.service_ms * factors
        if self.stalls:
            within = (self.edges_ms[1] <= arrival_ms) & (arrival_ms < self.edges_ms[-1])
            service = service + STALL_MS * (demands.unlucky & within)
        return service


HEALTHY = QueueFault(frozenset(), (0.0,), (1.0,))


def queue_fault(
    kind: str, servers: list[int], begin_s: int, end_s: int, generator: np.random.Generator
) -> QueueFault:
    """Returns a fault of `kind`; `servers[k]` is the server of member k."""
    count = len(servers)
    begin_ms, end_ms = begin_s * 1e3, end_s * 1e3
    member = frozenset({int(generator.integers(count))})
    if kind == "none":
        return HEALTHY
    if kind == "tail":
        return QueueFault(member, (0.0, begin_ms, end_ms), (1.0, 1.0, 1.0), stalls=True)
    if kind == "intermittent":
        edges, factors = [0.0], [1.0]
        for start_s in range(begin_s, end_s, INTERMITTENT_PERIOD_S):
            edges += [start_s * 1e3, (start_s + INTERMITTENT_SLOW_S) * 1e3]
            factors += [INTERMITTENT_FACTOR, 1.0]
        return QueueFault(member, tuple(edges), tuple(factors))
    if kind == "server":
        ill = int(generator.integers(max(servers) + 1))
        member, factor = frozenset(k for k in range(count) if servers[k] == ill), SERVER_FACTOR
    elif kind == "half":
        member, factor = frozenset(range(count // 2, count)), HALF_FACTOR
    else:
        factor = float(kind.removeprefix("x"))
    return QueueFault(member, (0.0, begin_ms, end_ms), (1.0, factor, 1.0))
