"""The peer groups, and one group's heat map: one row per component, the worst first."""

from collections.abc import Callable, Mapping, Set
from typing import Any

import numpy as np

from laggard_aggregator.metrics.registry import worse
from laggard_aggregator.status.urls import NotKnownError
from laggard_aggregator.status.view import GroupView
from laggard_aggregator.web.pages.charts import GONE, OPEN, SLOW, SLOWER, SLOWEST, WELL, WIDE, Heat, heat
from laggard_aggregator.web.pages.overview import group_map, map_row, maps, note, slow_by_group
from laggard_aggregator.web.pages.page_state import Now
from laggard_aggregator.web.pages.straggler_rows import slow
from laggard_aggregator.web.pages.tables import Filter, PageColumn, PageTable, Query

GROUPS_A_PAGE = 40
ROWS_A_PAGE = 50
_STATES = {
    **dict.fromkeys((SLOW, SLOWER, SLOWEST), "anomalous"),
    **dict.fromkeys((WELL, WIDE), "like its peers"),
    OPEN: "not judged",
    GONE: "no data",
}


def groups(now: Now, query: Query) -> dict[str, Any]:
    """Values of the template: maps of all groups, those that need attention first."""
    stragglers = slow(now)
    count = slow_by_group(stragglers)

    def states(view: GroupView) -> tuple[str, ...]:
        calm = "not judged" if note(now, view.name) else "no stragglers"
        return ("stragglers" if count[view.name] else calm,)

    columns = (
        PageColumn[GroupView]("group", "Name", lambda view: view.name),
        PageColumn[GroupView]("stragglers", "Stragglers", lambda view: count[view.name], right=True),
        PageColumn[GroupView]("live", "Components", lambda view: view.live, right=True),
        PageColumn[GroupView]("silent", "Silent", lambda view: view.silent, right=True),
        PageColumn[GroupView]("source", "Source", lambda view: view.source),
        PageColumn[GroupView]("role", "Role", lambda view: view.role),
        PageColumn[GroupView]("detector", "Detector", lambda view: view.detect.detector),
        PageColumn[GroupView]("metrics", "", lambda view: ", ".join(view.metrics)),
        PageColumn[GroupView]("note", "", lambda view: note(now, view.name)),
    )
    filters = (
        Filter[GroupView]("role", "Role", lambda view: (view.role,), now.roles()),
        Filter[GroupView]("group", "Group", lambda view: view.name),
        Filter[GroupView]("state", "State", states, ("stragglers", "no stragglers", "not judged")),
    )
    return {
        "table": PageTable(
            "groups",
            columns,
            maps(now, stragglers),
            query,
            filters=filters,
            size=GROUPS_A_PAGE,
            make=lambda group: group_map(now, group, stragglers),
        )
    }


def group(now: Now, name: str, query: Query) -> dict[str, Any]:
    """Values of the template; its parameter `metric` is empty for the worst of all. Raises NotKnownError."""
    metric = query.text("metric")
    view = now.groups.get(name)
    if view is None:
        raise NotKnownError(f"no group {name!r}")
    if metric and metric not in view.metrics:
        raise NotKnownError(f"group {name!r} is not compared by {metric!r}")
    metrics = (metric,) if metric else view.metrics
    whole = heat([(now.history.columns(name, metric), worse(view.source, metric)) for metric in metrics])
    stragglers = slow(now)
    slow_here = {s.component for s in stragglers if any(e.standing.group == name for e in s.evidence)}
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

    return {
        "view": view,
        "note": note(now, name),
        "unjudged": [(j.metric, j.verdicts.note) for j in now.judgements_of(name) if j.verdicts.note],
        "splits": [(j.metric, j.split.text()) for j in now.judgements_of(name) if j.split is not None],
        "rotations": [(j.metric, j.rotation) for j in now.judgements_of(name) if j.rotation],
        "slow": slow_by_group(stragglers)[name],
        "metric": metric,
        "table": _components(now, whole, query, row, slow_here=slow_here, levels=levels),
        "heat": whole,
        "anomalous": int((whole.anomalous > 0).sum()),
    }


def _components(
    now: Now,
    whole: Heat,
    query: Query,
    row: Callable[[int], dict[str, Any]],
    *,
    slow_here: Set[str],
    levels: Mapping[str, str],
) -> PageTable[int]:
    """The components of a group by their row in its heat map, the worst first."""
    latest = whole.levels[:, -1] if whole.levels.shape[1] else np.zeros(len(whole.components), dtype=np.uint8)

    def states(at: int) -> tuple[str, ...]:
        straggler = ("straggler",) if whole.components[at] in slow_here else ()
        return (*straggler, _STATES[int(latest[at])])

    columns = (
        PageColumn[int]("name", "Component", lambda at: now.shown(whole.components[at])),
        PageColumn[int]("component", "", lambda at: whole.components[at]),
        PageColumn[int]("level", "", lambda at: levels.get(whole.components[at], "component")),
        PageColumn[int]("latest", "Now", lambda at: float(whole.latest[at]), right=True),
        PageColumn[int]("worst", "At worst", lambda at: float(whole.worst[at]), right=True),
        PageColumn[int]("anomalous", "Anomalous", lambda at: int(whole.anomalous[at]), right=True),
        PageColumn[int]("windows", "", lambda at: int(whole.windows[at])),
        PageColumn[int]("state", "", lambda at: ", ".join(states(at))),
    )
    filters = (
        Filter[int]("factor", "Slower now by at least", lambda at: whole.latest[at], is_number=True),
        Filter[int]("state", "State", states, ("straggler", *dict.fromkeys(_STATES.values()))),
    )
    rows = whole.by_severity().tolist()
    return PageTable(
        "components",
        columns,
        rows,
        query,
        filters=filters,
        keep=("metric", "from", "to"),
        size=ROWS_A_PAGE,
        make=row,
    )
