"""When to sample: ticks at multiples of the interval on a timeline of the agent's own.

The timeline is the monotonic clock plus an offset, so it runs evenly. Wall clock steps move the offset:

- forward (also: the host was suspended): the timeline follows at once; the ticks jumped over never were.
- back by up to a minute (leap seconds, ordinary corrections): the timeline slows down by 1/16 until the wall
  clock has caught up. No tick comes twice and none is left out.
- back by more: the clock was wrong before, so the timeline follows at once and nominal times repeat.

Times of reading are taken from the same timeline, so the seconds between two readings stay the true ones.
Intrepid 4.1.1 asks for collection that survives clock steps.
"""

import ctypes
from typing import NamedTuple

from laggard_common.clock import Clock

_MOST_SLEWED_NS = 60 * 1_000_000_000
_IGNORED_NS = 1_000_000
_SLEW_SHARE = 16
_READ_TOGETHER_NS = 200_000


class Tick(NamedTuple):
    """`time_ns`: nominal time, a multiple of the interval. `missed`: ticks that went by as we were late."""

    time_ns: int
    missed: int


class TimelineState(ctypes.Structure):
    """What ticks are reckoned from, where compiled code sees it too (`struct laggard_timeline`); nanoseconds.

    `next_ns`: nominal time of the next tick. `offset_ns`: of the timeline from the monotonic clock.
    `corrected_ns`: when that was found right last, on the monotonic clock.
    """

    interval_ns: int
    next_ns: int
    offset_ns: int
    corrected_ns: int
    _fields_ = tuple(
        (name, ctypes.c_int64) for name in ("interval_ns", "next_ns", "offset_ns", "corrected_ns")
    )


class Timeline:
    """The agent's time. `steps` counts steps of the wall clock that were followed at once."""

    def __init__(self, clock: Clock, interval_ns: int) -> None:
        self._monotonic_ns, self._wall_ns = clock.monotonic_ns, clock.wall_ns
        now = self._monotonic_ns()
        self.state = TimelineState(interval_ns, 0, self._wall_ns() - now, now)
        self.state.next_ns = (self.now_ns() // interval_ns + 1) * interval_ns
        self.steps = 0

    def now_ns(self) -> int:
        """Nanoseconds since the epoch on this timeline; safe from any thread."""
        return self._monotonic_ns() + self.state.offset_ns

    def wait_seconds(self) -> float:
        """How long to sleep before the next `take`."""
        return max(0, self.state.next_ns - self.state.offset_ns - self._monotonic_ns()) / 1e9

    def overdue_seconds(self) -> float:
        """How long a tick has been waiting for its `take`; safe from any thread."""
        return max(0, self.now_ns() - self.state.next_ns) / 1e9

    def take(self) -> Tick | None:
        """The tick that is due now, once; None when none is.

        Runs on cold caches: while the clocks agree it reads each of them once.
        """
        state = self.state
        now = self._monotonic_ns()
        ahead = self._wall_ns() - now - state.offset_ns
        if -_IGNORED_NS <= ahead <= _IGNORED_NS:
            stepped = False
            state.corrected_ns = now
        else:
            stepped = self._follow_wall_clock()
            now = self._monotonic_ns()
        interval = state.interval_ns
        due = (now + state.offset_ns) // interval * interval
        if stepped:
            state.next_ns = due if due >= state.next_ns else due + interval
        if due < state.next_ns:
            return None
        missed = (due - state.next_ns) // interval
        state.next_ns = due + interval
        return Tick(due, missed)

    def _follow_wall_clock(self) -> bool:
        """Corrects the offset; True when it jumped."""
        error = self._wall_ahead_ns()
        if error > self.state.interval_ns // 2 or error < -_MOST_SLEWED_NS:
            self.state.offset_ns += error
            self.steps += 1
            return True
        now = self._monotonic_ns()
        if abs(error) > _IGNORED_NS:
            most = (now - self.state.corrected_ns) // _SLEW_SHARE
            self.state.offset_ns += max(-most, min(most, error))
        self.state.corrected_ns = now
        return False

    def _wall_ahead_ns(self) -> int:
        """How far the wall clock is ahead of the timeline; the best of a few tries to read both at once."""
        best = (2**63, 0)
        for _ in range(3):
            before = self._monotonic_ns()
            wall = self._wall_ns()
            took = self._monotonic_ns() - before
            best = min(best, (took, wall - before - took // 2 - self.state.offset_ns))
            if took < _READ_TOGETHER_NS:
                break
        return best[1]
