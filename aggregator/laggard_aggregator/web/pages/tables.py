"""Tables of the pages: filtered and sorted by a query, paged in HTML, whole as CSV and JSON."""

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from laggard_aggregator.files.csv_lines import csv_cell
from laggard_aggregator.status import formatting, urls

Row = TypeVar("Row")
Cell = str | float | bool | Mapping[str, Any] | Sequence[Any] | None
"""A value of a table: text, number, epoch seconds, or plain data; unknown are None and NaN."""

MAX_PAGE = 1_000_000
MAX_CHARS = 200
"""Limit of a parameter of a query."""
ROWS_A_PART = 500


@dataclass(frozen=True, slots=True)
class Query:
    """The parameters of a request; each is cut at MAX_CHARS."""

    given: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """A parameter, empty without one."""
        return self.given.get(name, "")[:MAX_CHARS]

    def number(self, name: str) -> int:
        """The parameter `name` as the number of a page, 1 if invalid."""
        text = self.text(name)
        return min(int(text), MAX_PAGE) if text.isascii() and text.isdigit() and len(text) < 8 else 1


@dataclass(frozen=True)  # generic classes with slots cannot be frozen in Python 3.11
class PageColumn(Generic[Row]):
    """A column of a table. `heading`: empty for a column that only CSV and JSON have.

    `value`: by which rows are sorted, and which CSV and JSON have.
    """

    key: str
    heading: str
    value: Callable[[Row], Cell]
    right: bool = False
    is_time: bool = False
    sorts: bool = True

    @property
    def first_order(self) -> str:
        """The parameter `sort` of the first click: texts and names rise, figures and times fall."""
        return f"-{self.key}" if self.right or self.is_time else self.key


@dataclass(frozen=True)  # generic classes with slots cannot be frozen in Python 3.11
class Filter(Generic[Row]):
    """A choice of rows by the parameter `key`.

    With `choices` the one asked for has to be in `value`; otherwise a text has to contain it, ignoring case,
    and a number must not be less.
    """

    key: str
    label: str
    value: Callable[[Row], Any]
    choices: tuple[str, ...] | None = None
    is_number: bool = False

    @property
    def expected(self) -> str:
        """What it takes, in a few words."""
        if self.choices is not None:
            return " or ".join(self.choices) or "none"
        return "a number" if self.is_number else "a part of a name"

    def test(self, asked: str) -> Callable[[Row], bool] | None:
        """The test of a row; None without a choice and for an invalid one."""
        value = self.value
        if self.choices is not None:
            return (lambda row: asked in value(row)) if asked in self.choices else None
        if self.is_number:
            least = _as_number(asked)
            return (lambda row: bool(value(row) >= least)) if math.isfinite(least) else None
        part = asked.casefold()
        return (lambda row: part in value(row).casefold()) if part else None


class PageTable(Generic[Row]):
    """Rows filtered and sorted as a query asks: one page of them in HTML, all of them as CSV and JSON.

    `rows` are in the default order; unknown values come last. `make` converts the rows of the page.
    Parameters that are not of the table, named by `keep`, stay in its links. `is_first`: of its page; the
    parameters `sort` and `page` of any other end in `_` and its name, which is the id of its place, too.
    """

    def __init__(
        self,
        name: str,
        columns: Sequence[PageColumn[Row]],
        rows: Sequence[Row],
        query: Query,
        *,
        filters: Sequence[Filter[Row]] = (),
        keep: Sequence[str] = (),
        size: int = 50,
        make: Callable[[Row], Any] | None = None,
        is_first: bool = True,
    ) -> None:
        self.name = name
        self.is_first = is_first
        self.sort_key, self.page_key = (key if is_first else f"{key}_{name}" for key in ("sort", "page"))
        self.sort = query.text(self.sort_key)
        self.columns = columns
        self.filters = filters
        self.asked = {condition.key: query.text(condition.key) for condition in filters}
        self.kept = {key: query.text(key) for key in (self.sort_key, *keep)}
        tests = {own.key: test for own in filters if (test := own.test(self.asked[own.key]))}
        if tests:
            rows = [row for row in rows if all(test(row) for test in tests.values())]
        by = [column for column in columns if column.sorts and self.sort.removeprefix("-") == column.key]
        for column in by:
            rows = _in_order(rows, column.value, descending=self.sort.startswith("-"))
        self.is_filtered = bool(tests)
        self.rows = rows
        self.page = paged(rows, query.number(self.page_key), size, make)
        self.problems = [
            f"{condition.key}: expected {condition.expected}, got {self.asked[condition.key][:40]!r}"
            for condition in filters
            if self.asked[condition.key] and condition.key not in tests
        ]
        if self.sort and not by:
            self.problems.append(f"{self.sort_key}: no column {self.sort[:40]!r}")

    def link(self, **changes: str | int) -> str:
        """The address of this choice and order with `changes`."""
        query = urls.page("", **{**self.kept, **self.asked, **changes}) or "?"
        return query if self.is_first or "format" in changes else f"{query}#{self.name}"

    def file(self, form: str) -> str:
        """The address of the rows in the `form` csv or json."""
        return self.link(table="" if self.is_first else self.name, format=form)

    def turned(self, number: int) -> str:
        """The address of page `number`."""
        return self.link(**{self.page_key: number})

    def by(self, column: PageColumn[Row]) -> str:
        """The address of a click on the heading of `column`."""
        if self.sort.removeprefix("-") != column.key:
            return self.link(**{self.sort_key: column.first_order})
        turned = column.key if self.sort.startswith("-") else f"-{column.key}"
        return self.link(**{self.sort_key: turned})

    def order(self, column: PageColumn[Row]) -> str:
        """`ascending` or `descending` where the rows are sorted by `column`, else empty."""
        return {column.key: "ascending", f"-{column.key}": "descending"}.get(self.sort, "")

    def csv(self) -> Iterator[str]:
        """The rows as CSV, in parts: texts in quotes, times in ISO 8601.

        Control characters are escaped. Spreadsheets execute texts that begin with an operator: an apostrophe
        is put before them, numbers stay as they are.
        """
        text = io.StringIO()
        writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC)
        writer.writerow([column.key for column in self.columns])
        for first in range(0, max(len(self.rows), 1), ROWS_A_PART):
            for row in self.rows[first : first + ROWS_A_PART]:
                writer.writerow([_cell(column, column.value(row)) for column in self.columns])
            yield text.getvalue()
            text.seek(0)
            text.truncate()

    def json(self, now: float, limit: int | None = None) -> Iterator[str]:
        """The first `limit` rows as an object of the API, in parts: epoch seconds, unknown figures null."""
        yield json.dumps({"time": now, "total": len(self.rows)})[:-1] + f', "{self.name}": ['
        rows = self.rows[:limit]
        for first in range(0, len(rows), ROWS_A_PART):
            part = [
                {column.key: _known(column.value(row)) for column in self.columns}
                for row in rows[first : first + ROWS_A_PART]
            ]
            yield ", " * bool(first) + json.dumps(part)[1:-1]
        yield "]}"


def _in_order(rows: Sequence[Row], value: Callable[[Row], Any], *, descending: bool) -> list[Row]:
    """`rows` by `value`, texts ignoring case; those of equal values stay in their order."""
    known: list[tuple[Any, Row]] = []
    unknown: list[Row] = []
    for row in rows:
        known_value = _known(value(row))
        if known_value is None:
            unknown.append(row)
        else:
            known.append((known_value.casefold() if isinstance(known_value, str) else known_value, row))
    known.sort(key=lambda pair: pair[0], reverse=descending)
    return [row for _, row in known] + unknown


def _known(value: Cell) -> Cell:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell(column: PageColumn[Any], value: Cell) -> str | float:
    value = _known(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return str(csv_cell(value))
    if isinstance(value, int | float):
        return formatting.iso(value) if column.is_time else value
    return json.dumps(value) if value else ""


def _as_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


@dataclass(frozen=True, slots=True)
class Page:
    """Page `number` (from 1) of `size` items of a list of `total`."""

    items: tuple[Any, ...]
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


def paged(items: Sequence[Any], number: int, size: int, make: Callable[[Any], Any] | None = None) -> Page:
    """Page `number` of `items`, converted by `make`; the last page if there are fewer."""
    number = min(max(number, 1), Page((), 1, size, len(items)).last)
    shown = items[(number - 1) * size : number * size]
    return Page(tuple(map(make, shown) if make else shown), number, size, len(items))


def table_file(choices: Sequence[PageTable[Any] | None], name: str, form: str, now: float) -> Response:
    """The first of the tables of a page, or the one of this name, in the format csv or json.

    Raises HTTPException for a table or a format that there is not.
    """
    tables = {table.name: table for table in reversed(choices) if table is not None}
    table = tables.get(name) if name else next(reversed(tables.values()), None)
    if table is None or form not in ("csv", "json"):
        known = f" of {', '.join(reversed(tables))}" if tables else ""
        raise HTTPException(400, f"expected a table{known}, and the format csv or json")
    if form == "json":
        return StreamingResponse(table.json(now), media_type="application/json")
    headers = {"content-disposition": f'attachment; filename="laggard-{table.name}.csv"'}
    return StreamingResponse(table.csv(), headers=headers, media_type="text/csv")
