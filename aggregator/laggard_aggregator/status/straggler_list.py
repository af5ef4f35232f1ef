"""Rows of the straggler list, shared by exposition and API."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from laggard_aggregator.alarms.alarms import Alarm, Key
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.alarms.overrides import Decision
from laggard_aggregator.detect.interface import STEADY, stop_text

Silenced = Callable[..., Decision | None]
"""As `Status.silenced`."""

_FIGURES = ("score", "severity", "observed", "reference")


@dataclass(frozen=True, slots=True)
class Standing:
    """A component and metric as of its group's latest window, and its alarm if one stands.

    `name`: the component's current name. `judged` False: the latest window did not judge it; `anomalous` is
    False then, and `score`, `severity`, `observed` and `reference` are those of its alarm, or NaN.
    `persistence` is None for a component that is absent from its group. `since`: the episode's start, or NaN.
    `causes`: of the latest window if it has some, else those of its alarm. `slow_share`, `slow_severity`,
    `stops`: as in Alarm. `silenced`: the override that silences it.
    """

    group: str
    component: str
    name: str
    metric: str
    level: str
    judged: bool
    anomalous: bool
    straggler: bool
    persistence: int | None
    score: float
    severity: float
    observed: float
    reference: float
    since: float
    window_end: float
    alarm: Alarm | None
    causes: tuple[tuple[str, float], ...] = ()
    slow_share: float = 0.0
    slow_severity: float = 0.0
    stops: str = ""
    silenced: Decision | None = None

    @property
    def key(self) -> Key:
        """Group, component and metric."""
        return (self.group, self.component, self.metric)

    @property
    def slow(self) -> bool:
        """Whether it is a straggler or has a standing alarm."""
        return self.straggler or self.alarm is not None


def standings(
    judgements: Iterable[Judgement],
    alarms: Mapping[Key, Alarm],
    shown: Callable[[str], str],
    silenced: Silenced,
    only: tuple[str, str] | None = None,
) -> tuple[Standing, ...]:
    """The components with a non-zero accumulator or a standing alarm, by group, component and metric.

    `only`: every metric of this group and component instead; empty when the group does not have it.
    """
    alarmed: dict[tuple[str, str], set[str]] = defaultdict(set)
    for group, component, metric in alarms:
        alarmed[group, metric].add(component)
    rows: list[Standing] = []
    for judged in judgements:
        if only is None:
            chosen = _that_matter(judged, alarmed[judged.group, judged.metric])
        elif judged.group == only[0] and only[1] in judged.components:
            chosen = [judged.components.index(only[1])]
        else:
            continue
        for c in chosen:
            alarm = alarms.get((judged.group, judged.components[c], judged.metric))
            rows.append(_standing(judged, c, alarm, shown))
    absent = alarms.keys() - {row.key for row in rows}
    rows += [_of_absent(alarms[key], shown) for key in absent if only in (None, key[:2])]
    rows = [replace(row, silenced=silenced(row.component, row.name)) for row in rows]
    return tuple(sorted(rows, key=lambda row: row.key))


def _that_matter(judged: Judgement, alarmed: Set[str]) -> list[int]:
    """Indexes of the components with a non-zero accumulator, or among `alarmed`."""
    matter = judged.persistence > 0
    if alarmed:
        names = judged.components
        matter = matter | np.fromiter((name in alarmed for name in names), np.bool_, len(names))
    return [int(c) for c in np.flatnonzero(matter)]


def _standing(judged: Judgement, c: int, alarm: Alarm | None, shown: Callable[[str], str]) -> Standing:
    v = judged.verdicts
    component = judged.components[c]
    said = bool(v.judged[c])
    figures: dict[str, Any] = {
        name: float(getattr(v, name)[c] if said else getattr(alarm, name, math.nan)) for name in _FIGURES
    }
    straggler = bool(judged.straggler[c])
    persistence = int(judged.persistence[c])
    at_times = v.duty_cycles.get(component, STEADY)
    return Standing(
        group=judged.group,
        component=component,
        name=shown(component),
        metric=judged.metric,
        level=judged.levels[c],
        judged=said,
        anomalous=said and bool(v.anomalous[c]),
        straggler=straggler,
        persistence=persistence,
        **figures,
        since=float(judged.since[c]) if straggler or persistence else math.nan,
        window_end=judged.end,
        alarm=alarm,
        causes=v.causes.get(component, () if alarm is None else alarm.causes),
        slow_share=at_times.share,
        slow_severity=at_times.severity,
        stops=stop_text(v, component),
    )


def _of_absent(alarm: Alarm, shown: Callable[[str], str]) -> Standing:
    """The row of a component with an alarm that is absent from its group's latest window."""
    same = (
        "group",
        "component",
        "metric",
        "level",
        "since",
        "causes",
        "slow_share",
        "slow_severity",
        "stops",
        *_FIGURES,
    )
    return Standing(
        **{name: getattr(alarm, name) for name in same},
        name=shown(alarm.component),
        judged=False,
        anomalous=False,
        straggler=True,
        persistence=None,
        window_end=alarm.updated_at,
        alarm=alarm,
    )
