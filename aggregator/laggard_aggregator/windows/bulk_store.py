"""Small readings of many nodes that are stored at once: what numpy costs a call is shared by all of them."""

import numpy as np

from laggard_aggregator.windows.counter_block import Reading
from laggard_aggregator.windows.store import GroupStore

LEAST_TOGETHER = 4

_Waiting = tuple[GroupStore, list[Reading], list[int]]


class Together:
    """Readings that wait for `flush`; then stores are as if each had been taken when it was added."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, tuple[int, ...]], _Waiting] = {}

    def add(self, store: GroupStore, reading: Reading, origin: int) -> None:
        """Lets a reading wait. `origin`: what its counters come from, 0 when it is what it was."""
        key = (id(store), reading.values.shape)
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = (store, [], [])
        waiting[1].append(reading)
        waiting[2].append(origin)

    def flush(self) -> None:
        """Stores what waits, of which no two may be of one component."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, {}
        for store, readings, origins in waiting.values():
            stored = np.zeros(len(readings), dtype=np.bool_)
            if len(readings) >= LEAST_TOGETHER:
                stored = store.take_together(readings, np.array(origins))
            for at in np.flatnonzero(~stored).tolist():
                if origins[at]:
                    store.begin(readings[at].rows, origins[at])
                store.take(readings[at])
