"""The answers of `/api/v1` as plain data, as docs/api.md describes them. NaN becomes null."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.alarms.overrides import Decision
from laggard_aggregator.metrics.registry import unit
from laggard_aggregator.status.straggler_list import Standing, standings
from laggard_aggregator.status.urls import NotKnownError
from laggard_aggregator.status.view import GroupView, Status, failing


def stragglers(view: Status) -> dict[str, Any]:
    """The stragglers and standing alarms, most persistent first (Intrepid 4.3), then by severity."""
    rows = standings(view.judgements(), view.alarms(), view.shown, view.silenced)
    chosen = [row for row in rows if row.slow]
    chosen.sort(key=lambda row: (-(row.persistence or 0), -_or_zero(row.severity), row.key))
    sources = {group.name: group.source for group in view.groups()}
    return {"time": view.now, "stragglers": [_standing(row, sources.get(row.group, "")) for row in chosen]}


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
                "metrics": [_standing(row, found.source) for row in rows],
            }
    raise NotKnownError(f"no component {name!r} in a closed window of group {group!r}")


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


def _standing(row: Standing, source: str) -> dict[str, Any]:
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
        "causes": [{"name": name, "amount": amount} for name, amount in row.causes],
    }


def _decision(decision: Decision) -> dict[str, Any]:
    return asdict(decision) | {"until": _or_null(decision.until)}


def _or_null(figure: float) -> float | None:
    return figure if math.isfinite(figure) else None


def _or_zero(figure: float) -> float:
    return figure if math.isfinite(figure) else 0.0
