"""The peer groups, and one group's heat map: one row per component, the worst first."""

from typing import Any

import numpy as np

from laggard_aggregator.status import formatting, urls
from laggard_aggregator.status.urls import NotKnownError
from laggard_aggregator.web.pages.charts import SLOW, Heat, drawing, heat
from laggard_aggregator.web.pages.overview import group_map, maps
from laggard_aggregator.web.pages.page_state import Now, Page, paged
from laggard_aggregator.web.pages.straggler_rows import slow

GROUPS_A_PAGE = 40
ROWS_A_PAGE = 50
MAP_ROWS = 96


def groups(now: Now, page: int) -> Page:
    """Maps of all groups, those that need attention first."""
    found = slow(now)
    return paged(maps(now, found), page, GROUPS_A_PAGE, lambda group: group_map(now, group, found))


def group(now: Now, name: str, metric: str, order: str, page: int) -> dict[str, Any]:
    """Values of the template. `metric`: empty for the worst of all; `order`: `name`, else the worst first.

    Raises NotKnownError.
    """
    view = now.groups.get(name)
    if view is None:
        raise NotKnownError(f"no group {name!r}")
    if metric and metric not in view.metrics:
        raise NotKnownError(f"group {name!r} is not compared by {metric!r}")
    order = "name" if order == "name" else "worst"
    whole = heat([now.history.columns(name, each) for each in ((metric,) if metric else view.metrics)])
    found = slow(now)
    slow_here = {each.component for each in found if any(e.standing.group == name for e in each.evidence)}
    levels = {
        component: level
        for judged in now.judgements_of(name)
        for component, level in zip(judged.components, judged.levels, strict=True)
        if level != judged.levels[0]
    }

    def row(at: int) -> dict[str, Any]:
        component = whole.components[at]
        return {
            "name": now.shown(component),
            "url": urls.component(name, component, metric),
            "picture": _strip(whole, at),
            "latest": float(whole.latest[at]),
            "worst": float(whole.worst[at]),
            "anomalous": int(whole.anomalous[at]),
            "windows": int(whole.windows[at]),
            "slow": component in slow_here,
            "level": levels.get(component, ""),
        }

    rows = whole.by_severity() if order == "worst" else np.arange(len(whole.components))
    count = len(whole.ends)
    places = sorted({0, count // 4, count // 2, 3 * count // 4}) if count else []
    return {
        "group": group_map(now, view, found, MAP_ROWS),
        "metric": metric,
        "order": order,
        "rows": paged(rows.tolist(), page, ROWS_A_PAGE, row),
        "heat": whole,
        "times": [float(whole.starts[at]) for at in places],
    }


def _strip(whole: Heat, at: int) -> str:
    """One component over time."""
    levels = whole.levels[at : at + 1]
    label = f"anomalous in {whole.anomalous[at]} of {formatting.counted(int(whole.windows[at]), 'window')}"
    if (levels >= SLOW).any():
        label += f", last at {formatting.moment(whole.ends[np.flatnonzero(levels[0] >= SLOW)[-1]])} UTC"
    return drawing(levels, label, "strip")
