"""The alarms of one group in recorded seconds, and their check against the truth."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from laggard_aggregator.alarms.alarms import Alarm, AlarmEvent, Key
from laggard_aggregator.alarms.factors import factor_now
from laggard_aggregator.status.formatting import factor, slower


@dataclass(frozen=True, slots=True)
class Episode:
    """An alarm from raising to clearing, in recorded seconds; `cleared` None while it is raised.

    `told`: how slow it is and since when, the predicate of a sentence.
    """

    component: str
    raised: float
    told: str
    cleared: float | None = None

    def described(self, seconds: float) -> str:
        """The episode as a line; `seconds`: length of the recording."""
        if self.cleared is None:
            ended = "not cleared yet"
        elif self.cleared <= seconds:
            ended = f"cleared at second {self.cleared:.0f}"
        else:
            ended = f"cleared {self.cleared - seconds:.0f} s after the end of the recording"
        return (
            f"laggard: alarm on {self.component}: it {self.told}; raised at second {self.raised:.0f}, {ended}"
        )


def episodes(
    events: Iterable[AlarmEvent],
    standing: Mapping[Key, Alarm],
    group: str,
    recorded_at: Callable[[float], float],
) -> list[Episode]:
    """The alarms of `group` in order of raising. `recorded_at`: recorded seconds at epoch seconds."""
    episode_of: dict[tuple[Key, float], Episode] = {}
    for event in events:
        alarm = event.alarm if event.kind == "cleared" else standing.get(event.alarm.key, event.alarm)
        if alarm.group == group:
            episode_of[alarm.key, event.alarm.raised_at] = Episode(
                alarm.component,
                recorded_at(alarm.raised_at),
                _told(alarm, recorded_at(alarm.since), over=event.kind == "cleared"),
                recorded_at(event.at) if event.kind == "cleared" else None,
            )
    return list(episode_of.values())


def _told(alarm: Alarm, since: float, *, over: bool) -> str:
    """Its factor now, and on average where that differs; of a cleared one the worst average."""
    if over:
        worst = factor(alarm.worst_severity).replace("×", " times")
        return f"was slower than its peers from second {since:.0f} on, up to {worst} on average"
    return slower(factor_now(alarm), average=alarm.severity, span=f"since second {since:.0f}")


def shortcomings(observed: Iterable[Episode], faulty: str, fault_start: float) -> list[str]:
    """Errors as lines; empty when `faulty` and no other was blamed, and its alarm cleared.

    `fault_start`: recorded second at which the fault began.
    """
    blamed = dict.fromkeys(episode.component for episode in observed)
    errors = [] if faulty in blamed else [f"{faulty} was slow and not found"]
    if wrong := ", ".join(component for component in blamed if component != faulty):
        errors.append(f"not slow: {wrong}")
    for episode in observed:
        if episode.component == faulty and episode.raised < fault_start:
            errors.append(f"{faulty} was blamed before it became slow")
        if episode.component == faulty and episode.cleared is None:
            errors.append(f"the alarm on {faulty} did not clear after the fault")
    return errors
