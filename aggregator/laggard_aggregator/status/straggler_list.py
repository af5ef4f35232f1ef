"""Rows of the straggler list, shared by exposition and API."""

import math
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace

import numpy as np

from laggard_aggregator.alarms.alarms import Alarm, Key
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.alarms.overrides import Decision

Silenced = Callable[..., Decision | None]
"""As `Status.silenced`."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A component and metric as of its group's latest window, and its alarm if one stands.

    `name`: the component's current name. `judged` False: the latest window did not judge it; `anomalous` is
    False then, and `score`, `severity`, `observed` and `reference` are those of its alarm, or NaN.
    `persistence` is None for a component that is absent from its group. `since`: the episode's start, or NaN.
    `causes`: of the latest window if it has some, else those of its alarm. `silenced`: the override that
    silences it.
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
) -> tuple[Standing, ...]:
    """The components with a non-zero accumulator or a standing alarm, by group, component and metric."""
    alarmed: dict[tuple[str, str], set[str]] = {}
    for group, component, metric in alarms:
        alarmed.setdefault((group, metric), set()).add(component)
    found: list[Standing] = []
    for judged in judgements:
        for c in _that_matter(judged, alarmed.get((judged.group, judged.metric), set())):
            alarm = alarms.get((judged.group, judged.components[c], judged.metric))
            found.append(_standing(judged, c, alarm, shown))
    absent = alarms.keys() - {row.key for row in found}
    found += [_of_absent(alarms[key], shown) for key in absent]
    return tuple(sorted(_decided(found, silenced), key=lambda row: row.key))


def component_standings(
    judgements: Iterable[Judgement],
    alarms: Mapping[Key, Alarm],
    shown: Callable[[str], str],
    silenced: Silenced,
    *,
    group: str,
    component: str,
) -> tuple[Standing, ...]:
    """Every metric of one component; empty when the group does not have it."""
    rows: list[Standing] = []
    for judged in judgements:
        if judged.group == group and component in judged.components:
            c = judged.components.index(component)
            rows.append(_standing(judged, c, alarms.get((group, component, judged.metric)), shown))
    known = {row.metric for row in rows}
    rows += [
        _of_absent(alarm, shown)
        for (g, c, metric), alarm in alarms.items()
        if (g, c) == (group, component) and metric not in known
    ]
    return tuple(sorted(_decided(rows, silenced), key=lambda row: row.metric))


def _decided(rows: Iterable[Standing], silenced: Silenced) -> list[Standing]:
    return [replace(row, silenced=silenced(row.component, row.name)) for row in rows]


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
    straggler = bool(judged.straggler[c])
    persistence = int(judged.persistence[c])
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
        score=float(v.score[c]) if said else _of(alarm, "score"),
        severity=float(v.severity[c]) if said else _of(alarm, "severity"),
        observed=float(v.observed[c]) if said else _of(alarm, "observed"),
        reference=float(v.reference[c]) if said else _of(alarm, "reference"),
        since=float(judged.since[c]) if straggler or persistence else math.nan,
        window_end=judged.end,
        alarm=alarm,
        causes=v.causes.get(component, () if alarm is None else alarm.causes),
    )


def _of(alarm: Alarm | None, figure: str) -> float:
    return math.nan if alarm is None else float(getattr(alarm, figure))


def _of_absent(alarm: Alarm, shown: Callable[[str], str]) -> Standing:
    """The row of a component with an alarm that is absent from its group's latest window."""
    return Standing(
        group=alarm.group,
        component=alarm.component,
        name=shown(alarm.component),
        metric=alarm.metric,
        level=alarm.level,
        judged=False,
        anomalous=False,
        straggler=True,
        persistence=None,
        score=alarm.score,
        severity=alarm.severity,
        observed=alarm.observed,
        reference=alarm.reference,
        since=alarm.since,
        window_end=alarm.updated_at,
        alarm=alarm,
        causes=alarm.causes,
    )
