"""Plots training data as Intrepid does: all components of a group in one panel."""

from collections.abc import Collection
from pathlib import Path

import matplotlib.dates
from matplotlib.figure import Figure

from laggard_aggregator.alarms.alarms import Alarm
from laggard_aggregator.offline.training import Curves
from laggard_common.errors import InputError

MAX_PANELS = 24
"""Panels shown; those with an outlier come first."""


def save_plot(path: Path, curves: Curves, standing_out: Collection[Alarm]) -> None:
    """Writes a picture file, its format by the name's ending. Raises InputError when it cannot.

    One panel per group and metric: means over windows against time in grey, outliers in colour.
    """
    marked = {(finding.group, finding.metric, finding.component) for finding in standing_out}
    series = sorted(curves.points, key=lambda key: (not any(m[:2] == key for m in marked), key))[:MAX_PANELS]
    figure = Figure(figsize=(12, 3 * max(len(series), 1)), layout="constrained")
    panels = figure.subplots(max(len(series), 1), squeeze=False)[:, 0]
    for panel, (group, metric) in zip(panels, series, strict=False):
        for name, points in curves.of((group, metric)).items():
            out = (group, metric, name) in marked
            times = points[:, 0].astype("datetime64[s]")
            style = (
                {"linewidth": 1.5, "label": name, "zorder": 3} if out else {"linewidth": 0.6, "color": "0.6"}
            )
            panel.plot(times, points[:, 1], **style)
        panel.set_title(f"{group}: {metric}", fontsize="medium", loc="left")
        panel.xaxis.set_major_formatter(
            matplotlib.dates.ConciseDateFormatter(  # type: ignore[no-untyped-call]
                panel.xaxis.get_major_locator()
            )
        )
        if any((group, metric, name) in marked for name in curves.points[group, metric]):
            panel.legend(fontsize="small")
    try:
        figure.savefig(path, dpi=100)
    except (OSError, ValueError) as exc:
        raise InputError(str(path), f"the picture cannot be written: {' '.join(str(exc).split())}") from exc
