"""Sequence numbers received of a stream, as merged inclusive ranges in bounded memory.

Live data comes before the backlog of an outage, so missing messages may still come: a gap is declared only
after a while.
"""

from bisect import bisect_right
from collections.abc import Sequence

MAX_RANGES = 4096


class SeqRanges:
    """Inclusive ranges, ascending, never adjacent.

    Beyond MAX_RANGES the oldest gap is given up: it is declared, and its messages count as received, so that
    they are not sent again.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._opened: list[int] = []  # time when the gap before each range was first seen; 0 once declared

    def __len__(self) -> int:
        return len(self._starts)

    def __contains__(self, seq: int) -> bool:
        at = bisect_right(self._starts, seq) - 1
        return at >= 0 and seq <= self._ends[at]

    def as_tuples(self) -> tuple[tuple[int, int], ...]:
        """The ranges, lowest first."""
        return tuple(zip(self._starts, self._ends, strict=True))

    def add(self, seq: int, now_ns: int = 0) -> bool:
        """Adds `seq` at `now_ns`; False for a duplicate."""
        starts, ends = self._starts, self._ends
        at = bisect_right(starts, seq) - 1
        if at >= 0 and seq <= ends[at]:
            return False
        joins_before = at >= 0 and ends[at] == seq - 1
        joins_after = at + 1 < len(starts) and starts[at + 1] == seq + 1
        if joins_before and joins_after:
            ends[at] = ends[at + 1]
            del starts[at + 1], ends[at + 1], self._opened[at + 1]
        elif joins_before:
            ends[at] = seq
        elif joins_after:
            starts[at + 1] = seq
        else:
            self._insert(at + 1, seq, now_ns)
        return True

    def remove(self, seq: int) -> None:
        """Removes `seq`."""
        at = bisect_right(self._starts, seq) - 1
        if at < 0 or seq > self._ends[at]:
            return
        start, end, opened = self._starts[at], self._ends[at], self._opened[at]
        left = [(start, seq - 1, opened)] if start < seq else []
        right = [(seq + 1, end, opened if not left else 0)] if seq < end else []
        kept = [*left, *right]
        self._starts[at : at + 1] = [each[0] for each in kept]
        self._ends[at : at + 1] = [each[1] for each in kept]
        self._opened[at : at + 1] = [each[2] for each in kept]

    def declare(self, now_ns: int, horizon_ns: int) -> int:
        """Declares gaps older than `horizon_ns`; returns the number of their messages."""
        missing = 0
        for at in range(1, len(self._starts)):
            if self._opened[at] and now_ns - self._opened[at] >= horizon_ns:
                missing += self._starts[at] - self._ends[at - 1] - 1
                self._opened[at] = 0
        return missing

    def give_up(self) -> int:
        """Closes the oldest gaps beyond MAX_RANGES; returns the number of messages declared missing."""
        missing = 0
        while len(self._starts) > MAX_RANGES:
            if self._opened[1]:
                missing += self._starts[1] - self._ends[0] - 1
            self._ends[0] = self._ends[1]
            del self._starts[1], self._ends[1], self._opened[1]
        return missing

    def state(self) -> list[tuple[int, ...]]:
        """State as plain data: starts, ends, and the time when the gap before each was first seen."""
        return [tuple(self._starts), tuple(self._ends), tuple(self._opened)]

    @classmethod
    def restore(cls, state: Sequence[Sequence[int]]) -> "SeqRanges":
        """Restores `state()`. Raises ValueError when it is malformed."""
        starts, ends, opened = (list(each) for each in state)
        if not len(starts) == len(ends) == len(opened) or len(starts) > MAX_RANGES:
            raise ValueError("ranges of different lengths")
        if not all(type(n) is int and 0 <= n < 2**64 for each in (starts, ends, opened) for n in each):
            raise ValueError("ranges that are not numbers")
        if any(a > b for a, b in zip(starts, ends, strict=True)) or any(
            b + 1 >= a for b, a in zip(ends, starts[1:], strict=False)
        ):
            raise ValueError("ranges that do not ascend")
        ranges = cls()
        ranges._starts, ranges._ends, ranges._opened = starts, ends, opened
        return ranges

    def copy(self) -> "SeqRanges":
        """An independent copy."""
        return SeqRanges.restore(self.state())

    def _insert(self, at: int, seq: int, now_ns: int) -> None:
        """Inserts a range of one; a gap split by it keeps its age on both sides."""
        inside = 0 < at < len(self._starts)
        self._starts.insert(at, seq)
        self._ends.insert(at, seq)
        self._opened.insert(at, self._opened[at] if inside else max(now_ns, 1))
        if at == 0 and len(self._starts) > 1:
            self._opened[1] = max(now_ns, 1)
