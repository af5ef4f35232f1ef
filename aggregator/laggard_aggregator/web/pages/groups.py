"""The peer groups, and one group's heat map: one row per component, the worst first."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from markupsafe import Markup

from laggard_aggregator.status import formatting, urls
from laggard_aggregator.status.urls import NotKnownError
from laggard_aggregator.status.view import GroupView
from laggard_aggregator.web.pages.charts import SLOW, Heat, drawing, heat
from laggard_aggregator.web.pages.overview import GroupMap, group_map, maps
from laggard_aggregator.web.pages.page_state import Now, Page, paged
from laggard_aggregator.web.pages.straggler_rows import slow

GROUPS_A_PAGE = 40
ROWS_A_PAGE = 50
MAP_ROWS = 96

Order = Literal["worst", "name"]


@dataclass(frozen=True, slots=True)
class HeatRow:
    """One component over time."""

    component: str
    name: str
    url: str
    picture: Markup
    latest: float
    worst: float
    anomalous: int
    windows: int
    slow: bool
    level: str


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Contents of a group's page."""

    group: GroupMap
    metric: str
    order: Order
    rows: Page[HeatRow]
    heat: Heat
    times: tuple[tuple[float, float], ...]


def groups(now: Now, page: int) -> Page[GroupMap]:
    """All groups, those that need attention first."""
    found = slow(now)
    chosen: Page[GroupView] = paged(maps(now, found), page, GROUPS_A_PAGE)
    return Page(
        tuple(group_map(now, group, found) for group in chosen.items),
        chosen.number,
        chosen.size,
        chosen.total,
    )


def group(now: Now, name: str, metric: str, order: Order, page: int) -> GroupPage:
    """One group; `metric` empty for the worst of all. Raises NotKnownError."""
    view = now.groups.get(name)
    if view is None:
        raise NotKnownError(f"no group {name!r}")
    if metric and metric not in view.metrics:
        raise NotKnownError(f"group {name!r} is not compared by {metric!r}")
    chosen = (metric,) if metric else view.metrics
    whole = heat([now.history.columns(name, each) for each in chosen])
    found = slow(now)
    slow_here = {each.component for each in found if any(e.standing.group == name for e in each.evidence)}
    rows = whole.by_severity() if order == "worst" else np.arange(len(whole.components))
    some = paged(rows.tolist(), page, ROWS_A_PAGE)
    part = whole.of(np.array(some.items, dtype=np.int64))
    levels = _levels(now, name)
    listed = []
    for at, component in enumerate(part.components):
        url = urls.component(name, component, metric)
        listed.append(_row(now, part, at, url, level=levels.get(component, ""), slow=component in slow_here))
    return GroupPage(
        group=group_map(now, view, found, MAP_ROWS),
        metric=metric,
        order=order,
        rows=Page(tuple(listed), some.number, some.size, some.total),
        heat=whole,
        times=_times(whole),
    )


def _row(now: Now, part: Heat, at: int, url: str, *, level: str, slow: bool) -> HeatRow:
    component = part.components[at]
    anomalous, windows = int(part.anomalous[at]), int(part.windows[at])
    levels = part.levels[at : at + 1]
    label = f"anomalous in {anomalous} of {formatting.counted(windows, 'window')}"
    if (levels >= SLOW).any():
        label += f", last at {formatting.moment(part.ends[np.flatnonzero(levels[0] >= SLOW)[-1]])} UTC"
    return HeatRow(
        component=component,
        name=now.shown(component),
        url=url,
        picture=drawing(levels, label, "strip"),
        latest=float(part.latest[at]),
        worst=float(part.worst[at]),
        anomalous=anomalous,
        windows=windows,
        slow=slow,
        level=level,
    )


def _levels(now: Now, group: str) -> dict[str, str]:
    """Level of each parent of components, by name."""
    return {
        name: level
        for judged in now.judgements_of(group)
        for name, level in zip(judged.components, judged.levels, strict=True)
        if level != judged.levels[0]
    }


def _times(whole: Heat) -> tuple[tuple[float, float], ...]:
    """Times along the map, each with its position in per cent."""
    count = len(whole.ends)
    if not count:
        return ()
    places = sorted({0, count // 4, count // 2, 3 * count // 4})
    return tuple((100 * at / count, float(whole.starts[at])) for at in places)
