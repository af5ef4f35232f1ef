"""The page of a component: its metrics against the band of its peers, its windows, its evidence."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from laggard_aggregator.detect import registry as detectors
from laggard_aggregator.detect.interface import FloatArray, GroupWindow
from laggard_aggregator.metrics.registry import unit, worse
from laggard_aggregator.status import formatting
from laggard_aggregator.status.straggler_list import Standing, standings
from laggard_aggregator.status.urls import DEFAULT_RANGE_SECONDS, NotKnownError
from laggard_aggregator.status.view import GroupView
from laggard_aggregator.status.window_history import (
    ABSENT,
    ANOMALOUS,
    NORMAL,
    ComponentHistory,
    bands,
)
from laggard_aggregator.web.pages.alarm_log import Event, alarm_table, episodes
from laggard_aggregator.web.pages.charts import band_chart, cdf_chart, chart_data
from laggard_aggregator.web.pages.page_state import Now
from laggard_aggregator.web.pages.straggler_rows import NextSteps, slow_by, verdict
from laggard_aggregator.web.pages.tables import PageColumn, PageTable, Query

WINDOWS_A_PAGE = 5
_KEEP = ("metric", "sort", "sort_functions", "sort_alarms", "from", "to")
PEERS_DRAWN = 40


def component(now: Now, group_name: str, name: str, query: Query, alarms: Sequence[Event]) -> dict[str, Any]:
    """Values of the template for a component by its permanent ID or current name. Raises NotKnownError."""
    metric = query.text("metric")
    group = now.groups.get(group_name)
    if group is None:
        raise NotKnownError(f"no group {group_name!r}")
    lasting = _lasting(now, group, name)
    rows = standings(now.judgements, now.alarms, now.shown, now.silenced, (group.name, lasting))
    rows = rows or (_absent(now, group, lasting),)
    straggler = slow_by(now, rows, now.locations() if any(row.slow for row in rows) else {})
    node = straggler.name.partition("/")[0]
    scores = {row.metric: row.score for row in rows if row.judged}
    metrics = [name for name in group.metrics if not metric or name == metric] or group.metrics
    causes = next((e.standing for e in straggler.evidence if e.standing.causes), None)
    known = unit(group.source, causes.metric) if causes else ""
    functions = _functions(causes.causes if causes else (), known, query)
    events = episodes(
        (event for event in alarms if event.component == lasting),
        {key: alarm for key, alarm in now.alarms.items() if alarm.component == lasting},
    )
    its_alarms = alarm_table(now, events, query, of_one=True)
    parts = [_part(now, group, lasting, metric, score=scores.get(metric), query=query) for metric in metrics]
    return {
        "table": parts[0]["windows"],
        "tables": [functions, its_alarms],
        "component": lasting,
        "name": straggler.name,
        "node": node,
        "group": group,
        "level": straggler.level,
        "note": now.note_of(group.name),
        "slow": straggler,
        "is_slow": any(row.slow for row in rows),
        "blamed": _blamed(now, group.name, node) if node != straggler.name else "",
        "advice": NextSteps(now).on(straggler),
        "parts": parts,
        "functions": functions,
        "functions_unit": known,
        "others": sorted({j.group for j in now.judgements if lasting in j.components} - {group.name}),
        "verdict": verdict(NORMAL, straggler.factor),
        "alarms": its_alarms,
        "last": next((e for e in events if not e.active and math.isfinite(e.cleared_at)), None),
        "since": _since(now, group, lasting),
    }


def _since(now: Now, group: GroupView, name: str) -> str:
    """Range that its windows in memory span, at most the default; as a URL has it."""
    starts = [
        course.start
        for metric in group.metrics
        if (course := now.history.course(group.name, metric, name)).end.size
    ]
    oldest = min((float(times[0]) for times in starts), default=np.nan)
    seconds = now.time - oldest + group.window_seconds
    return (
        f"-{int(seconds)}s" if 0 < seconds < DEFAULT_RANGE_SECONDS else f"-{DEFAULT_RANGE_SECONDS // 3600}h"
    )


def _functions(causes: Sequence[tuple[str, float]], known: str, query: Query) -> PageTable[tuple[str, float]]:
    """The functions in which it differs, on the page with the percentage of the largest difference."""
    most = max((abs(amount) for _, amount in causes), default=0.0) or 1.0
    column = PageColumn[tuple[str, float]]
    columns = (
        column("function", "Function", lambda function: function[0]),
        column("difference", "Difference", lambda function: function[1], right=True),
        column("unit", "", lambda _: known or None),
    )

    def row(function: tuple[str, float]) -> tuple[str, float, float]:
        return *function, 100 * abs(function[1]) / most

    return PageTable("functions", columns, causes, query, keep=_KEEP, make=row, is_first=False)


def _part(
    now: Now, group: GroupView, name: str, metric: str, *, score: float | None, query: Query
) -> dict[str, Any]:
    """One metric of the component; pictures are empty without data."""
    course = now.history.course(group.name, metric, name)
    hot = course.state == ANOMALOUS
    known = unit(group.source, metric)
    title = (
        f"{metric} of {now.shown(name)} in "
        f"{formatting.counted(int((course.state != ABSENT).sum()), 'window')} "
        "against the band of its peers; the table of windows has the same in figures"
    )
    samples = now.history.samples(group.name)
    picture, cdf, said = Markup(""), Markup(""), ""
    if samples is not None and name in samples.components and metric in samples.metrics:
        at = samples.components.index(name)
        picture = _samples(samples, metric, at, known, now.shown(name))
        detector = detectors.registered[group.detect.detector]  # its windows are in the history
        if (distributions := detector.distributions) is not None:
            values = distributions(samples.metrics[metric].astype(np.float64), samples.history)
            cdf, said = _cdf(values, metric, at, known, score)
    return {
        "metric": metric,
        "unit": known,
        "data": chart_data(course.end, course.observed, course.band, hot),
        "picture": band_chart(course.end, course.observed, course.band, hot, unit=known, label=title),
        "samples": picture,
        "samples_from": np.nan if samples is None else samples.start,
        "samples_to": np.nan if samples is None else samples.end,
        "cdf": cdf,
        "cdf_said": said,
        "windows": _windows(course, metric, known, worse(group.source, metric), query),
    }


def _windows(course: ComponentHistory, metric: str, known: str, side: int, query: Query) -> PageTable[int]:
    """The windows of one metric, whose worse side is `side`, by their place in `course`, newest first."""
    factors = course.factors(side)
    columns = (
        PageColumn[int]("start", "Window", lambda at: float(course.start[at]), is_time=True),
        PageColumn[int]("end", "", lambda at: float(course.end[at]), is_time=True),
        PageColumn[int]("metric", "", lambda _: metric),
        PageColumn[int]("observed", "Value", lambda at: float(course.observed[at]), right=True),
        PageColumn[int]("reference", "Peers", lambda at: float(course.reference[at]), right=True),
        PageColumn[int]("unit", "", lambda _: known or None),
        PageColumn[int]("factor", "Factor", lambda at: float(factors[at]), right=True),
        PageColumn[int]("severity", "On average", lambda at: float(course.severity[at]), right=True),
        PageColumn[int]("score", "Score", lambda at: float(course.score[at]), right=True),
        PageColumn[int]("state", "Verdict", lambda at: verdict(int(course.state[at]), float(factors[at]))),
    )
    return PageTable(
        "windows",
        columns,
        range(len(course.end))[::-1],
        Query({**query.given, "metric": metric}),
        keep=_KEEP,
        size=WINDOWS_A_PAGE,
        make=lambda at: _window(course, at, known, float(factors[at])),
    )


def _window(course: ComponentHistory, at: int, known: str, factor: float) -> dict[str, Any]:
    """One window as text."""
    state = int(course.state[at])
    return {
        "start": float(course.start[at]),
        "end": float(course.end[at]),
        "observed": formatting.figure(float(course.observed[at]), known),
        "peers": formatting.figure(float(course.reference[at]), known),
        "factor": formatting.factor(factor),
        "severity": formatting.factor(float(course.severity[at])),
        "score": formatting.score(float(course.score[at])),
        "verdict": verdict(state, factor),
        "anomalous": state == ANOMALOUS,
    }


def _samples(samples: GroupWindow, metric: str, at: int, known: str, name: str) -> Markup:
    """The samples of the latest window against the band of all members."""
    values = samples.metrics[metric].astype(np.float64)
    count = values.shape[1]
    step = (samples.end - samples.start) / (count - samples.history)
    time = samples.end - step * np.arange(count - 1, -1, -1)
    title = f"{metric} of {name}, sample by sample, against the band of its peers"
    none = np.zeros(count, dtype=np.bool_)
    return band_chart(time, values[at], bands(values), none, unit=known, label=title)


def _cdf(values: FloatArray, metric: str, at: int, known: str, score: float | None) -> tuple[Markup, str]:
    """The distributions of `values` (W, C), as the detector compares them; NaN for absent components.

    `score`: the component's in the latest window, None if it was not judged.
    """
    enough = np.isfinite(values).sum(axis=0) > 0
    if not enough[at]:
        return Markup(""), "too few samples in the latest window"
    others = np.flatnonzero(enough)
    others = others[others != at]
    drawn = others[np.unique(np.linspace(0, len(others) - 1, min(PEERS_DRAWN, len(others))).astype(int))]
    own, *peers = (np.sort(column[np.isfinite(column)]) for column in values[:, [at, *drawn.tolist()]].T)
    title = (
        f"cumulative distributions of {metric}: this component and {formatting.counted(len(peers), 'peer')}"
    )
    said = []
    if score is not None:
        said.append(f"score {formatting.score(score)}, anomalous from 1 on")
    if len(peers) < len(others):
        said.append(f"{len(peers)} of {formatting.counted(len(others), 'peer')} drawn")
    return cdf_chart(own, peers, known, title), "; ".join(said)


def _lasting(now: Now, group: GroupView, name: str) -> str:
    """Permanent ID of a component that was in a window of the group or has an alarm in it."""
    known = {c: None for judged in now.judgements_of(group.name) for c in judged.components}
    known |= {c: None for g, c, _ in now.alarms if g == group.name}
    for metric in group.metrics:
        lists = {id(column.names): column.names for column in now.history.columns(group.name, metric)}
        for names in lists.values():
            known |= dict.fromkeys(names)
    if name in known:
        return name
    lasting = next((component for component in known if now.shown(component) == name), None)
    if lasting is None:
        raise NotKnownError(f"no component {name!r} in a closed window of group {group.name!r}")
    return lasting


def _absent(now: Now, group: GroupView, name: str) -> Standing:
    """The row of a component that is no longer in any window."""
    return Standing(
        group=group.name,
        component=name,
        name=now.shown(name),
        metric=group.metrics[0],
        level="component",
        judged=False,
        anomalous=False,
        straggler=False,
        persistence=None,
        score=np.nan,
        severity=np.nan,
        observed=np.nan,
        reference=np.nan,
        since=np.nan,
        window_end=max((judged.end for judged in now.judgements_of(group.name)), default=np.nan),
        alarm=None,
    )


def _blamed(now: Now, group: str, node: str) -> str:
    """The node, if it is a straggler of the group: it is blamed in place of its components."""
    slow = (row.slow for row in now.standings() if (row.group, row.component) == (group, node))
    return node if any(slow) else ""
