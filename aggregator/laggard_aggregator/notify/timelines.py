"""Timelines of components with a standing alarm, for the plots of notifications.

`History` reaches back a day at most and is lost with the process; a notification may be written after four
days. So each standing alarm has a timeline of its own. It begins LEAD_WINDOWS before the alarm, is thinned as
it grows, and is saved in the outbox.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.alarms.alarms import Alarm
from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.status.view import Status
from laggard_aggregator.status.window_history import BAND, Column

MAX_TIMELINES = 200
MAX_POINTS = 400
LEAD_WINDOWS = 48
"""Windows before an alarm that its timeline begins with."""
LARGE_GROUP = 100
"""Size from which the band of the whole group stands for a member's peers; squared for parents."""
_LOW, _MEDIAN, _HIGH = BAND.index(0.05), BAND.index(0.5), BAND.index(0.95)
_COLUMNS = 5


@dataclass(frozen=True, slots=True)
class AlarmTimeline:
    """A component against its peers, oldest window first; arrays (N,), NaN where nothing was observed.

    `end`: of the windows, epoch seconds. `own`: observed of the component; `low`, `median`, `high`: the 5, 50
    and 95 % quantiles of its peers, itself excluded.
    """

    end: FloatArray
    own: FloatArray
    low: FloatArray
    median: FloatArray
    high: FloatArray


class AlarmTimelines:
    """The timelines of at most MAX_TIMELINES alarms, the oldest ones.

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

    def of(self, alarm: Alarm) -> AlarmTimeline | None:
        """The timeline of an alarm, None where there is none."""
        points = self._points.get(_key(alarm))
        return None if points is None or not len(points) else AlarmTimeline(*points.T)

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
            more = np.array([_point(column, alarm) for column in fresh])
            points = _thinned(np.concatenate([points, more]), alarm.since)
        self._points[key] = points


def _point(column: Column, alarm: Alarm) -> tuple[float, ...]:
    at = column.members.place(alarm.component)
    own = float(column.observed[at]) if at >= 0 else np.nan
    large = LARGE_GROUP if alarm.level == "component" else LARGE_GROUP * LARGE_GROUP
    if len(column.members.names) > large:
        return (column.end, own, column.band[_LOW], column.band[_MEDIAN], column.band[_HIGH])
    children = alarm.component + "/"
    peers = np.array(
        [name != alarm.component and not name.startswith(children) for name in column.members.names],
        dtype=np.bool_,
    )
    values = column.observed[peers]
    values = values[np.isfinite(values)]
    if not values.size:
        return (column.end, own, np.nan, np.nan, np.nan)
    low, median, high = np.quantile(values, (0.05, 0.5, 0.95)).tolist()
    return (column.end, own, low, median, high)


def _thinned(points: NDArray[np.float64], since: float) -> NDArray[np.float64]:
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
