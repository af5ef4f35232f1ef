"""A job's rates over time, as SVG, with its phases and the times of slow components on them.

Gaps are gaps of the line.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from markupsafe import Markup

from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.jobs.index.reader import Row
from laggard_aggregator.jobs.verdict.evidence.alarms import SlowTime
from laggard_aggregator.status import formatting
from laggard_aggregator.web.pages.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    WIDTH,
    Frame,
    line_path,
    ticks,
    time_ticks,
)

LAYERS: Final = ("client", "forwarder", "server")
_VOLUMES: Final = (("read_bytes", "read"), ("written_bytes", "write"))
_METADATA: Final = (("metadata_operations", "metadata"),)
_LOW: Final = 150
"""Height of the picture of metadata operations."""
_STRIP: Final = 16
"""Height of the strip of one direction's phases, above the lines."""
_TOP: Final = 12
_FEW_POINTS: Final = 2
_LABELS: Final = {"metadata": "meta"}
"""Names of directions that are too long beside the picture."""


@dataclass(frozen=True, slots=True)
class JobTimeline:
    """The pictures of one layer. `seen_by`: layer; each picture with its title."""

    seen_by: str
    pictures: tuple[tuple[str, Markup], ...]


def timelines(
    series: Sequence[Row], phases: Sequence[Mapping[str, Any]], slow: Sequence[SlowTime] = ()
) -> list[JobTimeline]:
    """Pictures of the whole job, the outermost layer first: `phases` and `slow` are drawn on that one."""
    whole = {row["layer"]: row for row in series if row["node"] is None}
    drawn_layers: list[JobTimeline] = []
    for layer in (name for name in LAYERS if name in whole):
        drawn, marked = ((), ()) if drawn_layers else (phases, slow)
        pictures = (
            ("Read and written", _picture(whole[layer], _VOLUMES, drawn, marked, HEIGHT)),
            ("Metadata operations", _picture(whole[layer], _METADATA, drawn, marked, _LOW)),
        )
        if known := tuple((title, picture) for title, picture in pictures if picture):
            drawn_layers.append(JobTimeline(layer, known))
    return drawn_layers


def _picture(
    row: Row,
    names: Sequence[tuple[str, str]],
    phases: Sequence[Mapping[str, Any]],
    slow: Sequence[SlowTime],
    height: int,
) -> Markup:
    """Rates of some directions in one picture; empty where there is nothing but zeros."""
    step = row["resolution_seconds"]
    rates = {
        direction: values / step
        for name, direction in names
        if (values := row.get(name)) is not None and len(values) >= _FEW_POINTS and (values > 0).any()
    }
    if not rates:
        return Markup("")
    count = max(len(rate) for rate in rates.values())
    start, end = row["start"], row["start"] + step * count
    strips = [direction for direction in rates if any(phase["direction"] == direction for phase in phases)]
    most = max(float(np.nanmax(rate)) for rate in rates.values())
    marked = [one for one in slow if one.start < end and one.end > start]
    strip_count = len(strips) + bool(marked)
    bottom = height + _STRIP * strip_count
    frame = Frame(start, end, 0.0, most * 1.05, bottom, top=_TOP + _STRIP * strip_count)
    inside = _slow_strip(frame, marked, _TOP / 2, bottom) if marked else Markup("")
    for place, direction in enumerate(strips, start=strip_count - len(strips)):
        own = [phase for phase in phases if phase["direction"] == direction]
        inside += _strip(frame, own, direction, _TOP / 2 + _STRIP * place, bottom)
    for direction, values in rates.items():
        inside += _line(frame, start, step, values, direction)
    upwards = [(value, _said(value, "metadata" in rates)) for value in ticks(0.0, most)]
    label = f"{' and '.join(rates)} rates over time, {formatting.counted(len(phases), 'phase')}"
    label += "".join(f"; {slow_text(one)}" for one in marked)
    return frame.svg(label, inside, time_ticks(np.array([start, end])), upwards, are_times=True)


def _line(frame: Frame, start: float, step: float, values: FloatArray, direction: str) -> Markup:
    """Rates at the middles of their intervals."""
    x = frame.x(start + step * (np.arange(len(values), dtype=np.float64) + 0.5))
    return Markup('<path class="line {}" d="{}"/>').format(direction, line_path(x, frame.y(values)))


def _strip(
    frame: Frame, phases: Sequence[Mapping[str, Any]], direction: str, at: float, height: int
) -> Markup:
    """A bar a phase at a height, and its time shaded below."""
    drawn = _strip_label(_LABELS.get(direction, direction), at)
    for phase in phases:
        span = phase["start"], phase["end"]
        drawn += _bar(frame, span, f"phase {direction}", phase_text(phase), at=at, height=height)
    return drawn


def _slow_strip(frame: Frame, slow: Sequence[SlowTime], at: float, height: int) -> Markup:
    """A bar for each time in which a component was slow, as `_strip`."""
    drawn = _strip_label("slow", at)
    for one in slow:
        drawn += _bar(frame, (one.start, one.end), "phase slow", slow_text(one), at=at, height=height)
    return drawn


def _strip_label(text: str, at: float) -> Markup:
    return Markup('<text class="minor" x="{}" y="{:.1f}">{}</text>').format(LEFT - 6, at + 10, text)


def _bar(
    frame: Frame, span: tuple[float, float], looks: str, title: str, *, at: float, height: int
) -> Markup:
    ends = np.clip(frame.x(np.array(span)), LEFT, WIDTH - RIGHT)
    x, width = float(ends[0]), max(float(ends[1] - ends[0]), 2.0)
    return Markup(
        '<g class="{}"><title>{}</title>'
        '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="10" rx="2"/>'
        '<rect class="shade" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/></g>'
    ).format(looks, title, x, at, width, x, at + 10, width, height - BOTTOM - at - 10)


def slow_text(one: SlowTime) -> str:
    """A time in which a component was slow in words, but for the time."""
    return f"{one.component} was slow, {formatting.factor(one.factor)}"


def phase_text(phase: Mapping[str, Any]) -> str:
    """A phase in words."""
    seconds = phase["busy_seconds"]
    is_metadata = phase["direction"] == "metadata"
    amount = (
        formatting.counted(round(phase["amount"]), "operation")
        if is_metadata
        else formatting.size(phase["amount"])
    )
    return f"{phase['direction']} {amount} in {formatting.lasting(seconds)}"


def _said(value: float, is_metadata: bool) -> str:
    return f"{formatting.figure(value)}/s" if is_metadata else formatting.rate(value)
