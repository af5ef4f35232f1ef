"""Contents of notifications as plain values: read from the view on the event loop, rendered by a channel."""

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from laggard_aggregator.alarms.alarms import Alarm, Key
from laggard_aggregator.alarms.factors import factor_now
from laggard_aggregator.alarms.overrides import Decision
from laggard_aggregator.detect import LEVEL_OF_GROUPS, LEVEL_OF_SPLITS
from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.metrics.registry import unit, worse
from laggard_aggregator.notify.incidents import AlarmTimelines, Incident, rank
from laggard_aggregator.status import formatting, next_steps, urls
from laggard_aggregator.status.formatting import (
    factor,
    led_by_average,
    other_factor,
    plain,
    slower,
    spaced,
    worst_average,
)
from laggard_aggregator.status.location import Location
from laggard_aggregator.status.next_steps import Command, commands
from laggard_aggregator.status.view import GroupView, Status

MAX_LISTED = 50
"""Incidents listed in one notification; the page has all."""
MAX_COMPARISONS = 8
MAX_CAUSES = 10
MAX_COMMENTS = 5
_PARENTS = {
    "node": "It is a node: nearly all that belongs to it is slow together",
    "controller": "It is a controller: nearly all behind it is slow together",
    "couplet": "It is a couplet: nearly all behind it is slow together",
    LEVEL_OF_SPLITS: "It is one side of a group; peers alone cannot tell which is normal",
    LEVEL_OF_GROUPS: "It is a whole group: its members are slow together, compared with their own past",
}
_RECOVERED = {
    LEVEL_OF_SPLITS: "keeps up with the rest of its group again",
    LEVEL_OF_GROUPS: "is as fast as in its own past again",
}
_SLOWER_THAN = {
    LEVEL_OF_SPLITS: "slower than the rest of its group",
    LEVEL_OF_GROUPS: "slower than in its own past",
}

STOPS_FIRST_BELOW = 1.2
"""Factor below which a component that stops at times is not told as one that is slower."""

Kind = Literal["straggler", "digest", "resolved", "test"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A component against its peers by one metric of one group, as its alarm has it.

    `observed` and `reference` of the latest window, in `unit`; `severity`: times slower on average over the
    windows of the evidence, `worst_severity`: its maximum; NaN where unknown.
    `worse`: side of the metric, `against`: name of the reference, as in `formatting.slower`. `at_times`: as
    `formatting.at_times`; `stops`: whether it stops at times.
    """

    metric: str
    group: str
    unit: str
    observed: float
    reference: float
    severity: float
    worst_severity: float
    since: float
    worse: int = 1
    against: str = "peers"
    at_times: str = ""
    stops: bool = False

    @property
    def predicate(self) -> str:
        """The predicate of a sentence about the component."""
        return self.predicate_over("")

    def predicate_over(self, span: str) -> str:
        """The predicate with a span such as `for 6 h`, in the perfect; in the present where that is empty."""
        if self.stops and not self.severity >= STOPS_FIRST_BELOW:
            often = f"has stopped for seconds at times {span}" if span else "stops for seconds at times"
            return f"{often}, unlike its peers"
        return slower(self.now, self.worse, self.against, self.severity, span=span)

    @property
    def now(self) -> float:
        """Times slower in the latest window."""
        return factor_now(self, self.worse)

    @property
    def before(self) -> str:
        """The largest average, as `formatting.worst_average`."""
        return worst_average(self.now, self.severity, self.worst_severity)

    @property
    def far(self) -> str:
        """Times slower now, and on average where that differs: `6.0x, 4.3x on average`."""
        led = led_by_average(self.now, self.severity)
        other = other_factor(self.now, self.severity)
        first = factor(self.severity if led else self.now) + (" on average" if led and other else "")
        return first + (other and f", {other}")


@dataclass(frozen=True, slots=True)
class IncidentReport:
    """An incident that stands, or whose alarms are cleared.

    `at`: the latest window, or the clearing; epoch seconds. `recovered`: of a cleared one, False where the
    component is not compared any more. Of a standing one: `peers`, their count in the worst group;
    `comparisons`, one for each alarm, worst first; `causes`, differences from the peers by function;
    `location`, the cause that several sources together point to; `beside`, evidence that raises no alarm;
    `timeline` of the first comparison, as in AlarmTimelines; `silence_url`, its page with the form of a
    silence, empty where the pages have none. `comments`: operators' comments and tickets, the newest first.
    """

    incident: Incident
    at: float
    url: str
    recovered: bool = False
    peers: int = 0
    comparisons: tuple[Comparison, ...] = ()
    causes: tuple[tuple[str, float], ...] = ()
    commands: tuple[Command, ...] = ()
    timeline: FloatArray | None = None
    silence_url: str = ""
    comments: tuple[Decision, ...] = ()
    location: Location | None = None
    beside: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its current name as one printable line."""
        return plain(self.incident.name)

    @property
    def lasted_seconds(self) -> float:
        """Length of the incident."""
        return self.at - self.incident.since

    @property
    def parent(self) -> str:
        """Its level in a sentence, empty for a component that carries no others."""
        return _PARENTS.get(self.incident.level, "")

    @property
    def worst(self) -> Comparison:
        """The comparison that a standing incident is named by."""
        return self.comparisons[0]

    @property
    def outcome(self) -> str:
        """The predicate of a sentence about the component of a cleared one."""
        if not self.recovered:
            return "is no longer compared"
        return _RECOVERED.get(self.incident.level, "keeps up with its peers again")

    @property
    def slower_than(self) -> str:
        """The words after the factor of a cleared one."""
        return _SLOWER_THAN.get(self.incident.level, "slower than its peers")

    @property
    def hint(self) -> str:
        """Where to look in a group, which has no commands of its own."""
        return next_steps.OF_GROUPS.get(self.incident.level, "")


@dataclass(frozen=True, slots=True)
class Notification:
    """One message of a channel. `id`: the same on every attempt and in every process.

    `count`: incidents that it reports, of which at most MAX_LISTED are in `reports`. `resolves`: ids of the
    notifications that raised the cleared ones. `page`: address of the site's pages.
    """

    id: str
    kind: Kind
    site: str
    page: str
    count: int = 1
    reports: tuple[IncidentReport, ...] = ()
    resolves: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """The component's page, or the site's where there are several."""
        return self.reports[0].url if self.count == 1 else f"{self.page}/"

    @property
    def subject(self) -> str:
        """One line: component, factor and duration."""
        report = self.reports[0]
        if self.kind == "resolved":
            if self.count > 1:
                return f"{self.count} components are no longer slow, {report.name} among them"
            return spaced(
                f"{report.name} {report.outcome}, after {formatting.lasting(report.lasted_seconds)}"
            )
        if self.kind == "digest":
            far = f" ({report.worst.far})" if math.isfinite(report.worst.severity) else ""
            return f"{self.count} components are slow, {report.name} the most{far}"
        if self.kind == "test":
            return f"TEST, nothing is wrong: {report.name} {report.worst.predicate}"
        lasted = f"for {formatting.lasting(report.lasted_seconds)}"
        return spaced(f"{report.name} {report.worst.predicate_over(lasted)} ({report.worst.metric})")


def report(
    incident: Incident,
    view: Status,
    timelines: AlarmTimelines,
    page: str,
    located: Mapping[Key, Location],
) -> IncidentReport | None:
    """The report of an incident, None when its last alarm was cleared meanwhile.

    `located`: the causes of the stragglers, from `Status.locating`.
    """
    alarms = sorted((a for a in view.alarms().values() if a.component == incident.component), key=rank)
    if not alarms:
        return None
    worst = alarms[0]
    groups = {group.name: group for group in view.groups()}
    source = groups[worst.group].source if worst.group in groups else ""
    causes = next((alarm.causes for alarm in alarms if alarm.causes), ())
    return IncidentReport(
        incident=incident,
        at=worst.updated_at,
        peers=_peers(view, worst),
        comparisons=tuple(_comparison(alarm, groups.get(alarm.group)) for alarm in alarms[:MAX_COMPARISONS]),
        causes=tuple((plain(name), amount) for name, amount in causes[:MAX_CAUSES]),
        commands=(*commands(source, incident.level, incident.name), live_command(page, view.needs_token)),
        url=page + urls.component(worst.group, incident.component, worst.metric, incident.since),
        timeline=timelines.of(worst),
        silence_url=page + urls.component(worst.group, incident.component, act="silence")
        if view.decides
        else "",
        comments=view.comments(incident.component, incident.name)[:MAX_COMMENTS],
        location=next((located[alarm.key] for alarm in alarms if alarm.key in located), None),
        beside=tuple(remark.text for remark in view.beside([incident.component]).get(incident.component, ())),
    )


def live_command(page: str, needs_token: bool) -> Command:
    """The command that follows all stragglers in a terminal."""
    token = " --token-file ~/.laggard-token" if needs_token else ""
    return ("all stragglers, live", f"laggard top --url {shlex.quote(page)}{token}")


def resolutions(incidents: Sequence[Incident], view: Status, page: str) -> tuple[IncidentReport, ...]:
    """The outcome of incidents without a standing alarm.

    A component has recovered when the latest window of a group judged it and found no straggler.
    """
    wanted, healthy_at = {incident.component for incident in incidents}, dict[str, float]()
    for judged in view.judgements():
        for component in wanted.intersection(judged.components):
            at = judged.components.index(component)
            if judged.verdicts.judged[at] and not judged.straggler[at]:
                healthy_at[component] = max(healthy_at.get(component, judged.end), judged.end)
    return tuple(
        IncidentReport(
            incident=incident,
            at=healthy_at.get(incident.component, view.now),
            recovered=incident.component in healthy_at,
            url=page + urls.component(incident.group, incident.component, at=incident.since),
        )
        for incident in incidents
    )


def _comparison(alarm: Alarm, group: GroupView | None) -> Comparison:
    source = group.source if group is not None else ""
    names = (plain(alarm.metric), plain(alarm.group), unit(source, alarm.metric))
    severities = (alarm.severity, alarm.worst_severity)
    against = group.reference(alarm.level) if group is not None else "peers"
    side = worse(source, alarm.metric)
    at_times = formatting.at_times(alarm.slow_share, alarm.slow_severity, alarm.stops)
    values = (alarm.observed, alarm.reference, *severities, alarm.since)
    return Comparison(*names, *values, side, against, at_times, bool(alarm.stops))


def _peers(view: Status, alarm: Alarm) -> int:
    """Components of the same level in the latest window, the alarm's own excluded; 0 without peers."""
    if any(shown.name == alarm.group and shown.reference(alarm.level) != "peers" for shown in view.groups()):
        return 0
    for judged in view.judgements():
        if (judged.group, judged.metric) == (alarm.group, alarm.metric):
            members = judged.levels.count(judged.levels[0])  # parents stand behind them
            count = int(judged.verdicts.judged[:members].sum())
            return max(count - (alarm.level == judged.levels[0]), 0)
    return 0
