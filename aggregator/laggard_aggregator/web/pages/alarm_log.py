"""The alarm log: alarms raised and cleared, out of the archive and memory; alarms as a table of episodes."""

import asyncio
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from laggard_aggregator.alarms.alarms import Alarm, AlarmEvent, Key
from laggard_aggregator.alarms.overrides import commenting
from laggard_aggregator.archive import table as archive
from laggard_aggregator.status.window_history import WindowHistory
from laggard_aggregator.web.pages.page_state import Now
from laggard_aggregator.web.pages.tables import Filter, PageColumn, PageTable, Query
from laggard_common.errors import ArchiveError, InputError

DAYS = 30
ARCHIVE_KEPT_SECONDS = 60.0
"""Lifetime of rows read from the archive; newer events come from memory."""
MOST_EVENTS = 20_000


class Event(NamedTuple):
    """An alarm that was raised or cleared (`kind`) at `at`."""

    at: float
    kind: str
    group: str
    component: str
    metric: str
    level: str
    since: float
    severity: float
    worst_severity: float

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "Event":
        """The event in a row of the archive with EVENT_COLUMNS."""
        return cls._make(row[column] for column in EVENT_COLUMNS)


EVENT_COLUMNS = ("at", "transition", *Event._fields[2:])
"""Columns of the archive's table of alarms, in the order of the fields of an Event."""


class AlarmLog:
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
            if self._directory is not None and time.monotonic() - self._read_at > ARCHIVE_KEPT_SECONDS:
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
    """The alarm events in the archive; None while it cannot be read."""
    first = (datetime.fromtimestamp(now, UTC) - timedelta(days=DAYS)).date().isoformat()
    try:
        alarms = archive.Table(directory, "alarms", is_strict=True)
        tables = list(alarms.scan(EVENT_COLUMNS, first_day=first))
    except (ArchiveError, InputError):
        return None
    rows = [row for table in tables for row in table.to_pylist()][-MOST_EVENTS:]
    return {_key(event): event for event in map(Event.of_row, rows)}


def _of_transition(transition: AlarmEvent) -> Event:
    return Event(transition.at, transition.kind, *(getattr(transition.alarm, n) for n in Event._fields[2:]))


def _key(event: Event) -> tuple[str, ...]:
    return (event.group, event.component, event.metric, event.kind, f"{event.at:.3f}")


@dataclass(frozen=True, slots=True)
class AlarmEpisode:
    """One alarm. `of`: its latest event, or the alarm itself while it is `active`, in force now.

    `raised_at` is NaN where that is not known, `cleared_at` until it is cleared. An episode that is neither
    cleared nor active ended without a record, as when the state was lost.
    """

    of: Event | Alarm
    raised_at: float = math.nan
    cleared_at: float = math.nan
    active: bool = False

    def lasted(self, now: float) -> float:
        """Seconds from its beginning to cleared or, of an active one, to `now`; NaN without a known end."""
        return (now if self.active else self.cleared_at) - self.of.since


def episodes(events: Iterable[Event], alarms: Mapping[Key, Alarm]) -> tuple[AlarmEpisode, ...]:
    """The episodes of `events` and of the `alarms` in force, latest first."""
    all_episodes: list[AlarmEpisode] = []
    running: dict[Key, AlarmEpisode] = {}
    for event in sorted(events, key=lambda event: event.at):
        key = (event.group, event.component, event.metric)
        known = running.pop(key, None)
        same = known is not None and known.of.since == event.since
        if known is not None and (event.kind == "raised" or not same):
            all_episodes.append(known)
        if event.kind == "raised":
            running[key] = AlarmEpisode(event, raised_at=event.at)
        else:
            raised_at = known.raised_at if known is not None and same else math.nan
            all_episodes.append(AlarmEpisode(event, raised_at, cleared_at=event.at))
    for key, alarm in alarms.items():
        running.pop(key, None)
        all_episodes.append(AlarmEpisode(alarm, alarm.raised_at, active=True))
    all_episodes += running.values()
    return tuple(sorted(all_episodes, key=_latest, reverse=True))


def _latest(episode: AlarmEpisode) -> tuple[float, str, str, str]:
    alarm = episode.of
    raised_at = episode.raised_at if math.isfinite(episode.raised_at) else alarm.since
    return raised_at, alarm.group, alarm.component, alarm.metric


def alarm_table(
    now: Now, rows: Sequence[AlarmEpisode], query: Query, *, of_one: bool = False
) -> PageTable[AlarmEpisode]:
    """The table of alarms, one row an episode. `of_one`: on the page of the component that they are of."""

    def name(episode: AlarmEpisode) -> str:
        return now.shown(episode.of.component)

    def state(episode: AlarmEpisode) -> str:
        return "raised" if episode.active else "cleared"

    def silenced(episode: AlarmEpisode) -> Mapping[str, Any] | None:
        silence = now.silenced(episode.of.component, name(episode)) if episode.active else None
        return None if silence is None else silence.plain()

    def comments(episode: AlarmEpisode) -> list[Mapping[str, Any]]:
        about = commenting(now.decisions, episode.of.component, name(episode))
        return [decision.plain() for decision in about]

    column = PageColumn[AlarmEpisode]
    columns = (
        column("name", "" if of_one else "Component", name),
        column("component", "", lambda episode: episode.of.component),
        column("level", "", lambda episode: episode.of.level),
        column("group", "Group", lambda episode: episode.of.group),
        column("metric", "Metric", lambda episode: episode.of.metric),
        column("since", "Slow since", lambda episode: episode.of.since, is_time=True),
        column("raised_at", "Raised", lambda episode: episode.raised_at, is_time=True),
        column("cleared_at", "Cleared", lambda episode: episode.cleared_at, is_time=True),
        column("duration_seconds", "Lasted", lambda episode: episode.lasted(now.time), right=True),
        column("severity", "", lambda episode: episode.of.severity),
        column("worst_severity", "Worst average", lambda episode: episode.of.worst_severity, right=True),
        column("state", "", state),
        column("silenced", "", silenced, sorts=False),
        column("comments", "", comments, sorts=False),
    )
    filters = (
        Filter[AlarmEpisode]("role", "Role", lambda episode: (now.role_of(episode.of.group),), now.roles()),
        Filter[AlarmEpisode]("group", "Group", lambda episode: episode.of.group),
        Filter[AlarmEpisode](
            "factor", "Worst average at least", lambda episode: episode.of.worst_severity, is_number=True
        ),
        Filter[AlarmEpisode]("state", "State", lambda episode: (state(episode),), ("raised", "cleared")),
    )
    return PageTable(
        "alarms",
        columns,
        rows,
        query,
        filters=() if of_one else filters,
        keep=("metric", "sort", "sort_functions", "from", "to")
        if of_one
        else ("sort_decisions", "from", "to"),
        is_first=not of_one,
    )
