"""The answers of `/api/v1` as plain data, as docs/api.md describes them. NaN becomes null."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any, cast

import numpy as np

from laggard_aggregator.alarms.factors import factor_now
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.alarms.overrides import Decision, commenting
from laggard_aggregator.metrics.registry import unit, worse
from laggard_aggregator.status import urls
from laggard_aggregator.status.formatting import or_null, or_zero
from laggard_aggregator.status.location import Location
from laggard_aggregator.status.straggler_list import Standing, standings
from laggard_aggregator.status.urls import NotKnownError
from laggard_aggregator.status.view import GroupView, failing
from laggard_aggregator.status.window_history import BAND
from laggard_aggregator.web.api_types import (
    ComponentAnswer,
    DecisionAnswer,
    DecisionsAnswer,
    GroupAnswer,
    GroupsAnswer,
    HistoryAnswer,
    NodesAnswer,
    SeriesAnswer,
    SplitAnswer,
    StragglerAnswer,
    StragglersAnswer,
    WindowAnswer,
)
from laggard_aggregator.web.pages.alarm_log import (
    MOST_EVENTS,
    AlarmEpisode,
    Event,
    alarm_table,
    episodes,
)
from laggard_aggregator.web.pages.page_state import Now, group_note
from laggard_aggregator.web.pages.past import Past, PastSeries
from laggard_aggregator.web.pages.tables import PageTable, Query

OUTBOX = "outbox"
"""Name under which an agent reports files that stay in its outbox, among its collectors."""
MOST_ALARMS = MOST_EVENTS
"""Limit of alarms in one answer."""


def stragglers(now: Now) -> StragglersAnswer:
    """The stragglers and standing alarms, most persistent first (Intrepid 4.3), then by severity."""
    chosen = [row for row in now.standings() if row.slow]
    chosen.sort(key=lambda row: (-(row.persistence or 0), -or_zero(row.severity), row.key))
    where = now.locations() if chosen else {}
    return {
        "time": now.time,
        "stragglers": [_standing(now, row, _source(now, row.group), where.get(row.key)) for row in chosen],
    }


def groups(now: Now) -> GroupsAnswer:
    """All peer groups by name, with the reason for a missing verdict."""
    latest: dict[str, list[Judgement]] = {}
    for judged in now.judgements:
        latest.setdefault(judged.group, []).append(judged)
    described = [_group(group, latest.get(name, [])) for name, group in now.groups.items()]
    return {"time": now.time, "groups": described}


def decisions(now: Now) -> DecisionsAnswer:
    """The decisions in force, oldest first; `until` is null without an end."""
    return {"time": now.time, "decisions": [_decision(decision) for decision in now.decisions]}


_ALARM_PARAMETERS = ("group", "role", "factor", "state", "since", "sort", "limit")


def alarms(
    now: Now, events: Iterable[Event], given: Sequence[tuple[str, str]]
) -> tuple[PageTable[AlarmEpisode], int]:
    """The alarms that stand and those of the log's `events`, as on their page, and the limit of the answer.

    `given`: the parameters of the page's table; `group` is a whole name and may be repeated, `since` a time
    after which an alarm stood. Raises ValueError in one line.
    """
    once = [name for name, _ in given if name != "group"]
    for name in once:
        if name not in _ALARM_PARAMETERS or once.count(name) > 1:
            raise ValueError(
                f"expected {', '.join(_ALARM_PARAMETERS)}, all but group once, got {name[:40]!r}"
            )
    asked = dict(given)
    limit = asked.get("limit", "1000")
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= MOST_ALARMS):
        raise ValueError(f"limit: expected 1-{MOST_ALARMS}, got {limit[:40]!r}")
    try:
        since = urls.parse_time(asked["since"], now.time) if "since" in asked else -math.inf
    except ValueError as exc:
        raise ValueError(f"since: {exc}, got {asked['since'][:40]!r}") from exc
    groups = {value for name, value in given if name == "group"}
    rows = [
        episode
        for episode in episodes(events, now.alarms)
        if (not groups or episode.of.group in groups)
        and episode.of.since + np.nan_to_num(episode.lasted(now.time)) > since
    ]
    table = alarm_table(now, rows, Query({name: asked[name] for name in asked if name != "group"}))
    if table.problems:
        raise ValueError(table.problems[0])
    return table, int(limit)


def nodes(now: Now) -> NodesAnswer:
    """Number of nodes by role and state, and the unhealthy nodes."""
    counts: dict[str, dict[str, int]] = {}
    for (role, state), count in sorted(now.node_counts.items()):
        counts.setdefault(role, {})[state] = count
    return {
        "time": now.time,
        "ready": not now.unready,
        "failing": failing(now.counters, now.durability) | _outboxes(now),
        "nodes": counts,
        "unwell": [
            {
                "node": node.node,
                "role": node.role,
                "state": node.state,
                "last_sample": or_null(node.last_sample),
                "clock_offset_seconds": or_null(node.clock_offset_seconds),
                "failing": [
                    name for name, collector in sorted(node.collectors.items()) if not collector.success
                ],
            }
            for node in now.unhealthy
        ],
    }


def _outboxes(now: Now) -> dict[str, str]:
    """A line about the nodes in whose outbox files stay, without any nothing."""
    kept = [(node.node, node.collectors[OUTBOX]) for node in now.unhealthy if OUTBOX in node.collectors]
    if not kept:
        return {}
    (node, outbox), *others = kept
    more = f" (and of {len(others)} more nodes)" if others else ""
    return {"outbox": f"outbox of {node}{more} keeps files: {outbox.error}"}


def component(now: Now, group: str, name: str) -> ComponentAnswer:
    """One component by its permanent ID or current name. Raises NotKnownError."""
    if group not in now.groups:
        raise NotKnownError(f"no group {group!r}")
    judgements = now.judgements_of(group)
    where = now.locations()
    for candidate in (name, *_called(now, judgements, name)):
        rows = standings(judgements, now.alarms, now.shown, now.silenced, (group, candidate))
        if rows:
            source = _source(now, group)
            return {
                "time": now.time,
                "group": _group(now.groups[group], judgements),
                "component": candidate,
                "name": rows[0].name,
                "metrics": [_standing(now, row, source, where.get(row.key)) for row in rows],
            }
    raise NotKnownError(f"no component {name!r} in a closed window of group {group!r}")


def find_component(
    compared: Iterable[tuple[str, Sequence[str]]], shown: Callable[[str], str], name: str
) -> tuple[str, str]:
    """Group and permanent ID of a component, of the first of the groups that has it. Raises NotKnownError.

    `compared`: groups by name, with the components that each compares.
    """
    for group, components in compared:
        for component in components:
            if name in (component, shown(component)):
                return group, component
    raise NotKnownError(f"no component {name!r} in any group now; name its group to ask the archive alone")


def history(past: Past, now: float, group: str, name: str) -> HistoryAnswer:
    """A component over a range of time. Raises NotKnownError for a component that is not in the archive."""
    if not past.is_known:
        raise NotKnownError(" ".join(past.notes))
    return {
        "time": now,
        "group": group,
        "component": name,
        "from": past.range.start,
        "to": past.range.end,
        "step_seconds": past.step_seconds or None,
        "ends": past.series[0].ends.tolist() if past.series else [],
        "peers": past.peers,
        "metrics": [_series(metric) for metric in past.series if not metric.load],
        "load": [_series(metric) for metric in past.series if metric.load],
        "anomalous_windows": [
            cast(WindowAnswer, {name: _plain(row[name]) for name in _WINDOW_FIELDS})
            for row in reversed(past.verdicts)
        ],
        "notes": list(past.notes),
    }


_WINDOW_FIELDS = ("metric", "start", "end", "severity", "score", "observed", "reference", "straggler")


def _series(series: PastSeries) -> SeriesAnswer:
    band = {f"p{round(100 * share)}": series.band[:, at] for at, share in enumerate(BAND)}
    columns = {"values": series.own, **band}
    values = {name: [or_null(value) for value in column.tolist()] for name, column in columns.items()}
    return cast(SeriesAnswer, {"metric": series.name, "unit": series.unit, **values})


def _plain(value: Any) -> Any:
    return or_null(value) if isinstance(value, float) else value


def _source(now: Now, group: str) -> str:
    return now.groups[group].source if group in now.groups else ""


def _called(now: Now, judgements: Iterable[Judgement], name: str) -> Iterable[str]:
    """The components with the current name `name`."""
    known = {component: None for judged in judgements for component in judged.components}
    return (component for component in known if now.shown(component) == name)


def _group(group: GroupView, latest: Sequence[Judgement]) -> GroupAnswer:
    """A group and its latest judgements, one per metric."""
    return {
        "group": group.name,
        "source": group.source,
        "role": group.role,
        "detector": group.detect.detector,
        "metrics": list(group.metrics),
        "live": group.live,
        "silent": group.silent,
        "interval_seconds": group.detect.interval_seconds,
        "window_seconds": group.window_seconds,
        "automatic": group.automatic,
        "window_end": max((judged.end for judged in latest), default=None),
        "note": group_note(latest) if latest else "no window has closed yet",
        "splits": [
            cast(
                SplitAnswer,
                {"metric": judged.metric, **asdict(judged.split), "text": judged.split.text()},
            )
            for judged in latest
            if judged.split is not None
        ],
        "rotations": [
            {"metric": judged.metric, "text": judged.rotation} for judged in latest if judged.rotation
        ],
    }


def _standing(now: Now, row: Standing, source: str, where: Location | None) -> StragglerAnswer:
    alarm = row.alarm
    return {
        "group": row.group,
        "component": row.component,
        "name": row.name,
        "level": row.level,
        "metric": row.metric,
        "straggler": row.straggler,
        "anomalous": row.anomalous,
        "judged": row.judged,
        "persistence": row.persistence,
        "score": or_null(row.score),
        "factor": or_null(factor_now(row, worse(source, row.metric))),
        "severity": or_null(row.severity),
        "worst_severity": None if alarm is None else or_null(alarm.worst_severity),
        "slow_share": row.slow_share or None,
        "slow_severity": row.slow_severity or None,
        "stops": row.stops or None,
        "observed": or_null(row.observed),
        "reference": or_null(row.reference),
        "unit": unit(source, row.metric),
        "since": or_null(row.since),
        "window_end": row.window_end,
        "alarm": alarm is not None,
        "raised_at": None if alarm is None else alarm.raised_at,
        "silenced": None if row.silenced is None else _decision(row.silenced),
        "comments": [_decision(decision) for decision in commenting(now.decisions, row.component, row.name)],
        "causes": [{"name": name, "amount": amount} for name, amount in row.causes],
        "located_level": None if where is None else where.level,
        "located_component": None if where is None else where.component,
        "located_name": None if where is None else where.name,
        "evidence": None if where is None else where.evidence,
        "beside": [remark.text for remark in now.beside.get(row.component, ())],
    }


def _decision(decision: Decision) -> DecisionAnswer:
    return cast(DecisionAnswer, decision.plain())
