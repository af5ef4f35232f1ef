"""Follows the alarms of one group and checks them against the truth."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from laggard_aggregator.alarms.alarms import Alarm, Key


@dataclass(frozen=True, slots=True)
class Episode:
    """An alarm from raising to clearing, in recorded seconds; `cleared` None while it stands."""

    component: str
    since: float
    raised: float
    severity: float
    cleared: float | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """The truth: the faulty component, and begin and end of its fault in recorded seconds."""

    component: str
    begin: float
    end: float


class Watch:
    """Alarms of one group over time. `recorded_at` converts epoch seconds into recorded seconds."""

    def __init__(self, group: str, recorded_at: Callable[[float], float]) -> None:
        self.group = group
        self.episodes: list[Episode] = []
        self._recorded_at = recorded_at
        self._standing: dict[Key, int] = {}

    def update(self, alarms: Mapping[Key, Alarm], now: float) -> list[Episode]:
        """The episodes that began or ended since the previous call."""
        changed = []
        for key, alarm in alarms.items():
            if alarm.group != self.group:
                continue
            episode = Episode(
                alarm.component,
                self._recorded_at(alarm.since),
                self._recorded_at(alarm.raised_at),
                alarm.worst_severity,
            )
            if key in self._standing:
                self.episodes[self._standing[key]] = episode
            else:
                self._standing[key] = len(self.episodes)
                self.episodes.append(episode)
                changed.append(episode)
        for key in [key for key in self._standing if key not in alarms]:
            at = self._standing.pop(key)
            self.episodes[at] = replace(self.episodes[at], cleared=self._recorded_at(now))
            changed.append(self.episodes[at])
        return changed

    @property
    def blamed(self) -> tuple[str, ...]:
        """The components that had an alarm at any time, in order of their first one."""
        return tuple(dict.fromkeys(episode.component for episode in self.episodes))

    def shortcomings(self, expected: Expected) -> list[str]:
        """Errors as lines; empty when the faulty component and no other was blamed, and its alarm cleared."""
        found = []
        if expected.component not in self.blamed:
            found.append(f"{expected.component} was slow and not found")
        wrong = [component for component in self.blamed if component != expected.component]
        if wrong:
            found.append(f"not slow: {', '.join(wrong)}")
        for episode in self.episodes:
            if episode.component == expected.component and episode.raised < expected.begin:
                found.append(f"{episode.component} was blamed before it became slow")
            if episode.component == expected.component and episode.cleared is None:
                found.append(f"the alarm on {episode.component} did not clear after the fault")
        return found
