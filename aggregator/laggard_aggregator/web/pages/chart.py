"""Charts as SVG, visible without any script. The style sheet sets the colours."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.status import formatting
from laggard_aggregator.status.window_history import ANOMALOUS, Course

SPARK_WINDOWS = 48
WIDTH, HEIGHT = 1100, 250
_STEPS = (1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
"""Seconds between times on an axis."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 10, 28


def sparkline(course: Course) -> Markup:
    """The factor over the last windows, with a line at its peers."""
    values = course.severity[-SPARK_WINDOWS:]
    if not np.isfinite(values).any():
        values = course.score[-SPARK_WINDOWS:]
    known = np.isfinite(values)
    if known.sum() < 2:
        return Markup("")
    top = max(float(values[known].max()), 1.5)
    label = (
        f"factor over the last {formatting.counted(len(values), 'window')}, at most {formatting.factor(top)}"
    )
    y = 30.0 - 28.0 * np.clip(values, 0, top) / top
    x = np.linspace(1.0, 99.0, len(values))
    peers = 30.0 - 28.0 / top
    return Markup(
        '<svg class="spark" viewBox="0 0 100 32" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<path class="peers" d="M0 {:.1f}H100"/><path class="own" d="{}"/></svg>'
    ).format(label, peers, _line(x, y))


def band_chart(course: Course, unit: str, title: str) -> Markup:
    """A component's value in each window against the band of its peers."""
    return _chart(
        x=course.end,
        own=course.observed,
        band=course.band,
        hot=course.state == ANOMALOUS,
        unit=unit,
        label=title,
    )


def samples_chart(time: FloatArray, own: FloatArray, band: FloatArray, unit: str, title: str) -> Markup:
    """A component's samples (N,) in the latest window against the band (N, 5) of its peers."""
    return _chart(x=time, own=own, band=band, hot=np.zeros(len(time), dtype=np.bool_), unit=unit, label=title)


def cdf_chart(own: FloatArray, peers: Sequence[FloatArray], unit: str, title: str) -> Markup:
    """Cumulative distributions: a component's sorted samples, and those of each of some peers."""
    both = np.concatenate([own, *peers]) if peers else own
    low, high = float(both.min()), float(both.max())
    high = high if high > low else low + 1.0
    frame = _Frame(low, high, 0.0, 1.0)
    lines = Markup("").join(
        Markup('<path class="peer" d="{}"/>').format(_steps(frame, each)) for each in peers
    )
    lines += Markup('<path class="own" d="{}"/>').format(_steps(frame, own))
    across = [(value, formatting.figure(value, unit)) for value in _ticks(low, high)]
    upwards = [(share, f"{share:.0%}") for share in (0.0, 0.5, 1.0)]
    return frame.svg(title, lines, across, upwards)


class _Frame:
    """Maps values to positions in the picture."""

    def __init__(self, x_low: float, x_high: float, y_low: float, y_high: float) -> None:
        self._x = (x_low, (WIDTH - _LEFT - _RIGHT) / (x_high - x_low or 1.0))
        self._y = (y_low, (HEIGHT - _TOP - _BOTTOM) / (y_high - y_low or 1.0))

    def x(self, values: FloatArray) -> FloatArray:
        return _LEFT + (values - self._x[0]) * self._x[1]

    def y(self, values: FloatArray) -> FloatArray:
        return HEIGHT - _BOTTOM - (values - self._y[0]) * self._y[1]

    def svg(
        self,
        label: str,
        inside: Markup,
        across: Iterable[tuple[float, str]],
        upwards: Iterable[tuple[float, str]],
    ) -> Markup:
        """The picture: labelled grid lines and the drawn elements."""
        grid = Markup("")
        for value, text in upwards:
            y = float(self.y(np.array(value)))
            grid += Markup('<path class="grid" d="M{} {:.1f}H{}"/><text x="{}" y="{:.1f}">{}</text>').format(
                _LEFT, y, WIDTH - _RIGHT, _LEFT - 6, y + 4, text
            )
        for value, text in across:
            x = float(self.x(np.array(value)))
            grid += Markup('<text class="below" x="{:.1f}" y="{}">{}</text>').format(x, HEIGHT - 8, text)
        return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}</svg>').format(
            WIDTH, HEIGHT, label, grid, inside
        )


def _chart(
    *, x: FloatArray, own: FloatArray, band: FloatArray, hot: NDArray[np.bool_], unit: str, label: str
) -> Markup:
    known = np.concatenate([own[np.isfinite(own)], band[np.isfinite(band)]])
    if len(x) < 2 or not known.size:
        return Markup("")
    low, high = min(float(known.min()), 0.0), float(known.max())
    frame = _Frame(float(x[0]), float(x[-1]), low, high * 1.05 if high > low else low + 1.0)
    places = frame.x(x)
    lines = Markup("")
    for inner, outer, name in ((0, 4, "wide"), (1, 3, "narrow")):
        lines += Markup('<path class="band {}" d="{}"/>').format(
            name, _area(places, frame.y(band[:, inner]), frame.y(band[:, outer]))
        )
    lines += Markup('<path class="median" d="{}"/>').format(_line(places, frame.y(band[:, 2])))
    lines += Markup('<path class="own" d="{}"/>').format(_line(places, frame.y(own)))
    for at in np.flatnonzero(hot & np.isfinite(own)).tolist():
        lines += Markup('<circle class="hot" cx="{:.1f}" cy="{:.1f}" r="3.5"/>').format(
            places[at], frame.y(own)[at]
        )
    return frame.svg(
        label, lines, _times(x), [(value, formatting.figure(value, unit)) for value in _ticks(low, high)]
    )


def _line(x: FloatArray, y: FloatArray) -> str:
    """Path data of a line, with gaps at missing values."""
    pen, parts = "M", []
    for at, value in zip(x.tolist(), y.tolist(), strict=True):
        if math.isfinite(value):
            parts.append(f"{pen}{at:.1f} {value:.1f}")
            pen = "L"
        else:
            pen = "M"
    return "".join(parts)


def _area(x: FloatArray, low: FloatArray, high: FloatArray) -> str:
    """Path data of the areas between two lines, one per run without a gap."""
    known = np.isfinite(low) & np.isfinite(high)
    edges = np.flatnonzero(np.diff(np.pad(known.astype(np.int8), 1)))
    parts = []
    for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        there = slice(first, last)
        back = slice(last - 1, None if first == 0 else first - 1, -1)
        parts.append(f"{_line(x[there], high[there])}{_line(x[back], low[back]).replace('M', 'L', 1)}z")
    return "".join(parts)


def _steps(frame: _Frame, values: FloatArray) -> str:
    """Path data of the cumulative distribution of sorted values."""
    shares = np.arange(1, len(values) + 1) / len(values)
    x, y = frame.x(values).tolist(), frame.y(shares).tolist()
    start = float(frame.y(np.array(0.0)))
    return f"M{x[0]:.1f} {start:.1f}" + "".join(f"H{at:.1f}V{up:.1f}" for at, up in zip(x, y, strict=True))


def _ticks(low: float, high: float) -> list[float]:
    """Three to six round values within a range."""
    if not high > low:
        return [low]
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= raw * 0.999)
    first = math.ceil(low / step)
    return [at * step for at in range(first, math.floor(high / step) + 1)]


def _times(ends: FloatArray) -> list[tuple[float, str]]:
    """Round times along an axis, with the date if they span several days."""
    low, high = float(ends[0]), float(ends[-1])
    step = next((each for each in _STEPS if (high - low) / each <= 8), _STEPS[-1])
    step *= max(math.ceil((high - low) / step / 8), 1)
    first, last = math.ceil(low / step), math.floor(high / step)
    say = formatting.day_and_clock if high - low > 86_400 else formatting.clock
    return [(at * step, say(at * step)) for at in range(first, last + 1)]
