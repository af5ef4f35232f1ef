"""The window schedule: aligned to multiples of the shift, by the aggregator's clock only; and that clock.

A window is due at its end, plus the longest batch span that members of its group announced, within bounds,
plus the allowed lateness, plus the group's stagger, which spreads the judging of groups. Lag counts from
there. A node whose clock is ahead changes nothing.
"""

import logging
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np

_log = logging.getLogger(__name__)

MAX_SPAN_NS = 600 * 1_000_000_000
"""Limit of announced batch spans."""
FREE_SPAN_NS = 60 * 1_000_000_000
SPAN_MEDIANS = 4
"""A longer span than FREE_SPAN_NS counts up to this multiple of its group's median: one node cannot delay the
verdicts of all."""

STAGGER_NS = 2_000_000_000

_SECOND = 1_000_000_000
STEP_NS = _SECOND
"""Smaller differences from the host's wall clock are slewed, larger ones are steps."""
SLEW = 1000
"""Slewing changes the clock by this part of the time that passes."""
DOUBT_NS = 60 * _SECOND
"""Most nodes may seem to be so far behind because their messages are delayed."""
STABLE_NS = 2 * _SECOND
CHECKS = 3
"""Checks in a row with the result of the first of them, to within STABLE_NS, before the clock is set."""
MIN_NODES = 3
"""Fewer nodes do not set the clock against the host's."""
UNCONFIRMED_NS = 600 * _SECOND
"""After this time without a node's word the host's clock is believed."""


class WindowClock:
    """The clock of windows: the host's monotonic clock with an offset that nodes decide on.

    It starts with the host's wall clock, and follows it while both differ by less than STEP_NS. Of two clocks
    that differ by more, the right one is not behind the nodes' clocks, as no message is received before it
    was sent, and nearer to them. Where most nodes contradict both, their time is used. Once nodes agreed with
    this clock, those that seem to be behind both have delayed messages.

    `steps`: steps of the host's wall clock that were noticed.
    """

    def __init__(self, wall_ns: Callable[[], int], monotonic_ns: Callable[[], int]) -> None:
        """The clocks of the host."""
        self._host_wall_ns = wall_ns
        self.monotonic_ns = monotonic_ns
        self._started_ns = self._checked_ns = self._heard_ns = monotonic_ns()
        self._offset_ns = wall_ns() - self._started_ns
        self.steps = 0
        self._difference_ns = 0
        self._wanted_ns, self._agreed = 0, 0
        self._confirmed = False
        self._by_nodes = False

    def wall_ns(self) -> int:
        """Nanoseconds since the epoch; steps only where the nodes' clocks show that it was wrong."""
        return self.monotonic_ns() + self._offset_ns

    @property
    def difference_ns(self) -> int:
        """The host's wall clock minus this one."""
        return self._host_wall_ns() - self.wall_ns()

    @property
    def confirmed(self) -> bool:
        """Whether nodes agree with this clock, or there is none to ask.

        Until then nothing is deleted or given up because of its age.
        """
        waited = self.monotonic_ns() - self._started_ns >= UNCONFIRMED_NS
        return not self._agreed and (self._confirmed or waited)

    def check(self, offsets: Sequence[int], *, known: bool, spread_ns: int = 0) -> bool:
        """Compares the clocks; whether this one jumped. To be called every few seconds.

        `offsets`: the clocks of the nodes heard since the last check minus this one, ns, too low by the delay
        of their messages. `known`: whether there is any node; a check that hears none decides nothing then.
        `spread_ns`: how much the delay may differ from check to check, at least STABLE_NS.
        """
        now_ns, difference = self.monotonic_ns(), self.difference_ns
        passed_ns, self._checked_ns = now_ns - self._checked_ns, now_ns
        stepped_ns, self._difference_ns = difference - self._difference_ns, difference
        if abs(stepped_ns) > STEP_NS:
            self.steps += 1
            _log.warning("the clock of this host was set by %+.1f s", stepped_ns / 1e9)
        if offsets:
            self._heard_ns = now_ns
        elif self._agreed and known:
            if now_ns - self._heard_ns < UNCONFIRMED_NS:
                return False
            self._agreed = 0
        wanted, agrees = self._wanted(offsets, difference, known=known)
        self._confirmed |= agrees
        if not wanted:
            self._agreed = 0
            if abs(difference) <= STEP_NS:
                most = passed_ns // SLEW
                self._offset_ns += max(-most, min(difference, most))
                self._by_nodes = False
            return False
        if not self._agreed or abs(wanted - self._wanted_ns) > max(STABLE_NS, spread_ns):
            self._agreed, self._wanted_ns = 0, wanted
        self._agreed += 1
        if self._agreed < CHECKS:
            return False
        self._agreed = self._wanted_ns = 0
        self._by_nodes = wanted != difference
        self._offset_ns += wanted
        self._difference_ns -= wanted
        _log.warning(
            "windows now close %.1f s %s, following the clock of %s",
            abs(wanted) / 1e9,
            "earlier" if wanted > 0 else "later",
            "most nodes" if self._by_nodes else "this host, which nodes confirm" if offsets else "this host",
        )
        return True

    def _wanted(self, offsets: Sequence[int], difference: int, *, known: bool) -> tuple[int, bool]:
        """By how much this clock is to be changed, ns, 0 where it may be slewed; whether it is right now."""
        if abs(difference) <= STEP_NS:
            difference = 0
        if not offsets:
            return (0, False) if known else (difference, not difference)
        nodes = round(float(np.median(offsets)))

        def distance(clock_ns: int) -> tuple[bool, int]:
            return nodes - clock_ns > STEP_NS, abs(nodes - clock_ns)

        best = min(0, difference, key=distance)
        if self._by_nodes and distance(difference) <= (False, DOUBT_NS):
            best = difference  # exact, which the nodes' time is not
        if abs(nodes - best) > DOUBT_NS:
            if self._confirmed and nodes < 0:
                return 0, False
            return (nodes if len(offsets) >= MIN_NODES else best), False
        return best, not best


@dataclass(slots=True)
class _Group:
    shift_ns: int
    window_ns: int
    end_ns: int
    stagger_ns: int
    spans_ns: dict[str, int] = field(default_factory=dict)
    longest_ns: int | None = None  # of the spans, bounded; None after a change

    @property
    def wait_ns(self) -> int:
        if self.longest_ns is None:
            spans = sorted(self.spans_ns.values()) or [0]
            most = max(FREE_SPAN_NS, SPAN_MEDIANS * spans[len(spans) // 2])
            self.longest_ns = min(spans[-1], most, MAX_SPAN_NS)
        return self.longest_ns + self.stagger_ns


class WindowSchedule:
    """The windows that are due. `lateness_ns`: time allowed for data after the last announced batch."""

    def __init__(self, lateness_ns: int) -> None:
        self.lateness_ns = lateness_ns
        self._groups: dict[str, _Group] = {}

    def add(self, group: str, shift_ns: int, window_ns: int, now_ns: int) -> int:
        """Adds a group; returns the time from which on its data counts, the end before its first window."""
        known = self._groups.get(group)
        if known is None:
            stagger = zlib.crc32(group.encode()) % 1000 * min(shift_ns // 10, STAGGER_NS) // 1000
            begun = (now_ns - self.lateness_ns - stagger) // shift_ns * shift_ns
            known = self._groups[group] = _Group(shift_ns, window_ns, begun + shift_ns, stagger)
        return known.end_ns - known.shift_ns

    def closed(self, group: str, end_ns: int) -> None:
        """Marks the window up to `end_ns` as closed, as a replay does."""
        known = self._groups[group]
        known.end_ns = max(known.end_ns, end_ns + known.shift_ns)

    def ahead(self, now_ns: int) -> list[tuple[str, int]]:
        """The groups that closed a window after `now_ns`, as the clock was ahead, and where they go on."""
        return [
            (name, (now_ns - self.lateness_ns - group.stagger_ns) // group.shift_ns * group.shift_ns)
            for name, group in self._groups.items()
            if group.end_ns - group.shift_ns > now_ns
        ]

    def rewind(self, group: str, end_ns: int) -> None:
        """Continues with the window after `end_ns`."""
        known = self._groups[group]
        known.end_ns = end_ns + known.shift_ns

    def spans(self, group: str) -> dict[str, int]:
        """The announced span of each member of a group."""
        return dict(self._groups[group].spans_ns)

    def wait_ns(self, group: str) -> int:
        """Time for which a window of a group waits for the batches of its members."""
        return self._groups[group].wait_ns

    def forget(self, group: str, member: str) -> None:
        """Drops a member and its span."""
        known = self._groups[group]
        if known.spans_ns.pop(member, None) is not None:
            known.longest_ns = None

    def announce(self, group: str, member: str, span_ns: int) -> None:
        """Sets the span of a member's messages."""
        known = self._groups[group]
        if known.spans_ns.get(member) != span_ns:
            known.spans_ns[member] = span_ns
            known.longest_ns = None

    def due(self, now_ns: int) -> list[tuple[str, int, int]]:
        """Group, end and deadline of the windows that are due and were not returned before, by deadline.

        Lag counts from the deadline. After a long pause (suspended machine, clock set forward) a group
        continues with the windows over the latest window's length; earlier ones have no data.
        """
        due = []
        for name, group in self._groups.items():
            wait = self.lateness_ns + group.wait_ns
            latest = (now_ns - wait) // group.shift_ns * group.shift_ns
            group.end_ns = max(group.end_ns, latest - group.window_ns // group.shift_ns * group.shift_ns)
            while group.end_ns <= latest:
                due.append((name, group.end_ns, group.end_ns + wait))
                group.end_ns += group.shift_ns
        return sorted(due, key=itemgetter(2))

    def next_due_ns(self) -> int | None:
        """The earliest deadline to come; None without any group."""
        ends = (group.end_ns + self.lateness_ns + group.wait_ns for group in self._groups.values())
        return min(ends, default=None)
