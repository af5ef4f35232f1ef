"""Amounts a row on an even grid, with gaps."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
LONGEST_GAP = 600
"""Rows. A longer gap is kept as one of this length: it ends a phase either way, and memory stays bounded."""


@dataclass(frozen=True, slots=True)
class RateSeries:
    """Amounts of one direction. Rows lie `step` seconds apart; a gap is longer than that.

    `times`, `amounts`: shape (n,), seconds and bytes or operations of the rows that are there. `place`: each
    row's position in the grid of `size` rows. `busy`: shape (n,), seconds of each row in which it moved, None
    where that is not known.
    """

    times: FloatArray
    amounts: FloatArray
    place: NDArray[np.int64]
    size: int
    step: float
    busy: FloatArray | None = None

    def gridded(self) -> FloatArray:
        """Amounts, shape (size,), NaN in gaps; not to be changed."""
        if self.amounts.size == self.size:
            return self.amounts
        grid = np.full(self.size, np.nan)
        grid[self.place] = self.amounts
        return grid


def rate_series(times: ArrayLike, amounts: ArrayLike, busy: ArrayLike | None = None) -> RateSeries:
    """The series of `amounts`, shape (n,), at `times`, seconds, in any order.

    `busy`: seconds of each in which it moved.
    Rows with a NaN or negative amount are gaps; amounts of equal times are added up. The step is the median
    distance of rows. Raises ValueError without two rows at different times.
    """
    when, moved = np.asarray(times, np.float64), np.asarray(amounts, np.float64)
    known = np.isfinite(when) & np.isfinite(moved) & (moved >= 0)
    active = None if busy is None else np.nan_to_num(np.asarray(busy, np.float64))
    if not known.all():
        when, moved = when[known], moved[known]
        active = None if active is None else active[known]
    distances = when[1:] - when[:-1]
    if distances.size and float(distances.min()) <= 0:
        when, row_of = np.unique(when, return_inverse=True)
        moved = np.bincount(row_of, weights=moved).astype(np.float64)
        active = None if active is None else np.bincount(row_of, weights=active).astype(np.float64)
        distances = when[1:] - when[:-1]
    if when.size < 2:
        raise ValueError("fewer than two rows")
    step = float(distances[0])
    if bool((distances == step).all()):
        return RateSeries(when, moved, np.arange(when.size), when.size, step, active)
    step = float(np.median(distances))
    moves = np.clip(np.rint(distances / step), 1, LONGEST_GAP).astype(np.int64)
    place = np.concatenate(([0], np.cumsum(moves)))
    return RateSeries(when, moved, place, int(place[-1]) + 1, step, active)
