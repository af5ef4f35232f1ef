"""Heat maps of components over time, as SVG of bounded size.

A cell's level shows the state of the component in a window. Normal cells are pale for any factor; only
anomalous cells are warm, darker when slower. Cells of a level form one path, adjacent cells one run of it, so
a quiet group of any size takes a few bytes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from laggard_aggregator.status.window_history import ABSENT, ANOMALOUS, UNJUDGED, Column

GONE, OPEN, WELL, WIDE, SLOW, SLOWER, SLOWEST = range(7)
"""Absent; not judged; like its peers; a little slower, not anomalous; anomalous in three grades."""
LEGEND = (
    (WELL, "like its peers"),
    (WIDE, "1.3× or slower, not anomalous"),
    (SLOW, "anomalous"),
    (SLOWER, "anomalous, 2× or slower"),
    (SLOWEST, "anomalous, 4× or slower"),
    (OPEN, "not judged"),
    (GONE, "no data"),
)
MAX_WINDOWS = 96
"""Limit of columns; beyond it adjacent windows are merged, showing the worst."""

_WIDE_FROM, _SLOWER_FROM, _SLOWEST_FROM = 1.3, 2.0, 4.0


@dataclass(frozen=True, slots=True)
class Heat:
    """Levels (C, N) of components over windows, with their basis.

    `ends` (N,): ends of the windows, of which each stands for `merged`; `worst` (C,): the largest factor, NaN
    without one; `anomalous` (C,): number of anomalous windows among the `windows` (C,) judged.
    """

    components: tuple[str, ...]
    levels: NDArray[np.uint8]
    starts: NDArray[np.float64]
    ends: NDArray[np.float64]
    worst: NDArray[np.float64]
    anomalous: NDArray[np.int64]
    windows: NDArray[np.int64]
    latest: NDArray[np.float64]

    def of(self, rows: NDArray[np.int64]) -> "Heat":
        """A selection of its rows."""
        return replace(
            self,
            components=tuple(self.components[row] for row in rows.tolist()),
            levels=self.levels[rows],
            worst=self.worst[rows],
            anomalous=self.anomalous[rows],
            windows=self.windows[rows],
            latest=self.latest[rows],
        )

    def by_severity(self) -> NDArray[np.int64]:
        """Rows, the worst first: by the latest window, then over all windows, then by name."""
        whole = self.levels.astype(np.int64)
        now = whole[:, -1] if whole.shape[1] else np.zeros(len(self.components), dtype=np.int64)
        worst = np.nan_to_num(self.worst, nan=0.0)
        names = np.argsort(np.argsort(np.array(self.components, dtype=np.str_)))
        return np.lexsort((names, -worst, -self.anomalous, -np.where(now >= SLOW, now, 0)))


def heat(courses: Sequence[Sequence[Column]], last: int = MAX_WINDOWS) -> Heat:
    """Heat map of one group from the courses of one or more metrics; a cell shows the worst.

    At most `last` columns; with more windows each column covers several.
    """
    spans = {column.end: column.start for columns in courses for column in columns}
    ends = sorted(spans)
    names = _names(courses)
    row = {name: at for at, name in enumerate(names)}
    place = {end: at for at, end in enumerate(ends)}
    levels = np.zeros((len(names), len(ends)), dtype=np.uint8)
    factors = np.full((len(names), len(ends)), np.nan, dtype=np.float32)
    known: tuple[object, NDArray[np.intp]] = (None, np.zeros(0, dtype=np.intp))
    for columns in courses:
        for column in columns:
            if known[0] is not column.members:
                members = column.members.names
                known = (column.members, np.fromiter(map(row.__getitem__, members), np.intp, len(members)))
            at, rows = place[column.end], known[1]
            levels[rows, at] = np.maximum(levels[rows, at], levels_of(column))
            factors[rows, at] = np.fmax(factors[rows, at], column.severity)
    starts = np.array([spans[end] for end in ends])
    whole = Heat(
        components=names,
        levels=levels,
        starts=starts,
        ends=np.array(ends),
        worst=np.fmax.reduce(factors, axis=1, initial=np.nan).astype(np.float64),
        anomalous=(levels >= SLOW).sum(axis=1),
        windows=(levels >= WELL).sum(axis=1),
        latest=factors[:, -1].astype(np.float64) if ends else np.full(len(names), np.nan),
    )
    return _narrowed(whole, last)


def levels_of(column: Column) -> NDArray[np.uint8]:
    """The level of each component in one window."""
    severity = column.severity
    with np.errstate(invalid="ignore"):
        # Without a ratio the detector's score gives the distance beyond its threshold.
        size = np.where(np.isfinite(severity), severity, column.score)
        grade = SLOW + (size >= _SLOWER_FROM) + (size >= _SLOWEST_FROM)
        calm = WELL + (severity >= _WIDE_FROM)
    level = np.where(column.state == ANOMALOUS, grade, calm)
    level = np.where(column.state == UNJUDGED, OPEN, level)
    return np.where(column.state == ABSENT, GONE, level).astype(np.uint8)


def bucketed(levels: NDArray[np.uint8], rows: int) -> NDArray[np.uint8]:
    """Levels in at most `most` rows: adjacent rows are merged, showing the worst."""
    count = len(levels)
    if count <= rows:
        return levels
    return np.maximum.reduceat(levels, np.arange(rows) * count // rows, axis=0)


def drawing(levels: NDArray[np.uint8], label: str, name: str) -> Markup:
    """SVG of levels (R, N), one unit per cell, stretched by the style sheet; `name` is its class."""
    rows, columns = levels.shape
    paths = Markup("").join(
        Markup('<path class="l{}" d="{}"/>').format(level, _stretches(levels == level))
        for level in range(OPEN, SLOWEST + 1)
        if (levels == level).any()
    )
    marks = _ticks(levels >= SLOW)
    if marks:
        paths += Markup('<path class="mark" d="{}"/>').format(marks)
    return Markup(
        '<svg class="{}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(name, max(columns, 1), max(rows, 1), label, paths)


def _narrowed(whole: Heat, last: int) -> Heat:
    """The same with at most `last` columns, all but the first covering equally many windows."""
    count = len(whole.ends)
    if count <= last:
        return whole
    each = -(-count // last)
    first = np.arange(0, count, each) - (-count % each)
    first[0] = 0
    return replace(
        whole,
        levels=np.maximum.reduceat(whole.levels, first, axis=1),
        starts=whole.starts[first],
        ends=whole.ends[np.append(first[1:], count) - 1],
    )


def _names(courses: Sequence[Sequence[Column]]) -> tuple[str, ...]:
    """All components of the courses, by name."""
    lists = {id(column.members): column.members for columns in courses for column in columns}
    return tuple(sorted({name for members in lists.values() for name in members.names}))


def _stretches(cells: NDArray[np.bool_]) -> str:
    """Path data of the cells, adjacent cells of a row together."""
    return "".join(f"M{x} {y}h{width}v1h-{width}z" for y, x, width in _runs(cells))


def _ticks(cells: NDArray[np.bool_]) -> str:
    """Path data of a line below anomalous cells, so that they differ by more than colour."""
    return "".join(f"M{x} {y + 0.8:g}h{width}v.2h-{width}z" for y, x, width in _runs(cells))


def _runs(cells: NDArray[np.bool_]) -> Iterator[tuple[int, int, int]]:
    """Row, first column and length of each run of set cells."""
    edges = np.diff(np.pad(cells.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    rows, first = np.nonzero(edges == 1)
    _, last = np.nonzero(edges == -1)
    return zip(rows.tolist(), first.tolist(), (last - first).tolist(), strict=True)
