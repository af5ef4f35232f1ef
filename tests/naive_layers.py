"""Slow, obvious twins of the characteristics and the matching of layers."""

from collections.abc import Sequence
from itertools import pairwise

Interval = tuple[int, int]
"""Begin and end, ns."""


def concurrency(intervals: Sequence[Interval]) -> tuple[float, float, int]:
    """Average over the span, average while busy, maximum; counted at every instant between two events."""
    times = sorted({time for each in intervals for time in each})
    total, busy, most = 0, 0, 0
    for first, last in pairwise(times):
        count = sum(1 for begin, end in intervals if begin <= first and end >= last)
        total += count * (last - first)
        busy += (last - first) if count else 0
        most = max(most, count)
    span = times[-1] - times[0]
    return (total / span if span else 0.0), (total / busy if busy else 0.0), most


def runs(ranges: Sequence[tuple[int, int, int]]) -> list[int]:
    """Bytes moved in the runs of (start, size, moved) in their order; what moved nothing is left out."""
    found: list[int] = []
    reached: set[int] = set()
    for start, size, moved in ranges:
        if not moved:
            continue
        if start in reached:
            found[-1] += moved
        else:
            found.append(moved)
        reached = {start + moved, start + size}
    return found


def streams(ranges: Sequence[tuple[int, int]]) -> list[int]:
    """Lengths of the contiguous areas, by address."""
    touched = sorted({byte for start, size in ranges for byte in range(start, start + size)})
    found: list[int] = []
    for at, byte in enumerate(touched):
        if at and byte == touched[at - 1] + 1:
            found[-1] += 1
        else:
            found.append(1)
    return found


def read_kind(upper: tuple[int, int, int, int], lower: Sequence[tuple[int, int, int, int]]) -> str:
    """Kind of a read (start, size, begin, end) among lower reads, byte by byte."""
    start, size, begin, end = upper
    kinds = set()
    for byte in range(start, start + size):
        of_byte = [each for each in lower if each[0] <= byte < each[0] + each[1]]
        if any(begin <= each[2] <= end for each in of_byte):
            kinds.add("nested")
            continue
        before = [each for each in of_byte if each[2] < begin]
        if not before:
            kinds.add("none")
        else:
            latest = sorted(before, key=lambda each: each[2])[-1]  # of several at one time the last
            kinds.add("hit" if latest[3] <= begin else "earlier")
    if "none" in kinds:
        return "none" if kinds == {"none"} else "partial"
    if "earlier" in kinds or kinds == {"hit", "nested"}:
        return "earlier"
    return "hit" if "hit" in kinds else "nested"
