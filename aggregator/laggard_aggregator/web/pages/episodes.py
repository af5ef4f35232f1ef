"""Alarms as episodes: one for each alarm, from raised to cleared."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from laggard_aggregator.alarms.alarms import Alarm, Key
from laggard_aggregator.web.pages.page_state import Event


@dataclass(frozen=True, slots=True)
class AlarmEpisode:
    """One alarm. `raised_at` is NaN where that is not known, `cleared_at` until it is cleared.

    `active`: whether it is in force now. An episode that is neither cleared nor active ended without a
    record, as when the state was lost. `severity`: at the latest event.
    """

    group: str
    component: str
    metric: str
    level: str
    since: float
    raised_at: float
    cleared_at: float
    severity: float
    worst_severity: float
    active: bool

    def lasted(self, now: float) -> float:
        """Seconds from raised to cleared or, of an active one, to `now`; NaN where an end is not known."""
        return (now if self.active else self.cleared_at) - self.raised_at


def episodes(events: Iterable[Event], alarms: Mapping[Key, Alarm]) -> tuple[AlarmEpisode, ...]:
    """The episodes of `events` and of the `alarms` in force, latest first."""
    found: list[AlarmEpisode] = []
    running: dict[Key, AlarmEpisode] = {}
    for event in sorted(events, key=lambda event: event.at):
        key = (event.group, event.component, event.metric)
        known = running.pop(key, None)
        if event.kind == "raised":
            if known is not None:
                found.append(known)
            running[key] = _of(event, raised_at=event.at)
        else:
            raised_at = known.raised_at if known is not None else math.nan
            found.append(replace(_of(event, raised_at=raised_at), cleared_at=event.at))
    for key, alarm in alarms.items():
        running.pop(key, None)
        found.append(replace(_of(alarm, raised_at=alarm.raised_at), active=True))
    found += running.values()
    return tuple(sorted(found, key=_latest, reverse=True))


def _of(each: Event | Alarm, *, raised_at: float) -> AlarmEpisode:
    return AlarmEpisode(
        group=each.group,
        component=each.component,
        metric=each.metric,
        level=each.level,
        since=each.since,
        raised_at=raised_at,
        cleared_at=math.nan,
        severity=each.severity,
        worst_severity=each.worst_severity,
        active=False,
    )


def _latest(episode: AlarmEpisode) -> tuple[float, str, str, str]:
    raised_at = episode.raised_at if math.isfinite(episode.raised_at) else episode.since
    return raised_at, episode.group, episode.component, episode.metric
