"""Store of one peer group whose members are sums over components: of a node, or towards one address.

A row is a component of one of the summed sources and has only its own part's counters; the sums are computed
when a window closes. So every component has its own resets and gaps.
"""

from collections.abc import Mapping

import numpy as np

from laggard_aggregator.groups.membership import PeerGroup
from laggard_aggregator.metrics.definition import FloatArray, IntArray
from laggard_aggregator.metrics.sums import JoinedMetrics, joined, summed
from laggard_aggregator.windows.store import GroupStore, Table

_APART = "\t"  # no name holds it


class SumsStore(GroupStore):
    """The rings of one group of sums. `components` are summed; `compared` are the sums."""

    def __init__(self, group: PeerGroup, source: JoinedMetrics, history: int, watermark_ns: int) -> None:
        super().__init__(group, source, history, watermark_ns)
        self._source = source
        self._names: list[str] = []
        self._sum_of: list[int] = []  # by row
        self._part_of: list[int] = []
        self._parts = list(source.parts)
        self._whole: list[str] = []

    @property
    def compared(self) -> list[str]:
        """The sums that have every part, in the order of their first component."""
        self._learn()
        return self._whole

    def key(self, source: str, component: str) -> str:
        """Key with the source, as components of two sources may have one name."""
        return f"{source}{_APART}{component}"

    def names_of(self, key: str) -> tuple[str, ...]:
        """The component's own ID, and that of its sum."""
        own = key.partition(_APART)[2]
        return own, self._source.name_of(own)

    def forget(self, rows: IntArray) -> list[str]:
        """As in GroupStore; returns the sums left without components."""
        before = self.compared
        super().forget(rows)
        self._names, self._sum_of, self._part_of, self._whole = [], [], [], []
        self._live = np.zeros(0, dtype=np.bool_)
        kept = set(self.compared)
        return [name for name in before if name not in kept]

    def _tables(self) -> tuple[list[str], Mapping[str, Table], Mapping[str, Table]]:
        """As in GroupStore, for the sums. A part without a reading is unknown, not 0."""
        self._learn()
        sums, parts = np.array(self._sum_of, dtype=np.intp), np.array(self._part_of, dtype=np.intp)
        amounts: dict[str, FloatArray] = {}
        for at, part in enumerate(self._parts):
            rows = np.flatnonzero(parts == at)
            for counter in self._source.parts[part]:
                if counter in self._intervals.metrics:
                    rises = self._intervals.metrics[counter][rows].astype(np.float64)
                    amounts[counter] = summed(rises, sums[rows], len(self._names))
        columns, load = joined(self._source, self.group.metrics, amounts, self.interval_ns / 1e9)
        return self._names, columns, load

    def _learn(self) -> None:
        """Assigns new rows to their sums."""
        if len(self._sum_of) == len(self.components):
            return
        places = {name: at for at, name in enumerate(self._names)}
        for row in self.components[len(self._sum_of) :]:
            source, _, key = row.partition(_APART)
            name = self._source.name_of(key)
            if name not in places:
                places[name] = len(self._names)
                self._names.append(name)
            self._sum_of.append(places[name])
            self._part_of.append(self._parts.index(source))
        known_parts = set(zip(self._sum_of, self._part_of, strict=True))
        parts = [
            at
            for at, part in enumerate(self._parts)
            if set(self._source.parts[part]) & set(self._intervals.metrics)
        ]
        self._whole = [
            name for at, name in enumerate(self._names) if all((at, part) in known_parts for part in parts)
        ]
