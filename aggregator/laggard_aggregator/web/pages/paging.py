"""Splits lists into pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Page `number` (from 1) of `size` items of a list of `total`."""

    items: tuple[Item, ...]
    number: int
    size: int
    total: int

    @property
    def last(self) -> int:
        """Number of the last page, at least 1."""
        return max(-(-self.total // self.size), 1)

    @property
    def first_item(self) -> int:
        """Position of the first item in the list, from 1; 0 for an empty list."""
        return (self.number - 1) * self.size + 1 if self.total else 0

    @property
    def last_item(self) -> int:
        """Position of the last item in the list."""
        return min(self.number * self.size, self.total)


def paged(items: Sequence[Item], number: int, size: int) -> Page[Item]:
    """Page `number` of `items`; the last page if there are fewer."""
    whole = Page(tuple(items), 1, size, len(items))
    number = min(max(number, 1), whole.last)
    return Page(tuple(items[(number - 1) * size : number * size]), number, size, len(items))
