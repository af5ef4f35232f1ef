"""Grafana's dashboards as pictures: `python -m bench.pictures.grafana docs/pictures`.

The demo's fault is replayed to real agents, an aggregator and a Prometheus as in `bench.chain`; then every
query of every panel is asked, and drawn where the dashboard places it. Grafana itself is not needed, and
draws it nicer.
"""

import asyncio
import json
import math
import re
import sys
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.chain import played, until
from bench.pictures.shrink import command, shrink
from deploy.grafana.generate import COLUMNS, DASHBOARDS, Dashboard, Panel, rendered
from laggard_aggregator.demo.recording import read_recording
from laggard_common.clock import SystemClock

SPEED = 5
SCRAPE_SECONDS = 1
INCH = 0.5
"""Of a column and of a row."""
VALUES = {"group": "luns", "node": "oss-01", "job": "laggard", "__rate_interval": "15s"}
_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"))
_UNFILLED = re.compile(r"{{\w+}}")


@dataclass(frozen=True)
class Source:
    """A Prometheus, and the time span that is drawn, epoch seconds."""

    url: str
    start: float
    end: float

    def instant(self, expression: str) -> list[dict[str, Any]]:
        """The series now, at the span's end."""
        return self._ask("query", {"query": expression, "time": f"{self.end}"})

    def span(self, expression: str) -> list[dict[str, Any]]:
        """The series over the span."""
        times = {"start": f"{self.start}", "end": f"{self.end}", "step": f"{SCRAPE_SECONDS}"}
        return self._ask("query_range", {"query": expression, **times})

    def _ask(self, what: str, parameters: dict[str, str]) -> list[dict[str, Any]]:
        url = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found


def draw(dashboard: Dashboard, source: Source) -> Figure:
    """A dashboard's panels where they belong."""
    panels = rendered(dashboard)["panels"]
    rows = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in panels)
    figure = Figure(figsize=(COLUMNS * INCH, rows * INCH * 0.85 + INCH))
    grid = figure.add_gridspec(
        rows, COLUMNS, left=0.04, right=0.98, top=0.94, bottom=0.04, hspace=6, wspace=3
    )
    minutes = (source.end - source.start) / 60
    figure.suptitle(f"{dashboard.title}, the last {minutes:.1f} minutes", x=0.04, ha="left", fontsize=14)
    for made, panel in zip(panels, dashboard.panels, strict=True):
        at = made["gridPos"]
        place = grid[at["y"] : at["y"] + at["h"], at["x"] : at["x"] + at["w"]]
        _panel(figure.add_subplot(place), panel, source)
    return figure


def _panel(axes: Axes, panel: Panel, source: Source) -> None:
    axes.set_title(panel.title, loc="left", fontsize=9)
    asked = [(Template(expression).substitute(VALUES), legend) for expression, legend in panel.queries]
    if panel.kind == "timeseries":
        _lines(axes, panel, [(series, legend) for q, legend in asked for series in source.span(q)], source)
        return
    axes.axis("off")
    labelled = [(series, legend) for query, legend in asked for series in source.instant(query)]
    found = [series for series, _ in labelled]
    if panel.kind == "stat":
        text = said(float(found[0]["value"][1]), panel.unit) if found else "no data"
        axes.text(0.0, 0.35, text, fontsize=20, color="C0", transform=axes.transAxes)
        return
    lines = [
        (*(series["metric"].get(key, "") for key in ("group", "name", "metric", "level")), series["value"][1])
        for series in found
    ]
    head: tuple[str, ...] = ("group", "name", "metric", "level", "times slower")
    if panel.kind == "state-timeline":
        lines = [(_label(legend, series["metric"]), series["value"][1]) for series, legend in labelled]
        head = ("", "now")
    for row, line in enumerate([head, *((*words, f"{float(value):.2f}") for *words, value in lines)]):
        for column, word in enumerate(line):
            at = (0.01 + 0.2 * column, 0.85 - 0.18 * row)
            axes.text(*at, word, fontsize=9, weight="normal" if row else "bold", transform=axes.transAxes)


def _label(legend: str, labels: Mapping[str, str]) -> str:
    for name, value in labels.items():
        legend = legend.replace("{{" + name + "}}", value)
    return _UNFILLED.sub("", legend).strip()


def _lines(axes: Axes, panel: Panel, found: list[tuple[dict[str, Any], str]], source: Source) -> None:
    for series, legend in found:
        points = [((float(at) - source.start) / 60, float(value)) for at, value in series["values"]]
        axes.plot(*zip(*points, strict=True), label=_label(legend, series["metric"]), linewidth=1.3)
    if 0 < len(found) <= 12 and axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=6, loc="upper left", ncols=1 + len(found) // 5, frameon=False)
    axes.set_xlim(0, (source.end - source.start) / 60)
    low, high = axes.get_ylim()
    flat = not any(float(value) for series, _ in found for _, value in series["values"])
    axes.set_ylim(*((0.0, 1.0) if flat else (min(0.0, low), high)))
    axes.tick_params(labelsize=7)
    axes.yaxis.set_major_formatter(lambda value, _: said(value, panel.unit))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def said(value: float, unit: str) -> str:
    """A figure as a panel of `unit` shows it."""
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if not math.isfinite(value):
        return str(value)
    known = [(scale, prefix) for scale, prefix in _PREFIXES if scale >= 1 or unit == "s"]
    scale, prefix = next(((s, p) for s, p in known if abs(value) >= s), (1.0, ""))
    suffix = {"s": "s", "bytes": "B", "ops": "/s"}.get(unit, "")
    return f"{value / scale:.3g} {prefix}{suffix}".strip()


async def take(into: Path) -> list[Path]:
    """Replays the fault, and draws all dashboards while the alarm stands; the files."""
    recording = read_recording()
    async with played(recording, SPEED, f"{SCRAPE_SECONDS}s", ["oss-01"]) as on:
        replay = on.replay
        await until(lambda: replay.recorded_seconds > recording.fault_end - recording.start - 20, 300)
        assert replay.begun_ns is not None
        url = f"http://127.0.0.1:{on.ports.prometheus}"
        source = Source(url, replay.begun_ns / 1e9, SystemClock().wall_ns() / 1e9)
        return await asyncio.to_thread(_all, source, into)


def _all(source: Source, into: Path) -> list[Path]:
    found = []
    with mpl.rc_context({"font.family": "DejaVu Sans"}):
        for dashboard in DASHBOARDS:
            path = into / f"grafana-{dashboard.uid.removeprefix('laggard-')}.png"
            draw(dashboard, source).savefig(path, dpi=80)
            shrink(path)
            found.append(path)
    return found


def main(argv: list[str] | None = None) -> int:
    """Writes the pictures; 1 when one of them is too large."""
    return command("grafana", __doc__, take, argv)


if __name__ == "__main__":
    sys.exit(main())
