"""Alarm events: from the archive if there is one, and newer ones from memory."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from laggard_aggregator.alarms.alarms import AlarmEvent
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.status.window_history import WindowHistory
from laggard_common.errors import InputError

DAYS = 30
KEPT_SECONDS = 60.0
"""Lifetime of rows read from the archive; newer events come from memory."""
MOST_EVENTS = 20_000

_COLUMNS = (
    "group",
    "metric",
    "component",
    "transition",
    "at",
    "since",
    "severity",
    "worst_severity",
    "level",
)


@dataclass(frozen=True, slots=True)
class Event:
    """An alarm that was raised or cleared at `at`."""

    at: float
    kind: str
    group: str
    component: str
    metric: str
    level: str
    since: float
    severity: float
    worst_severity: float


class Past:
    """The alarms of the last DAYS days. `directory`: the archive's, None where there is none."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._read: dict[tuple[str, ...], Event] = {}
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()
        self._latest: AlarmEvent | None = None
        self._events: tuple[Event, ...] | None = None

    async def events(self, history: WindowHistory, now: float) -> tuple[Event, ...]:
        """The events, newest first."""
        async with self._reading:
            if self._directory is not None and time.monotonic() - self._read_at > KEPT_SECONDS:
                read = await asyncio.to_thread(_of_archive, self._directory, now)
                self._read = self._read if read is None else read
                self._read_at = time.monotonic()
                self._events = None
            latest = history.transitions[-1] if history.transitions else None
            if self._events is None or latest is not self._latest:
                since = history.transitions.copy()
                self._events = await asyncio.to_thread(_together, self._read, since)
                self._latest = latest
            return self._events


def _together(read: dict[tuple[str, ...], Event], since: Iterable[AlarmEvent]) -> tuple[Event, ...]:
    known = read | {_key(event): event for event in map(_of_transition, since)}
    return tuple(sorted(known.values(), key=lambda event: -event.at))


def _of_archive(directory: Path, now: float) -> dict[tuple[str, ...], Event] | None:
    """The alarm events in the archive; None while it is unreadable, as during a merge."""
    first = (datetime.fromtimestamp(now, UTC) - timedelta(days=DAYS)).date().isoformat()
    try:
        table = ArchiveReader(directory).table("alarms", columns=_COLUMNS, first_day=first)
    except InputError:
        return None
    rows = table.slice(max(table.num_rows - MOST_EVENTS, 0)).to_pylist() if table.num_rows else []
    events = [_of_row(row) for row in rows]
    return {_key(event): event for event in events}


def _of_row(row: dict[str, Any]) -> Event:
    kind = row.pop("transition")
    return Event(kind=kind, **row)


def _of_transition(transition: AlarmEvent) -> Event:
    alarm = transition.alarm
    return Event(
        at=transition.at,
        kind=transition.kind,
        group=alarm.group,
        component=alarm.component,
        metric=alarm.metric,
        level=alarm.level,
        since=alarm.since,
        severity=alarm.severity,
        worst_severity=alarm.worst_severity,
    )


def _key(event: Event) -> tuple[str, ...]:
    return (event.group, event.component, event.metric, event.kind, f"{event.at:.3f}")
