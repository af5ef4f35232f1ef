"""Numbers of origins: a node with the counters that its components lack. Rows of stores carry them."""

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from laggard_aggregator.detect.interface import IntArray
from laggard_aggregator.engine.routes import ORIGIN_BITS
from laggard_aggregator.windows.store import GroupStore

_MASK = (1 << ORIGIN_BITS) - 1


class NodeOrigins:
    """The numbers in use, from 1; that of an origin which is gone is given to a new one."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, tuple[int, ...]], int] = {}
        self.free: list[int] = []  # a heap
        self._nodes: dict[int, str] = {}

    def number(self, node: str, absent: tuple[int, ...]) -> int:
        """The number of the node with its `absent` counters, the lowest free one if they are new."""
        number = self.numbers.get((node, absent))
        if number is None:
            number = heapq.heappop(self.free) if self.free else max(self.numbers.values(), default=0) + 1
            self.numbers[node, absent] = number
            self._nodes[number] = node
        return number

    def nodes_of(self, rows: IntArray) -> list[str]:
        """The node of each row's origin, empty where there is none."""
        return [self._nodes.get(number, "") for number in (rows & _MASK).tolist()]

    def count_rows(self, stores: Iterable[GroupStore]) -> Counter[str]:
        """The rows of each node by the latest origin of each row."""
        rows = Counter(node for store in stores for node in self.nodes_of(store.origins()))
        del rows[""]
        return rows

    def drop(self, nodes: Collection[str], stores: Iterable[GroupStore]) -> None:
        """Frees the numbers of `nodes` that no row has."""
        if not nodes:
            return
        used = {number for store in stores for number in (store.origins() & _MASK).tolist()}
        self.numbers = {
            origin: number
            for origin, number in self.numbers.items()
            if origin[0] not in nodes or number in used
        }
        self._index()

    def state(self) -> list[tuple[str, tuple[int, ...], int]]:
        """Plain data: the node, the counters that it lacks, and the number of each."""
        return [(node, absent, number) for (node, absent), number in self.numbers.items()]

    def restore(self, state: Iterable[Sequence[Any]]) -> None:
        """Restores `state()`. Raises ValueError when it is malformed."""
        for node, absent, number in state:
            self.numbers[str(node), tuple(map(int, absent))] = int(number)
        self._index()

    def _index(self) -> None:
        """Finds the node of each number, and the free numbers below the highest."""
        self._nodes = {number: node for (node, _), number in self.numbers.items()}
        self.free = [number for number in range(1, max(self._nodes, default=0)) if number not in self._nodes]
