"""From raw flags of windows to stragglers: k of the last 2k - 1, and accumulators (Intrepid 4.2, 4.3).

State is kept by component name in growing arrays, so a component may be absent from any window; a window in
which it was not judged changes nothing for it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.seam import BoolArray, Verdicts

_KEPT = ("accumulator", "recent", "normal_run", "faulty", "since")


class Persistence:
    """Accumulators and recent flags of one group and metric, for a growing set of components.

    `confirm` is the paper's k: a component is faulty when at least k of its last 2k - 1 judged windows were
    anomalous, and healthy again after k judged windows in a row that were not.
    """

    def __init__(self, confirm: int) -> None:
        self.confirm = confirm
        self._rows: dict[str, int] = {}
        self._accumulator = np.zeros(0, dtype=np.int64)
        self._recent = np.zeros((0, 2 * confirm - 1), dtype=np.bool_)
        self._normal_run = np.zeros(0, dtype=np.int64)
        self._faulty = np.zeros(0, dtype=np.bool_)
        self._since = np.zeros(0, dtype=np.float64)

    def update(self, components: Sequence[str], start: float, verdicts: Verdicts) -> NDArray[np.intp]:
        """The rows of `components` in this object's arrays, with a window that began at `start` taken in."""
        rows = self._rows_of(components)
        judged = rows[verdicts.judged]
        flags = verdicts.anomalous[verdicts.judged]
        accumulator = self._accumulator[judged]
        self._accumulator[judged] = np.where(flags, accumulator + 1, np.maximum(accumulator - 1, 0))
        fresh = flags & ~self._recent[judged].any(axis=1) & ~self._faulty[judged]
        self._since[judged[fresh]] = start
        self._recent[judged] = np.roll(self._recent[judged], -1, axis=1)
        self._recent[judged, -1] = flags
        self._normal_run[judged] = np.where(flags, 0, self._normal_run[judged] + 1)
        raised = self._recent[judged].sum(axis=1) >= self.confirm
        cleared = self._normal_run[judged] >= self.confirm
        self._faulty[judged] = np.where(self._faulty[judged], ~cleared, raised)
        return rows

    def accumulator(self, rows: NDArray[np.intp]) -> NDArray[np.int64]:
        """Anomalous windows less normal ones, never below 0: what stragglers are ranked by (Intrepid 4.3)."""
        return self._accumulator[rows]

    def faulty(self, rows: NDArray[np.intp]) -> BoolArray:
        """Whether each component is a straggler now."""
        return self._faulty[rows]

    def since(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Start of the first anomalous window of the present episode, epoch seconds."""
        return self._since[rows]

    def forget(self, components: Collection[str]) -> None:
        """Frees what is known of `components`, as after their replacement."""
        kept = [(name, row) for name, row in self._rows.items() if name not in components]
        rows = np.array([row for _, row in kept], dtype=np.intp)
        self._rows = {name: at for at, (name, _) in enumerate(kept)}
        for name in ("_accumulator", "_recent", "_normal_run", "_faulty", "_since"):
            setattr(self, name, getattr(self, name)[rows])

    def state(self) -> dict[str, Any]:
        """Everything as plain data, by component."""
        columns = (self._accumulator, self._recent, self._normal_run, self._faulty, self._since)
        kept = zip(*(column.tolist() for column in columns), strict=True)
        return {name: dict(zip(_KEPT, of, strict=True)) for name, of in zip(self._rows, kept, strict=True)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state()` of an object with the same `confirm`."""
        rows = self._rows_of(list(state))
        for row, kept in zip(rows, state.values(), strict=True):
            self._accumulator[row] = kept["accumulator"]
            self._recent[row] = kept["recent"]
            self._normal_run[row] = kept["normal_run"]
            self._faulty[row] = kept["faulty"]
            self._since[row] = kept["since"]

    def _rows_of(self, components: Sequence[str]) -> NDArray[np.intp]:
        known = len(self._rows)
        for name in components:
            self._rows.setdefault(name, len(self._rows))
        new = len(self._rows) - known
        if new:
            self._accumulator = np.concatenate([self._accumulator, np.zeros(new, dtype=np.int64)])
            self._recent = np.concatenate(
                [self._recent, np.zeros((new, self._recent.shape[1]), dtype=np.bool_)]
            )
            self._normal_run = np.concatenate([self._normal_run, np.zeros(new, dtype=np.int64)])
            self._faulty = np.concatenate([self._faulty, np.zeros(new, dtype=np.bool_)])
            self._since = np.concatenate([self._since, np.zeros(new)])
        return np.fromiter((self._rows[name] for name in components), dtype=np.intp, count=len(components))
