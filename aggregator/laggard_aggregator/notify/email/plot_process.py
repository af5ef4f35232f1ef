"""Draws the plot of a mail; the program of a child process.

`python -m laggard_aggregator.notify.email.plot_process` reads a JSON object from standard input and writes
a PNG to standard output. A process of its own keeps the aggregator responsive and its memory free.
"""

import io
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import ConciseDateFormatter
from matplotlib.figure import Figure
from numpy.typing import NDArray

_OWN, _PEERS, _BAND, _INK, _FAINT = "#c8321e", "#2b5c8a", "#b9d2e8", "#333333", "#8a8a8a"
_INCHES, _DPI = (6.4, 2.9), 180


def draw(asked: Mapping[str, Any]) -> bytes:
    """The PNG of a course: `end`, `own`, `low`, `middle`, `high` (N,), null where nobody was.

    `since`: when it left its peers, epoch seconds; `name`, `metric`, `unit`: of what it is.
    """
    figure = Figure(figsize=_INCHES, dpi=_DPI, layout="constrained", facecolor="white")
    panel = figure.subplots()
    times = _times(asked["end"])
    own, low, middle, high = (_floats(asked[key]) for key in ("own", "low", "middle", "high"))
    marker = "o" if len(times) < 3 else ""
    panel.plot(
        times, own, color=_OWN, linewidth=2.2, label=asked["name"], zorder=3, marker=marker, markersize=3
    )
    panel.fill_between(times, low, high, color=_BAND, linewidth=0, label="its peers, 5 to 95 %")
    panel.plot(times, middle, color=_PEERS, linewidth=1.2, label="their middle", marker=marker, markersize=3)
    _mark_since(panel, asked["since"], times)
    label = f"{asked['metric']}, {asked['unit']}" if asked["unit"] else asked["metric"]
    panel.set_ylabel(label, color=_INK, parse_math=False)
    panel.set_ylim(bottom=0.0, top=_top(own, high))
    panel.margins(x=0.01)
    panel.grid(axis="y", color="#e6e6e6", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(colors=_INK, labelsize=8)
    locator = panel.xaxis.get_major_locator()
    panel.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    panel.xaxis.get_offset_text().set_fontsize(8)
    panel.set_xlabel("UTC", color=_INK, fontsize=8, loc="left")
    legend = panel.legend(
        fontsize=8, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, frameon=False, borderaxespad=0.2
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    whole = io.BytesIO()
    figure.savefig(whole, format="png")
    return whole.getvalue()


def _mark_since(panel: Axes, since: float, times: NDArray[np.datetime64]) -> None:
    """The moment at which it left its peers, with as much room as there is beside it."""
    at = _times([since])[0]
    if not times[0] <= at <= times[-1]:
        return
    panel.axvline(at, color=_FAINT, linewidth=1, linestyle=(0, (4, 3)))
    left = at - times[0] > times[-1] - at
    panel.annotate(
        "left its peers ",
        (at, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(-4 if left else 4, -4),
        textcoords="offset points",
        ha="right" if left else "left",
        va="top",
        fontsize=8,
        color=_INK,
    )


def _top(own: Any, high: Any) -> float:
    """Where the axis ends: a little above the highest of what is known."""
    known = np.concatenate([own, high])
    known = known[np.isfinite(known)]
    return float(known.max()) * 1.15 or 1.0 if known.size else 1.0


def _times(seconds: Sequence[float]) -> NDArray[np.datetime64]:
    return (np.array(seconds, dtype=np.float64) * 1e6).astype("datetime64[us]")


def _floats(values: Sequence[float | None]) -> Any:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def main() -> int:
    """Draws what standard input asks for."""
    mpl.rcParams["font.family"] = "DejaVu Sans"  # it comes with matplotlib, everywhere the same
    sys.stdout.buffer.write(draw(json.load(sys.stdin)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
