"""Alarms: raised once per episode, updated with each window, cleared once."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite, isnan, nan
from typing import Any, Literal

Key = tuple[str, str, str]
"""Group, component, metric."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A standing alarm.

    `since`: start of the first anomalous window; `raised_at`: end of the window that raised it; both epoch
    seconds of sample time. `severity`: times slower than the peers, now; `worst_severity`: its maximum so
    far.
    `observed` and `reference`: the component's value and its peers', in the metric's unit. `causes`: as in
    Verdicts, of the latest window that has some.
    """

    group: str
    component: str
    metric: str
    level: str
    since: float
    raised_at: float
    updated_at: float
    score: float
    severity: float
    worst_severity: float
    observed: float
    reference: float
    causes: tuple[tuple[str, float], ...] = ()

    @property
    def key(self) -> Key:
        """Identity of the alarm among the standing ones."""
        return (self.group, self.component, self.metric)

    @property
    def evidence(self) -> str:
        """Evidence for a log line, as far as the detector gives it."""
        values = f"{self.observed:.4g}, its peers {self.reference:.4g}"
        if self.causes:
            how = f"most in {self.causes[0][0]}"
        elif isfinite(self.severity):
            how = f"{self.severity:.2f} times"
        else:
            how = f"score {self.score:.3g}"
        return f"{values} ({how})" if isfinite(self.observed) and isfinite(self.reference) else how


@dataclass(frozen=True, slots=True)
class AlarmEvent:
    """An alarm that was raised or cleared at `at` (end of the window, epoch seconds)."""

    kind: Literal["raised", "cleared"]
    alarm: Alarm
    at: float


@dataclass(frozen=True, slots=True)
class AlarmsCleared:
    """Alarms cleared by something other than a window, after the batch or close `lsn`."""

    lsn: int
    transitions: tuple[AlarmEvent, ...]


class AlarmBook:
    """The standing alarms by key. An alarm is raised once a straggler has lasted `after_seconds`."""

    def __init__(self, after_seconds: float = 0.0) -> None:
        self.after_seconds = after_seconds
        self._standing: dict[Key, Alarm] = {}

    @property
    def standing(self) -> Mapping[Key, Alarm]:
        """The standing alarms."""
        return self._standing

    def update(self, now: Alarm) -> AlarmEvent | None:
        """Updates or raises the alarm of a straggler as of `now.updated_at`; the event if it was raised."""
        standing = self._standing.get(now.key)
        if standing is not None:
            known = [s for s in (standing.worst_severity, now.severity) if not isnan(s)]
            self._standing[now.key] = replace(
                now,
                since=standing.since,
                raised_at=standing.raised_at,
                worst_severity=max(known, default=nan),
                causes=now.causes or standing.causes,
            )
            return None
        if now.updated_at - now.since < self.after_seconds:
            return None
        self._standing[now.key] = now
        return AlarmEvent("raised", now, now.updated_at)

    def clear(self, key: Key, at: float) -> AlarmEvent | None:
        """Clears the alarm; the event if one stood."""
        alarm = self._standing.pop(key, None)
        return None if alarm is None else AlarmEvent("cleared", alarm, at)

    def only(self, groups: Collection[str]) -> None:
        """Drops the alarms of all other groups, which could never be cleared."""
        self._standing = {key: alarm for key, alarm in self._standing.items() if key[0] in groups}

    def state(self) -> list[dict[str, Any]]:
        """The standing alarms as plain data."""
        return [asdict(alarm) for alarm in self._standing.values()]

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Restores `state()`."""
        alarms = [Alarm(**{**kept, "causes": _causes(kept["causes"])}) for kept in state]
        self._standing = {alarm.key: alarm for alarm in alarms}


def _causes(kept: Sequence[Sequence[Any]]) -> tuple[tuple[str, float], ...]:
    """Tuples from the lists of plain data."""
    return tuple((str(name), float(amount)) for name, amount in kept)
