"""How components with an alarm came away from their peers: kept from before the alarm until it ends.

`History` has a day at most and is lost with the process, a mail may be written after four days. So each
standing alarm has a course of its own, which begins some windows before its episode, becomes coarser as it
grows, and is kept in the ledger.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.alarms.alarms import Alarm
from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.status.view import Status
from laggard_aggregator.status.window_history import BAND, Column

MAX_COURSES = 200
MAX_POINTS = 400
LEAD_WINDOWS = 48
"""Windows before an episode that its course begins with."""
MANY = 100
"""In a group of so many one member does not move the band; nor do a parent's, of so many times as many."""
_LOW, _MIDDLE, _HIGH = BAND.index(0.05), BAND.index(0.5), BAND.index(0.95)
_COLUMNS = 5


@dataclass(frozen=True, slots=True)
class Course:
    """An alarm's component against its peers, oldest window first; arrays (N,), NaN where nobody was.

    `end`: of the windows, epoch seconds. `own`: what was observed of it; `low`, `middle`, `high`: 5 %, half
    and 95 % of its peers, without itself.
    """

    end: FloatArray
    own: FloatArray
    low: FloatArray
    middle: FloatArray
    high: FloatArray


class Courses:
    """The courses of at most MAX_COURSES alarms, those that have stood longest."""

    def __init__(self, kept: Mapping[str, bytes] | None = None) -> None:
        """`kept`: as `state` gave it; what is not a course is left out."""
        self._points: dict[str, FloatArray] = {}
        for key, data in (kept or {}).items():
            if len(data) % (8 * _COLUMNS) == 0 and 0 < len(data) <= 8 * _COLUMNS * MAX_POINTS:
                self._points[key] = np.frombuffer(data, dtype=np.float64).reshape(-1, _COLUMNS)

    def look(self, view: Status) -> bool:
        """Takes in the windows that were judged since the last look; whether courses began or ended.

        To be called on the event loop.
        """
        alarms = {_key(alarm): alarm for alarm in view.alarms().values()}
        ended = self._points.keys() - alarms.keys()
        for key in ended:
            del self._points[key]
        fresh = sorted(alarms.keys() - self._points.keys(), key=lambda key: alarms[key].since)
        begun = fresh[: MAX_COURSES - len(self._points)]
        for key in [*self._points, *begun]:
            self._extend(key, alarms[key], view)
        return bool(ended or begun)

    def of(self, alarm: Alarm) -> Course | None:
        """The course of an alarm, None where none is kept."""
        points = self._points.get(_key(alarm))
        return None if points is None or not len(points) else Course(*points.T)

    def state(self) -> dict[str, bytes]:
        """What a later process goes on with."""
        return {key: points.tobytes() for key, points in self._points.items() if len(points)}

    def _extend(self, key: str, alarm: Alarm, view: Status) -> None:
        points = self._points.get(key)
        last = points[-1, 0] if points is not None and len(points) else -np.inf
        columns = view.history.columns(alarm.group, alarm.metric)
        fresh = list(islice((c for c in reversed(columns)), _newer(columns, last)))[::-1]
        if points is None:
            before = sum(column.end <= alarm.since for column in fresh)
            fresh = fresh[max(before - LEAD_WINDOWS, 0) :]
            points = np.empty((0, _COLUMNS))
        if fresh:
            more = np.array([_point(column, alarm) for column in fresh])
            points = _thinned(np.concatenate([points, more]), alarm.since)
        self._points[key] = points


def _newer(columns: tuple[Column, ...], last: float) -> int:
    """How many of `columns`, which are in order, end after `last`."""
    count = 0
    for column in reversed(columns):
        if column.end <= last:
            break
        count += 1
    return count


def _point(column: Column, alarm: Alarm) -> tuple[float, ...]:
    at = column.members.place(alarm.component)
    own = float(column.observed[at]) if at >= 0 else np.nan
    if len(column.members.names) > (MANY if alarm.level == "component" else MANY * MANY):
        return (column.end, own, column.band[_LOW], column.band[_MIDDLE], column.band[_HIGH])
    mine = alarm.component + "/"
    peers = np.array(
        [name != alarm.component and not name.startswith(mine) for name in column.members.names],
        dtype=np.bool_,
    )
    values = column.observed[peers]
    values = values[np.isfinite(values)]
    if not values.size:
        return (column.end, own, np.nan, np.nan, np.nan)
    low, middle, high = np.quantile(values, (0.05, 0.5, 0.95)).tolist()
    return (column.end, own, low, middle, high)


def _thinned(points: NDArray[np.float64], since: float) -> NDArray[np.float64]:
    """Every second point of the episode while there are too many; what was before it stays."""
    while len(points) > MAX_POINTS:
        first = int(np.searchsorted(points[:, 0], since))
        if len(points) - first <= LEAD_WINDOWS:
            return points[-MAX_POINTS:]
        episode = points[first:]
        points = np.concatenate([points[:first], episode[:-1:2], episode[-1:]])
    return points


def _key(alarm: Alarm) -> str:
    return json.dumps([*alarm.key, alarm.since])
