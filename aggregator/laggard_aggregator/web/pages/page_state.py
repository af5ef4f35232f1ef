"""State for the pages, copied on the event loop and rendered in a thread; tables; the alarm log."""

import csv
import io
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from laggard_aggregator.alarms.alarms import Alarm, Key
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.alarms.overrides import KINDS, Decision, silencing
from laggard_aggregator.ingest.node_view import NodeState, NodeView
from laggard_aggregator.log.journal import Durability
from laggard_aggregator.status import formatting
from laggard_aggregator.status.straggler_list import Standing, standings
from laggard_aggregator.status.view import MAX_LAG_SECONDS, Counters, GroupView, Status
from laggard_aggregator.status.window_history import WindowHistory
from laggard_common.visible import visible

Answer = TypeVar("Answer")
Row = TypeVar("Row")

KEPT_SECONDS = 5.0
"""Lifetime of values that change without an event: ages of samples, states of nodes."""
RARELY = 50
ACTS = {
    "silence": ("Silence", "It is judged and shown as before, and nobody is notified."),
    "drain": ("Drain", "Under maintenance: it is left out of every comparison, and its alarms are cleared."),
    "replaced": ("Replaced", "New hardware: its evidence and alarms are dropped with the next window."),
    "comment": ("Comment", "Shown here, among the stragglers, in mails and in laggard status."),
    "end": ("End", "Ends the {} of exactly this target."),
}
"""Decisions of a page's forms, with their headings and effects."""
MAX_PAGE = 1_000_000
MAX_CHARS = 200
"""Limit of a parameter of a query."""
ROWS_A_PART = 500
_OPERATORS = tuple("=+-@\uff1d\uff0b\uff0d\uff20")
"""Texts that begin with one of these are formulas in spreadsheets."""
MAX_WINDOWS_OLD = 3
"""Age of the newest window, in windows, that no schedule explains, besides late messages."""
MAX_SENT_LATE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Now:
    """State of the aggregator at one moment. `nodes`: those that the page is about, None without any."""

    site: str
    version: str
    revision: int
    time: float
    started_at: float
    ready: bool
    overdue_seconds: float
    groups: Mapping[str, GroupView]
    judgements: tuple[Judgement, ...]
    alarms: Mapping[Key, Alarm]
    shown: Callable[[str], str]
    decisions: tuple[Decision, ...]
    history: WindowHistory
    node_counts: Mapping[tuple[str, NodeState], int]
    unhealthy: tuple[NodeView, ...]
    nodes: tuple[NodeView, ...] | None
    counters: Counters
    durability: Durability | None

    @property
    def token(self) -> str:
        """Token of this state."""
        return token(self.started_at, self.revision)

    @property
    def shadowed(self) -> tuple[GroupView, ...]:
        """The groups with a shadow detector."""
        return tuple(group for group in self.groups.values() if group.detect.shadow is not None)

    @property
    def stale(self) -> str:
        """Why the page does not show the present, or empty."""
        if not self.ready:
            return "not connected to the broker, nothing new arrives"
        ends = [(judged.end, judged.group) for judged in self.judgements]
        newest, group = max(ends, default=(math.nan, ""))
        seconds = self.groups[group].window_seconds if group in self.groups else math.inf
        old = self.time - newest > MAX_WINDOWS_OLD * seconds + MAX_SENT_LATE_SECONDS
        if not (old or self.overdue_seconds > MAX_LAG_SECONDS):
            return ""
        since = f", the newest window ended {formatting.ago(newest, self.time)}" if ends else ""
        return f"windows are not judged{since}"

    def standings(self) -> tuple[Standing, ...]:
        """Standings of the components that matter."""
        return standings(self.judgements, self.alarms, self.shown, self.silenced)

    def silenced(self, *names: str) -> Decision | None:
        """The silence in force for a component with these names."""
        return next(silencing(self.decisions, *names), None) if self.decisions else None

    def decided(self, *names: str) -> tuple[Decision, ...]:
        """Operators' decisions in force for a component or node with these names."""
        return tuple(each for each in self.decisions if each.covers(*names))

    def judgements_of(self, group: str) -> tuple[Judgement, ...]:
        """The latest judgements of a group, one per metric."""
        return tuple(judged for judged in self.judgements if judged.group == group)

    def roles(self) -> tuple[str, ...]:
        """The roles of the peer groups."""
        return tuple(sorted({group.role for group in self.groups.values()} - {""}))

    def role_of(self, group: str) -> str:
        """The role of a group, empty for an unknown one and for one of any role."""
        return self.groups[group].role if group in self.groups else ""

    def note_of(self, group: str) -> str:
        """Reasons for missing verdicts of a group."""
        notes = (judged.verdicts.note for judged in self.judgements_of(group))
        return "; ".join(dict.fromkeys(filter(None, notes)))


@dataclass(frozen=True, slots=True)
class Acts:
    """Decisions that the reader of a page may make, and the form that is open.

    `enabled`: whether the site has operators; `user`: the reader, if one of them. `path`: the page. `asked`:
    fields of the request, of which `act` chooses the form. `token`: of the form.
    """

    enabled: bool
    user: str
    path: str
    asked: Mapping[str, str]
    token: str = ""

    @property
    def act(self) -> str:
        """The decision whose form is open, or empty."""
        act = self.asked.get("act", "")
        return act if self.enabled and act in ACTS else ""

    @property
    def titles(self) -> Mapping[str, str]:
        """Headings of the decisions."""
        return {act: title for act, (title, _) in ACTS.items()}

    @property
    def effect(self) -> str:
        """Effect of the decision whose form is open."""
        return ACTS[self.act][1].format(self.kind)

    @property
    def kind(self) -> str:
        """The kind of decision that `end` ends."""
        kind = self.asked.get("kind", "")
        return kind if kind in KINDS else ""


def token(started_at: float, revision: int) -> str:
    """Unique token of an aggregator's state, also across runs."""
    return f"{started_at:.3f}-{revision}"


class StateReader:
    """Copies the state from a view, on the event loop; expensive parts are cached.

    The list of all nodes, a few microseconds each, is kept for KEPT_SECONDS or RARELY times its duration, so
    that pages of a very large site do not block the event loop.
    """

    def __init__(self, view: Status) -> None:
        self._view = view
        self._kept: dict[str, tuple[float, Any]] = {}

    def now(self, *, nodes: bool = False, node: str | None = None) -> Now:
        """Current state of the aggregator, with all nodes, or the present state of `node`, if asked for."""
        view = self._view
        one = view.node(node) if node is not None else None
        node_counts, unhealthy = self._seldom("health", lambda: (view.node_counts(), view.unhealthy_nodes()))
        return Now(
            site=view.site,
            version=view.version,
            revision=view.revision,
            time=view.now,
            started_at=view.started_at,
            ready=view.ready,
            overdue_seconds=view.overdue_seconds,
            groups={group.name: group for group in view.groups()},
            judgements=view.judgements(),
            alarms=view.alarms(),
            shown=view.shown,
            decisions=view.decisions(),
            history=view.history.frozen(),
            node_counts=node_counts,
            unhealthy=unhealthy,
            nodes=self._seldom("nodes", view.nodes) if nodes else (one,) if one else None,
            counters=view.counters(),
            durability=view.durability(),
        )

    def _seldom(self, what: str, ask: Callable[[], Answer]) -> Answer:
        until, answer = self._kept.get(what, (-math.inf, None))
        begun = time.monotonic()
        if begun >= until:
            answer = ask()
            ended = time.monotonic()
            self._kept[what] = (ended + max(KEPT_SECONDS, RARELY * (ended - begun)), answer)
        return cast(Answer, answer)


@dataclass(frozen=True, slots=True)
class Query:
    """The parameters of a request; each is cut at MAX_CHARS."""

    given: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """A parameter, empty without one."""
        return self.given.get(name, "")[:MAX_CHARS]

    @property
    def page(self) -> int:
        """Number of the requested page, 1 if invalid."""
        text = self.text("page")
        return min(int(text), MAX_PAGE) if text.isascii() and text.isdigit() and len(text) < 8 else 1


@dataclass(frozen=True)  # generic classes with slots cannot be frozen in Python 3.11
class PageColumn(Generic[Row]):
    """A column of a table. `heading`: empty for a column that only CSV and JSON have.

    `value`: text, number or epoch seconds, by which rows are sorted; unknown are None and NaN.
    """

    key: str
    heading: str
    value: Callable[[Row], str | float | bool | None]
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
    choices: tuple[str, ...] = ()
    is_number: bool = False

    def test(self, asked: str) -> Callable[[Row], bool] | None:
        """The test of a row; None without a choice and for an invalid one."""
        value = self.value
        if self.choices:
            return (lambda row: asked in value(row)) if asked in self.choices else None
        if self.is_number:
            least = _as_number(asked)
            return (lambda row: bool(value(row) >= least)) if math.isfinite(least) else None
        part = asked.casefold()
        return (lambda row: part in value(row).casefold()) if part else None


class Table(Generic[Row]):
    """Rows filtered and sorted as a query asks: one page of them in HTML, all of them as CSV and JSON.

    `rows` are in the default order; unknown values come last. `make` converts the rows of the page.
    Parameters that are not of the table, named by `keep`, stay in its links.
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
    ) -> None:
        self.name = name
        self.columns = columns
        self.filters = filters
        self.asked = {each.key: query.text(each.key) for each in filters}
        self.kept = {key: query.text(key) for key in ("sort", *keep)}
        tests = [test for each in filters if (test := each.test(self.asked[each.key]))]
        if tests:
            rows = [row for row in rows if all(test(row) for test in tests)]
        for column in columns:
            if column.sorts and self.kept["sort"].removeprefix("-") == column.key:
                rows = _in_order(rows, column.value, descending=self.kept["sort"].startswith("-"))
        self.is_filtered = bool(tests)
        self.rows = rows
        self.page = paged(rows, query.page, size, make)

    @property
    def query(self) -> dict[str, str]:
        """The parameters of this choice and order, for links."""
        return {**self.kept, **self.asked}

    def order(self, column: PageColumn[Row]) -> str:
        """`ascending` or `descending` where the rows are sorted by `column`, else empty."""
        asked = self.kept["sort"]
        return {column.key: "ascending", f"-{column.key}": "descending"}.get(asked, "")

    def next_order(self, column: PageColumn[Row]) -> str:
        """The parameter `sort` of a click on the heading of `column`."""
        asked = self.kept["sort"]
        if asked.removeprefix("-") != column.key:
            return column.first_order
        return column.key if asked.startswith("-") else f"-{column.key}"

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

    def json(self, now: float) -> Iterator[str]:
        """The rows as an object like those of the API, in parts: epoch seconds, unknown figures null."""
        yield json.dumps({"time": now})[:-1] + f', "{self.name}": ['
        for first in range(0, len(self.rows), ROWS_A_PART):
            part = [
                {column.key: _known(column.value(row)) for column in self.columns}
                for row in self.rows[first : first + ROWS_A_PART]
            ]
            yield ", " * bool(first) + json.dumps(part)[1:-1]
        yield "]}"


def _in_order(rows: Sequence[Row], value: Callable[[Row], Any], *, descending: bool) -> list[Row]:
    """`rows` by `value`, texts ignoring case; those of equal values stay in their order."""
    known: list[tuple[Any, Row]] = []
    unknown: list[Row] = []
    for row in rows:
        found = _known(value(row))
        if found is None:
            unknown.append(row)
        else:
            known.append((found.casefold() if isinstance(found, str) else found, row))
    known.sort(key=lambda pair: pair[0], reverse=descending)
    return [row for _, row in known] + unknown


def _known(value: str | float | bool | None) -> str | float | bool | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell(column: PageColumn[Any], value: str | float | bool | None) -> str | float:
    value = _known(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if column.is_time and not isinstance(value, str):
        return formatting.iso(value)
    if isinstance(value, str):
        return visible(f"'{value}" if value.lstrip()[:1] in _OPERATORS else value)
    return value


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
