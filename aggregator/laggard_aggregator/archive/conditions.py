"""Conditions on rows of a table: row groups that may have such rows, by statistics, and the rows."""

from collections.abc import Collection, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Range = tuple[Any, Any] | None
"""Least and largest value of a column in a row group: texts or integers (times in ns); None where unknown."""


class Condition(Protocol):
    """A condition on the rows of a table."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it needs."""

    def may_match(self, *ranges: Range) -> bool:
        """Whether a row group may have such rows; a range for each of `columns`."""

    def rows(self, table: pa.Table) -> NDArray[np.bool_]:
        """Which rows of a table with `columns` are meant."""


class Among:
    """Rows with one of some texts in a column."""

    def __init__(self, column: str, texts: Collection[str]) -> None:
        self.columns = (column,)
        self._texts = sorted(texts)
        self._wanted = pa.array(self._texts, pa.string())

    def may_match(self, *ranges: Range) -> bool:
        """Whether one of the texts is within the range."""
        (known,) = ranges
        return known is None or any(known[0] <= text <= known[1] for text in self._texts)

    def rows(self, table: pa.Table) -> NDArray[np.bool_]:
        """The rows with one of the texts."""
        chosen = pc.is_in(table[self.columns[0]].cast(pa.string()), self._wanted)
        return np.asarray(chosen.to_numpy(), dtype=np.bool_)


class Within:
    """Rows whose integer, or time in ns, is in [low, high)."""

    def __init__(self, column: str, low: int, high: int) -> None:
        self.columns = (column,)
        self._low, self._high = low, high

    def may_match(self, *ranges: Range) -> bool:
        """Whether the range overlaps."""
        (known,) = ranges
        return known is None or (known[0] < self._high and known[1] >= self._low)

    def rows(self, table: pa.Table) -> NDArray[np.bool_]:
        """The rows within [low, high)."""
        values = table[self.columns[0]].cast(pa.int64()).to_numpy()
        return np.asarray((values >= self._low) & (values < self._high), dtype=np.bool_)


class WithinAny:
    """Rows whose integer, or time in ns, is in one of some ranges [low, high)."""

    def __init__(self, column: str, ranges: Sequence[tuple[int, int]]) -> None:
        self.columns = (column,)
        self._ranges = [Within(column, low, high) for low, high in ranges]

    def may_match(self, *ranges: Range) -> bool:
        """Whether one of the ranges overlaps."""
        return any(alternative.may_match(*ranges) for alternative in self._ranges)

    def rows(self, table: pa.Table) -> NDArray[np.bool_]:
        """The rows within one of the ranges."""
        chosen = np.logical_or.reduce([alternative.rows(table) for alternative in self._ranges])
        return np.asarray(chosen, dtype=np.bool_)
