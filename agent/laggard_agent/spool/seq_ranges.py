"""Sets of integers as a few ranges, for sent and acknowledged sequence numbers."""

from bisect import bisect_left, bisect_right


class SeqRanges:
    """A set of integers as ascending inclusive ranges that neither touch nor overlap."""

    __slots__ = ("_highs", "_lows")

    def __init__(self) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []

    def add(self, low: int, high: int) -> None:
        """Adds every number from `low` to `high`, both included."""
        first = bisect_left(self._highs, low - 1)
        last = bisect_right(self._lows, high + 1)
        if first < last:
            low = min(low, self._lows[first])
            high = max(high, self._highs[last - 1])
        self._lows[first:last] = [low]
        self._highs[first:last] = [high]

    def covers(self, low: int, high: int) -> bool:
        """True when every number from `low` to `high` is in the set."""
        at = bisect_right(self._lows, low) - 1
        return at >= 0 and self._highs[at] >= high

    def count(self, low: int, high: int) -> int:
        """Number of integers from `low` to `high` in the set."""
        first = bisect_left(self._highs, low)
        last = bisect_right(self._lows, high)
        pairs = zip(self._lows[first:last], self._highs[first:last], strict=True)
        return sum(min(high, end) - max(low, begin) + 1 for begin, end in pairs)

    def first_missing(self, low: int) -> int:
        """The smallest integer from `low` on that is not in the set."""
        at = bisect_right(self._lows, low) - 1
        return self._highs[at] + 1 if at >= 0 and self._highs[at] >= low else low

    def pieces(self) -> list[tuple[int, int]]:
        """The ranges, ascending, both ends included."""
        return list(zip(self._lows, self._highs, strict=True))
