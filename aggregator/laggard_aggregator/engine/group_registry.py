"""The peer groups that there are, each with its store and its windows, and how many there may be."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from laggard_aggregator.alarms.judge import Engine
from laggard_aggregator.groups.membership import PeerGroup
from laggard_aggregator.metrics.functions import FUNCTIONS
from laggard_aggregator.metrics.registry import SOURCES
from laggard_aggregator.metrics.sums import JoinedMetrics
from laggard_aggregator.windows.function_store import FunctionStore
from laggard_aggregator.windows.schedule import WindowSchedule
from laggard_aggregator.windows.store import GroupStore
from laggard_aggregator.windows.sums_store import JoinedStore

MAX_GROUPS = 1024
"""Of which automatic ones may be; those of the configuration always find room."""

MAX_ONE_NODE_GROUPS = MAX_GROUPS // 2
"""When there are so many groups, those whose members are of one node alone find no room any more."""

MAX_NODE_GROUPS = 64
"""Automatic groups that one node may bring into being: it must not take the others' places."""


class GroupRegistry:
    """Groups and their stores, by name, which are only ever added. `windows`: when theirs are to be closed.

    `engine` is going to judge them. Groups that find no room are counted in `refused`.
    """

    def __init__(self, engine: Engine, windows: WindowSchedule, refused: Counter[str]) -> None:
        self.windows = windows
        self.groups: dict[str, PeerGroup] = {}
        self.stores: dict[str, GroupStore | FunctionStore] = {}
        self._engine = engine
        self._refused = refused
        self._node_groups: Counter[str] = Counter()

    def admit(self, group: PeerGroup, node: str, now_ns: int) -> bool:
        """Whether there is room for a group that is new, which is added then; `node` has its first member."""
        if group.automatic:
            room = MAX_ONE_NODE_GROUPS if group.one_node else MAX_GROUPS
            if len(self.stores) >= room or self._node_groups[node] >= MAX_NODE_GROUPS:
                self._refused["groups"] += 1
                return False
            self._node_groups[node] += 1
        self.add(group, now_ns)
        return True

    def add(self, group: PeerGroup, now_ns: int) -> None:
        """Makes the store and the windows of a group that is new."""
        detect = group.detect
        self._engine.add_group(group.name, detect)
        interval_ns = round(detect.interval_seconds * 1e9)
        begun_ns = self.windows.add(
            group.name, interval_ns * detect.shift_samples, interval_ns * detect.window_samples, now_ns
        )
        self.groups[group.name] = group
        if group.source in FUNCTIONS:
            self.stores[group.name] = FunctionStore(group, FUNCTIONS[group.source], begun_ns)
            return
        history = max(self._engine.history_samples(group.name, metric) for metric in group.metrics)
        known = SOURCES[group.source]
        self.stores[group.name] = (
            JoinedStore(group, known, history, begun_ns)
            if isinstance(known, JoinedMetrics)
            else GroupStore(group, known, history, begun_ns)
        )

    def forget(self, nodes: Collection[str]) -> None:
        """Waits for `nodes` no more; the groups that they brought into being are counted as nobody's."""
        for node in nodes:
            for name in self.groups:
                self.windows.forget(name, node)
            self._node_groups.pop(node, None)

    def state(self) -> dict[str, Any]:
        """How many groups each node brought into being, as plain data."""
        return {"node_groups": dict(self._node_groups)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state()`; groups are added besides. Raises ValueError on what is none."""
        self._node_groups.update({str(node): int(count) for node, count in state["node_groups"].items()})
