"""Slow, obvious second implementations of the sweep line; the two published ones, which are not minimal."""

from collections.abc import Sequence
from itertools import combinations

Interval = tuple[int, int]


def covered(intervals: Sequence[Interval]) -> set[int]:
    """Unit cells covered."""
    return {cell for start, end in intervals for cell in range(start, end)}


def least_cover(intervals: Sequence[Interval]) -> int:
    """Size of the smallest subset that covers the same cells, by trying all."""
    every = covered(intervals)
    for size in range(len(intervals) + 1):
        if any(covered(chosen) == every for chosen in combinations(intervals, size)):
            return size
    raise AssertionError


def printed(intervals: Sequence[Interval]) -> list[int]:
    """Algorithm 2 as printed: the next one is the top of a heap by start."""
    points = [(start, 0, at) for at, (start, _) in enumerate(intervals) if start < intervals[at][1]]
    points += [(end, 1, at) for at, (start, end) in enumerate(intervals) if start < end]
    active: list[int] = []
    chosen: list[int] = []
    first: int | None = None
    for _, is_end, at in sorted(points):
        if not is_end:
            if not active:
                first = at
            active.append(at)
            continue
        active.remove(at)
        if at == first:
            chosen.append(at)
            first = min(active, key=lambda each: (intervals[each][0], each)) if active else None
    return chosen


def released(intervals: Sequence[Interval]) -> list[int]:
    """The released code's rule: of the active ones, the longest."""
    kept = [at for at, (start, end) in enumerate(intervals) if start < end]
    chosen: list[int] = []
    now = -1
    while True:
        active = [at for at in kept if intervals[at][0] <= now < intervals[at][1]]
        if active:
            best = max(active, key=lambda at: (intervals[at][1] - intervals[at][0], -at))
        else:
            later = [intervals[at][0] for at in kept if intervals[at][0] > now]
            if not later:
                return chosen
            now = min(later)
            continue
        chosen.append(best)
        now = intervals[best][1]
