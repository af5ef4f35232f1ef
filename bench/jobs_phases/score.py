"""F1 of found phases against true ones at an overlap (intersection over union)."""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

Interval = tuple[float, float]


def matched(true: Sequence[Interval], found: Sequence[Interval], overlap: float) -> int:
    """Pairs of a one-to-one assignment whose intersection over union is at least `overlap`."""
    if not true or not found:
        return 0
    a, b = np.asarray(true, float), np.asarray(found, float)
    inside = np.minimum(a[:, None, 1], b[None, :, 1]) - np.maximum(a[:, None, 0], b[None, :, 0])
    union = (a[:, 1] - a[:, 0])[:, None] + (b[:, 1] - b[:, 0])[None, :] - np.maximum(inside, 0)
    good = np.maximum(inside, 0) / union >= overlap
    rows, columns = linear_sum_assignment(-good.astype(float))
    return int(good[rows, columns].sum())


def f1(hits: int, true: int, found: int) -> float:
    """Harmonic mean of precision and recall; 1 where there is nothing to find and nothing found."""
    return 2 * hits / (true + found) if true + found else 1.0
