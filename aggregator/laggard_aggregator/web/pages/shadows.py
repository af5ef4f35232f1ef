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
from laggard_aggregator.web.pages.page_state import Now, paged

ROWS_A_PAGE = 50
_OWN_LEVELS = np.array([OPEN, WELL, SLOWER, WELL, SLOWER], dtype=np.uint8)
_SHADOW_LEVELS = np.array([OPEN, WELL, WELL, SLOWER, SLOWER], dtype=np.uint8)
"""Levels of a heat map by state, for the line of the detector and that of its shadow."""


def shadows(now: Now, group: str, metric: str, page: int) -> dict[str, Any]:
    """Values of the template: all groups with a shadow, and one of them by component.

    `group`, `metric`: the one to show; empty for that with the most differences. Raises NotKnownError.
    """
    listed = [_summary(now, view, each) for view in now.shadowed for each in view.metrics]
    chosen = [row for row in listed if group in ("", row["group"]) and metric in ("", row["metric"])]
    if not chosen and (group or metric):
        raise NotKnownError(f"no shadow of group {group!r}" + (f" by {metric!r}" if metric else ""))
    shown = max(chosen, key=lambda row: row["detector_only"] + row["shadow_only"], default=None)
    return {
        "listed": listed,
        "shown": shown,
        "rows": None if shown is None else _differing(now, shown, page),
    }


def _summary(now: Now, view: GroupView, metric: str) -> dict[str, Any]:
    columns = now.history.shadow_columns(view.name, metric)
    counts = sum((np.bincount(each.state, minlength=BOTH + 1) for each in columns), np.zeros(BOTH + 1, int))
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
        "agreement": f"{1 - differing / compared:.2%}" if compared else formatting.DASH,
        "notes": _notes(now, view.name, metric),
    }


def _notes(now: Now, group: str, metric: str) -> str:
    """The reason for which the shadow did not judge the latest window, empty without one."""
    found = (judged.shadow for judged in now.judgements_of(group) if judged.metric == metric)
    return "; ".join(shadow.verdicts.note for shadow in found if shadow is not None and shadow.verdicts.note)


def _differing(now: Now, shown: dict[str, Any], page: int) -> Any:
    """The components on which detector and shadow differ in a window, those that differ most first."""
    group, metric = shown["group"], shown["metric"]
    names, states = _states(now.history.shadow_columns(group, metric))
    own_only, shadow_only, both = ((states == code).sum(axis=1) for code in (DETECTOR, SHADOW, BOTH))
    differing = own_only + shadow_only
    order = np.lexsort((np.argsort(np.argsort(np.array(names, dtype=np.str_))), -differing))
    own, other = _stragglers(now, group, metric)

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
            "straggler": name in own,
            "shadow_straggler": name in other,
            "picture": drawing(
                np.stack([_OWN_LEVELS[states[at]], _SHADOW_LEVELS[states[at]]]), label, "strip"
            ),
        }

    return paged([at for at in order.tolist() if differing[at]], page, ROWS_A_PAGE, row)


def _stragglers(now: Now, group: str, metric: str) -> tuple[set[str], set[str]]:
    """The present stragglers by the detector, and by the shadow."""
    for judged in now.judgements_of(group):
        if judged.metric == metric and judged.shadow is not None:
            return stragglers(judged)
    return set(), set()


def _states(columns: Sequence[MemberColumn]) -> tuple[tuple[str, ...], NDArray[np.uint8]]:
    """The names (C,) in any of `columns`, and their states (C, N), NOT_COMPARED where they are absent."""
    members = {id(column.members): column.members.names for column in columns}
    row = {name: at for at, name in enumerate({name: None for each in members.values() for name in each})}
    places = {key: np.array([row[name] for name in each], dtype=np.intp) for key, each in members.items()}
    states = np.zeros((len(row), len(columns)), dtype=np.uint8)
    for at, column in enumerate(columns):
        states[places[id(column.members)], at] = column.state
    return tuple(row), states
