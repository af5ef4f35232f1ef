"""What is known of each node: whether it is there, how its clock stands, and how its agent fares."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from laggard_aggregator.ingest.node_view import CollectorView, NodeState, NodeView, RoleView
from laggard_aggregator.ingest.role_stats import Role
from laggard_common.wire.topics import ROLES, is_level

SILENT_BATCHES = 3
"""A node that should be up is silent when so many announced batch spans went by without a sample."""

SILENT_LEAST_NS = 15 * 1_000_000_000
OFFSET_HORIZON_NS = 300 * 1_000_000_000
MAX_COLLECTORS = 64
MAX_ERROR_CHARS = 200
MOST_UNHEARD = 1000
"""Of nodes that never sent a sample so many are told of one by one: a name costs a stranger nothing."""

_STATES: Mapping[str, NodeState] = {"up": "up", "stopped": "stopped", "down": "down"}


class ClockOffset:
    """How far a node's clock is ahead of ours, from when its messages say they were made and when they came.

    A message is never received before it was made, so every one bounds the offset from below; delays only
    make the bound looser. The best bound of the last five to ten minutes is the estimate, too low by the
    shortest delay on the way, and moved by no delayed or retained message.
    """

    __slots__ = ("_before", "_best", "_bucket")

    def __init__(self) -> None:
        self._bucket = -1
        self._best = -math.inf
        self._before = -math.inf

    def add(self, made_ns: int, received_ns: int) -> None:
        """Takes in one message."""
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
    """What an agent says of itself; None for what it does not say, or not in the right type."""

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


class NodeBook:
    """All nodes by name. Times are the aggregator's clock, ns, unless they say otherwise."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def add(self, name: str, role: str, now_ns: int) -> None:
        """Makes a node known; its role is the one it used last."""
        node = self._nodes.get(name)
        if node is None:
            self._nodes[name] = _Node(role, now_ns)
        else:
            node.role = role

    def announced(self, name: str, interval_ns: int, batch_ticks: int) -> None:
        """Takes in a schema's announcement; the longest span of a node's sources counts."""
        node = self._nodes[name]
        node.span_ns = max(node.span_ns, interval_ns * batch_ticks)
        node.interval_ns = max(node.interval_ns, interval_ns)

    def data(self, name: str, newest_read_ns: int, received_ns: int) -> None:
        """Takes in that a batch came, the last reading of which was made at `newest_read_ns` of its clock."""
        node = self._nodes[name]
        node.last_sample_ns = max(node.last_sample_ns, newest_read_ns)
        node.last_data_ns = received_ns
        node.offset.add(newest_read_ns, received_ns)

    def status(self, name: str, status: Mapping[str, Any], made_ns: int, received_ns: int) -> None:
        """Takes in a status message: of it only what has the right type is believed, and kept."""
        node = self._nodes[name]
        state = _STATES.get(_text(status.get("state")))
        if state is None:
            return
        node.state = state
        if state == "down":  # a last will was made when its agent connected, and says nothing else
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
        """The nodes of which nothing came since `before_ns`."""
        return [
            name
            for name, node in self._nodes.items()
            if max(node.last_data_ns, node.first_seen_ns) < before_ns
        ]

    def forget(self, name: str) -> None:
        """Lets a node be unknown again."""
        del self._nodes[name]

    def state(self) -> list[tuple[Any, ...]]:
        """What lasts as plain data, by node; agents say soon again what is not in it."""
        return [
            (
                *(name, node.role, node.first_seen_ns, node.state),
                *(node.last_sample_ns, node.last_data_ns, node.span_ns, node.interval_ns),
            )
            for name, node in self._nodes.items()
        ]

    def restore(self, state: Sequence[Sequence[Any]]) -> None:
        """Knows the nodes of `state()`. Raises ValueError on what is none."""
        for name, role, first_seen_ns, said, *times in state:
            if not is_level(name) or role not in ROLES or said not in _STATES or len(times) != 4:
                raise ValueError(f"node {name!r}"[:100])
            if not all(type(ns) is int and 0 <= ns < 2**63 for ns in (first_seen_ns, *times)):
                raise ValueError(f"node {name}: times")
            node = self._nodes[name] = _Node(role, first_seen_ns, said)
            node.last_sample_ns, node.last_data_ns, node.span_ns, node.interval_ns = times

    def listening(self, since_ns: int) -> None:
        """Nobody could be heard before `since_ns`, and so nobody is silent because of that time."""
        for node in self._nodes.values():
            node.heard_from_ns = since_ns

    def counts(self, now_ns: int) -> Mapping[tuple[str, NodeState], int]:
        """How many nodes of each role are in each state."""
        return Counter((node.role, _state(node, now_ns)) for node in self._nodes.values())

    def roles(self) -> tuple[RoleView, ...]:
        """What the agents of each role say of themselves, by role."""
        roles: dict[str, Role] = {}
        for node in self._nodes.values():
            role, figures = roles.get(node.role), node.figures
            if role is None:
                role = roles[node.role] = Role()
            if figures is _NOTHING and not node.collectors and not node.last_data_ns:
                continue  # no agent, as far as is known: there may be tens of thousands
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

    def unwell(self, now_ns: int) -> tuple[NodeView, ...]:
        """The nodes that are not well, by name; of those that never sent a sample the first MOST_UNHEARD."""
        heard = [name for name, node in self._nodes.items() if node.last_data_ns and not _well(node, now_ns)]
        others = (
            name for name, node in self._nodes.items() if not node.last_data_ns and not _well(node, now_ns)
        )
        names = sorted((*heard, *islice(others, MOST_UNHEARD)))
        return tuple(_view(name, self._nodes[name], now_ns) for name in names)


def _state(node: _Node, now_ns: int) -> NodeState:
    if node.state != "up":
        return node.state
    silent_after = max(SILENT_BATCHES * node.span_ns, SILENT_LEAST_NS)
    heard_ns = max(node.last_data_ns, node.first_seen_ns, node.heard_from_ns)
    return "silent" if now_ns - heard_ns > silent_after else "up"


def _well(node: _Node, now_ns: int) -> bool:
    """Up, all collectors fine, clock right to within one sampling interval.

    The offset is known to no better than the way of a message, so intervals under a second count as one.
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
        well=_well(node, now_ns),
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
    """Printable text of bounded length, whatever came."""
    if not isinstance(value, str):
        return ""
    return "".join(c if c.isprintable() else " " for c in value[:MAX_ERROR_CHARS])


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 2**63 else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 <= value < 2**63 else None
