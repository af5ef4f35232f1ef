"""The timeline of the agent: ticks at multiples of the interval, even across steps of the wall clock.

The timeline is the monotonic clock plus an offset. A step of the wall clock moves the offset:

- forward, or after a suspend: the offset follows at once; the ticks between never existed.
- back by up to a minute (leap seconds, ordinary corrections): the timeline runs slower by 1/16 until the wall
  clock has caught up. No tick is repeated or left out.
- back by more: the earlier time was wrong, so the offset follows at once and nominal times repeat.

Reading times come from the same timeline, so the time between two readings stays true.
Intrepid 4.1.1 asks for collection that survives clock steps.
"""

from typing import NamedTuple

from laggard_common.clock import Clock

_MAX_SLEW_NS = 60 * 1_000_000_000
_TOLERANCE_NS = 1_000_000
_SLEW_SHARE = 16
_READ_TOGETHER_NS = 200_000


class Tick(NamedTuple):
    """A due tick. `time_ns`: nominal time, a multiple of the interval; `missed`: ticks skipped before it."""

    time_ns: int
    missed: int


class Timeline:
    """The agent's time. `steps` counts steps of the wall clock that were followed at once."""

    def __init__(self, clock: Clock, interval_ns: int) -> None:
        self._monotonic_ns, self._wall_ns = clock.monotonic_ns, clock.wall_ns
        self._interval_ns = interval_ns
        self._corrected_ns = self._monotonic_ns()
        self._offset_ns = self._wall_ns() - self._corrected_ns
        self._next_ns = (self.now_ns() // interval_ns + 1) * interval_ns
        self.steps = 0

    def now_ns(self) -> int:
        """Nanoseconds since the epoch on this timeline; safe from any thread."""
        return self._monotonic_ns() + self._offset_ns

    def wait_seconds(self) -> float:
        """Seconds until the next tick."""
        return max(0, self._next_ns - self.now_ns()) / 1e9

    def overdue_seconds(self) -> float:
        """Seconds for which a tick has been due; safe from any thread."""
        return max(0, self.now_ns() - self._next_ns) / 1e9

    def due_tick(self) -> Tick | None:
        """The tick that is due, returned once; None when none is due."""
        stepped = self._follow_wall_clock()
        interval = self._interval_ns
        due = self.now_ns() // interval * interval
        if stepped:
            self._next_ns = due if due >= self._next_ns else due + interval
        if due < self._next_ns:
            return None
        missed = (due - self._next_ns) // interval
        self._next_ns = due + interval
        return Tick(due, missed)

    def _follow_wall_clock(self) -> bool:
        """Corrects the offset; True when it jumped."""
        error = self._error_ns()
        if error > self._interval_ns // 2 or error < -_MAX_SLEW_NS:
            self._offset_ns += error
            self.steps += 1
            return True
        now = self._monotonic_ns()
        if abs(error) > _TOLERANCE_NS:
            limit = (now - self._corrected_ns) // _SLEW_SHARE
            self._offset_ns += max(-limit, min(limit, error))
        self._corrected_ns = now
        return False

    def _error_ns(self) -> int:
        """Wall clock minus timeline: the first of three tries that read both at once, else the quickest."""
        best = (2**63, 0)
        for _ in range(3):
            before = self._monotonic_ns()
            wall = self._wall_ns()
            took = self._monotonic_ns() - before
            best = min(best, (took, wall - before - took // 2 - self._offset_ns))
            if took < _READ_TOGETHER_NS:
                break
        return best[1]
