"""All that a mail says of a case, as plain values: taken from the view on the loop, written up elsewhere."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from laggard_aggregator.alarms.alarms import Alarm
from laggard_aggregator.metrics.registry import unit
from laggard_aggregator.notify.incidents import Case, rank
from laggard_aggregator.notify.text import claim, moment, plain
from laggard_aggregator.notify.timelines import Course, Courses
from laggard_aggregator.status import formatting, urls
from laggard_aggregator.status.next_steps import Command, commands
from laggard_aggregator.status.view import Status

MAX_EVIDENCE = 8
MAX_CAUSES = 10
_LEVELS = {
    "node": "node: nearly all that belongs to it is slow together",
    "controller": "controller: nearly all behind it is slow together",
    "couplet": "couplet: nearly all behind it is slow together",
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """One metric of one group: what was seen of the component and of its peers, in words."""

    metric: str
    group: str
    own: str
    peers: str
    factor: str
    worst: str
    since: str


@dataclass(frozen=True, slots=True)
class Report:
    """What there is to say of a case at one moment. `severity` is NaN where it is not known.

    `peers`: how many others it was held against. `course` is of `metric`, in `unit`.
    """

    case: Case
    name: str
    kind: str
    severity: float
    claim: str
    since: str
    lasted: str
    group: str
    peers: int
    metric: str
    unit: str
    evidence: tuple[Evidence, ...]
    causes: tuple[tuple[str, str], ...]
    commands: tuple[Command, ...]
    url: str
    course: Course | None


@dataclass(frozen=True, slots=True)
class Ending:
    """What there is to say of a case that is over. `recovered` False: it is not compared any more.

    `factor`: when it was told of, empty where that is not known.
    """

    name: str
    claim: str
    lasted: str
    since: str
    ended: str
    factor: str
    recovered: bool
    url: str


def report(case: Case, view: Status, courses: Courses, page: str) -> Report:
    """The report on a case whose alarms stand. `page`: where the aggregator's pages are reached."""
    alarms = sorted((a for a in view.alarms().values() if a.component == case.component), key=rank)
    first = alarms[0]
    sources = {group.name: group.source for group in view.groups()}
    causes = next((alarm.causes for alarm in alarms if alarm.causes), ())
    source = sources.get(first.group, "")
    return Report(
        case=case,
        name=plain(case.name),
        kind=_LEVELS.get(case.level, ""),
        severity=first.severity,
        claim=claim(first.severity),
        since=moment(case.since),
        lasted=formatting.lasting(first.updated_at - case.since),
        group=plain(first.group),
        peers=_peers(view, first),
        metric=plain(first.metric),
        unit=unit(source, first.metric),
        evidence=tuple(_evidence(alarm, sources.get(alarm.group, "")) for alarm in alarms[:MAX_EVIDENCE]),
        causes=tuple((plain(name), formatting.figure(amount)) for name, amount in causes[:MAX_CAUSES]),
        commands=(*commands(source, case.level, case.name), live(page)),
        url=page + urls.component(first.group, case.component, first.metric),
        course=courses.of(first),
    )


def live(page: str) -> Command:
    """How to follow all stragglers in a terminal."""
    return ("all stragglers, live", f"laggard top --url {shlex.quote(page)}")


def endings(cases: Sequence[Case], view: Status, page: str) -> list[Ending]:
    """What became of cases none of whose alarms stands any more."""
    wanted, ends = {case.component for case in cases}, dict[str, float]()
    for judged in view.judgements():
        for component in wanted.intersection(judged.components):
            at = judged.components.index(component)
            if judged.verdicts.judged[at] and not judged.straggler[at]:
                ends[component] = max(ends.get(component, judged.end), judged.end)
    return [_ending(case, ends.get(case.component), view.now, page) for case in cases]


def _ending(case: Case, well_at: float | None, now: float, page: str) -> Ending:
    """`well_at`: the end of the latest window if it kept up in it; None where it was silent or slow."""
    recovered = well_at is not None
    at = now if well_at is None else well_at
    return Ending(
        name=plain(case.name),
        claim="keeps up with its peers again" if recovered else "is no longer compared",
        lasted=formatting.lasting(at - case.since),
        since=moment(case.since),
        ended=moment(at),
        factor=formatting.factor(case.severity) if case.severity else "",
        recovered=recovered,
        url=page + urls.component(case.group, case.component),
    )


def _evidence(alarm: Alarm, source: str) -> Evidence:
    measure = unit(source, alarm.metric)
    return Evidence(
        metric=plain(alarm.metric),
        group=plain(alarm.group),
        own=formatting.figure(alarm.observed, measure),
        peers=formatting.figure(alarm.reference, measure),
        factor=formatting.factor(alarm.severity),
        worst=formatting.factor(alarm.worst_severity),
        since=moment(alarm.since),
    )


def _peers(view: Status, alarm: Alarm) -> int:
    """How many others of its kind the latest window judged."""
    for judged in view.judgements():
        if (judged.group, judged.metric) == (alarm.group, alarm.metric):
            members = judged.levels.count(judged.levels[0])  # parents stand behind them
            count = int(judged.verdicts.judged[:members].sum())
            return max(count - (alarm.level == judged.levels[0]), 0)
    return 0
