"""Histogram bins over a whole peer group by the Freedman-Diaconis rule, as Intrepid 4.2 modifies it."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.cdf import BIN_LIMIT, BIN_LIMIT_MODE, BinLimitMode
from laggard_aggregator.detect.interface import FloatArray

_SAMPLED = 4096
_MARGIN = 160  # ranks in the sample: five standard deviations of a quartile's rank among 4,096


@dataclass(frozen=True, slots=True)
class Bins:
    """`count` bins of `size` from `low` up, in the metric's unit. The last one takes all that lies above."""

    low: float
    size: float
    count: int

    def indexes(self, values: FloatArray) -> NDArray[np.int16]:
        """The bin of each value, of the same shape. No value may be missing or below `low`."""
        if self.count == 1:
            return np.zeros(values.shape, dtype=np.int16)
        position = values - self.low
        position /= self.size
        np.minimum(position, self.count - 1, out=position)
        return position.astype(np.int16)


def freedman_diaconis(
    values: FloatArray, window_samples: int, limit: int = BIN_LIMIT, mode: BinLimitMode = BIN_LIMIT_MODE
) -> Bins:
    """The bins for one window of one group.

    `values` (N,): all smoothed samples of all members, none missing. BinSize = 2 IQR WinSize^(-1/3), the
    quartiles interpolated between order statistics, and Bins = Range / BinSize, rounded up. Beyond `limit`
    bins, `widen` stretches the bins to `limit` over the range, `clip` keeps their size and lets the last bin
    take the rest; the paper does not say which. With an IQR of 0 (an idle group) the rule asks for infinitely
    many bins and leaves no size to keep, so both modes then stretch `limit` bins over the range. A range of
    0 is one bin: all distributions are equal.
    """
    low, high = float(values.min()), float(values.max())
    span = high - low
    if span == 0:
        return Bins(low, 0.0, 1)
    first, third = quartiles(values)
    size = 2 * (third - first) * window_samples ** (-1 / 3)
    wanted = span / size if size > 0 else math.inf
    if wanted <= limit:
        return Bins(low, size, math.ceil(wanted))
    if mode == "clip" and size > 0:
        return Bins(low, size, limit)
    return Bins(low, span / limit, limit)


def quartiles(values: FloatArray) -> tuple[float, float]:
    """The first and third quartile of `values` (N,), each interpolated between two order statistics."""
    last = values.size - 1
    # A sample at multiples of a large odd number: in step with no order that the members may have.
    some = np.sort(values[np.arange(min(_SAMPLED, values.size)) * 2_654_435_761 % values.size])
    first, third = (_at(values, some, position) for position in (last, 3 * last))
    return first, third


def _at(values: FloatArray, some: FloatArray, quarters: int) -> float:
    """The value at the position `quarters` / 4 of the sorted `values`; `some` is a sorted sample of them.

    The sample brackets the position, so that only the few values in the bracket are ordered. A sample that
    misleads costs time, never exactness.
    """
    rank, rest = divmod(quarters, 4)
    near = round(rank / values.size * some.size)
    low, high = some[max(0, near - _MARGIN)], some[min(some.size - 1, near + _MARGIN)]
    below = int(np.count_nonzero(values < low))
    inside = values[np.flatnonzero((values >= low) & (values <= high))]
    upper = min(rank + 1, values.size - 1)
    if not below <= rank <= upper < below + inside.size:
        inside, below = values, 0
    ordered = np.partition(inside, [rank - below, upper - below])
    a, b = float(ordered[rank - below]), float(ordered[upper - below])
    return a + (b - a) * (rest / 4)
