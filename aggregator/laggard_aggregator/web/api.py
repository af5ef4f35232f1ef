"""The answers of `/api/v1` as plain data, as docs/api.md describes them. NaN becomes null."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from laggard_aggregator.alarms.alarms import Alarm, Key
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.alarms.overrides import Decision, commenting, silencing
from laggard_aggregator.metrics.registry import unit
from laggard_aggregator.status.straggler_list import Standing, standings
from laggard_aggregator.status.urls import NotKnownError
from laggard_aggregator.status.view import GroupView, Status, failing
from laggard_aggregator.status.window_history import BAND
from laggard_aggregator.web.pages.alarm_log import MOST_EVENTS, AlarmEpisode, Event, episodes
from laggard_aggregator.web.pages.past import Past, PastSeries

MOST_ALARMS = MOST_EVENTS
"""Limit of alarms in one answer."""


def stragglers(view: Status) -> dict[str, Any]:
    """The stragglers and standing alarms, most persistent first (Intrepid 4.3), then by severity."""
    rows = standings(view.judgements(), view.alarms(), view.shown, view.silenced)
    chosen = [row for row in rows if row.slow]
    chosen.sort(key=lambda row: (-(row.persistence or 0), -_or_zero(row.severity), row.key))
    sources = {group.name: group.source for group in view.groups()}
    described = [_standing(view, row, sources.get(row.group, "")) for row in chosen]
    return {"time": view.now, "stragglers": described}


def groups(view: Status) -> dict[str, Any]:
    """All peer groups by name, with the reason for a missing verdict."""
    latest: dict[str, list[Judgement]] = {}
    for judged in view.judgements():
        latest.setdefault(judged.group, []).append(judged)
    described = [_group(group, latest.get(group.name, [])) for group in view.groups()]
    return {"time": view.now, "groups": described}


def decisions(view: Status) -> dict[str, Any]:
    """The decisions in force, oldest first; `until` is null without an end."""
    return {"time": view.now, "decisions": [_decision(each) for each in view.decisions()]}


@dataclass(frozen=True, slots=True)
class AlarmFilter:
    """Selects alarms: of `groups` (empty: any), in a `state` (empty: any), that stood after `since`."""

    groups: frozenset[str] = frozenset()
    state: str = ""
    since: float = -math.inf
    limit: int = 1000

    @classmethod
    def of(cls, query: Iterable[tuple[str, str]]) -> "AlarmFilter":
        """The filter of a query string. Raises ValueError in one line."""
        groups, chosen = set[str](), dict[str, str]()
        for name, value in query:
            if name == "group":
                groups.add(value)
            elif name in ("state", "since", "limit") and name not in chosen:
                chosen[name] = value
            else:
                raise ValueError(f"expected group, and once state, since and limit, got {name[:40]!r}")
        state, limit = chosen.get("state", ""), chosen.get("limit", "1000")
        if state not in ("", "raised", "cleared"):
            raise ValueError(f"state: expected raised or cleared, got {state[:40]!r}")
        if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= MOST_ALARMS):
            raise ValueError(f"limit: expected 1-{MOST_ALARMS}, got {limit[:40]!r}")
        since = _time(chosen["since"]) if "since" in chosen else -math.inf
        return cls(frozenset(groups), state, since, int(limit))


def alarms(
    wanted: AlarmFilter,
    events: Iterable[Event],
    standing: Mapping[Key, Alarm],
    *,
    made: Sequence[Decision],
    shown: Callable[[str], str],
    now: float,
) -> dict[str, Any]:
    """The alarms that stand and those of the log's `events`, one row an episode, the newest first."""
    rows = []
    for each in episodes(events, standing):
        state = "raised" if each.active else "cleared"
        if wanted.state in ("", state) and (not wanted.groups or each.group in wanted.groups):
            row = _alarm(each, state, made, shown, now)
            if row["since"] + (row["duration_seconds"] or 0) > wanted.since:
                rows.append(row)
    rows.sort(key=lambda row: (-row["since"], row["group"], row["component"], row["metric"]))
    return {"time": now, "total": len(rows), "alarms": rows[: wanted.limit]}


def _alarm(
    episode: AlarmEpisode, state: str, made: Sequence[Decision], shown: Callable[[str], str], now: float
) -> dict[str, Any]:
    name = shown(episode.component)
    silenced = next(silencing(made, episode.component, name), None) if episode.active else None
    return {
        "group": episode.group,
        "component": episode.component,
        "name": name,
        "level": episode.level,
        "metric": episode.metric,
        "state": state,
        "since": episode.since,
        "raised_at": _or_null(episode.raised_at),
        "cleared_at": _or_null(episode.cleared_at),
        "duration_seconds": _or_null((now if episode.active else episode.cleared_at) - episode.since),
        "severity": _or_null(episode.severity),
        "worst_severity": _or_null(episode.worst_severity),
        "silenced": None if silenced is None else _decision(silenced),
        "comments": [_decision(one) for one in commenting(made, episode.component, name)],
    }


def nodes(view: Status) -> dict[str, Any]:
    """Number of nodes by role and state, and the unhealthy nodes."""
    counts: dict[str, dict[str, int]] = {}
    for (role, state), count in sorted(view.node_counts().items()):
        counts.setdefault(role, {})[state] = count
    return {
        "time": view.now,
        "ready": view.ready,
        "failing": failing(view.counters(), view.durability()),
        "nodes": counts,
        "unwell": [
            {
                "node": node.node,
                "role": node.role,
                "state": node.state,
                "last_sample": _or_null(node.last_sample),
                "clock_offset_seconds": _or_null(node.clock_offset_seconds),
                "failing": [
                    name for name, collector in sorted(node.collectors.items()) if not collector.success
                ],
            }
            for node in view.unhealthy_nodes()
        ],
    }


def component(view: Status, group: str, name: str) -> dict[str, Any]:
    """One component by its permanent ID or current name. Raises NotKnownError."""
    found = next((g for g in view.groups() if g.name == group), None)
    if found is None:
        raise NotKnownError(f"no group {group!r}")
    judgements = [judged for judged in view.judgements() if judged.group == group]
    alarms = view.alarms()
    for candidate in (name, *_called(view, judgements, name)):
        rows = standings(judgements, alarms, view.shown, view.silenced, (group, candidate))
        if rows:
            return {
                "time": view.now,
                "group": _group(found, judgements),
                "component": candidate,
                "name": rows[0].name,
                "metrics": [_standing(view, row, found.source) for row in rows],
            }
    raise NotKnownError(f"no component {name!r} in a closed window of group {group!r}")


def find_component(view: Status, group: str, name: str) -> tuple[str, str]:
    """Group and component asked for; without a group the first by name that has it. Raises NotKnownError.

    With a group the component may be one that only the archive knows.
    """
    if not name:
        raise ValueError("component is missing: its permanent ID or current name")
    if group:
        return group, name
    for each in view.groups():
        for component in view.compared(each.name):
            if name in (component, view.shown(component)):
                return each.name, component
    raise NotKnownError(f"no component {name!r} in any group now; name its group to ask the archive alone")


def history(past: Past, view: Status, group: str, name: str) -> dict[str, Any]:
    """A component over a range of time. Raises NotKnownError where the archive has nothing of it."""
    if not past.found:
        raise NotKnownError(" ".join(past.notes))
    return {
        "time": view.now,
        "group": group,
        "component": name,
        "from": past.range.start,
        "to": past.range.end,
        "step_seconds": past.step_seconds or None,
        "ends": past.series[0].ends.tolist() if past.series else [],
        "peers": past.peers,
        "metrics": [_series(each) for each in past.series if not each.load],
        "load": [_series(each) for each in past.series if each.load],
        "anomalous_windows": [
            {name: _plain(row[name]) for name in _WINDOW_FIELDS} for row in reversed(past.verdicts)
        ],
        "notes": list(past.notes),
    }


_WINDOW_FIELDS = ("metric", "start", "end", "severity", "score", "observed", "reference", "straggler")


def _series(series: PastSeries) -> dict[str, Any]:
    band = {f"p{round(100 * share)}": series.band[:, at] for at, share in enumerate(BAND)}
    columns = {"values": series.own, **band}
    return {"metric": series.name, "unit": series.unit} | {
        name: [_or_null(value) for value in column.tolist()] for name, column in columns.items()
    }


def _plain(value: Any) -> Any:
    return _or_null(value) if isinstance(value, float) else value


def _called(view: Status, judgements: Iterable[Judgement], name: str) -> Iterable[str]:
    """The components with the current name `name`."""
    known = {component: None for judged in judgements for component in judged.components}
    return (component for component in known if view.shown(component) == name)


def _group(group: GroupView, latest: Sequence[Judgement]) -> dict[str, Any]:
    """A group and its latest judgements, one per metric."""
    notes = {judged.verdicts.note: None for judged in latest if judged.verdicts.note}
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
        "note": "; ".join(notes) if latest else "no window has closed yet",
    }


def _standing(view: Status, row: Standing, source: str) -> dict[str, Any]:
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
        "score": _or_null(row.score),
        "severity": _or_null(row.severity),
        "worst_severity": None if alarm is None else _or_null(alarm.worst_severity),
        "observed": _or_null(row.observed),
        "reference": _or_null(row.reference),
        "unit": unit(source, row.metric),
        "since": _or_null(row.since),
        "window_end": row.window_end,
        "alarm": alarm is not None,
        "raised_at": None if alarm is None else alarm.raised_at,
        "silenced": None if row.silenced is None else _decision(row.silenced),
        "comments": [_decision(each) for each in view.comments(row.component, row.name)],
        "causes": [{"name": name, "amount": amount} for name, amount in row.causes],
    }


def _decision(decision: Decision) -> dict[str, Any]:
    return asdict(decision) | {"until": _or_null(decision.until)}


def _time(text: str) -> float:
    """Epoch seconds of a number, or of ISO 8601 with a zone. Raises ValueError."""
    try:
        at = float(text) if text[:1].isdigit() and "-" not in text else datetime.fromisoformat(text)
        if isinstance(at, datetime) and at.tzinfo is None:
            raise ValueError("no zone")
        seconds = at.timestamp() if isinstance(at, datetime) else at
    except (ValueError, OverflowError) as exc:
        expected = "epoch seconds, or a time with its zone such as 2026-01-31T12:00:00Z"
        raise ValueError(f"since: expected {expected}, got {text[:40]!r}") from exc
    if not math.isfinite(seconds):
        raise ValueError("since: expected a finite time")
    return seconds


def _or_null(figure: float) -> float | None:
    return figure if math.isfinite(figure) else None


def _or_zero(figure: float) -> float:
    return figure if math.isfinite(figure) else 0.0
