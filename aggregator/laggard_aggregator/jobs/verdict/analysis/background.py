"""Background of a job's rate: the traffic that goes on all the time, also outside of phases."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.jobs.verdict.analysis.rate_series import FloatArray

Mask = NDArray[np.bool_]

_BLOCK = 4
"""Rows of a stretch that is taken as quiet: at most the shortest pause between phases."""
_QUIET_SHARE = 0.02
_LIKE_THE_QUIET = 4.0
"""Spreads within which a stretch belongs to the background."""
_GAUSSIAN_MAD = 0.6745
_SAMPLE = 8192
"""Rows that give a quantile, of a longer series evenly spaced ones."""
_LEAST_CORRELATION = 0.2
"""Least correlation of neighbouring rows in a series with phases."""


@dataclass(frozen=True, slots=True)
class Background:
    """Mean and spread of its rows, amounts a row, and the spread of its denoised rows."""

    mean: float
    spread: float
    smooth_spread: float

    @classmethod
    def of(cls, rate: FloatArray, smooth: FloatArray) -> Self:
        """The background of which `rate` and the denoised `smooth`, shape (n,), are all rows."""
        spread = float(rate.std())
        return cls(float(rate.mean()), spread, min(float(smooth.std()), spread))

    @classmethod
    def learned(cls, rate: FloatArray, smooth: FloatArray, is_open: Mask) -> Self:
        """The background of the open rows: their quietest stretches, grown as long as more are like them."""
        size = rate.size // _BLOCK * _BLOCK
        blocks, smooth_blocks = rate[:size].reshape(-1, _BLOCK), smooth[:size].reshape(-1, _BLOCK)
        if not is_open.all():
            whole = is_open[:size].reshape(-1, _BLOCK).all(1)
            blocks, smooth_blocks = blocks[whole], smooth_blocks[whole]
        if len(blocks) < 2:
            return cls(float(rate.min()), 0.0, 0.0)
        means = np.add.reduce(blocks.T.copy()) / _BLOCK
        ordered = np.sort(means[:: 1 + means.size // _SAMPLE])
        count = grown = max(2, int(_QUIET_SHARE * ordered.size))
        while grown <= ordered.size:
            count = grown
            middle = ordered[count // 2]
            spread = float(np.median(np.abs(ordered[:count] - middle))) / _GAUSSIAN_MAD
            grown = int(np.searchsorted(ordered, middle + _LIKE_THE_QUIET * spread, "right"))
            if grown <= count:
                break
        quiet = means <= ordered[count - 1]
        return cls.of(blocks[quiet], smooth_blocks[quiet])


def is_white(rate: FloatArray, is_open: Mask) -> bool:
    """Whether neighbouring rows of those `is_open` have nothing in common, as in noise without phases."""
    rows = rate if is_open.all() else rate[is_open]
    if rows.size < 2 * _BLOCK:
        return False
    rows = np.minimum(rows, np.quantile(rows[:: 1 + rows.size // _SAMPLE], 0.999))
    rows -= rows.mean()
    power = _product(rows, rows)
    if power <= 0:
        return True
    correlation = max(_product(rows[lag:], rows[:-lag]) for lag in (1, 2)) / power
    return correlation < _LEAST_CORRELATION + 3 / float(np.sqrt(rows.size))


def _product(a: FloatArray, b: FloatArray) -> float:
    """Inner product on one core; BLAS divides it among threads that wait for each other."""
    return float(np.einsum("i,i->", a, b))


def median_byte_rate(rates: FloatArray) -> float:
    """The rate at which the median byte is moved; 0 without any."""
    positive = rates[rates > 0]
    positive = np.sort(positive[:: 1 + positive.size // _SAMPLE])
    if not positive.size:
        return 0.0
    sums = np.cumsum(positive)
    return float(positive[np.searchsorted(sums, sums[-1] / 2)])
