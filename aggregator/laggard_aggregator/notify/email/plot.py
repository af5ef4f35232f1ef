"""Plot of a component against its peers, drawn by a child process in bounded time.

`python -m laggard_aggregator.notify.email.plot` reads a JSON object from standard input and writes a PNG to
standard output. A process of its own neither delays the aggregator nor leaves matplotlib's 60 MB there.
"""

import asyncio
import io
import json
import logging
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # not imported by the child process
    from matplotlib.axes import Axes

    from laggard_aggregator.notify.report import IncidentReport

_log = logging.getLogger(__name__)

DRAW_SECONDS = 60.0
MAX_BYTES = 1024 * 1024
MAX_NAME_CHARS = 40
PROGRAM = __name__
_OWN, _PEERS, _BAND, _INK, _FAINT = "#c8321e", "#2b5c8a", "#b9d2e8", "#333333", "#8a8a8a"
_INCHES, _DPI = (6.4, 2.9), 180


async def drawn(report: "IncidentReport") -> bytes | None:
    """A PNG of the report's timeline, None when it is empty or cannot be drawn, with a WARNING."""
    timeline = report.timeline
    if timeline is None or not np.isfinite(timeline[:, 1]).any():
        return None
    request = {
        "name": report.name[:MAX_NAME_CHARS],
        "metric": report.worst.metric,
        "unit": report.worst.unit,
        "since": report.incident.since,
        "timeline": timeline.tolist(),
    }
    try:
        with TemporaryDirectory(prefix="laggard-", ignore_cleanup_errors=True) as scratch:
            return await _child(json.dumps(request).encode(), scratch)
    except OSError as exc:
        _log.warning("mail sent without its plot: %s", exc.strerror or exc)
        return None


async def _child(request: bytes, scratch: str) -> bytes | None:
    """Raises OSError where no process can be started."""
    environment = {"MPLCONFIGDIR": scratch, "HOME": scratch, "PATH": os.environ.get("PATH", os.defpath)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-m", PROGRAM),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        cwd=Path(scratch),
    )
    try:
        async with asyncio.timeout(DRAW_SECONDS):
            png, errors = await process.communicate(request)
    except TimeoutError:
        _log.warning("mail sent without its plot, which took more than %.0f s to draw", DRAW_SECONDS)
        return None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode or not png.startswith(b"\x89PNG") or len(png) > MAX_BYTES:
        last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        shown = "".join(c for c in last[:160] if c.isprintable())
        _log.warning("mail sent without its plot: %s", shown or "the drawing process produced no picture")
        return None
    return png


def draw(request: Mapping[str, Any]) -> bytes:
    """The PNG of a `timeline` as in AlarmTimelines; `since`: start of the alarm, epoch seconds."""
    import matplotlib as mpl  # noqa: PLC0415 - for the child process alone
    from matplotlib.dates import ConciseDateFormatter  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    mpl.rcParams["font.family"] = "DejaVu Sans"  # it comes with matplotlib, everywhere the same
    figure = Figure(figsize=_INCHES, dpi=_DPI, layout="constrained", facecolor="white")
    panel = figure.subplots()
    end, own, low, median, high = np.array(request["timeline"]).T
    times = _times(end)
    marker = "o" if len(times) < 3 else ""
    panel.plot(
        times, own, color=_OWN, linewidth=2.2, label=request["name"], zorder=3, marker=marker, markersize=3
    )
    panel.fill_between(times, low, high, color=_BAND, linewidth=0, label="peers, 5 to 95 %")
    panel.plot(times, median, color=_PEERS, linewidth=1.2, label="their median", marker=marker, markersize=3)
    _mark_since(panel, request["since"], times)
    label = f"{request['metric']}, {request['unit']}" if request["unit"] else request["metric"]
    panel.set_ylabel(label, color=_INK, parse_math=False)
    panel.set_ylim(0.0, float(np.nan_to_num([own, high], posinf=0.0).max()) * 1.15 or 1.0)
    panel.margins(x=0.01)
    panel.grid(axis="y", color="#e6e6e6", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(colors=_INK, labelsize=8)
    locator = panel.xaxis.get_major_locator()
    dated = ["", "%Y", "%Y-%m", "%Y-%m-%d", "%Y-%m-%d", "%Y-%m-%d %H:%M"]
    formatter = ConciseDateFormatter(locator, offset_formats=dated)  # type: ignore[no-untyped-call]
    panel.xaxis.set_major_formatter(formatter)
    panel.xaxis.get_offset_text().set_fontsize(8)
    panel.set_xlabel("UTC", color=_INK, fontsize=8, loc="left")
    legend = panel.legend(
        fontsize=8, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, frameon=False, borderaxespad=0.2
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    png = io.BytesIO()
    figure.savefig(png, format="png")
    return png.getvalue()


def _mark_since(panel: "Axes", since: float, times: NDArray[np.datetime64]) -> None:
    """Marks the start of the alarm, labelled on the side with more room."""
    at = _times(np.array([since]))[0]
    if not times[0] <= at <= times[-1]:
        return
    panel.axvline(at, color=_FAINT, linewidth=1, linestyle=(0, (4, 3)))
    left = at - times[0] > times[-1] - at
    panel.annotate(
        "slow since ",
        (at, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(-4 if left else 4, -4),
        textcoords="offset points",
        ha="right" if left else "left",
        va="top",
        fontsize=8,
        color=_INK,
    )


def _times(seconds: NDArray[np.float64]) -> NDArray[np.datetime64]:
    return (seconds * 1e6).astype("datetime64[us]")


if __name__ == "__main__":
    sys.stdout.buffer.write(draw(json.load(sys.stdin)))
