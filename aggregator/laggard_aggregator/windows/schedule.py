"""The window schedule: aligned to multiples of the shift, by the aggregator's clock only.

A window is due at its end, plus the longest batch span that members of its group announced, plus the allowed
lateness, plus the group's stagger, which spreads the judging of groups. Lag counts from there. A node whose
clock is ahead changes nothing.
"""

import zlib
from dataclasses import dataclass, field
from operator import itemgetter

MAX_SPAN_NS = 600 * 1_000_000_000
"""Limit of an announced batch span: one node must not delay its group for hours."""

STAGGER_NS = 2_000_000_000


@dataclass(slots=True)
class _Group:
    shift_ns: int
    window_ns: int
    end_ns: int
    stagger_ns: int
    spans_ns: dict[str, int] = field(default_factory=dict)

    @property
    def wait_ns(self) -> int:
        return min(max(self.spans_ns.values(), default=0), MAX_SPAN_NS) + self.stagger_ns


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

    def spans(self, group: str) -> dict[str, int]:
        """The announced span of each member of a group."""
        return dict(self._groups[group].spans_ns)

    def forget(self, group: str, member: str) -> None:
        """Drops a member and its span."""
        self._groups[group].spans_ns.pop(member, None)

    def announce(self, group: str, member: str, span_ns: int) -> None:
        """Sets the span of a member's messages."""
        self._groups[group].spans_ns[member] = span_ns

    def due(self, now_ns: int) -> list[tuple[str, int, int]]:
        """Group, end and deadline of the windows that are due and were not returned before, by deadline.

        Lag counts from the deadline. After a long pause (suspended machine, clock set forward) a group
        continues with the windows over the latest window's length; earlier ones have no data.
        """
        found = []
        for name, group in self._groups.items():
            wait = self.lateness_ns + group.wait_ns
            latest = (now_ns - wait) // group.shift_ns * group.shift_ns
            group.end_ns = max(group.end_ns, latest - group.window_ns // group.shift_ns * group.shift_ns)
            while group.end_ns <= latest:
                found.append((name, group.end_ns, group.end_ns + wait))
                group.end_ns += group.shift_ns
        return sorted(found, key=itemgetter(2))

    def next_due_ns(self) -> int | None:
        """The earliest deadline to come; None without any group."""
        ends = (group.end_ns + self.lateness_ns + group.wait_ns for group in self._groups.values())
        return min(ends, default=None)
