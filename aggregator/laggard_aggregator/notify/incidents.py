"""From standing alarms to incidents. No clock, no I/O.

An incident is a component from its first alarm that falls due until its last alarm is cleared. A disk that
is slow by two metrics, or in two groups, is one incident and reported once. Incidents are derived from the
standing alarms, not from events, so that none is missed while the aggregator is down.
"""

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from laggard_aggregator.alarms.alarms import Alarm, Key


@dataclass(frozen=True, slots=True)
class Incident:
    """A component that has been slow since `since` (epoch seconds).

    `component`: its permanent ID; `name`: its current name. `group`, `level`, `metric` and `severity` (times
    slower than its peers, 0 where unknown) are those of its worst alarm when the incident was found.
    """

    component: str
    name: str
    group: str
    level: str
    metric: str
    severity: float
    since: float

    def id(self, site: str) -> str:
        """Its unique name, the same in every process that sees the same data."""
        return digest(site, self.component, repr(self.since))


def digest(*parts: str) -> str:
    """A short fixed name for `parts`: 96 bits of SHA-256 in hexadecimal."""
    whole = b"".join(len(part := text.encode()).to_bytes(4, "big") + part for text in parts)
    return hashlib.sha256(whole).hexdigest()[:24]


def due(
    alarms: Mapping[Key, Alarm],
    notified: Collection[str],
    current_name: Callable[[str], str],
    *,
    after_seconds: float,
    least_severity: float,
    muted: Callable[[Alarm], bool],
) -> list[Incident]:
    """The incidents to be reported, worst first: of alarms that have lasted for `after_seconds`.

    `notified`: components with an open incident, which are left out. An alarm without a severity counts as
    severe enough. `muted` alarms are left out for now.
    """
    found: dict[str, list[Alarm]] = {}
    for alarm in alarms.values():
        lasted = alarm.updated_at - alarm.since >= after_seconds
        mild = alarm.worst_severity < least_severity
        if lasted and not mild and alarm.component not in notified and not muted(alarm):
            found.setdefault(alarm.component, []).append(alarm)
    incidents = [_incident(sorted(of, key=rank), current_name) for of in found.values()]
    return sorted(incidents, key=lambda incident: (-incident.severity, incident.component))


def rank(alarm: Alarm) -> tuple[float, Key]:
    """Sort key of alarms: the worst first, those without a severity last."""
    return (-_known(alarm.severity), alarm.key)


def cleared(incidents: Iterable[Incident], alarms: Mapping[Key, Alarm]) -> list[Incident]:
    """The open `incidents` whose component has no standing alarm."""
    standing = {component for _, component, _ in alarms}
    return [incident for incident in incidents if incident.component not in standing]


def _incident(alarms: Sequence[Alarm], current_name: Callable[[str], str]) -> Incident:
    """`alarms`: of one component, worst first."""
    worst = alarms[0]
    return Incident(
        component=worst.component,
        name=current_name(worst.component),
        group=worst.group,
        level=worst.level,
        metric=worst.metric,
        severity=_known(worst.severity),
        since=min(alarm.since for alarm in alarms),
    )


def _known(severity: float) -> float:
    return severity if math.isfinite(severity) else 0.0
