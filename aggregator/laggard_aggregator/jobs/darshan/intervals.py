"""Sweep line over I/O intervals: time with I/O activity, critical files, exclusive times (IOMiner II-D).

Critical files are the minimum set of intervals that covers the time with I/O activity. The greedy rule that
is minimal: at the current time choose, among the intervals that have started, the one that ends last.
Algorithm 2 of the paper keeps the first interval on its heap instead, and is not minimal.

All times are int64 microseconds. An interval without length covers no time and is never chosen.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

_MAX_AXIS_US: Final = 2.0**62
"""Groups whose spans sum to more are laid on several axes."""
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


def critical_path(
    starts: Times,
    ends: Times,
    groups: NDArray[np.int64] | None = None,
    keys: Sequence[NDArray[np.int64]] = (),
) -> CriticalPath:
    """The critical path of each group of intervals; O(n log n).

    `groups` (n,): equal values must lie next to each other; None: one group. `keys` (n,): of intervals with
    the same end the least by these columns is chosen, then the first of the input. Groups are laid one after
    another on one axis of time, so that a single pass serves all of them.
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
    if first.size > 1 and float(spans.sum(dtype=np.float64)) > _MAX_AXIS_US:
        middle = first[first.size // 2]
        return _joined(
            [
                (
                    kept[part],
                    critical_path(starts[part], ends[part], groups[part], [k[kept[part]] for k in keys]),
                )
                for part in (slice(0, middle), slice(middle, None))
            ]
        )
    base = np.cumsum(spans) - spans - lowest
    shift = np.repeat(base, np.diff(np.append(first, starts.size)))
    starts, ends = starts + shift, ends + shift
    order = np.arange(starts.size) if _is_sorted(starts) else np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    latest = _first_with_latest_end(ends, reach, order, [key[kept] for key in keys] if keys else [])
    states = _chain(starts, reach)
    place = latest[states]
    end = reach[states]
    begin = np.maximum(np.concatenate(([0], end[:-1])), starts[_inverse(order, place)])
    back = shift[place]
    return CriticalPath(kept[place], begin - back, end - back, groups[place])


def _joined(parts: Sequence[tuple[Places, CriticalPath]]) -> CriticalPath:
    """The paths of parts of the input, each with the input's indices of its intervals."""
    return CriticalPath(
        np.concatenate([kept[path.place] for kept, path in parts]),
        np.concatenate([path.start for _, path in parts]),
        np.concatenate([path.end for _, path in parts]),
        np.concatenate([path.group for _, path in parts]),
    )


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


def _is_sorted(values: Times) -> bool:
    return bool((values[1:] >= values[:-1]).all())


def _first_with_latest_end(
    ends: Times, reach: Times, order: Places, keys: Sequence[NDArray[np.int64]]
) -> Places:
    """For each position the input index of the interval with the latest end up to it; ties: the least key."""
    is_new = np.concatenate(([True], reach[1:] > reach[:-1]))
    segment = np.cumsum(is_new) - 1
    firsts: Places = order[np.flatnonzero(is_new)[segment]]
    is_last = ends == reach
    tied = np.zeros(int(segment[-1]) + 1, np.bool_)
    tied[segment[is_last & ~is_new]] = True
    in_tied = tied[segment]
    candidates = np.flatnonzero(is_last & in_tied)
    if candidates.size:
        inputs = order[candidates]
        by_key = np.lexsort((inputs, *(key[inputs] for key in reversed(keys))))
        index = np.full(order.size, candidates.size)
        index[candidates[by_key]] = np.arange(candidates.size)
        # each segment lies below the one before it, so the running minimum starts over
        offset = segment * (candidates.size + 1)
        lowest = np.minimum.accumulate(index - offset) + offset
        firsts[in_tied] = inputs[by_key][lowest[in_tied]]
    return firsts


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
    chain = array("q")
    while at >= 0:
        chain.append(at)
        at, segment = position[segment], next_segment[segment]
    return np.frombuffer(chain, np.int64)


def _inverse(order: Places, place: Places) -> Places:
    """Positions in the sorted order of the input indices `place`."""
    inverse = np.empty(order.size, np.int64)
    inverse[order] = np.arange(order.size)
    return inverse[place]
