"""Nodes: their state, clock offset, and the figures of their agents."""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from laggard_aggregator.ingest.node_view import (
    MOST_COLLECTORS,
    CollectorsView,
    CollectorView,
    NodeState,
    NodeView,
    RoleView,
    quantiles,
)
from laggard_common.wire.topics import ROLES, is_level

SILENT_BATCHES = 3
"""A node is silent after this number of announced batch spans without a sample."""

SILENT_LEAST_NS = 15 * 1_000_000_000
OFFSET_HORIZON_NS = 300 * 1_000_000_000
MAX_COLLECTORS = 64
MAX_ERROR_CHARS = 200
MAX_UNHEARD = 1000
"""Limit of listed nodes that never sent a sample: unknown clients can invent names at no cost."""

MIN_OFFSETS = 3
OFFSETS_NS = 60 * 1_000_000_000
"""Age of a clock offset that still counts: at a small site it takes some time to hear enough clocks."""

_STATES: Mapping[str, NodeState] = {"up": "up", "stopped": "stopped", "down": "down"}


class ClockOffset:
    """Estimate of a node's clock minus the aggregator's, from the send and receive times of its messages.

    A message is never received before it was sent, so each bounds the offset from below, and a delay only
    loosens the bound. The best bound of the last five to ten minutes is the estimate: too low by the shortest
    delay, and unaffected by delayed or retained messages.
    """

    __slots__ = ("_before", "_best", "_bucket", "latest_ns")

    def __init__(self) -> None:
        self.latest_ns: int | None = None
        """The best bound since it was set to None."""
        self._bucket = -1
        self._best = -math.inf
        self._before = -math.inf

    def add(self, made_ns: int, received_ns: int) -> None:
        """Adds a message."""
        bucket = received_ns // OFFSET_HORIZON_NS
        if bucket != self._bucket:
            self._before = self._best if bucket == self._bucket + 1 else -math.inf
            self._best = -math.inf
            self._bucket = bucket
        bound_ns = made_ns - received_ns
        self._best = max(self._best, bound_ns)
        if self.latest_ns is None or bound_ns > self.latest_ns:
            self.latest_ns = bound_ns

    @property
    def known(self) -> bool:
        """Whether there was a message."""
        return self._bucket >= 0

    @property
    def seconds(self) -> float:
        """The estimate; NaN before the first message."""
        best = max(self._best, self._before)
        return best / 1e9 if best > -math.inf else math.nan


@dataclass(slots=True)
class _Node:
    role: str
    first_seen_ns: int
    state: NodeState = "up"
    heard_from_ns: int = 0
    figures: tuple[Any, ...] = ()  # as _FIGURES; None for missing ones and those of the wrong type
    collectors: Mapping[str, CollectorView] = field(default_factory=dict)
    last_sample_ns: int = 0
    last_data_ns: int = 0
    span_ns: int = 0
    interval_ns: int = 0
    offset: ClockOffset = field(default_factory=ClockOffset)
    scraped: bool = False  # its samples tell nothing about its clock


class Nodes:
    """All nodes by name. Times are by the aggregator's clock, ns, unless stated otherwise."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._grown: dict[str, dict[str, float]] = {}  # counters of _COUNTERS by role, since the start
        self._offsets_ns: int | None = None  # when they were last asked for and there

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def add(self, name: str, role: str, now_ns: int) -> None:
        """Adds a node, or sets its role to the latest one."""
        node = self._nodes.get(name)
        if node is None:
            self._nodes[name] = _Node(role, now_ns)
        else:
            node.role = role

    def announced(self, name: str, interval_ns: int, batch_ticks: int) -> None:
        """Notes the interval and batch span of a schema; the longest of a node's sources counts."""
        node = self._nodes[name]
        node.span_ns = max(node.span_ns, interval_ns * batch_ticks)
        node.interval_ns = max(node.interval_ns, interval_ns)

    def heard(self, name: str, newest_ns: int, received_ns: int) -> None:
        """Notes the clock of a node whose batch is rejected because of its time."""
        self._nodes[name].offset.add(newest_ns, received_ns)

    def data(self, name: str, newest_read_ns: int, received_ns: int, *, scraped: bool = False) -> None:
        """Notes a batch whose last reading was at `newest_read_ns` by the node's clock.

        `scraped`: by the clock of a Prometheus server, and sent a scrape later.
        """
        node = self._nodes[name]
        node.last_sample_ns = max(node.last_sample_ns, newest_read_ns)
        node.last_data_ns = received_ns
        node.scraped = scraped and not node.offset.known
        if not scraped:
            node.offset.add(newest_read_ns, received_ns)

    @property
    def with_clock(self) -> int:
        """Number of nodes whose messages tell their clock."""
        return sum(not node.scraped for node in self._nodes.values())

    def status(self, name: str, status: Mapping[str, Any], made_ns: int, received_ns: int) -> None:
        """Notes a status message, without fields of the wrong type."""
        node = self._nodes[name]
        state = _STATES.get(_text(status.get("state")))
        if state is None:
            return
        node.state = state
        if state == "down":  # a last will was composed when the agent connected, and has no figures
            return
        node.offset.add(made_ns, received_ns)
        figures = tuple(check(status.get(name)) for name, check in _FIGURES.items())
        self._add_increases(node.role, node.figures, figures)
        node.figures = figures if any(figure not in {"", None} for figure in figures) else ()
        node.collectors = dict(_collectors(status.get("collectors")))

    def _add_increases(self, role: str, before: Sequence[Any], figures: Sequence[Any]) -> None:
        """Adds what an agent's counters grew by; those of an agent that was not known are where it begins."""
        grown = self._grown.setdefault(role, dict.fromkeys(_COUNTERS, 0.0))
        for at, name in enumerate(_FIGURES):
            if name in _COUNTERS and before and None not in (before[at], figures[at]):
                # A smaller one was counted since the agent's start.
                grown[name] += figures[at] - before[at] if figures[at] >= before[at] else figures[at]

    def silent_since(self, before_ns: int) -> list[str]:
        """The nodes without a batch since `before_ns`."""
        return [
            name
            for name, node in self._nodes.items()
            if max(node.last_data_ns, node.first_seen_ns) < before_ns
        ]

    def forget(self, name: str) -> None:
        """Drops a node."""
        del self._nodes[name]

    def state(self) -> list[tuple[Any, ...]]:
        """State as plain data by node, without the figures, which agents send again soon."""
        return [
            (
                *(name, node.role, node.first_seen_ns, node.state),
                *(node.last_sample_ns, node.last_data_ns, node.span_ns, node.interval_ns),
            )
            for name, node in self._nodes.items()
        ]

    def restore(self, state: Sequence[Sequence[Any]]) -> None:
        """Restores `state()`. Raises ValueError when it is malformed."""
        for name, role, first_seen_ns, said, *times in state:
            if not is_level(name) or role not in ROLES or said not in _STATES or len(times) != 4:
                raise ValueError(f"node {name!r}"[:100])
            if not all(type(ns) is int and 0 <= ns < 2**63 for ns in (first_seen_ns, *times)):
                raise ValueError(f"node {name}: times")
            node = self._nodes[name] = _Node(role, first_seen_ns, said)
            node.last_sample_ns, node.last_data_ns, node.span_ns, node.interval_ns = times

    def listening(self, since_ns: int) -> None:
        """The aggregator did not listen before `since_ns`; that time makes no node silent.

        Messages that were replayed say nothing about the clock of this start.
        """
        for node in self._nodes.values():
            node.heard_from_ns = since_ns
            node.offset.latest_ns = None

    def latest_offsets(self, now_ns: int) -> list[int]:
        """Lower bounds of the nodes' clocks minus the aggregator's, ns, since the last call that had some.

        None before half of all nodes were heard, and at least MIN_OFFSETS of them, or OFFSETS_NS have passed.
        `now_ns`: monotonic.
        """
        offsets_ns = [
            node.offset.latest_ns for node in self._nodes.values() if node.offset.latest_ns is not None
        ]
        if self._offsets_ns is None:
            self._offsets_ns = now_ns
        nodes = self.with_clock
        enough = min(nodes, max(MIN_OFFSETS, (nodes + 1) // 2))
        if not offsets_ns or (len(offsets_ns) < enough and now_ns - self._offsets_ns < OFFSETS_NS):
            return []
        self._offsets_ns = now_ns
        for node in self._nodes.values():
            node.offset.latest_ns = None
        return offsets_ns

    @property
    def median_interval_ns(self) -> int:
        """Median of the nodes' sampling intervals, for which a batch may wait to be sent; 0 without any."""
        known = sorted(node.interval_ns for node in self._nodes.values() if node.interval_ns)
        return known[len(known) // 2] if known else 0

    def clock_set(self, now_ns: int) -> None:
        """The aggregator's clock was set to `now_ns`: earlier offsets do not count, and no node is silent."""
        for node in self._nodes.values():
            node.offset = ClockOffset()
        self.listening(now_ns)

    def rewind(self, now_ns: int) -> None:
        """No node was heard after `now_ns`, as the clock had been ahead."""
        for node in self._nodes.values():
            node.first_seen_ns = min(node.first_seen_ns, now_ns)
            node.last_data_ns = min(node.last_data_ns, now_ns)

    def counts(self, now_ns: int) -> Mapping[tuple[str, NodeState], int]:
        """Number of nodes by role and state."""
        return Counter((node.role, _state(node, now_ns)) for node in self._nodes.values())

    def roles(self) -> tuple[RoleView, ...]:
        """The figures of each role's agents, by role."""
        roles: dict[str, list[_Node]] = {}
        for node in self._nodes.values():
            agents = roles.setdefault(node.role, [])
            if node.figures or node.collectors or node.last_data_ns:
                agents.append(node)  # else no agent known: there may be tens of thousands of such names
        return tuple(_role_view(role, roles[role], self._grown.get(role, {})) for role in sorted(roles))

    def views(self, now_ns: int) -> tuple[NodeView, ...]:
        """Every node, by name."""
        return tuple(_view(name, self._nodes[name], now_ns) for name in sorted(self._nodes))

    def view(self, name: str, now_ns: int) -> NodeView | None:
        """One node."""
        node = self._nodes.get(name)
        return None if node is None else _view(name, node, now_ns)

    def unhealthy(self, now_ns: int) -> tuple[NodeView, ...]:
        """The unhealthy nodes, by name; of those that never sent a sample the first MAX_UNHEARD."""
        unheard, names = 0, []
        for name, node in self._nodes.items():
            if (node.last_data_ns or unheard < MAX_UNHEARD) and not _is_healthy(node, now_ns):
                unheard += not node.last_data_ns
                names.append(name)
        return tuple(_view(name, self._nodes[name], now_ns) for name in sorted(names))


def _state(node: _Node, now_ns: int) -> NodeState:
    if node.state != "up":
        return node.state
    silent_after = max(SILENT_BATCHES * node.span_ns, SILENT_LEAST_NS)
    heard_ns = max(node.last_data_ns, node.first_seen_ns, node.heard_from_ns)
    return "silent" if now_ns - heard_ns > silent_after else "up"


def _is_healthy(node: _Node, now_ns: int) -> bool:
    """Whether it is up, all collectors succeed, and the clock is right to within one sampling interval.

    The estimate is no better than a message's delay, so intervals under a second count as one second.
    """
    return (
        _state(node, now_ns) == "up"
        and all(collector.success for collector in node.collectors.values())
        and not abs(node.offset.seconds) > max(node.interval_ns / 1e9, 1.0)
    )


def _view(name: str, node: _Node, now_ns: int) -> NodeView:
    return NodeView(
        node=name,
        role=node.role,
        state=_state(node, now_ns),
        healthy=_is_healthy(node, now_ns),
        last_sample=node.last_sample_ns / 1e9 if node.last_sample_ns else math.nan,
        clock_offset_seconds=node.offset.seconds,
        collectors=node.collectors,
        **dict(zip(_FIGURES, node.figures, strict=False)),
    )


def _role_view(role: str, agents: Sequence[_Node], grown: Mapping[str, float]) -> RoleView:
    known: dict[str, list[Any]] = {
        name: [node.figures[at] for node in agents if node.figures and node.figures[at] is not None]
        for at, name in enumerate(_FIGURES)
    }
    nodes, failing, seconds = Counter[str](), Counter[str](), defaultdict[str, list[float]](list)
    for node in agents:
        for name, collector in node.collectors.items():
            nodes[name] += 1
            failing[name] += not collector.success
            if not math.isnan(collector.seconds):
                seconds[name].append(collector.seconds)
    offsets = [node.offset.seconds for node in agents]
    return RoleView(
        role=role,
        spool_bytes=sum(known["spool_bytes"]),
        dropped_samples=int(grown.get("dropped_samples", 0)),
        missed_ticks=int(grown.get("missed_ticks", 0)),
        cpu_seconds=grown.get("cpu_seconds", 0.0),
        spool=quantiles(known["spool_bytes"]),
        resident_bytes=quantiles(known["resident_bytes"]),
        clock_offset_seconds=quantiles(abs(offset) for offset in offsets if not math.isnan(offset)),
        collectors={
            name: CollectorsView(failing[name], quantiles(seconds[name]))
            for name in sorted(heapq.nlargest(MOST_COLLECTORS, nodes, key=nodes.__getitem__))
        },
    )


def _collectors(value: object) -> Iterable[tuple[str, CollectorView]]:
    if not isinstance(value, dict):
        return
    for name, figures in list(value.items())[:MAX_COLLECTORS]:
        if isinstance(name, str) and isinstance(figures, dict):
            seconds = _number(figures.get("seconds"))
            yield (
                _text(name),
                CollectorView(
                    success=figures.get("success") is True,
                    seconds=math.nan if seconds is None else seconds,
                    error=_text(figures.get("error")),
                ),
            )


def _text(value: object) -> str:
    """Printable text of bounded length from any value."""
    if not isinstance(value, str):
        return ""
    return "".join(c if c.isprintable() else " " for c in value[:MAX_ERROR_CHARS])


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 2**63 else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 <= value < 2**63 else None


_FIGURES: Mapping[str, Callable[[object], Any]] = {
    "version": _text,
    "spool_bytes": _count,
    "dropped_samples": _count,
    "missed_ticks": _count,
    "cpu_seconds": _number,
    "resident_bytes": _count,
    "unacknowledged_seconds": _count,
}
"""Figures that an agent reports of itself, and the check of each."""
_COUNTERS = frozenset({"dropped_samples", "missed_ticks", "cpu_seconds"})
"""Figures that only grow while an agent runs."""
