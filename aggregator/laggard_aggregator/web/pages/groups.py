"""The peer groups, and one group's heat map: one row per component, the worst first."""

from typing import Any

import numpy as np

from laggard_aggregator.status.urls import NotKnownError
from laggard_aggregator.web.pages.charts import heat
from laggard_aggregator.web.pages.overview import group_map, map_row, maps, note, slow_by_group
from laggard_aggregator.web.pages.page_state import Now, Page, paged
from laggard_aggregator.web.pages.straggler_rows import slow

GROUPS_A_PAGE = 40
ROWS_A_PAGE = 50


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
        made = map_row(now, name, whole, at, metric)
        return made | {"slow": component in slow_here, "level": levels.get(component, "")}

    rows = whole.by_severity() if order == "worst" else np.arange(len(whole.components))
    return {
        "view": view,
        "note": note(now, name),
        "slow": slow_by_group(found)[name],
        "metric": metric,
        "order": order,
        "rows": paged(rows.tolist(), page, ROWS_A_PAGE, row),
        "heat": whole,
        "anomalous": int((whole.anomalous > 0).sum()),
    }
