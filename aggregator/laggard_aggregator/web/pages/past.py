"""Ranges of the archive for pages and API: read in threads of their own, few at a time, kept for a while."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from laggard_aggregator.alarms.factors import quotient
from laggard_aggregator.archive.history import MAX_ROWS, Chart, HistoryReader, Row
from laggard_aggregator.detect.interface import BoolArray, FloatArray
from laggard_aggregator.metrics.registry import SOURCES, unit, worse
from laggard_aggregator.status import formatting
from laggard_aggregator.status.formatting import counted, moment
from laggard_aggregator.status.urls import TimeRange
from laggard_aggregator.status.view import GroupView, Status
from laggard_aggregator.status.window_history import (
    ANOMALOUS,
    BAND,
    NORMAL,
    UNJUDGED,
    Column,
    Members,
    WindowHistory,
    bands,
)
from laggard_aggregator.web.pages.alarm_log import EVENT_COLUMNS, Event
from laggard_aggregator.web.pages.charts import WIDTH, band_chart, chart_data
from laggard_aggregator.web.pages.page_state import Now
from laggard_aggregator.web.pages.tables import PageColumn, PageTable, Query

MAX_READING = 2
MAX_WAITING = 8
ANSWER_SECONDS = 12.0
"""A disk that does not answer holds a thread, but no page for longer."""
KEPT_SECONDS = 60.0
MAX_KEPT = 32
ALIKE_SECONDS = 30
"""Ranges that differ by less, as of a page that shows the last hour, are read once."""
MAX_COLUMNS = 96
_LOADS = (("operations", "operations/s"), ("bytes", "MB/s"))
"""Load that clients ask for, in words, and its unit; queues and utilisation follow from slowness, too."""
_AS_BUSY = 1.1
"""Times its peers' load below which a component is not busier."""
_MOST_NAMED = 5
"""Components that one change names."""
ROWS_A_PAGE = {"anomalous_windows": 12, "anomalous_components": 100}


class PastUnavailableError(Exception):
    """A range that cannot be shown now; the text is a sentence for its reader."""


@dataclass(frozen=True, slots=True)
class PastSeries:
    """One metric of a component over N intervals: its values (N,) and the `band` (N, len(BAND)) of its peers.

    `load`: whether it is load, no compared metric. `hot` (N,): in an anomalous window.
    """

    name: str
    unit: str
    load: bool
    ends: FloatArray
    own: FloatArray
    band: FloatArray
    hot: BoolArray

    @property
    def data(self) -> str:
        """As JSON for the interactive chart."""
        return chart_data(self.ends, self.own, self.band, self.hot)

    @property
    def picture(self) -> Markup:
        """As SVG; empty with fewer than two intervals."""
        title = f"{self.name.replace('_', ' ')} in {self.unit} over {counted(self.ends.size, 'interval')}"
        height, width = (130, 420) if self.load else (200, WIDTH)
        return band_chart(
            self.ends, self.own, self.band, self.hot, unit=self.unit, label=title, height=height, width=width
        )


def _load_ratio(series: Sequence[PastSeries], when: BoolArray) -> float:
    """Sum of loads of one unit over that of the peers' medians, in the intervals `when`; NaN if unknown."""
    if not series:
        return float("nan")
    own = np.sum([load.own[when] for load in series], axis=0)
    peers = np.sum([load.band[when, BAND.index(0.5)] for load in series], axis=0)
    known = np.isfinite(own) & np.isfinite(peers)
    usual = float(peers[known].sum())
    return float(own[known].sum()) / usual if usual > 0 else float("nan")


@dataclass(frozen=True, slots=True)
class Change:
    """A change in a range besides alarms, in words; `at`: end of the window that shows it."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Past:
    """A range of the archive about a component, a group, a node, or all alarms.

    `verdicts`: rows of anomalous windows, newest first, or, of a node, of its anomalous components, the worst
    first; `listed` names the table of them, if the page has one. `judged`: windows in which its group was;
    of all alarms, of any group.
    `peers`: components of the band. `history`: of a group, at most MAX_COLUMNS windows of the components that
    had a verdict. `notes`: sentences about what is missing. `changes`: beside all alarms, oldest last.
    """

    range: TimeRange
    notes: tuple[str, ...] = ()
    step_seconds: float = 0.0
    peers: int = 0
    series: tuple[PastSeries, ...] = ()
    verdicts: tuple[Row, ...] = ()
    listed: str = ""
    judged: int = 0
    history: WindowHistory | None = None
    events: tuple[Event, ...] = ()
    changes: tuple[Change, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether the archive knows the subject at that time."""
        return bool(self.series or self.verdicts or self.events)

    @property
    def busier(self) -> str:
        """Its load over its peers' in words, while anomalous or else over the range; empty if unknown."""
        compared = [course.hot for course in self.series if not course.load]
        hot = np.logical_or.reduce(compared) if compared else np.zeros(0, dtype=np.bool_)
        asked = hot if hot.any() else np.ones(hot.size, dtype=np.bool_)
        loads = [
            (words, [course for course in self.series if course.load and course.unit == its_unit])
            for words, its_unit in _LOADS
        ]
        ratios = {words: ratio for words, some in loads if np.isfinite(ratio := _load_ratio(some, asked))}
        if not ratios:
            return ""
        most = max(ratios.values())
        answer = "Busier" if most >= formatting.WIDE_RATIO else "No" if most < _AS_BUSY else "Hardly"
        figures = " and ".join(f"{formatting.factor(ratio)} the {words}" for words, ratio in ratios.items())
        when = "While it was anomalous it" if hot.any() else "It"
        return f"{answer}. {when} had {figures} of its peers' median."

    def table(self, now: Now, query: Query) -> PageTable[Row] | None:
        """The table of `verdicts`."""
        column = PageColumn[Row]
        columns = {
            "anomalous_windows": (
                column("start", "Window", lambda row: row["start"], is_time=True),
                column("end", "", lambda row: row["end"], is_time=True),
                column("metric", "Metric", lambda row: row["metric"]),
                column("observed", "Value", lambda row: row["observed"], right=True),
                column("reference", "Peers", lambda row: row["reference"], right=True),
                column("unit", "", lambda row: row["unit"] or None),
                column("factor", "Factor", lambda row: row["factor"], right=True),
                column("score", "Score", lambda row: row["score"], right=True),
                column("straggler", "", lambda row: row["straggler"]),
            ),
            "anomalous_components": (
                column("name", "Component", lambda row: now.shown(row["component"])),
                column("component", "", lambda row: row["component"]),
                column("group", "Group", lambda row: row["group"]),
                column("metric", "Metric", lambda row: row["metric"]),
                column("worst_severity", "Worst average", lambda row: row["worst"], right=True),
                column("windows", "Anomalous windows", lambda row: row["windows"], right=True),
                column("first", "First", lambda row: row["first"], is_time=True),
                column("last", "Last", lambda row: row["end"], is_time=True),
            ),
        }.get(self.listed)
        if columns is None:
            return None
        keep = ("metric", "sort", "from", "to")
        size = ROWS_A_PAGE[self.listed]
        return PageTable(self.listed, columns, self.verdicts, query, keep=keep, size=size, is_first=False)


class PastReader:
    """Answers about ranges, from the archive in `directory`; None without one."""

    def __init__(self, view: Status, directory: Path | None) -> None:
        self._view = view
        self._directory = directory
        self._threads = ThreadPoolExecutor(MAX_READING, "history")
        self._pending = 0
        self._kept: OrderedDict[Hashable, tuple[float, asyncio.Future[Past]]] = OrderedDict()

    async def component(self, group: str, name: str, asked: TimeRange) -> Past:
        """A component by its permanent ID or current name. Raises PastUnavailableError, as all do."""
        view = next((shown for shown in self._view.groups() if shown.name == group), None)
        members = self._view.compared(group) if view is not None else ()
        component = name
        if name not in members:
            component = next((member for member in members if self._view.shown(member) == name), name)
        work = partial(_component, (group, component), view, members, asked)
        return await self._read(("component", group, component, str(view is not None)), asked, work)

    async def group(self, name: str, asked: TimeRange) -> Past:
        """The heat map of a group."""
        return await self._read(("group", name), asked, partial(_group, name, asked))

    async def node(self, name: str, asked: TimeRange) -> Past:
        """The anomalous windows of a node and its components."""
        return await self._read(("node", name), asked, partial(_node, name, asked))

    async def alarms(self, asked: TimeRange) -> Past:
        """The alarms raised and cleared."""
        return await self._read(("alarms",), asked, partial(_alarms, asked))

    async def _read(
        self, subject: tuple[str, ...], asked: TimeRange, work: Callable[[HistoryReader], Past]
    ) -> Past:
        if self._directory is None:
            raise PastUnavailableError(
                "No archive is configured, so only windows in memory can be shown: [archive] in "
                "aggregator.toml keeps history and load."
            )
        rounded = (asked.start // ALIKE_SECONDS, asked.end // ALIKE_SECONDS)
        key = (*subject, *rounded)
        read_at, reading = self._kept.get(key, (-np.inf, None))
        if reading is None or (reading.done() and time.monotonic() - read_at > KEPT_SECONDS):
            if self._pending >= MAX_WAITING:
                raise PastUnavailableError("Too many ranges are being read now: load it again in a moment.")
            reader = partial(HistoryReader, self._directory, self._view.site)
            loop = asyncio.get_running_loop()
            reading = loop.run_in_executor(self._threads, lambda: work(reader()))
            self._pending += 1
            reading.add_done_callback(partial(self._done, key))
            self._kept[key] = (time.monotonic(), reading)
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await asyncio.shield(reading)
        except TimeoutError:
            raise PastUnavailableError(
                f"The archive did not answer within {ANSWER_SECONDS:.0f} s: its disk is slow."
            ) from None

    def _done(self, key: Hashable, reading: "asyncio.Future[Past]") -> None:
        self._pending -= 1
        if not reading.cancelled() and reading.exception() is not None:
            self._kept.pop(key, None)


def _component(
    key: tuple[str, str],
    group: GroupView | None,
    members: Sequence[str],
    asked: TimeRange,
    reader: HistoryReader,
) -> Past:
    """`key`: names of the group, which may not be known now, and of the component."""
    name, component = key
    rows = reader.verdicts(asked.start, asked.end, name, under=component)
    source = "" if group is None else group.source
    anomalous = [
        {
            **row,
            "factor": _factor(row, worse(source, row["metric"])),
            "unit": unit(source, row["metric"]) if source else "",
        }
        for row in rows
        if row["component"] == component and row["anomalous"]
    ]
    windows = reader.windows(asked.start, asked.end, name)
    peers = [member for member in members if member != component]
    chart = None
    parent = any(row["level"] != "component" for row in anomalous)  # its components have the counters
    if group is not None and not parent and not any(member.startswith(f"{component}/") for member in members):
        chart = reader.chart(group, component, peers, asked.start, asked.end)
    notes = [] if chart is not None or anomalous else [_nothing(asked)]
    if chart is None and anomalous:
        notes.append(
            "The archive has no counters of it for this range: only its anomalous windows are shown."
        )
    return Past(
        range=asked,
        notes=(*notes, *_troubles(reader)),
        step_seconds=chart.step_seconds if chart is not None else 0.0,
        peers=len(chart.components) - 1 if chart is not None else 0,
        series=tuple(_series(chart, group, component, anomalous)) if chart is not None and group else (),
        verdicts=tuple(reversed(anomalous)),
        listed="anomalous_windows",
        judged=len({row["end"] for row in windows if row["judged"]}),
    )


def _known(figure: float | None) -> float:
    return float("nan") if figure is None else figure


def _factor(row: Row, side: int) -> float:
    """Times slower in a window by itself; the average's where its values are unknown."""
    now = quotient(_known(row["observed"]), _known(row["reference"]), side)
    return now if np.isfinite(now * _known(row["severity"])) else _known(row["severity"])


def _series(chart: Chart, group: GroupView, component: str, rows: Sequence[Row]) -> Iterable[PastSeries]:
    """Compared metrics, then load; load without any value is left out."""
    at = chart.components.index(component)
    source = SOURCES[group.source]
    for load, values in ((False, chart.metrics), (True, chart.load)):
        for name, rates in values.items():
            if load and not np.isfinite(rates[at]).any():
                continue
            hot = np.zeros(chart.ends.size, dtype=np.bool_)
            for row in rows if not load else ():
                if row["metric"] == name:
                    hot |= (chart.ends > row["start"]) & (chart.ends - chart.step_seconds < row["end"])
            known = source.charts[name].unit if load else unit(group.source, name)
            yield PastSeries(
                name, known, load, chart.ends, rates[at], bands(rates), hot & np.isfinite(rates[at])
            )


def _group(name: str, asked: TimeRange, reader: HistoryReader) -> Past:
    windows = reader.windows(asked.start, asked.end, name)
    rows = reader.verdicts(asked.start, asked.end, name)
    listed = {row["component"] for row in rows}
    most = max((row["components"] for row in windows), default=0)
    notes = [] if windows else [_nothing(asked)]
    if most > len(listed):
        calm = counted(most - len(listed), "component")
        notes.append(f"{calm} without an anomalous window in this range are not listed.")
    return Past(
        range=asked,
        notes=(*notes, *_troubles(reader)),
        history=_history(name, windows, rows, asked),
        verdicts=tuple(rows),
    )


def _node(name: str, asked: TimeRange, reader: HistoryReader) -> Past:
    rows = reader.verdicts(asked.start, asked.end, under=name)
    series: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        if row["anomalous"]:
            key = (row["component"], row["group"], row["metric"])
            total = series.setdefault(key, {**row, "windows": 0, "worst": np.nan, "first": row["start"]})
            total["windows"] += 1
            total["worst"] = float(np.fmax(total["worst"], row["severity"]))
            total["end"] = row["end"]
    worst = sorted(series.values(), key=lambda total: (-np.nan_to_num(total["worst"]), total["component"]))
    quiet = f"The archive has no anomalous window of the node or its components from {_ends(asked)}."
    notes = (*(() if worst else (quiet,)), *_troubles(reader))
    return Past(asked, notes, verdicts=tuple(worst), listed="anomalous_components")


def _alarms(asked: TimeRange, reader: HistoryReader) -> Past:
    rows = reader.alarms(EVENT_COLUMNS, asked.start, asked.end)
    windows = reader.windows(asked.start, asked.end)
    changes = _changes(windows, reader.closes(asked.start, asked.end))
    return Past(
        asked,
        _troubles(reader),
        judged=len(windows),
        events=tuple(map(Event.of_row, reversed(rows))),
        changes=tuple(sorted(changes, key=lambda change: -change.at)),
    )


def _changes(windows: Sequence[Row], closes: Sequence[Row]) -> Iterable[Change]:
    """Groups that grew or shrank, drained or replaced components, and new runs, by windows in order."""
    sizes: dict[str, int] = {}
    runs: set[int] = set()
    for row in windows:
        group, size = row["group"], row["components"]
        before = sizes.get(group, size)
        sizes[group] = size
        if size != before:
            yield Change(row["end"], f"{group}: {counted(size, 'component')} compared, before {before:,}")
        if runs and row["run"] not in runs:
            yield Change(row["end"], "the aggregator began a new run: without its state, or newly configured")
        runs.add(row["run"])
    drained: dict[str, set[str]] = {}
    for row in closes:
        now = set(row["drained"] or ())
        before_it = drained.get(row["group"], now)
        drained[row["group"]] = now
        said = {
            "drained": now - before_it,
            "no longer drained": before_it - now,
            "replaced or forgotten": set(row["afresh"] or ()),
        }
        for done, components in said.items():
            if components:
                shown = ", ".join(sorted(components)[:_MOST_NAMED])
                more = len(components) - _MOST_NAMED
                rest = f" and {more} more" if more > 0 else ""
                yield Change(row["end"], f"{row['group']}: {shown}{rest} {done}")


def _history(group: str, windows: Sequence[Row], rows: Sequence[Row], asked: TimeRange) -> WindowHistory:
    """The windows of a group as a history of at most MAX_COLUMNS columns, each the worst of its windows."""
    width = (asked.end - asked.start) / MAX_COLUMNS

    def place(row: Row) -> int:
        return min(int((row["end"] - asked.start) / width), MAX_COLUMNS - 1)

    columns: dict[tuple[str, str], list[Column]] = {}
    for metric in dict.fromkeys(row["metric"] for row in windows):
        mine = [row for row in rows if row["metric"] == metric]
        members = Members(tuple(sorted({row["component"] for row in mine})))
        spans: dict[int, list[Row]] = {}
        for row in windows:
            if row["metric"] == metric:
                spans.setdefault(place(row), []).append(row)
        shape = (MAX_COLUMNS, len(members.names))
        hot = np.zeros(shape, dtype=np.bool_)
        names = ("severity", "score", "observed", "reference")
        figures = {name: np.full(shape, np.nan, np.float32) for name in names}
        for row in mine:
            cell = (place(row), members.place(row["component"]))
            hot[cell] |= row["anomalous"]
            if not figures["observed"][cell] >= _known(row["observed"]):  # both are of one window
                figures["observed"][cell] = _known(row["observed"])
                figures["reference"][cell] = _known(row["reference"])
            for name in ("severity", "score"):
                figures[name][cell] = np.fmax(figures[name][cell], _known(row[name]))
        for at in sorted(spans):
            calm = NORMAL if any(row["judged"] for row in spans[at]) else UNJUDGED
            columns.setdefault((group, metric), []).append(
                Column(
                    start=min(row["start"] for row in spans[at]),
                    end=max(row["end"] for row in spans[at]),
                    members=members,
                    state=np.where(hot[at], ANOMALOUS, calm).astype(np.uint8),
                    band=(float("nan"),) * len(BAND),
                    note=spans[at][-1]["note"] or "",
                    **{name: values[at] for name, values in figures.items()},
                )
            )
    return WindowHistory.of_columns(columns)


def _troubles(reader: HistoryReader) -> tuple[str, ...]:
    notes = []
    if reader.damaged:
        notes.append(f"Left out, as unreadable: {counted(len(reader.damaged), 'file')} of the archive.")
    if reader.cut:
        notes.append(f"Incomplete: reading stops after {reader.seconds:.0f} s and at {MAX_ROWS:,} rows.")
    return tuple(notes)


def _nothing(asked: TimeRange) -> str:
    return f"The archive has no data of it from {_ends(asked)}."


def _ends(asked: TimeRange) -> str:
    return f"{moment(asked.start)} to {moment(asked.end)} UTC"
