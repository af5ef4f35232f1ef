"""Spans of rows: runs of a mask, closed over short pauses, united, refined."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.jobs.verdict.analysis.rate_series import FloatArray

Span = tuple[int, int]
"""Positions [first, past)."""
Mask = NDArray[np.bool_]
_BLOCK = 256
_STALL, _LONGEST_STALL = 2, 8
_STALL_SHARE = 0.05
"""Longest stall, as a share of the shorter span beside it."""


def runs(active: Mask) -> list[Span]:
    """The runs of true values."""
    bounded = np.zeros(active.size + 2, np.bool_)
    bounded[1:-1] = active
    edges = np.flatnonzero(bounded[1:] != bounded[:-1])
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def closed(spans: Iterable[Span], known: Mask) -> list[Span]:
    """`spans` without stalls: pauses of one or two known rows, of up to eight between long spans."""
    sums = np.concatenate(([0], np.cumsum(known)))
    joined: list[Span] = []
    last = 0
    for first, past in spans:
        longest = min(max(_STALL, int(_STALL_SHARE * min(past - first, last))), _LONGEST_STALL)
        end = joined[-1][1] if joined else 0
        if joined and sums[first] - sums[end] <= longest:
            last += past - first
            joined[-1] = joined[-1][0], past
        else:
            joined.append((first, past))
            last = past - first
    return joined


def united(spans: Iterable[Span]) -> list[Span]:
    """`spans`, in order of their first rows, without empty ones; those that meet become one."""
    whole: list[Span] = []
    for first, past in spans:
        if past <= first:
            continue
        if whole and first <= whole[-1][1]:
            whole[-1] = whole[-1][0], max(past, whole[-1][1])
        else:
            whole.append((first, past))
    return whole


def span_means(values: FloatArray, spans: Sequence[Span]) -> FloatArray:
    """Mean of `values` in each span, shape (len(found),)."""
    edges = np.array(spans, np.int64).reshape(-1, 2)
    sums = np.concatenate(([0.0], np.cumsum(values)))
    means: FloatArray = (sums[edges[:, 1]] - sums[edges[:, 0]]) / (edges[:, 1] - edges[:, 0])
    return means


def refined(span: Span, rate: FloatArray, bound: float, is_open: Mask) -> Span:
    """`span` grown and trimmed to its first and last row above `bound`; it grows over open rows only."""
    first, past = span
    first -= _length_above(rate[:first][::-1], is_open[:first][::-1], bound)
    past += _length_above(rate[past:], is_open[past:], bound)
    above = np.flatnonzero(rate[first:past] > bound)
    return (first + int(above[0]), first + int(above[-1]) + 1) if above.size else (first, first)


def _length_above(rate: FloatArray, is_open: Mask, bound: float) -> int:
    """Number of open rows above `bound` at the beginning of `rate`, found block by block."""
    for at in range(0, rate.size, _BLOCK):
        block = slice(at, at + _BLOCK)
        ends = ~(is_open[block] & (rate[block] > bound))
        if ends.any():
            return at + int(ends.argmax())
    return int(rate.size)
