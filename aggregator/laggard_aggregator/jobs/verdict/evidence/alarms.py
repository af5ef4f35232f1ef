"""Alarms on a job's path, in the windows in which their components were judged and found anomalous.

An alarm stands until its component is healthy again, also while nothing is judged: then it is no evidence.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from laggard_aggregator.archive.table import Among, Table, day_of
from laggard_aggregator.jobs.join.path_pass import client_node
from laggard_aggregator.jobs.join.volumes import FORWARDER
from laggard_aggregator.jobs.records.hostlist import short_name
from laggard_aggregator.jobs.verdict.analysis.cause_ranking import PathStraggler
from laggard_aggregator.jobs.verdict.evidence.minute_sums import Times
from laggard_aggregator.jobs.verdict.evidence.path_parts import RunPath
from laggard_aggregator.jobs.verdict.evidence.path_shares import names

_USUAL_DAYS: Final = 7
_DAY: Final = 86_400.0
_ALARM_COLUMNS: Final = ("component", "since", "at", "transition", "worst_severity")
_VERDICT_COLUMNS: Final = ("component", "start", "end", "anomalous", "severity")


@dataclass(frozen=True, slots=True)
class PathAlarm:
    """An alarm as evidence, and since and until when it stood; infinite while it does."""

    straggler: PathStraggler
    since: float
    until: float


def path_alarms(directory: Path, path: RunPath, carried: Mapping[str, float]) -> list[PathAlarm]:
    """Alarms of components on the path that were anomalous in its phases. Raises ArchiveError.

    `carried`: share of the job's bytes by names of components. The view that a client has of a target
    counts for the jobs of that node, or behind it, alone.
    """
    start, end = path.hull
    alarms = _alarms(directory, start - _USUAL_DAYS * _DAY, end)
    shares = {name: share for name in alarms if (share := _share(name, path, carried))}
    if not shares:
        return []
    concerning = []
    for component, windows in _anomalous(directory, shares, start - _USUAL_DAYS * _DAY, end).items():
        carrying = shares[component]
        before = _length([(low, min(high, start)) for low, high, _ in windows if low < start])
        usual = before / (_USUAL_DAYS * _DAY)
        for since, until in alarms[component]:
            own = [
                (max(low, since), min(high, until), severity)
                for low, high, severity in windows
                if low < min(until, end) and high > max(since, start)
            ]
            if own:
                first, last = min(low for low, _, _ in own), max(high for _, high, _ in own)
                severity = float(np.median([severity for _, _, severity in own]))
                straggler = PathStraggler(component, first, last, severity, usual, carrying)
                concerning.append(PathAlarm(straggler, since, until))
    return concerning


@dataclass(frozen=True, slots=True)
class SlowTime:
    """A time on end in which a component was anomalous; `factor`: median severity of its windows."""

    component: str
    start: float
    end: float
    factor: float


def slow_times(directory: Path, components: Collection[str], start: float, end: float) -> list[SlowTime]:
    """Times within [start, end] in which `components` were anomalous, in order. Raises ArchiveError."""
    times = []
    for component, windows in _anomalous(directory, components, start, end).items():
        spans: list[tuple[float, float, list[float]]] = []
        for low, high, severity in sorted(windows):
            if high <= start or low >= end:
                continue
            if spans and low <= spans[-1][1]:
                begun, until, severities = spans.pop()
                spans.append((begun, max(until, high), [*severities, severity]))
            else:
                spans.append((low, high, [severity]))
        times += [
            SlowTime(component, max(low, start), min(high, end), float(np.median(severities)))
            for low, high, severities in spans
        ]
    return sorted(times, key=lambda time: (time.start, time.component))


def _share(component: str, path: RunPath, carried: Mapping[str, float]) -> float:
    node = client_node(component)
    if node is not None:
        own = {short_name(name) for name in (*path.nodes, *path.parts.get(FORWARDER, ()))}
        if short_name(node) not in own:
            return 0.0
    return max(carried.get(name, 0.0) for name in names(component, ""))


def _alarms(directory: Path, start: float, end: float) -> dict[str, list[Times]]:
    """Alarms that stood within [start, end) by component: since and until."""
    standing: dict[tuple[str, float], float] = {}
    for row in _rows(directory, "alarms", _ALARM_COLUMNS, start, end + _DAY):
        until = row["at"] if row["transition"] == "cleared" else np.inf
        key = row["component"], row["since"]
        standing[key] = min(standing.get(key, np.inf), until)
    times: dict[str, list[Times]] = {}
    for (component, since), until in standing.items():
        if since < end and until > start:
            times.setdefault(component, []).append((since, until))
    return times


def _anomalous(
    directory: Path, components: Collection[str], start: float, end: float
) -> dict[str, list[tuple[float, float, float]]]:
    """Start, end and severity of the windows in which components were anomalous.

    A window without a severity was not judged, or by a rule that has no ratio.
    """
    spans: dict[str, list[tuple[float, float, float]]] = {}
    own = Among("component", components)
    for row in _rows(directory, "verdicts", _VERDICT_COLUMNS, start, end + _DAY, own):
        severity = row["severity"]
        if row["anomalous"] and severity is not None and np.isfinite(severity):
            spans.setdefault(row["component"], []).append((row["start"], row["end"], severity))
    return spans


def _rows(
    directory: Path, kind: str, columns: tuple[str, ...], start: float, end: float, *where: Among
) -> Iterator[dict[str, Any]]:
    days = {"first_day": day_of(start), "last_day": day_of(end)}
    for table in Table(directory, kind).scan(columns, *where, **days):
        yield from table.to_pylist()


def _length(spans: list[Times]) -> float:
    """Time that spans cover together."""
    total, last = 0.0, -np.inf
    for start, end in sorted(spans):
        total += max(end - max(start, last), 0.0)
        last = max(last, end)
    return total
