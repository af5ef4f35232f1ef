"""Who has to be told of what: from standing alarms to cases. No clock, no I/O.

A case is a component from its first alarm that falls due until none of its alarms stands any more; so a disk
that is slow by two metrics, or in two groups, is one case, and told once. It is decided from what stands, not
from what happens, so that nothing is missed while the aggregator is down.
"""

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from laggard_aggregator.alarms.alarms import Alarm, Key


@dataclass(frozen=True, slots=True)
class Case:
    """What was, or is to be, told of a component: that it has been slow since then (epoch seconds).

    `name`: of the day. `group`, `level` and `metric`: of the worst of the alarms that had fallen due, which
    is `severity` times slower than its peers (0 where that is not known).
    """

    component: str
    name: str
    group: str
    level: str
    metric: str
    severity: float
    since: float

    def id(self, site: str) -> str:
        """What tells it from any other case ever, the same on every aggregator that sees the same data."""
        return digest(site, self.component, repr(self.since))


def digest(*parts: str) -> str:
    """A short fixed name for `parts`, 96 bits of SHA-256 in hexadecimal."""
    whole = b"".join(len(part := text.encode()).to_bytes(4, "big") + part for text in parts)
    return hashlib.sha256(whole).hexdigest()[:24]


def due(
    alarms: Mapping[Key, Alarm],
    told: Collection[str],
    shown: Callable[[str], str],
    *,
    after_seconds: float,
    least_severity: float,
    muted: Callable[[Alarm], bool],
) -> list[Case]:
    """The cases that nobody was told of yet, of alarms that have lasted for `after_seconds`; worst first.

    An alarm whose detector knows no severity is severe enough. `muted` alarms are not told of now.
    """
    found: dict[str, list[Alarm]] = {}
    for alarm in alarms.values():
        lasted = alarm.updated_at - alarm.since >= after_seconds
        mild = alarm.worst_severity < least_severity
        if lasted and not mild and alarm.component not in told and not muted(alarm):
            found.setdefault(alarm.component, []).append(alarm)
    cases = [_case(sorted(of, key=rank), shown) for of in found.values()]
    return sorted(cases, key=lambda case: (-case.severity, case.component))


def rank(alarm: Alarm) -> tuple[float, Key]:
    """Sorts alarms, the worst first; those whose severity is not known come last."""
    return (-_known(alarm.severity), alarm.key)


def over(cases: Iterable[Case], alarms: Mapping[Key, Alarm]) -> list[Case]:
    """Those of the open `cases` of whose components no alarm stands any more."""
    standing = {component for _, component, _ in alarms}
    return [case for case in cases if case.component not in standing]


def _case(alarms: Sequence[Alarm], shown: Callable[[str], str]) -> Case:
    """The case of a component's alarms, worst first."""
    worst = alarms[0]
    return Case(
        component=worst.component,
        name=shown(worst.component),
        group=worst.group,
        level=worst.level,
        metric=worst.metric,
        severity=_known(worst.severity),
        since=min(alarm.since for alarm in alarms),
    )


def _known(severity: float) -> float:
    return severity if math.isfinite(severity) else 0.0
