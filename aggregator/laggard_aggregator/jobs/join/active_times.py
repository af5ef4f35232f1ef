"""When between two readings something moved, at the beginning and the end of a stretch of them.

A reading tells an amount, not when in its interval that moved. Inside of a stretch it moved all the time. The
first and last interval of a stretch are partly filled: the stretch begins and ends where it would at the rate
of the interval beside. So the end of a job's phase is that of its last node, not the mean of all.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from laggard_aggregator.detect.interface import BoolArray, FloatArray, IntArray

_QUIET: Final = 0.01
"""A rate below this share of its neighbours counts as no I/O."""
_AROUND: Final = 2
"""Intervals on either side that decide on one."""


@dataclass(frozen=True, slots=True)
class Moves:
    """N intervals between readings of components. `amounts` (K, N); of the first three there are times."""

    component: IntArray
    before_ns: IntArray
    read_ns: IntArray
    amounts: FloatArray

    def only(self, rows: IntArray | BoolArray) -> "Moves":
        """Some of them."""
        return Moves(self.component[rows], self.before_ns[rows], self.read_ns[rows], self.amounts[:, rows])


@dataclass(frozen=True, slots=True)
class Active:
    """When each of three amounts (3, N) moved. `quiet` (3, N): next to nothing did.

    `changes` (3, N): change of its rate since the interval before, as a share of it, NaN where either is an
    edge or quiet.
    """

    begin_ns: IntArray
    end_ns: IntArray
    quiet: BoolArray
    changes: FloatArray

    @classmethod
    def throughout(cls, begin_ns: IntArray, end_ns: IntArray) -> "Active":
        """All amounts all the time from `begin_ns` to `end_ns`, shape (N,)."""
        shape = (3, begin_ns.size)
        return cls(
            np.broadcast_to(begin_ns, shape),
            np.broadcast_to(end_ns, shape),
            np.zeros(shape, np.bool_),
            np.full(shape, np.nan),
        )

    def only(self, rows: IntArray | BoolArray) -> "Active":
        """Some of them."""
        return Active(
            self.begin_ns[:, rows], self.end_ns[:, rows], self.quiet[:, rows], self.changes[:, rows]
        )


@dataclass(frozen=True, slots=True)
class TimedMoves:
    """Intervals with the times in which their first three amounts moved."""

    moves: Moves
    active: Active

    def within(self, rows: IntArray, start_ns: IntArray, end_ns: IntArray, age_ns: int) -> Active:
        """Times of pieces of intervals, from `start_ns` to `end_ns`, shape (M,), of `rows`.

        A piece that lies beside them has its own. Readings are up to `age_ns` old.
        """
        active = self.active.only(rows)
        begin = np.maximum(active.begin_ns - age_ns, start_ns)
        end = np.minimum(active.end_ns, end_ns)
        lies_beside = begin >= end
        return Active(
            np.where(lies_beside, start_ns, begin),
            np.where(lies_beside, end_ns, end),
            active.quiet,
            active.changes,
        )


class ActiveTimes:
    """Times of intervals that come slice by slice, those of a component in order.

    An interval is given once the two after it are there, so slices do not matter.
    """

    def __init__(self) -> None:
        self._kept: Moves | None = None
        self._is_given = np.zeros(0, np.bool_)

    def add(self, moves: Moves) -> TimedMoves:
        """The intervals up to `moves` that are complete."""
        every, is_given = moves, np.zeros(moves.component.size, np.bool_)
        if self._kept is not None:
            every = _joined(self._kept, moves)
            is_given = np.concatenate([self._is_given, is_given])
        order = np.argsort(every.component, kind="stable")
        every, is_given = every.only(order), is_given[order]
        last = np.append(np.flatnonzero(np.diff(every.component)), every.component.size - 1)
        following = last[np.searchsorted(last, np.arange(every.component.size))]
        following = following - np.arange(every.component.size)
        ready = ~is_given & (following >= _AROUND)
        kept = following < 2 * _AROUND
        self._kept, self._is_given = every.only(kept), (is_given | ready)[kept]
        return _timed(every, ready)

    def rest(self) -> TimedMoves | None:
        """The last intervals of each component."""
        return None if self._kept is None else _timed(self._kept, ~self._is_given)


def _joined(first: Moves, second: Moves) -> Moves:
    return Moves(
        np.concatenate([first.component, second.component]),
        np.concatenate([first.before_ns, second.before_ns]),
        np.concatenate([first.read_ns, second.read_ns]),
        np.concatenate([first.amounts, second.amounts], axis=1),
    )


def _timed(every: Moves, chosen: BoolArray) -> TimedMoves:
    length = np.maximum(every.read_ns - every.before_ns, 1).astype(np.float64)
    rate = every.amounts[:3] / length
    follows = np.zeros(length.size, np.bool_)
    follows[1:] = (every.component[1:] == every.component[:-1]) & (every.before_ns[1:] == every.read_ns[:-1])
    before, second_before = _shifted(rate, follows, 1), _shifted(rate, follows, 2)
    after, second_after = _shifted(rate, follows, -1), _shifted(rate, follows, -2)
    highest = np.fmax(np.fmax(before, after), rate)
    quiet = rate <= _QUIET * highest
    begins = ~quiet & (before <= _QUIET * highest) & (after > _QUIET * highest)
    ends = ~quiet & (after <= _QUIET * highest) & (before > _QUIET * highest)
    level = np.where(begins, _level(rate, after, second_after), _level(rate, before, second_before))
    filled = np.where(begins | ends, np.minimum(rate / np.where(level > 0, level, 1.0), 1.0), 1.0)
    part = np.maximum(np.rint(filled * length), 1).astype(np.int64)
    is_inner = ~quiet & (before > _QUIET * highest) & (after > _QUIET * highest)
    compared = is_inner & (_shifted(is_inner.astype(np.float64), follows, 1) == 1)
    changes = np.where(compared, np.abs(rate / np.where(compared, before, 1.0) - 1.0), np.nan)
    active = Active(
        np.where(begins, every.read_ns - part, every.before_ns),
        np.where(ends, every.before_ns + part, every.read_ns),
        quiet,
        changes,
    )
    return TimedMoves(every.only(chosen), active.only(chosen))


def _level(rate: FloatArray, beside: FloatArray, second: FloatArray) -> FloatArray:
    """The rate of the stretch beside its edge: the interval beside it, if that is no edge itself."""
    is_inner = second > _QUIET * beside
    return np.where(is_inner, beside, np.fmax(rate, beside))


def _shifted(values: FloatArray, follows: BoolArray, by: int) -> FloatArray:
    """Of each interval the value `by` before it, after it where negative; NaN across a gap."""
    shifted = np.full(values.shape, np.nan)
    n = values.shape[1]
    if n <= abs(by):
        return shifted
    whole = follows.copy()
    for step in range(1, abs(by)):
        whole[step:] &= follows[:-step]
        whole[:step] = False
    if by > 0:
        shifted[:, by:] = np.where(whole[by:], values[:, :-by], np.nan)
    else:
        shifted[:, :by] = np.where(whole[-by:], values[:, -by:], np.nan)
    return shifted
