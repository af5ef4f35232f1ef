"""Stores small blocks of many nodes together, so that they share numpy's cost per call."""

import numpy as np

from laggard_aggregator.windows.counter_block import Block
from laggard_aggregator.windows.store import GroupStore

MIN_BLOCKS = 4
"""Fewer blocks of one shape are stored one by one."""


class BulkStore:
    """Blocks that wait for `flush`, which leaves the stores as if each had been stored when it was added."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, tuple[int, ...]], tuple[GroupStore, list[Block], list[int]]] = {}

    def add(self, store: GroupStore, block: Block, origin: int) -> None:
        """Adds a block. `origin`: the new origin of its rows, 0 for no change."""
        key = (id(store), block.values.shape)
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = (store, [], [])
        waiting[1].append(block)
        waiting[2].append(origin)

    def flush(self) -> None:
        """Stores the waiting blocks, no two of which share a component."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, {}
        for store, blocks, origins in waiting.values():
            stored = np.zeros(len(blocks), dtype=np.bool_)
            if len(blocks) >= MIN_BLOCKS:
                stored = store.add_bulk(blocks, np.array(origins))
            for at in np.flatnonzero(~stored).tolist():
                if origins[at]:
                    store.set_origin(blocks[at].rows, origins[at])
                store.add(blocks[at])
