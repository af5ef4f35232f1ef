"""Nodes: their state, clock offset, and the figures of their agents."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from laggard_aggregator.ingest.node_view import CollectorView, NodeState, NodeView, RoleStats, RoleView
from laggard_common.wire.topics import ROLES, is_level

SILENT_BATCHES = 3
"""A node is silent after this number of announced batch spans without a sample."""

SILENT_LEAST_NS = 15 * 1_000_000_000
OFFSET_HORIZON_NS = 300 * 1_000_000_000
MAX_COLLECTORS = 64
MAX_ERROR_CHARS = 200
MAX_UNHEARD = 1000
"""Limit of listed nodes that never sent a sample: unknown clients can invent names at no cost."""

_STATES: Mapping[str, NodeState] = {"up": "up", "stopped": "stopped", "down": "down"}


class ClockOffset:
    """Estimate of a node's clock minus the aggregator's, from the send and receive times of its messages.

    A message is never received before it was sent, so each bounds the offset from below, and a delay only
    loosens the bound. The best bound of the last five to ten minutes is the estimate: too low by the shortest
    delay, and unaffected by delayed or retained messages.
    """

    __slots__ = ("_before", "_best", "_bucket")

    def __init__(self) -> None:
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
        self._best = max(self._best, made_ns - received_ns)

    @property
    def seconds(self) -> float:
        """The estimate; NaN before the first message."""
        best = max(self._best, self._before)
        return best / 1e9 if best > -math.inf else math.nan


@dataclass(frozen=True, slots=True)
class _Figures:
    """An agent's figures; None for missing ones and those of the wrong type."""

    version: str = ""
    spool_bytes: int | None = None
    dropped_samples: int | None = None
    missed_ticks: int | None = None
    cpu_seconds: float | None = None
    resident_bytes: int | None = None


_NOTHING = _Figures()


@dataclass(slots=True)
class _Node:
    role: str
    first_seen_ns: int
    state: NodeState = "up"
    heard_from_ns: int = 0
    figures: _Figures = _NOTHING
    collectors: Mapping[str, CollectorView] = field(default_factory=dict)
    last_sample_ns: int = 0
    last_data_ns: int = 0
    span_ns: int = 0
    interval_ns: int = 0
    offset: ClockOffset = field(default_factory=ClockOffset)


class Nodes:
    """All nodes by name. Times are by the aggregator's clock, ns, unless stated otherwise."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}

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

    def data(self, name: str, newest_read_ns: int, received_ns: int) -> None:
        """Notes a batch whose last reading was at `newest_read_ns` by the node's clock."""
        node = self._nodes[name]
        node.last_sample_ns = max(node.last_sample_ns, newest_read_ns)
        node.last_data_ns = received_ns
        node.offset.add(newest_read_ns, received_ns)

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
        figures = _Figures(
            version=_text(status.get("version")),
            spool_bytes=_count(status.get("spool_bytes")),
            dropped_samples=_count(status.get("dropped_samples")),
            missed_ticks=_count(status.get("missed_ticks")),
            cpu_seconds=_number(status.get("cpu_seconds")),
            resident_bytes=_count(status.get("resident_bytes")),
        )
        node.figures = _NOTHING if figures == _NOTHING else figures
        node.collectors = dict(_collectors(status.get("collectors")))

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
        """The aggregator did not listen before `since_ns`; that time makes no node silent."""
        for node in self._nodes.values():
            node.heard_from_ns = since_ns

    def counts(self, now_ns: int) -> Mapping[tuple[str, NodeState], int]:
        """Number of nodes by role and state."""
        return Counter((node.role, _state(node, now_ns)) for node in self._nodes.values())

    def roles(self) -> tuple[RoleView, ...]:
        """The figures of each role's agents, by role."""
        roles: dict[str, RoleStats] = {}
        for node in self._nodes.values():
            role, figures = roles.get(node.role), node.figures
            if role is None:
                role = roles[node.role] = RoleStats()
            if figures is _NOTHING and not node.collectors and not node.last_data_ns:
                continue  # no agent known: there may be tens of thousands of such names
            if figures.spool_bytes is not None:
                role.spool_bytes.append(figures.spool_bytes)
            if figures.resident_bytes is not None:
                role.resident_bytes.append(figures.resident_bytes)
            role.dropped_samples += figures.dropped_samples or 0
            role.missed_ticks += figures.missed_ticks or 0
            role.cpu_seconds += figures.cpu_seconds or 0.0
            offset = node.offset.seconds
            if not math.isnan(offset):
                role.offsets.append(abs(offset))
            role.add_collectors(node.collectors)
        return tuple(role.view(name) for name, role in sorted(roles.items()))

    def views(self, now_ns: int) -> tuple[NodeView, ...]:
        """Every node, by name."""
        return tuple(_view(name, self._nodes[name], now_ns) for name in sorted(self._nodes))

    def view(self, name: str, now_ns: int) -> NodeView | None:
        """One node."""
        node = self._nodes.get(name)
        return None if node is None else _view(name, node, now_ns)

    def unhealthy(self, now_ns: int) -> tuple[NodeView, ...]:
        """The unhealthy nodes, by name; of those that never sent a sample the first MAX_UNHEARD."""
        heard = [
            name for name, node in self._nodes.items() if node.last_data_ns and not _is_healthy(node, now_ns)
        ]
        others = (
            name
            for name, node in self._nodes.items()
            if not node.last_data_ns and not _is_healthy(node, now_ns)
        )
        names = sorted((*heard, *islice(others, MAX_UNHEARD)))
        return tuple(_view(name, self._nodes[name], now_ns) for name in names)


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
    figures = node.figures
    return NodeView(
        node=name,
        role=node.role,
        state=_state(node, now_ns),
        healthy=_is_healthy(node, now_ns),
        last_sample=node.last_sample_ns / 1e9 if node.last_sample_ns else math.nan,
        clock_offset_seconds=node.offset.seconds,
        version=figures.version,
        collectors=node.collectors,
        spool_bytes=figures.spool_bytes,
        dropped_samples=figures.dropped_samples,
        missed_ticks=figures.missed_ticks,
        cpu_seconds=figures.cpu_seconds,
        resident_bytes=figures.resident_bytes,
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
