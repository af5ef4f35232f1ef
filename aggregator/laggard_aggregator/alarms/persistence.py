"""Confirms stragglers: k of the last 2k - 1 windows, and accumulators (Intrepid 4.2, 4.3).

State is kept by component name in growing arrays, so a component may be absent from any window; a window in
which it was not judged does not change its state.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.interface import BoolArray, Verdicts

_KEPT = ("accumulator", "recent", "normal_run", "faulty", "since", "well", "relapses")
RELAPSE = 16
"""A component that is faulty again within this multiple of k judged windows has relapsed."""
MOST_RELAPSES = 2
"""Limit of relapses that count; each doubles the run of normal windows needed for recovery."""


class Persistence:
    """Accumulators and recent flags of one group and metric, for a growing set of components.

    `confirm` is the paper's k: a component is faulty when at least k of its last 2k - 1 judged windows were
    anomalous, and healthy again after k judged windows in a row that were not. An intermittent fault would be
    raised and cleared repeatedly: after a relapse recovery takes 2k windows, after another 4k.
    """

    def __init__(self, confirm: int) -> None:
        self.confirm = confirm
        self._rows: dict[str, int] = {}
        self._accumulator = np.zeros(0, dtype=np.int64)
        self._recent = np.zeros((0, 2 * confirm - 1), dtype=np.bool_)
        self._normal_run = np.zeros(0, dtype=np.int64)
        self._faulty = np.zeros(0, dtype=np.bool_)
        self._since = np.zeros(0, dtype=np.float64)
        self._well = np.zeros(0, dtype=np.int64)
        self._relapses = np.zeros(0, dtype=np.int64)

    def update(self, components: Sequence[str], start: float, verdicts: Verdicts) -> NDArray[np.intp]:
        """Adds a window that began at `start`; returns the rows of `components` in this object's arrays."""
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
        before, well, relapses = self._faulty[judged], self._well[judged], self._relapses[judged]
        raised = ~before & (self._recent[judged].sum(axis=1) >= self.confirm)
        again = np.where(well < RELAPSE * self.confirm, np.minimum(relapses + 1, MOST_RELAPSES), 0)
        self._relapses[judged] = np.where(raised, again, relapses)
        cleared = before & (self._normal_run[judged] >= self.confirm * 2**relapses)
        self._well[judged] = np.where(cleared, 0, np.where(before, well, well + 1))
        self._faulty[judged] = raised | (before & ~cleared)
        return rows

    def accumulator(self, rows: NDArray[np.intp]) -> NDArray[np.int64]:
        """Anomalous windows less normal ones, never below 0: what stragglers are ranked by (Intrepid 4.3)."""
        return self._accumulator[rows]

    def faulty(self, rows: NDArray[np.intp]) -> BoolArray:
        """True for each component that is a straggler now."""
        return self._faulty[rows]

    def since(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Start of the first anomalous window of the present episode, epoch seconds."""
        return self._since[rows]

    def forget(self, components: Collection[str]) -> None:
        """Frees the state of `components`, as after their replacement."""
        kept = [(name, row) for name, row in self._rows.items() if name not in components]
        rows = np.array([row for _, row in kept], dtype=np.intp)
        self._rows = {name: at for at, (name, _) in enumerate(kept)}
        for name in _KEPT:
            setattr(self, f"_{name}", getattr(self, f"_{name}")[rows])

    def state(self) -> dict[str, Any]:
        """Everything as plain data, by component."""
        kept = zip(*(getattr(self, f"_{name}").tolist() for name in _KEPT), strict=True)
        return {name: dict(zip(_KEPT, of, strict=True)) for name, of in zip(self._rows, kept, strict=True)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores `state()` of an object with the same `confirm`."""
        rows = self._rows_of(list(state))
        for row, kept in zip(rows, state.values(), strict=True):
            for name, value in kept.items():
                getattr(self, f"_{name}")[row] = value

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
            never = np.full(new, RELAPSE * self.confirm, dtype=np.int64)
            self._well = np.concatenate([self._well, never])
            self._relapses = np.concatenate([self._relapses, np.zeros(new, dtype=np.int64)])
        return np.fromiter((self._rows[name] for name in components), dtype=np.intp, count=len(components))
