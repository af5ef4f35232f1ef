"""Shadow detectors beside their groups' detectors: numbers of verdicts, and the components that differ."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.status import formatting, urls
from laggard_aggregator.status.shadows import BOTH, DETECTOR, NOT_COMPARED, SHADOW, stragglers
from laggard_aggregator.status.urls import NotKnownError
from laggard_aggregator.status.view import GroupView
from laggard_aggregator.status.window_history import MemberColumn
from laggard_aggregator.web.pages.charts import OPEN, SLOWER, WELL, drawing
from laggard_aggregator.web.pages.page_state import Now
from laggard_aggregator.web.pages.tables import PageColumn, PageTable, Query

ROWS_A_PAGE = 50
_OWN_LEVELS = np.array([OPEN, WELL, SLOWER, WELL, SLOWER], dtype=np.uint8)
_SHADOW_LEVELS = np.array([OPEN, WELL, WELL, SLOWER, SLOWER], dtype=np.uint8)
"""Levels of a heat map by state, for the line of the detector and that of its shadow."""


def shadows(now: Now, query: Query) -> dict[str, Any]:
    """Values of the template: all groups with a shadow, and one of them by component.

    The parameters `group` and `metric` name the one to show; without them it is that with the most
    differences. Raises NotKnownError.
    """
    group, metric = query.text("group"), query.text("metric")
    listed = [_summary(now, view, metric) for view in now.shadowed for metric in view.metrics]
    chosen = [row for row in listed if group in ("", row["group"]) and metric in ("", row["metric"])]
    if not chosen and (group or metric):
        raise NotKnownError(f"no shadow of group {group!r}" + (f" by {metric!r}" if metric else ""))
    shown = max(chosen, key=lambda row: row["detector_only"] + row["shadow_only"], default=None)
    return {
        "table": None if shown is None else _differing(now, shown, query),
        "tables": [groups := _groups(listed, query)],
        "groups": groups,
        "shown": shown,
    }


def _groups(listed: Sequence[dict[str, Any]], query: Query) -> PageTable[dict[str, Any]]:
    """The groups and metrics that a shadow judges."""
    column = PageColumn[dict[str, Any]]
    columns = (
        column("group", "Group", lambda row: row["group"]),
        column("metric", "Metric", lambda row: row["metric"]),
        column("detector", "Detector", lambda row: row["detector"]),
        column("shadow", "Shadow", lambda row: row["shadow"]),
        column("note", "", lambda row: row["notes"] or None),
        column("start", "", lambda row: row["start"], is_time=True),
        column("end", "", lambda row: row["end"], is_time=True),
        column("windows", "Windows", lambda row: row["windows"], right=True),
        column("compared", "Verdicts compared", lambda row: row["compared"], right=True),
        column("both", "Both anomalous", lambda row: row["both"], right=True),
        column("detector_only", "Only detector", lambda row: row["detector_only"], right=True),
        column("shadow_only", "Only shadow", lambda row: row["shadow_only"], right=True),
        column("agreement_ratio", "Agree", lambda row: row["agreement"], right=True),
    )
    return PageTable("groups", columns, listed, query, keep=("group", "metric", "sort"), is_first=False)


def _summary(now: Now, view: GroupView, metric: str) -> dict[str, Any]:
    columns = now.history.shadow_columns(view.name, metric)
    counts = sum((np.bincount(c.state, minlength=BOTH + 1) for c in columns), np.zeros(BOTH + 1, int))
    compared = int(counts[NOT_COMPARED + 1 :].sum())
    differing = int(counts[DETECTOR] + counts[SHADOW])
    shadow = view.detect.shadow
    return {
        "group": view.name,
        "metric": metric,
        "detector": view.detect.detector,
        "shadow": "" if shadow is None else shadow.detector,
        "url": urls.page("/shadows", group=view.name, metric=metric),
        "windows": len(columns),
        "start": columns[0].start if columns else np.nan,
        "end": columns[-1].end if columns else np.nan,
        "compared": compared,
        "both": int(counts[BOTH]),
        "detector_only": int(counts[DETECTOR]),
        "shadow_only": int(counts[SHADOW]),
        "agreement": 1 - differing / compared if compared else np.nan,
        "notes": _notes(now, view.name, metric),
    }


def _notes(now: Now, group: str, metric: str) -> str:
    """The reason for which the shadow did not judge the latest window, empty without one."""
    shadows = (judged.shadow for judged in now.judgements_of(group) if judged.metric == metric)
    notes = (shadow.verdicts.note for shadow in shadows if shadow is not None)
    return "; ".join(filter(None, notes))


def _differing(now: Now, shown: dict[str, Any], query: Query) -> PageTable[int]:
    """The components on which detector and shadow differ in a window, those that differ most first."""
    group, metric = shown["group"], shown["metric"]
    names, states = _states(now.history.shadow_columns(group, metric))
    own_only, shadow_only, both = ((states == code).sum(axis=1) for code in (DETECTOR, SHADOW, BOTH))
    differing = own_only + shadow_only
    order = np.lexsort((np.argsort(np.argsort(np.array(names, dtype=np.str_))), -differing))
    own, other = _stragglers(now, group, metric)

    def straggler(at: int) -> str:
        by = [detector for detector, some in ((0, own), (1, other)) if names[at] in some]
        return {(): "no", (0,): f"by {shown['detector']}", (1,): f"by {shown['shadow']}"}.get(
            tuple(by), "by both"
        )

    def row(at: int) -> dict[str, Any]:
        name = names[at]
        label = (
            f"{shown['detector']} alone found it anomalous in {own_only[at]} of "
            f"{formatting.counted(shown['windows'], 'window')}, {shown['shadow']} alone in {shadow_only[at]}"
        )
        return {
            "name": now.shown(name),
            "url": urls.component(group, name, metric),
            "detector_only": int(own_only[at]),
            "shadow_only": int(shadow_only[at]),
            "both": int(both[at]),
            "straggler": straggler(at),
            "picture": drawing(
                np.stack([_OWN_LEVELS[states[at]], _SHADOW_LEVELS[states[at]]]), label, "strip"
            ),
        }

    columns = (
        PageColumn[int]("name", "Component", lambda at: now.shown(names[at])),
        PageColumn[int]("component", "", lambda at: names[at]),
        PageColumn[int]("group", "", lambda _: group),
        PageColumn[int]("metric", "", lambda _: metric),
        PageColumn[int]("straggler", "Straggler now", straggler),
        PageColumn[int](
            "detector_only", f"Only {shown['detector']}", lambda at: int(own_only[at]), right=True
        ),
        PageColumn[int](
            "shadow_only", f"Only {shown['shadow']}", lambda at: int(shadow_only[at]), right=True
        ),
        PageColumn[int]("both", "Both", lambda at: int(both[at]), right=True),
    )
    return PageTable(
        "components",
        columns,
        [at for at in order.tolist() if differing[at]],
        Query({**query.given, "group": group, "metric": metric}),
        keep=("group", "metric", "sort_groups"),
        size=ROWS_A_PAGE,
        make=row,
    )


def _stragglers(now: Now, group: str, metric: str) -> tuple[set[str], set[str]]:
    """The present stragglers by the detector, and by the shadow."""
    for judged in now.judgements_of(group):
        if judged.metric == metric and judged.shadow is not None:
            return stragglers(judged)
    return set(), set()


def _states(columns: Sequence[MemberColumn]) -> tuple[tuple[str, ...], NDArray[np.uint8]]:
    """The names (C,) in any of `columns`, and their states (C, N), NOT_COMPARED where they are absent."""
    members = {id(column.members): column.members.names for column in columns}
    row = {name: at for at, name in enumerate({name: None for own in members.values() for name in own})}
    places = {key: np.array([row[name] for name in own], dtype=np.intp) for key, own in members.items()}
    states = np.zeros((len(row), len(columns)), dtype=np.uint8)
    for at, column in enumerate(columns):
        states[places[id(column.members)], at] = column.state
    return tuple(row), states
