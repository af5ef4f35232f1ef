"""Geometry of the report's picture: outstanding requests over time, an average request, places over time."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.layers.columns import ABSENT, Ints
from laggard_aggregator.layers.search import LayerFinding, held_times, us
from laggard_aggregator.layers.stack import Stack

BINS = 300
LANE_WIDTH = 760.0
LANE_HEIGHT = 46.0
_MOST_POINTS = 1500
_SCATTER_HEIGHT = 150.0
_TEXT_WIDTH = 84.0
_MARKS = 5


@dataclass(slots=True)
class Lane:
    """A layer's row. `area`: SVG points of the concurrency. `fault`: a candidate lies in this layer."""

    label: str
    note: str
    area: str
    fault: bool = False
    fault_below: str = ""


@dataclass(slots=True)
class Bar:
    """A layer's part of an average request, in the width of the picture, and the time held on each side."""

    label: str
    left: float
    width: float
    text: str
    before: float = 0.0
    after: float = 0.0
    fault: bool = False

    @property
    def inside(self) -> bool:
        """The text stands in the bar, which leaves no room beside it."""
        return self.anchor == "start" and self.text_at < self.left + self.width

    @property
    def anchor(self) -> str:
        """Side of the text's place."""
        is_full = self.left + self.width > LANE_WIDTH - _TEXT_WIDTH
        return "end" if is_full and self.left > _TEXT_WIDTH else "start"

    @property
    def text_at(self) -> float:
        """Place of the text: behind the bar, before it, or in it."""
        behind = self.left + self.width
        if behind <= LANE_WIDTH - _TEXT_WIDTH:
            return behind + 4
        return self.left - 4 if self.anchor == "end" else self.left + 6


@dataclass(slots=True)
class Scatter:
    """Offsets over time of a layer. `points`: x, y, hue."""

    label: str
    note: str
    points: list[tuple[float, float, int]]
    fault: bool = False


@dataclass(slots=True)
class AxisMark:
    """A time on the axis below the rows: its place, its text, and the side of its place that has it."""

    x: float
    text: str
    anchor: str


@dataclass(slots=True)
class Picture:
    """All parts of the picture."""

    lanes: list[Lane] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    scatters: list[Scatter] = field(default_factory=list)
    span: str = ""
    marks: list[AxisMark] = field(default_factory=list)
    scale: str = ""
    width: float = LANE_WIDTH
    lane_height: float = LANE_HEIGHT
    scatter_height: float = _SCATTER_HEIGHT


def picture(stack: Stack, findings: list[LayerFinding]) -> Picture:
    """The picture of a stack; its time begins with the top layer's first request."""
    drawn = Picture()
    if not stack.layers:
        return drawn
    first, last = _window(stack)
    drawn.span = _seconds(last - first)
    sides = ("start", *["middle"] * (_MARKS - 2), "end")
    for at, side in enumerate(sides):
        share = at / (_MARKS - 1)
        text = _seconds(round(share * (last - first))) if at else "0"
        drawn.marks.append(AxisMark(share * LANE_WIDTH, text, side))
    levels = [_level(stack, at, first, last) for at in range(len(stack.layers))]
    counted = [v for v, layer in zip(levels, stack.layers, strict=True) if layer.name != "block"]
    top = max((float(v.max()) for v in counted or levels), default=1.0) or 1.0
    drawn.scale = f"{top:.1f}"
    for at, layer in enumerate(stack.layers):
        measured = stack.characteristics[at]
        concurrency = measured.concurrency
        note = (
            f"{concurrency.mean_busy:.2f} on average while busy, at most {concurrency.most}; "
            f"busy {min(1.0, concurrency.busy_seconds / max(1e-9, (last - first) / 1e9)):.0%}"
        )
        lane = Lane(layer.label, note, _area(levels[at], top))
        for finding in findings:
            if (
                finding.kind in ("serialisation", "slow", "idle")
                and finding.above != finding.below
                and finding.above == at
            ):
                lane.fault_below = f"{finding.kind}: {finding.candidate}"
            elif finding.above == finding.below == at:
                lane.fault = True
        drawn.lanes.append(lane)
    drawn.bars = _bars(stack, findings)
    drawn.scatters = _scatters(stack, findings, first, last)
    return drawn


def _window(stack: Stack) -> tuple[int, int]:
    columns = stack.layers[0].requests
    ends = columns.end[columns.end != ABSENT]
    first = int(columns.begin_ns.min())
    last = int(ends.max()) if len(ends) else int(columns.begin_ns.max())
    for layer in stack.layers[1:]:  # write-back comes later
        latest = layer.requests.end
        if len(latest) and (latest != ABSENT).any():
            last = max(last, int(latest.max()))
    return first, max(last, first + 1)


def _level(stack: Stack, at: int, first: int, last: int) -> NDArray[np.float64]:
    """Average number of outstanding requests in each bin."""
    columns = stack.layers[at].requests
    begin = columns.begin_ns
    open_until = np.where(columns.is_lost, columns.begin_ns, last)
    end = np.where(columns.end == ABSENT, open_until, columns.end)
    edges = np.linspace(0, last - first, BINS + 1)
    level = _area_before(np.sort(begin - first), edges) - _area_before(np.sort(end - first), edges)
    means: NDArray[np.float64] = np.diff(level) / np.diff(edges)
    return means


def _area_before(sorted_times: Ints, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Integral up to each edge of the number of times before it."""
    count = np.searchsorted(sorted_times, edges).astype(np.float64)
    base = float(edges[0])
    sums = np.concatenate([[0.0], np.cumsum(sorted_times.astype(np.float64) - base)])
    areas: NDArray[np.float64] = count * (edges - base) - sums[count.astype(np.int64)]
    return areas


def _area(level: NDArray[np.float64], top: float) -> str:
    step = LANE_WIDTH / len(level)
    heights = LANE_HEIGHT - np.minimum(level / top, 1.0) * (LANE_HEIGHT - 2)
    points = [f"0,{LANE_HEIGHT:g}"]
    for at, height in enumerate(heights.tolist()):
        points += [f"{at * step:.1f},{height:.1f}", f"{(at + 1) * step:.1f},{height:.1f}"]
    points.append(f"{LANE_WIDTH:g},{LANE_HEIGHT:g}")
    return " ".join(points)


def _bars(stack: Stack, findings: list[LayerFinding]) -> list[Bar]:
    """An average request: each layer within the one above, as long as layers wait for those below."""
    whole = stack.characteristics[0].mean_residence_us
    if not whole:
        return []
    bars: list[Bar] = []
    left, width = 0.0, whole
    at = 0
    for _ in stack.layers:
        boundary = stack.below(at)
        before, after, _ = held_times(stack, boundary) if boundary else (0.0, 0.0, 0.0)
        scale = LANE_WIDTH / whole
        linked = boundary is not None and bool(boundary.linked.any())
        fault = linked and any(f.above == at and f.below != at for f in findings)
        slow = any(f.kind == "slow" and f.above == f.below == at for f in findings)
        before, after = min(before, width), min(after, max(0.0, width - before))
        bars.append(
            Bar(
                stack.layers[at].label,
                left * scale,
                max(1.0, width * scale),
                us(width),
                before * scale if linked else 0.0,
                after * scale if linked else 0.0,
                fault or slow,
            )
        )
        if not linked or boundary is None:
            break
        left, width = left + before, max(0.0, width - before - after)
        at = boundary.lower
    return bars


def _scatters(stack: Stack, findings: list[LayerFinding], first: int, last: int) -> list[Scatter]:
    """Offsets over time at the top and at the lowest layer, where they can be drawn."""
    placed = [at for at, own in enumerate(stack.characteristics) if len(own.sequentiality.run_bytes)]
    drawn = []
    for at in dict.fromkeys([*placed[:1], *placed[-1:]]):
        layer, order = stack.layers[at], stack.characteristics[at].sequentiality
        columns = layer.requests
        chosen = np.flatnonzero((columns.start >= 0) & (columns.size > 0))
        if len(chosen) > _MOST_POINTS:
            chosen = chosen[np.linspace(0, len(chosen) - 1, _MOST_POINTS).astype(np.int64)]
        low, high = int(columns.start[chosen].min()), int(columns.start[chosen].max())
        x = (columns.begin_ns[chosen] - first) / max(1, last - first) * LANE_WIDTH
        y = _SCATTER_HEIGHT - 4 - (columns.start[chosen] - low) / max(1, high - low) * (_SCATTER_HEIGHT - 8)
        _, hue = np.unique(columns.thread[chosen], return_inverse=True)
        inside = (x >= 0) & (x <= LANE_WIDTH)
        points = [
            (round(float(a), 1), round(float(b), 1), int(h) % 8)
            for a, b, h in zip(x[inside], y[inside], hue[inside], strict=True)
        ]
        run, chain = order.mean_run_bytes / 1024, order.mean_chain_bytes() / 1024
        note = f"mean run {run:,.0f} KiB of sequences of {chain:,.0f} KiB"
        fault = any(f.kind == "interleaving" for f in findings)
        drawn.append(Scatter(layer.label, note, points, fault))
    return drawn


def _seconds(ns: int) -> str:
    return f"{ns / 1e9:,.3f} s" if ns >= 1e8 else f"{ns / 1e6:,.2f} ms"
