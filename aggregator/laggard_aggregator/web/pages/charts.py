"""Charts and heat maps as SVG, visible without any script. The style sheet sets the colours."""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.status import formatting
from laggard_aggregator.status.window_history import ABSENT, ANOMALOUS, UNJUDGED, Column, ComponentHistory

SPARK_WINDOWS = 48
WIDTH, HEIGHT = 1100, 250
MOST_TIMES = 8
"""Steps of an axis of times."""
_STEPS = (1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
"""Seconds between times on an axis."""
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 10, 28
GONE, OPEN, WELL, WIDE, SLOW, SLOWER, SLOWEST = range(7)
"""Absent; not judged; like its peers; a little slower, not anomalous; anomalous in three grades."""
LEGEND = (
    (WELL, "like its peers"),
    (WIDE, "1.3× or slower, not anomalous"),
    (SLOW, "anomalous"),
    (SLOWER, "anomalous, 2× or slower"),
    (SLOWEST, "anomalous, 5× or slower"),
    (OPEN, "not judged"),
    (GONE, "no data"),
)
MAX_WINDOWS = 96
"""Limit of columns; beyond it adjacent windows are merged, showing the worst."""


def sparkline(course: ComponentHistory, worse: int = 1) -> Markup:
    """The factor of each of the last windows, with a line at its peers; `worse`: side of the metric."""
    values = course.factors(worse)[-SPARK_WINDOWS:]
    if not np.isfinite(values).any():
        values = course.score[-SPARK_WINDOWS:]
    known = np.isfinite(values)
    if known.sum() < 2:
        return Markup("")
    top = max(float(values[known].max()), 1.5)
    label = (
        f"factor over the last {formatting.counted(len(values), 'window')}, at most {formatting.factor(top)}"
    )
    y = 60.0 - 56.0 * np.clip(values, 0, top) / top
    return Markup(
        '<svg class="spark" viewBox="-1 0 {} 64" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<path class="peers" d="M-1 {:.0f}H{}"/><path class="own" d="{}"/></svg>'
    ).format(len(values) + 1, label, 60.0 - 56.0 / top, len(values), _steady_line(y))


def chart_data(x: FloatArray, own: FloatArray, band: FloatArray, hot: NDArray[np.bool_]) -> str:
    """Values as JSON for an interactive chart: times, own values, band, own values where `hot`."""
    columns = [
        [float(f"{value:.5g}") if np.isfinite(value) else None for value in column.tolist()]
        for column in (own, *band.T, np.where(hot, own, np.nan))
    ]
    return json.dumps([x.tolist(), *columns], allow_nan=False)


def band_chart(
    x: FloatArray,
    own: FloatArray,
    band: FloatArray,
    hot: NDArray[np.bool_],
    *,
    unit: str,
    label: str,
    height: int = HEIGHT,
    width: int = WIDTH,
) -> Markup:
    """Values (N,) at the times `x` against the band (N, 5) of the peers; a dot where `hot`.

    A picture that is narrower than WIDTH is one of a grid, and has half the labels.
    """
    known = np.concatenate([own[np.isfinite(own)], band[np.isfinite(band)]])
    if len(x) < 2 or not known.size:
        return Markup("")
    low, high = min(float(known.min()), 0.0), float(known.max())
    frame = Frame(
        float(x[0]), float(x[-1]), low, high * 1.05 if high > low else low + 1.0, height, width=width
    )
    places = frame.x(x)
    lines = Markup("")
    for inner, outer, name in ((0, 4, "wide"), (1, 3, "narrow")):
        lines += Markup('<path class="band {}" d="{}"/>').format(
            name, _area(places, frame.y(band[:, inner]), frame.y(band[:, outer]))
        )
    lines += Markup('<path class="median" d="{}"/>').format(line_path(places, frame.y(band[:, 2])))
    lines += Markup('<path class="own" d="{}"/>').format(line_path(places, frame.y(own)))
    for at in np.flatnonzero(hot & np.isfinite(own)).tolist():
        lines += Markup('<circle class="hot" cx="{:.1f}" cy="{:.1f}" r="3.5"/>').format(
            places[at], frame.y(own)[at]
        )
    every = 1 if width == WIDTH else 2
    upwards = [(value, formatting.figure(value, unit)) for value in ticks(low, high)[::every]]
    across = time_ticks(x, MOST_TIMES // every**2)
    return frame.svg(label, lines, across, upwards, are_times=True)


def cdf_chart(own: FloatArray, peers: Sequence[FloatArray], unit: str, title: str) -> Markup:
    """Cumulative distributions: a component's sorted samples, and those of each of some peers."""
    both = np.concatenate([own, *peers]) if peers else own
    low, high = float(both.min()), float(both.max())
    high = high if high > low else low + 1.0
    frame = Frame(low, high, 0.0, 1.0)
    lines = Markup("").join(
        Markup('<path class="peer" d="{}"/>').format(_steps(frame, sample)) for sample in peers
    )
    lines += Markup('<path class="own" d="{}"/>').format(_steps(frame, own))
    across = [(value, formatting.figure(value, unit)) for value in ticks(low, high)]
    upwards = [(share, f"{share:.0%}") for share in (0.0, 0.5, 1.0)]
    return frame.svg(title, lines, across, upwards)


_HALF_LETTER = 3.5
"""Half the width of a letter in the picture: a label at the end of an axis stays within it."""


class Frame:
    """Maps values to positions in the picture."""

    def __init__(
        self,
        x_low: float,
        x_high: float,
        y_low: float,
        y_high: float,
        height: int = HEIGHT,
        *,
        top: int = TOP,
        width: int = WIDTH,
    ) -> None:
        self._height = height
        self._width = width
        self._x = (x_low, (width - LEFT - RIGHT) / (x_high - x_low or 1.0))
        self._y = (y_low, (height - top - BOTTOM) / (y_high - y_low or 1.0))

    def x(self, values: FloatArray) -> FloatArray:
        """Positions along the picture."""
        return LEFT + (values - self._x[0]) * self._x[1]

    def y(self, values: FloatArray) -> FloatArray:
        """Positions from its top."""
        return self._height - BOTTOM - (values - self._y[0]) * self._y[1]

    def svg(
        self,
        label: str,
        inside: Markup,
        across: Iterable[tuple[float, str]],
        upwards: Iterable[tuple[float, str]],
        *,
        are_times: bool = False,
    ) -> Markup:
        """The picture: labelled grid lines and the drawn elements. `are_times`: `across` are times."""
        grid, marks = Markup(""), list(upwards)
        for place, (value, text) in enumerate(marks, start=1):
            y = float(self.y(np.array(value)))
            grid += Markup('<path class="grid" d="M{} {:.1f}H{}"/>').format(LEFT, y, self._width - RIGHT)
            name = Markup(' class="minor"') if (len(marks) - place) % 2 else ""
            grid += Markup('<text{} x="{}" y="{:.1f}">{}</text>').format(name, LEFT - 6, y + 4, text)
        for place, (value, text) in enumerate(across):
            x = min(float(self.x(np.array(value))), self._width - _HALF_LETTER * len(text))
            at = Markup(' data-at="{:.0f}"').format(value) if are_times else ""
            name = "below minor" if place % 2 else "below"  # every other one is left out on a phone
            grid += Markup('<text class="{}"{} x="{:.1f}" y="{}">{}</text>').format(
                name, at, x, self._height - 8, text
            )
        return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}</svg>').format(
            self._width, self._height, label, grid, inside
        )


def line_path(x: FloatArray, y: FloatArray) -> str:
    """Path data of a line, with gaps at missing values."""
    pen, parts = "M", []
    for at, value in zip(x.tolist(), y.tolist(), strict=True):
        if math.isfinite(value):
            parts.append(f"{pen}{at:.1f} {value:.1f}")
            pen = "L"
        else:
            pen = "M"
    return "".join(parts)


def _steady_line(y: FloatArray) -> str:
    """Path data of a line of one unit a value, in whole relative steps, which compress well."""
    parts, last = [], math.nan
    for at, value in enumerate(np.round(y).tolist()):
        if math.isfinite(value):
            parts.append(f"l1 {value - last:.0f}" if math.isfinite(last) else f"M{at} {value:.0f}")
        last = value
    return "".join(parts)


def _area(x: FloatArray, low: FloatArray, high: FloatArray) -> str:
    """Path data of the areas between two lines, one per run without a gap."""
    known = np.isfinite(low) & np.isfinite(high)
    edges = np.flatnonzero(np.diff(np.pad(known.astype(np.int8), 1)))
    parts = []
    for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        there = slice(first, last)
        back = slice(last - 1, None if first == 0 else first - 1, -1)
        parts.append(
            f"{line_path(x[there], high[there])}{line_path(x[back], low[back]).replace('M', 'L', 1)}z"
        )
    return "".join(parts)


def _steps(frame: Frame, values: FloatArray) -> str:
    """Path data of the cumulative distribution of sorted values."""
    shares = np.arange(1, len(values) + 1) / len(values)
    x, y = frame.x(values).tolist(), frame.y(shares).tolist()
    start = float(frame.y(np.array(0.0)))
    return f"M{x[0]:.1f} {start:.1f}" + "".join(f"H{at:.1f}V{up:.1f}" for at, up in zip(x, y, strict=True))


def ticks(low: float, high: float) -> list[float]:
    """Three to six round values within a range."""
    if not high > low:
        return [low]
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step)
    return [at * step for at in range(first, math.floor(high / step) + 1)]


def time_ticks(ends: FloatArray, most: int = MOST_TIMES) -> list[tuple[float, str]]:
    """Round times along an axis, with the date if they span several days; the first names the zone."""
    low, high = float(ends[0]), float(ends[-1])
    step = next((seconds for seconds in _STEPS if (high - low) / seconds <= most), _STEPS[-1])
    step *= max(math.ceil((high - low) / step / most), 1)
    first, last = math.ceil(low / step), math.floor(high / step)
    say = formatting.day_and_clock if high - low > 86_400 else formatting.clock
    return [(at * step, say(at * step) + " UTC" * (at == first)) for at in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class Heat:
    """Levels (C, N) of components over windows, with their basis.

    `ends` (N,): ends of the columns, which stand for `count` windows in all; `worst` (C,): the largest
    factor, NaN without one; `anomalous` (C,): number of anomalous windows among the `windows` (C,) judged.
    """

    components: tuple[str, ...]
    levels: NDArray[np.uint8]
    starts: NDArray[np.float64]
    ends: NDArray[np.float64]
    worst: NDArray[np.float64]
    anomalous: NDArray[np.int64]
    windows: NDArray[np.int64]
    latest: NDArray[np.float64]
    count: int = 0

    def by_severity(self) -> NDArray[np.int64]:
        """Rows, the worst first: by the latest window, then over all windows, then by name."""
        count = len(self.components)
        now = self.levels[:, -1].astype(np.int64) if self.levels.shape[1] else np.zeros(count, dtype=np.int64)
        worst = np.nan_to_num(self.worst, nan=0.0)
        return np.lexsort((-worst, -self.anomalous, -np.where(now >= SLOW, now, 0)))  # stable: then by name

    @property
    def spans(self) -> str:
        """Start and end of each column in epoch seconds, each less the one before it."""
        edges = np.stack([self.starts, self.ends], axis=1).ravel()
        return " ".join(f"{edge:.12g}" for edge in np.diff(edges, prepend=0.0).tolist())

    @property
    def times(self) -> tuple[float, ...]:
        """Starts of the columns at each quarter, for an axis."""
        count = len(self.starts)
        places = sorted({count * part // 4 for part in range(4)}) if count else []
        return tuple(self.starts[places].tolist())


def heat(courses: Sequence[tuple[Sequence[Column], int]]) -> Heat:
    """Heat map of one group; a cell shows the worst of its metrics, by the factor of that window alone.

    `courses`: columns and worse side of each metric. At most MAX_WINDOWS columns; with more windows
    each column covers several.
    """
    spans = {column.end: column.start for columns, _ in courses for column in columns}
    ends = sorted(spans)
    lists = {id(column.names): column.names for columns, _ in courses for column in columns}
    names = tuple(sorted({name for components in lists.values() for name in components}))
    row = {name: at for at, name in enumerate(names)}
    place = {end: at for at, end in enumerate(ends)}
    levels = np.zeros((len(names), len(ends)), dtype=np.uint8)
    factors = np.full((len(names), len(ends)), np.nan, dtype=np.float32)
    places = {key: np.array([row[name] for name in own], dtype=np.intp) for key, own in lists.items()}
    for columns, side in courses:
        for column in columns:
            at, rows = place[column.end], places[id(column.names)]
            own = column.factors(side)
            levels[rows, at] = np.maximum(levels[rows, at], levels_of(column, own))
            factors[rows, at] = np.fmax(factors[rows, at], own)
    whole = Heat(
        components=names,
        levels=levels,
        starts=np.array([spans[end] for end in ends]),
        ends=np.array(ends),
        worst=np.fmax.reduce(factors, axis=1, initial=np.nan).astype(np.float64),
        anomalous=(levels >= SLOW).sum(axis=1),
        windows=(levels >= WELL).sum(axis=1),
        latest=factors[:, -1].astype(np.float64) if ends else np.full(len(names), np.nan),
        count=len(ends),
    )
    return _narrowed(whole)


def levels_of(column: Column, factors: NDArray[np.float64]) -> NDArray[np.uint8]:
    """The level of each component in one window; `factors` (C,): times slower in it."""
    with np.errstate(invalid="ignore"):
        # Without a ratio the detector's score gives the distance beyond its threshold.
        size = np.where(np.isfinite(factors), factors, column.score)
        grade = SLOW + (size >= formatting.GRADES["serious"]) + (size >= formatting.GRADES["severe"])
        calm = WELL + (factors >= formatting.WIDE_RATIO)
    level = np.where(column.state == ANOMALOUS, grade, calm)
    level = np.where(column.state == UNJUDGED, OPEN, level)
    return np.where(column.state == ABSENT, GONE, level).astype(np.uint8)


def drawing(levels: NDArray[np.uint8], label: str, name: str) -> Markup:
    """SVG of levels (R, N), one unit per cell, stretched by the style sheet; `name` is its class."""
    rows, columns = levels.shape
    paths = Markup("")
    for level in range(OPEN, SLOWEST + 1):
        if cells := "".join(f"M{x} {y}h{width}v1h-{width}z" for y, x, width in _runs(levels == level)):
            paths += Markup('<path class="l{}" d="{}"/>').format(level, cells)
    # A line below anomalous cells, so that they differ by more than colour.
    if marks := "".join(f"M{x} {y + 0.8:g}h{width}v.2h-{width}z" for y, x, width in _runs(levels >= SLOW)):
        paths += Markup('<path class="mark" d="{}"/>').format(marks)
    return Markup(
        '<svg class="{}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(name, max(columns, 1), max(rows, 1), label, paths)


def _narrowed(whole: Heat) -> Heat:
    """The same with at most MAX_WINDOWS columns, all but the first covering equally many windows."""
    count = len(whole.ends)
    if count <= MAX_WINDOWS:
        return whole
    width = -(-count // MAX_WINDOWS)
    first = np.arange(0, count, width) - (-count % width)
    first[0] = 0
    return replace(
        whole,
        levels=np.maximum.reduceat(whole.levels, first, axis=1),
        starts=whole.starts[first],
        ends=whole.ends[np.append(first[1:], count) - 1],
    )


def _runs(cells: NDArray[np.bool_]) -> Iterator[tuple[int, int, int]]:
    """Row, first column and length of each run of set cells."""
    edges = np.diff(np.pad(cells.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    rows, first = np.nonzero(edges == 1)
    _, last = np.nonzero(edges == -1)
    return zip(rows.tolist(), first.tolist(), (last - first).tolist(), strict=True)
