"""Derives incidents from standing alarms. No clock, no I/O.

An incident is a component from its first alarm that falls due until its last alarm is cleared. A disk that
is slow by two metrics, or in two groups, is one incident and reported once. Incidents are derived from the
standing alarms, not from events, so that none is missed while the aggregator is down. `AlarmTimelines`
keeps the values of each alarm's component and its peers for the plots.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from laggard_aggregator.alarms.alarms import RECOVERED_SHARE, Alarm, Key
from laggard_aggregator.alarms.factors import factor_now
from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.status.formatting import or_zero
from laggard_aggregator.status.view import Status
from laggard_aggregator.status.window_history import BAND, Column, places

MAX_TIMELINES = 200
MAX_POINTS = 400
LEAD_WINDOWS = 48
"""Windows before an alarm that its timeline begins with."""
LARGE_GROUP = 100
"""Size from which the band of the whole group stands for a member's peers; squared for parents."""
_LOW, _MEDIAN, _HIGH = BAND.index(0.05), BAND.index(0.5), BAND.index(0.95)
_COLUMNS = 5


@dataclass(frozen=True, slots=True)
class Incident:
    """A component that has been slow since `since` (epoch seconds).

    `component`: its permanent ID; `name`: its current name. `group`, `level`, `metric` and `severity` (times
    slower than its peers, 0 where unknown) are those of its worst alarm when the incident was found. `id`:
    the same in every process that sees the same data. `message`: id of the notification that reported it.
    """

    component: str
    name: str
    group: str
    level: str
    metric: str
    severity: float
    since: float
    id: str = ""
    message: str = ""


def digest(*parts: str) -> str:
    """A short fixed name for `parts`: 96 bits of SHA-256 in hexadecimal."""
    whole = b"".join(len(part := text.encode()).to_bytes(4, "big") + part for text in parts)
    return hashlib.sha256(whole).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class Limits:
    """When an alarm is due; as in ChannelSettings. `learning`: whether only severe ones are."""

    after_seconds: float
    least_severity: float
    severe_severity: float = 0.0
    severe_after_seconds: float = 0.0
    learning: bool = False

    def due(self, alarm: Alarm, view: Status) -> bool:
        """Whether the alarm has lasted for `after_seconds`, or is severe.

        An alarm without a severity is not mild, and not severe. None is due whose latest window is nearer to
        the peers than to the average: it recovers, or is slow at times and due in its next slow window.
        """
        now = factor_now(alarm, view.worse(alarm))
        if now <= max(alarm.severity, 1.0) ** RECOVERED_SHARE:
            return False
        lasted = alarm.updated_at - alarm.since >= self.after_seconds
        mild = alarm.worst_severity < self.least_severity
        return (lasted and not mild and not self.learning) or self._severe(alarm, view)

    def _severe(self, alarm: Alarm, view: Status) -> bool:
        """Whether no window in memory that ended in the last `severe_after_seconds` was milder."""
        begin = alarm.updated_at - self.severe_after_seconds
        if not 0 < self.severe_severity <= alarm.severity or alarm.since > begin:
            return False
        columns = reversed(view.history.columns(alarm.group, alarm.metric))
        recent = list(takewhile(lambda column: column.end > begin, columns))
        located = zip(recent, places(recent, alarm.component), strict=True)
        return not any(at >= 0 and column.severity[at] < self.severe_severity for column, at in located)


def due(view: Status, notified: Collection[str], site: str, limits: Limits) -> list[Incident]:
    """The incidents to be reported, worst first: of alarms that are due by `limits`.

    `notified`: components with an open incident, which are left out. Alarms of silenced components are left
    out for now.
    """
    by_component: dict[str, list[Alarm]] = {}
    for alarm in view.alarms().values():
        if alarm.component not in notified and limits.due(alarm, view):
            by_component.setdefault(alarm.component, []).append(alarm)
    incidents = []
    for component, alarms in by_component.items():
        worst, since = min(alarms, key=rank), min(alarm.since for alarm in alarms)
        name, severity = view.shown(component), or_zero(worst.severity)
        if view.silenced(component, name) is None:
            id_ = digest(site, component, repr(since))
            incidents.append(
                Incident(component, name, worst.group, worst.level, worst.metric, severity, since, id_)
            )
    return sorted(incidents, key=lambda incident: (-incident.severity, incident.component))


def rank(alarm: Alarm) -> tuple[float, Key]:
    """Sort key of alarms: the worst first, those without a severity last."""
    return (-or_zero(alarm.severity), alarm.key)


def cleared(incidents: Iterable[Incident], alarms: Mapping[Key, Alarm]) -> list[Incident]:
    """The open `incidents` whose component has no standing alarm."""
    standing = {component for _, component, _ in alarms}
    return [incident for incident in incidents if incident.component not in standing]


class AlarmTimelines:
    """The timelines of at most MAX_TIMELINES alarms, the oldest ones.

    A timeline (N, 5) has a row for each window, oldest first: its end (epoch seconds), the component's value,
    and the 5, 50 and 95 % quantiles of its peers, itself excluded; NaN where nothing was observed.
    `unsaved`: alarms were raised or cleared since the last `state`. For the event loop only.
    """

    def __init__(self, saved: Mapping[str, bytes] | None = None) -> None:
        """`saved`: from `state`; malformed entries are dropped."""
        self.unsaved = False
        self._revision = -1
        self._points: dict[str, FloatArray] = {}
        for key, data in (saved or {}).items():
            if len(data) % (8 * _COLUMNS) == 0 and 0 < len(data) <= 8 * _COLUMNS * MAX_POINTS:
                self._points[key] = np.frombuffer(data, dtype=np.float64).reshape(-1, _COLUMNS)

    def update(self, view: Status) -> None:
        """Adds the windows judged since the last call; drops the timelines of cleared alarms."""
        if view.revision == self._revision:
            return
        self._revision = view.revision
        alarms = {_key(alarm): alarm for alarm in view.alarms().values()}
        dropped = self._points.keys() - alarms.keys()
        for key in dropped:
            del self._points[key]
        new = sorted(alarms.keys() - self._points.keys(), key=lambda key: alarms[key].since)
        new = new[: MAX_TIMELINES - len(self._points)]
        for key in [*self._points, *new]:
            self._extend(key, alarms[key], view)
        self.unsaved |= bool(dropped or new)

    def of(self, alarm: Alarm) -> FloatArray:
        """The timeline of an alarm, empty where there is none."""
        return self._points.get(_key(alarm), np.empty((0, _COLUMNS)))

    def state(self) -> dict[str, bytes]:
        """The timelines as `saved` of the next process."""
        self.unsaved = False
        return {key: points.tobytes() for key, points in self._points.items() if len(points)}

    def _extend(self, key: str, alarm: Alarm, view: Status) -> None:
        points = self._points.get(key)
        last = points[-1, 0] if points is not None and len(points) else -np.inf
        columns = view.history.columns(alarm.group, alarm.metric)
        fresh = list(takewhile(lambda column: column.end > last, reversed(columns)))[::-1]
        if points is None:
            before = sum(column.end <= alarm.since for column in fresh)
            fresh = fresh[max(before - LEAD_WINDOWS, 0) :]
            points = np.empty((0, _COLUMNS))
        if fresh:
            at = places(fresh, alarm.component)
            more = np.array([_point(*row, alarm) for row in zip(fresh, at, strict=True)])
            points = _thinned(np.concatenate([points, more]), alarm.since)
        self._points[key] = points


def _point(column: Column, at: int, alarm: Alarm) -> tuple[float, ...]:
    own = float(column.observed[at]) if at >= 0 else np.nan
    large = LARGE_GROUP if alarm.level == "component" else LARGE_GROUP * LARGE_GROUP
    if len(column.names) > large:
        return (column.end, own, column.band[_LOW], column.band[_MEDIAN], column.band[_HIGH])
    children = alarm.component + "/"
    peers = [name != alarm.component and not name.startswith(children) for name in column.names]
    values = column.observed[np.array(peers, dtype=np.bool_)]
    values = values[np.isfinite(values)]
    if not values.size:
        return (column.end, own, np.nan, np.nan, np.nan)
    low, median, high = np.quantile(values, (0.05, 0.5, 0.95)).tolist()
    return (column.end, own, low, median, high)


def _thinned(points: FloatArray, since: float) -> FloatArray:
    """`points` with every second one of the alarm dropped while there are too many; the lead stays."""
    while len(points) > MAX_POINTS:
        first = int(np.searchsorted(points[:, 0], since))
        if len(points) - first <= LEAD_WINDOWS:
            return points[-MAX_POINTS:]
        during = points[first:]
        points = np.concatenate([points[:first], during[:-1:2], during[-1:]])
    return points


def _key(alarm: Alarm) -> str:
    return json.dumps([*alarm.key, alarm.since])
