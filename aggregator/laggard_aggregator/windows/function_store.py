"""Store of one peer group of nodes that are compared by their function profiles.

The counterpart of `store.GroupStore`: the component is the node, and its value in a window is a vector over
functions, joined by name over the group's nodes. A node keeps its own functions; only functions with a rise
in a window become its columns. A message, and a node's share of a close, cost a handful of numpy calls for
any number of functions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from laggard_aggregator.detect.interface import FunctionWindow
from laggard_aggregator.groups.membership import PeerGroup
from laggard_aggregator.metrics.definition import FloatArray, FunctionMetrics, IntArray
from laggard_aggregator.windows.counter_block import Block, StoreCounts
from laggard_aggregator.windows.function_counters import NodeFunctions
from laggard_aggregator.windows.interval_metrics import BRIDGE
from laggard_aggregator.windows.store import FUTURE_NS
from laggard_common import wire
from laggard_common.wire.schema import Schema

MAX_SERVERS = 1024
"""Limit of a group's nodes: every pair is compared."""
MAX_NODE_FUNCTIONS = 8192
"""Limit of one node's functions, in the order of its schema."""
MAX_NAMES = 65_536
"""Limit of distinct function names of a group."""
MAX_FUNCTIONS = 8192
"""Limit of functions in a window: those with the most time on any node."""
MAX_OPEN = 64
"""Limit of open intervals after the watermark."""
ENOUGH = 0.75
"""Share of a window that a node needs data for: 45 of 60 samples, as for `cdf`."""


class FunctionStore:
    """The functions of one group's nodes. `watermark_ns`: end of the last closed window."""

    series = 0
    """`manhattan` has thresholds, and no share of the site's false-alarm budget."""

    def __init__(self, group: PeerGroup, source: FunctionMetrics, watermark_ns: int) -> None:
        self.group = group
        self.window_seconds = group.detect.window_seconds
        self.counts = StoreCounts()
        self.counters = source.counters(group.metrics)
        self.interval_ns = round(group.detect.interval_seconds * 1e9)
        self._metrics = {name: source.metrics[name] for name in group.metrics}
        self._seconds = source.seconds
        self._watermark = watermark_ns // self.interval_ns
        self._nodes: dict[str, NodeFunctions] = {}
        self._ids: dict[str, int] = {}
        self._names = np.zeros(0, dtype=object)
        self._rank = np.zeros(0, dtype=np.int64)
        self._is_numbered = True  # _names and _rank are those of _ids

    @property
    def components(self) -> list[str]:
        """The nodes, in the order of their first batch."""
        return list(self._nodes)

    @property
    def compared(self) -> list[str]:
        """The compared components: the nodes."""
        return self.components

    @property
    def watermark_ns(self) -> int:
        """End of the last closed window: readings at or before it are late."""
        return self._watermark * self.interval_ns

    @property
    def live(self) -> int:
        """Number of nodes with data in the last `shift` intervals of the last closed window."""
        shift = self.group.detect.shift_samples
        return sum(node.covered(shift) > 0 for node in self._nodes.values())

    def state(self) -> dict[str, Any]:
        """State as plain data and copied arrays."""
        return {
            "counters": list(self.counters),
            "watermark": self._watermark,
            "names": list(self._ids),
            "nodes": [(name, node.state()) for name, node in self._nodes.items()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores `state()`. Raises ValueError when it has other counters, or is out of bounds."""
        if state["counters"] != list(self.counters):
            raise ValueError("the group is compared by something else now")
        if len(state["nodes"]) > MAX_SERVERS or len(state["names"]) > MAX_NAMES:
            raise ValueError("a group of nodes out of bounds")
        self._watermark = int(state["watermark"])
        self._ids = {str(name): at for at, name in enumerate(state["names"])}
        self._is_numbered = False
        for name, kept in state["nodes"]:
            node = self._node(wire.decode_schema(kept["schema"]))
            node.restore(kept)
            if node.ids.size and not 0 <= node.ids.min() <= node.ids.max() < len(self._ids):
                raise ValueError("numbers of functions out of bounds")
            self._nodes[str(name)] = node

    def names_of(self, key: str) -> tuple[str, ...]:
        """As in GroupStore."""
        return (key,)

    def silent_since(self, before_ns: int) -> IntArray:
        """The places in `components` of nodes whose newest reading is from before `before_ns`."""
        return np.flatnonzero([node.latest_tick_ns < before_ns for node in self._nodes.values()])

    def forget(self, rows: IntArray) -> list[str]:
        """Drops the nodes at the places `rows` and returns their names; cached nodes are invalid then."""
        names = self.components
        gone = [names[row] for row in rows]
        for name in gone:
            del self._nodes[name]
        return gone

    def rewind(self, end_ns: int) -> None:
        """As in GroupStore, but without the nodes, which join again; cached nodes are invalid then."""
        self._watermark = end_ns // self.interval_ns
        self._nodes.clear()

    def join(self, schema: Schema, places: Sequence[int]) -> tuple[NodeFunctions | None, int]:
        """The node of `schema` with its functions at `places`, and the number of functions without room.

        None when the group has no room for the node. A node whose schema does not continue the earlier one
        restarts.
        """
        node = self._nodes.get(schema.node)
        if node is None and len(self._nodes) >= MAX_SERVERS:
            return None, len(places)
        if node is None or not node.continues(schema):
            node = self._nodes[schema.node] = self._node(schema)
        known = node.rows.size
        if known >= len(schema.components):
            return node, 0
        fresh = [place for place in places if place >= known][: MAX_NODE_FUNCTIONS - node.ids.size]
        ids = self._ids_of([schema.components[place].id for place in fresh])
        known_ids = [(place, at) for place, at in zip(fresh, ids, strict=True) if at >= 0]
        rows = np.full(len(schema.components), -1, dtype=np.int64)
        rows[:known] = node.rows
        rows[[place for place, _ in known_ids]] = node.ids.size + np.arange(len(known_ids))
        node.grow(schema, rows, np.concatenate([node.ids, [at for _, at in known_ids]]).astype(np.int64))
        return node, sum(place >= known for place in places) - len(known_ids)

    def add(self, node: NodeFunctions, block: Block, received_ns: int) -> None:
        """Stores a message's counters; late and future ticks are skipped and counted."""
        ticks, functions = block.tick_ns, block.indexes.size
        latest_ns = min(
            received_ns + FUTURE_NS + BRIDGE * self.interval_ns,
            self.watermark_ns + MAX_OPEN * self.interval_ns,
        )
        first = int(np.searchsorted(ticks, self.watermark_ns, side="right"))
        last = int(np.searchsorted(ticks, latest_ns, side="right"))
        self.counts.late += first * functions
        self.counts.future += max(ticks.size - last, 0) * functions
        if first < last:
            self.counts.resets += node.add(block.only(slice(first, last)))

    def close(self, end_ns: int) -> FunctionWindow | None:
        """The window that ends at `end_ns`, a multiple of the interval after the watermark; None when empty.

        Data up to `end_ns` is late afterwards. A node with data for less than ENOUGH of the window is absent;
        smaller gaps are filled by scaling.
        """
        end = end_ns // self.interval_ns
        for node in self._nodes.values():
            node.close(self._watermark, end)
        self._watermark = end
        seconds = self.window_seconds
        whole = self.group.detect.window_samples
        covered = {name: node.covered(whole) for name, node in self._nodes.items()}
        some = tuple(name for name, known in covered.items() if known > 0)
        if not some:
            return None
        there = [at for at, name in enumerate(some) if covered[name] >= ENOUGH * seconds]
        names, sums, left_out = self._joined([some[at] for at in there], seconds)

        def spread(counter: str, scale: float) -> FloatArray:
            values = np.full((len(some), len(names)), np.nan)
            values[there] = sums[:, :, self.counters.index(counter)] * scale
            return values

        return FunctionWindow(
            group=self.group.name,
            components=some,
            functions=names,
            start=end_ns / 1e9 - seconds,
            end=end_ns / 1e9,
            metrics={name: spread(metric.counter, metric.scale) for name, metric in self._metrics.items()},
            seconds=spread(self._seconds.counter, self._seconds.scale),
            left_out=left_out,
        )

    def _joined(self, nodes: Sequence[str], seconds: float) -> tuple[tuple[str, ...], FloatArray, int]:
        """Names (F,) of functions with a rise, sorted, sums (nodes, F, counters), and the number left out."""
        self._number()
        deciding = self.counters.index(self._seconds.counter)
        peak = np.zeros(self._names.size)
        active = np.zeros(self._names.size, dtype=np.bool_)
        parts = []
        for name in nodes:
            node = self._nodes[name]
            sums = node.sums(seconds)
            rose = np.flatnonzero(sums.any(axis=1))
            ids, sums = node.ids[rose], sums[rose]
            active[ids] = True
            peak[ids] = np.maximum(peak[ids], sums[:, deciding])
            parts.append((ids, sums))
        chosen = np.flatnonzero(active)
        chosen = chosen[np.argsort(self._rank[chosen])]
        left_out = max(chosen.size - MAX_FUNCTIONS, 0)
        if left_out:
            most = np.argsort(-peak[chosen], kind="stable")[:MAX_FUNCTIONS]
            chosen = chosen[np.sort(most)]
        column: IntArray = np.full(self._names.size, -1, dtype=np.int64)
        column[chosen] = np.arange(chosen.size)
        joined = np.zeros((len(nodes), chosen.size, len(self.counters)))
        for at, (ids, sums) in enumerate(parts):
            kept = column[ids] >= 0
            joined[at, column[ids[kept]]] = sums[kept]
        return tuple(self._names[chosen].tolist()), joined, left_out

    def _ids_of(self, names: Sequence[str]) -> list[int]:
        """The group's number of each function; -1 without room, after dropping unused numbers."""
        new = sum(name not in self._ids for name in names)
        if len(self._ids) + new > MAX_NAMES:
            self._forget()
        for name in names:
            if len(self._ids) < MAX_NAMES:
                self._ids.setdefault(name, len(self._ids))
        if new:
            self._is_numbered = False
        return [self._ids.get(name, -1) for name in names]

    def _node(self, schema: Schema) -> NodeFunctions:
        samples = self.group.detect.window_samples
        return NodeFunctions(schema, len(self.counters), samples, self.interval_ns)

    def _number(self) -> None:
        """Sorts the names once for all new ones, as sorting with each message would take too long."""
        if not self._is_numbered:
            self._names = np.array(list(self._ids), dtype=object)
            self._rank = np.argsort(np.argsort(self._names))
            self._is_numbered = True

    def _forget(self) -> None:
        """Frees the numbers of functions that no node has."""
        self._number()
        none = np.zeros(0, dtype=np.int64)
        kept = np.unique(np.concatenate([none, *(node.ids for node in self._nodes.values())]))
        renumbered = np.zeros(self._names.size, dtype=np.int64)
        renumbered[kept] = np.arange(kept.size)
        self._ids = {name: at for at, name in enumerate(self._names[kept].tolist())}
        self._is_numbered = False
        for node in self._nodes.values():
            node.ids = renumbered[node.ids]
