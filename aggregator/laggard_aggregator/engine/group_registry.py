"""Peer groups with their stores and windows, and the limits on their number."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from laggard_aggregator.alarms.judge import Judge
from laggard_aggregator.groups.membership import PeerGroup
from laggard_aggregator.metrics.registry import FUNCTIONS, SOURCES
from laggard_aggregator.metrics.sums import JoinedMetrics
from laggard_aggregator.windows.function_store import FunctionStore
from laggard_aggregator.windows.schedule import WindowSchedule
from laggard_aggregator.windows.store import GroupStore
from laggard_aggregator.windows.sums_store import SumsStore

MAX_GROUPS = 1024
"""Limit of automatic groups; configured groups are always admitted."""

MAX_ONE_NODE_GROUPS = MAX_GROUPS // 2
"""From this number of groups on, automatic groups within one node are refused."""

MAX_NODE_GROUPS = 64
"""Limit of automatic groups that one node creates."""


class GroupRegistry:
    """Groups and their stores by name; none is ever removed. Groups without room are counted in `refused`."""

    def __init__(self, judge: Judge, windows: WindowSchedule, refused: Counter[str]) -> None:
        self.windows = windows
        self.groups: dict[str, PeerGroup] = {}
        self.stores: dict[str, GroupStore | FunctionStore] = {}
        self._judge = judge
        self._refused = refused
        self._node_groups: Counter[str] = Counter()

    def admit(self, group: PeerGroup, node: str, now_ns: int) -> bool:
        """Adds a new group if there is room, and returns whether there was. `node` has its first member."""
        if group.automatic:
            room = MAX_ONE_NODE_GROUPS if group.one_node else MAX_GROUPS
            if len(self.stores) >= room or self._node_groups[node] >= MAX_NODE_GROUPS:
                self._refused["groups"] += 1
                return False
            self._node_groups[node] += 1
        self.add(group, now_ns)
        return True

    def add(self, group: PeerGroup, now_ns: int) -> None:
        """Creates the store and the window schedule of a new group."""
        detect = group.detect
        self._judge.add_group(group.name, detect)
        interval_ns = round(detect.interval_seconds * 1e9)
        begun_ns = self.windows.add(
            group.name, interval_ns * detect.shift_samples, interval_ns * detect.window_samples, now_ns
        )
        self.groups[group.name] = group
        if group.source in FUNCTIONS:
            self.stores[group.name] = FunctionStore(group, FUNCTIONS[group.source], begun_ns)
            return
        history = max(self._judge.history_samples(group.name, metric) for metric in group.metrics)
        known = SOURCES[group.source]
        self.stores[group.name] = (
            SumsStore(group, known, history, begun_ns)
            if isinstance(known, JoinedMetrics)
            else GroupStore(group, known, history, begun_ns)
        )

    def forget(self, nodes: Collection[str]) -> None:
        """Drops `nodes` from the window schedule and from the count of groups per node."""
        for node in nodes:
            for name in self.groups:
                self.windows.forget(name, node)
            self._node_groups.pop(node, None)

    def state(self) -> dict[str, Any]:
        """Number of groups that each node created, as plain data."""
        return {"node_groups": dict(self._node_groups)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores `state()`, without the groups. Raises ValueError when it is malformed."""
        self._node_groups.update({str(node): int(count) for node, count in state["node_groups"].items()})
