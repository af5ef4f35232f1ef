"""Sweep line over I/O intervals: time with I/O activity, critical files, exclusive times (IOMiner II-D).

Critical files are the minimum set of intervals that covers the time with I/O activity. The greedy rule that
is
minimal: at the current time choose, among the intervals that have started, the one that ends last. Algorithm
2
of the paper keeps the first interval on its heap instead, and is not minimal.

All times are int64 microseconds. An interval without length covers no time and is never chosen.
"""

from array import array
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]
Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The chosen intervals, in order of time within each group; four arrays of one length.

    `place`: index of the interval in the input. `start`, `end`: its exclusive time. `group`: of the input.
    """

    place: Places
    start: Times
    end: Times
    group: NDArray[np.int64]

    @property
    def exclusive(self) -> Times:
        """Exclusive time of each chosen interval; within a group they sum to the time with I/O activity."""
        return self.end - self.start


def critical_path(starts: Times, ends: Times, groups: NDArray[np.int64] | None = None) -> CriticalPath:
    """The critical path of each group of intervals; O(n log n).

    `groups` (n,): equal values must lie next to each other; None: one group. Among intervals with the same
    end
    the one that is first in the input is chosen. Groups are laid one after another on one axis of time, so
    that
    a single pass serves all of them.
    """
    groups = np.zeros(starts.size, np.int64) if groups is None else groups
    kept = np.flatnonzero(ends > starts)
    if not kept.size:
        none = np.zeros(0, np.int64)
        return CriticalPath(none, none, none, none)
    starts, ends, groups = starts[kept], ends[kept], groups[kept]
    first = np.concatenate(([0], np.flatnonzero(np.diff(groups)) + 1))
    lowest = np.minimum.reduceat(starts, first)
    spans = np.maximum.reduceat(ends, first) - lowest + 1
    base = np.cumsum(spans) - spans - lowest
    shift = np.repeat(base, np.diff(np.append(first, starts.size)))
    starts, ends = starts + shift, ends + shift
    order = np.arange(starts.size) if _is_sorted(starts) else np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    latest = _first_with_latest_end(ends, reach, order)
    states = _chain(starts, reach)
    place = latest[states]
    end = reach[states]
    begin = np.maximum(np.concatenate(([0], end[:-1])), starts[_inverse(order, place)])
    back = shift[place]
    return CriticalPath(kept[place], begin - back, end - back, groups[place])


def busy_time(starts: Times, ends: Times) -> int:
    """Time covered by at least one interval: the part of each beyond the latest end before it."""
    if not starts.size:
        return 0
    if not _is_sorted(starts):
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    reach[1:] = reach[:-1].copy()
    reach[0] = starts[0]
    np.maximum(reach, starts, out=reach)
    np.subtract(ends, reach, out=reach)
    return int(np.maximum(reach, 0, out=reach).sum())


def sole_time(starts: Times, ends: Times, of: NDArray[np.bool_]) -> int:
    """Time in which no interval but those `of` is active: removing them would end the I/O this much
    earlier."""
    return busy_time(starts, ends) - busy_time(starts[~of], ends[~of])


def merged(starts: Times, ends: Times) -> tuple[Times, Times]:
    """Starts and ends of the periods with activity, in order."""
    path = critical_path(starts, ends)
    if not path.place.size:
        return path.start, path.end
    new = np.concatenate(([True], path.start[1:] > path.end[:-1]))
    at = np.flatnonzero(new)
    return path.start[at], path.end[np.append(at[1:], path.end.size) - 1]


def overlap(starts: Times, ends: Times, low: Times, high: Times) -> Times:
    """How much of each interval [`low`, `high`] the periods of activity cover; same shape as `low`."""
    begin, stop = merged(starts, ends)
    if not begin.size:
        return np.zeros_like(low)
    done = np.concatenate(([0], np.cumsum(stop - begin)))

    def covered(until: Times) -> Times:
        at = np.searchsorted(begin, until, "right")
        before = np.maximum(at - 1, 0)
        inside = np.clip(until - begin[before], 0, (stop - begin)[before])
        amount: Times = np.where(at > 0, done[before] + inside, 0)
        return amount

    return covered(high) - covered(low)


def _is_sorted(values: Times) -> bool:
    return bool((values[1:] >= values[:-1]).all())


def _first_with_latest_end(ends: Times, reach: Times, order: Places) -> Places:
    """For each position the input index of the interval with the latest end up to it; ties: the first
    index."""
    is_new = np.concatenate(([True], reach[1:] > reach[:-1]))
    segment = np.cumsum(is_new) - 1
    is_tied = (ends == reach) & ~is_new
    chosen = order[np.flatnonzero(is_new)[segment]]
    if is_tied.any():
        index = np.where(ends == reach, order, order.size)
        # each segment lies below the one before it, so the running minimum starts over
        lowest = np.minimum.accumulate(index - segment * (order.size + 1)) + segment * (order.size + 1)
        chosen = lowest
    found: Places = chosen
    return found


def _chain(starts: Times, reach: Times) -> Places:
    """Positions at which an interval is chosen: the last one started when the one before has ended."""
    heads = np.flatnonzero(np.concatenate((reach[1:] > reach[:-1], [True])))  # last position of each segment
    started = np.searchsorted(starts, reach[heads], "right") - 1
    is_idle = started == heads  # nothing that started reaches further
    after = np.minimum(started + 1, starts.size - 1)
    resumed = np.searchsorted(starts, starts[after], "right") - 1
    following = np.where(is_idle, np.where(started + 1 < starts.size, resumed, -1), started)
    segment_of = np.searchsorted(heads, following)
    next_segment = np.where(following < 0, -1, segment_of).astype(np.int64).data
    position = following.astype(np.int64).data
    at = int(np.searchsorted(starts, starts[0], "right") - 1)
    segment = int(np.searchsorted(heads, at))
    found = array("q")
    while at >= 0:
        found.append(at)
        at, segment = position[segment], next_segment[segment]
    return np.frombuffer(found, np.int64)


def _inverse(order: Places, place: Places) -> Places:
    """Positions in the sorted order of the input indices `place`."""
    inverse = np.empty(order.size, np.int64)
    inverse[order] = np.arange(order.size)
    return inverse[place]
