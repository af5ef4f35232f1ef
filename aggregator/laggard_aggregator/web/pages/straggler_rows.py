"""The slow components, one row each over all groups and metrics, and their table on the overview.

The cells of the table are in `templates/overview.html`.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from laggard_aggregator.alarms.alarms import Key
from laggard_aggregator.alarms.factors import factor_now
from laggard_aggregator.alarms.overrides import Decision
from laggard_aggregator.detect import LEVEL_OF_GROUPS, LEVEL_OF_SPLITS
from laggard_aggregator.metrics.registry import unit
from laggard_aggregator.status import formatting, urls
from laggard_aggregator.status.location import Location
from laggard_aggregator.status.next_steps import Command, commands, hint
from laggard_aggregator.status.node_signs import BesideAlarm
from laggard_aggregator.status.straggler_list import Standing
from laggard_aggregator.status.window_history import ABSENT, ANOMALOUS, NORMAL, ComponentHistory
from laggard_aggregator.web.pages.charts import sparkline
from laggard_aggregator.web.pages.page_state import Now
from laggard_aggregator.web.pages.tables import Filter, PageColumn, PageTable, Query

SLOW_A_PAGE = 20
_DECIDED = {"silence": "silenced", "drain": "drained"}
_MUCH = 0.1
"""A factor that changed by less than a tenth is steady."""
_FEW_WINDOWS = 5
"""Windows of an episode that have no trend yet."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence of one group and metric about a component.

    `worse`: side of the metric; `against`: name of the reference, as in `formatting.slower`.
    """

    standing: Standing
    unit: str
    course: ComponentHistory
    worse: int
    against: str = "peers"

    @property
    def factor(self) -> float:
        """Times slower in the latest window, NaN where its values are unknown."""
        return factor_now(self.standing, self.worse)

    @property
    def before(self) -> str:
        """The largest average of an alarm, as `formatting.worst_average`."""
        alarm = self.standing.alarm
        return (
            ""
            if alarm is None
            else formatting.worst_average(self.factor, alarm.severity, alarm.worst_severity)
        )

    @property
    def value(self) -> str:
        """Its own value and its peers' as text."""
        row = self.standing
        if math.isfinite(row.observed) and math.isfinite(row.reference):
            own, peers = (formatting.figure(value, self.unit) for value in (row.observed, row.reference))
            return f"{own}, {self.against} {peers}".replace(f" {self.unit}", f"\N{NO-BREAK SPACE}{self.unit}")
        if row.causes:
            return f"most in {row.causes[0][0]}"
        return f"score {formatting.score(row.score)}" if math.isfinite(row.score) else "no data now"


@dataclass(frozen=True, slots=True)
class Slow:
    """A component with the evidence about it, the strongest first, and that `beside` it."""

    component: str
    name: str
    level: str
    evidence: tuple[Evidence, ...]
    decisions: tuple[Decision, ...]
    location: Location | None = None
    beside: tuple[BesideAlarm, ...] = ()

    @property
    def first(self) -> Evidence:
        """The strongest evidence."""
        return self.evidence[0]

    @property
    def factor(self) -> float:
        """Times slower than its peers in the latest window; as the average where that does not tell."""
        now, average = self.first.factor, self.first.standing.severity
        return average if formatting.led_by_average(now, average) else now

    @property
    def other(self) -> str:
        """The average factor where it differs, or where that leads, the factor of the latest window."""
        return formatting.other_factor(self.first.factor, self.first.standing.severity)

    @property
    def far(self) -> str:
        """Its factor as text, called an average where it is one."""
        led = formatting.led_by_average(self.first.factor, self.first.standing.severity)
        return formatting.factor(self.factor) + (" on average" if led and self.other else "")

    @property
    def grade(self) -> str:
        """Its grade, one of formatting.GRADES."""
        return formatting.grade(_size(self.first.standing, self.first.worse))

    @property
    def since(self) -> float:
        """Start of its episode, the earliest over its metrics."""
        known = [e.standing.since for e in self.evidence if math.isfinite(e.standing.since)]
        return min(known, default=math.nan)

    @property
    def alarm(self) -> bool:
        """True when an alarm stands on it."""
        return any(evidence.standing.alarm is not None for evidence in self.evidence)

    @property
    def trend(self) -> str:
        """`getting slower`, `steady`, `getting better`, `recovering`, `new`, or `no data now`.

        Of the windows since the episode began, without the first, which is in part before it: a step is no
        creep. Both of the latest two windows must be beyond all of the four before them: noise is no trend.
        """
        row, course = self.first.standing, self.first.course
        if not row.judged:
            return "no data now"
        if not row.anomalous:
            return "recovering"
        factors = course.factors(self.first.worse)
        began = row.since if math.isfinite(row.since) else -math.inf
        known = factors[(course.state != ABSENT) & np.isfinite(factors) & (course.start >= began)]
        if known.size < _FEW_WINDOWS:
            return "new"
        recent, before = known[-2:], known[1:][-6:-2]
        changed = float(np.median(recent)) / float(np.median(before))
        if changed > 1 + _MUCH and recent.min() > before.max():
            return "getting slower"
        return "getting better" if changed < 1 - _MUCH and recent.max() < before.min() else "steady"

    @property
    def url(self) -> str:
        """Its page."""
        standing = self.first.standing
        return urls.component(standing.group, self.component, standing.metric)

    @property
    def is_slower(self) -> bool:
        """True if it is slower than its peers: some detectors find any difference."""
        return self.first.worse != 0 and self.factor >= formatting.ALIKE_RATIO

    @property
    def claim(self) -> tuple[str, str]:
        """The problem in a few words: those before `since ...` in a sentence, and those after it."""
        led = formatting.led_by_average(self.first.factor, self.first.standing.severity)
        on_average = " on average" if led and self.other else ""
        far = f"{formatting.factor(self.factor)} " if math.isfinite(self.factor) else ""
        rest = self.other and f", {self.other}"
        standing, against = self.first.standing, self.first.against
        if standing.level == LEVEL_OF_GROUPS:
            return f"{far}slower than in its {against}{on_average}", rest
        if standing.level == LEVEL_OF_SPLITS:
            return (
                f"{far}slower than the rest{on_average}",
                f"{rest}; peers alone cannot tell which is normal",
            )
        if against != "peers":
            return f"{far}below its {against}{on_average}", rest
        at_times = formatting.at_times(standing.slow_share, standing.slow_severity, standing.stops)
        if self.is_slower:
            return f"{far}slower than its peers{on_average}", f"{rest}{at_times and ', ' + at_times}"
        return ("slow at times", f": {at_times}") if at_times else ("unlike its peers", "")


def slow(now: Now) -> tuple[Slow, ...]:
    """All slow components, the worst first."""
    by_component: dict[str, list[Standing]] = {}
    for row in now.standings():
        if row.slow:
            by_component.setdefault(row.component, []).append(row)
    order = sorted(by_component.values(), key=lambda rows: min(_rank(now, row) for row in rows))
    where = now.locations()
    return tuple(slow_by(now, rows, where) for rows in order)


def watched(now: Now) -> list[tuple[Standing, float]]:
    """Components anomalous in the latest window and not confirmed, with their factors, the worst first."""
    rows = now.standings()
    stand = {row.component for row in rows if row.slow}
    candidates = (row for row in rows if row.anomalous and row.component not in stand)
    ordered = sorted(candidates, key=lambda row: _rank(now, row))
    return [(row, factor_now(row, now.worse(row.group, row.metric))) for row in ordered]


def slow_by(now: Now, rows: Iterable[Standing], where: Mapping[Key, Location]) -> Slow:
    """One component with the evidence of `rows`, and its cause `where` one is located."""
    evidence = []
    for row in sorted(rows, key=lambda row: _rank(now, row)):
        group = now.groups.get(row.group)
        course = now.history.course(row.group, row.metric, row.component)
        known = unit(group.source, row.metric) if group else ""
        against = group.reference(row.level) if group else "peers"
        evidence.append(Evidence(row, known, course, now.worse(row.group, row.metric), against))
    first = evidence[0].standing
    decisions = now.decided(first.component, first.name)
    location = next((where[e.standing.key] for e in evidence if e.standing.key in where), None)
    beside = now.beside.get(first.component, ())
    return Slow(first.component, first.name, first.level, tuple(evidence), decisions, location, beside)


def _rank(now: Now, row: Standing) -> tuple[float, ...]:
    """Stragglers first, then the worst; of equally bad ones the most persistent (Intrepid 4.3)."""
    return (
        not row.slow,
        -_size(row, now.worse(row.group, row.metric)),
        row.alarm is None,
        -(row.persistence or 0),
    )


def _size(row: Standing, side: int) -> float:
    """Factor between a component and its peers, either way for a metric without a worse `side`."""
    severity = row.severity
    if not math.isfinite(severity) or severity <= 0:
        return formatting.GRADES["moderate"]
    return max(severity, 1 / severity) if side == 0 else severity


def verdict(state: int, severity: float, *, blamed: bool = False) -> str:
    """A verdict in words. `state`: as in a Column; `blamed`: whether the node is, in its place."""
    if state == ANOMALOUS and severity < formatting.ALIKE_RATIO:
        return "anomalous on average"
    if state != NORMAL:
        return {ABSENT: "no data", ANOMALOUS: "anomalous"}.get(state, "not judged")
    if not severity >= formatting.WIDE_RATIO:
        return "like its peers"
    return "slow with its node" if blamed else "slower, not anomalous"


class NextSteps:
    """Advice on any number of components; each group is scanned once."""

    def __init__(self, now: Now) -> None:
        self._now = now
        self._by_group: dict[str, tuple[Counter[str], Counter[str], set[str]]] = {}

    def on(self, straggler: Slow) -> tuple[str, tuple[Command, ...]]:
        """The most likely place of the fault, as a sentence, and commands to run."""
        name = straggler.first.standing.group
        group = self._now.groups.get(name)
        source = group.source if group is not None else ""
        advice = hint(source, straggler.level, straggler.name, *self._siblings(name, straggler.component))
        return advice, commands(source, straggler.level, straggler.name)

    def _siblings(self, group: str, component: str) -> tuple[int, int]:
        """Number of the node's other components that are anomalous, and that are compared in its group."""
        node, slash, _ = component.partition("/")
        if not slash:
            return 0, 0
        if group not in self._by_group:
            self._by_group[group] = self._count(group)
        slow, everyone, anomalous = self._by_group[group]
        return slow[node] - (component in anomalous), max(everyone[node] - 1, 0)

    def _count(self, group: str) -> tuple[Counter[str], Counter[str], set[str]]:
        """Anomalous and total number of components by node, and the anomalous ones."""
        everyone: set[str] = set()
        anomalous: set[str] = set()
        for judged in self._now.judgements_of(group):
            everyone.update(judged.components)
            flags = judged.verdicts.judged & judged.verdicts.anomalous
            anomalous.update(judged.components[at] for at in flags.nonzero()[0].tolist())
        return _by_node(anomalous), _by_node(everyone), anomalous


def _by_node(names: set[str]) -> Counter[str]:
    return Counter(name.partition("/")[0] for name in names if "/" in name)


def stragglers(now: Now, all_slow: Sequence[Slow], query: Query) -> PageTable[Slow]:
    """The slow components as a table; slight ones are in it where a filter is given."""
    steps = NextSteps(now)
    columns = (
        PageColumn[Slow]("name", "Component", lambda row: row.name),
        PageColumn[Slow]("component", "", lambda row: row.component),
        PageColumn[Slow]("level", "", lambda row: row.level),
        PageColumn[Slow]("factor", "Slower by", lambda row: row.factor, right=True),
        PageColumn[Slow]("severity", "", lambda row: row.first.standing.severity),
        PageColumn[Slow]("grade", "", lambda row: row.grade),
        PageColumn[Slow]("trend", "Trend", lambda row: row.trend),
        PageColumn[Slow]("since", "Since", lambda row: row.since, is_time=True),
        PageColumn[Slow]("group", "", lambda row: row.first.standing.group),
        PageColumn[Slow]("metric", "", lambda row: row.first.standing.metric),
        PageColumn[Slow]("observed", "", lambda row: row.first.standing.observed),
        PageColumn[Slow]("reference", "", lambda row: row.first.standing.reference),
        PageColumn[Slow]("unit", "", lambda row: row.first.unit),
        PageColumn[Slow]("evidence", "Evidence", _evidence),
        PageColumn[Slow]("located_level", "", lambda row: row.location.level if row.location else ""),
        PageColumn[Slow]("located_component", "", lambda row: row.location.component if row.location else ""),
        PageColumn[Slow]("state", "", lambda row: ", ".join(_states(row))),
        PageColumn[Slow]("next_step", "Next step", lambda row: steps.on(row)[0], sorts=False),
    )
    filters = (
        Filter[Slow](
            "role", "Role", lambda row: [now.role_of(e.standing.group) for e in row.evidence], now.roles()
        ),
        Filter[Slow]("group", "Group", lambda row: "\n".join(e.standing.group for e in row.evidence)),
        Filter[Slow]("factor", "Slower by at least", lambda row: row.factor, is_number=True),
        Filter[Slow](
            "state",
            "State",
            lambda row: [*_states(row), row.grade],
            ("alarm", "no alarm", "silenced", "drained", *formatting.GRADES),
        ),
    )

    def row(slow: Slow) -> tuple[Slow, Markup, str]:
        return slow, sparkline(slow.first.course, slow.first.worse), steps.on(slow)[0]

    is_filtered = any(choice.test(query.text(choice.key)) for choice in filters)
    rows = all_slow if is_filtered else by_grade(all_slow)[0]
    return PageTable("stragglers", columns, rows, query, filters=filters, size=SLOW_A_PAGE, make=row)


def _evidence(row: Slow) -> str:
    return "; ".join(f"{e.standing.metric}: {formatting.spaced(e.value)}" for e in row.evidence)


def _states(row: Slow) -> list[str]:
    decided = {_DECIDED[decision.kind] for decision in row.decisions if decision.kind in _DECIDED}
    return ["alarm" if row.alarm else "no alarm", *sorted(decided)]


def by_grade(all_slow: Sequence[Slow]) -> tuple[Sequence[Slow], Sequence[Slow]]:
    """The stragglers that stand out, and the slight ones, which follow them."""
    marked = [straggler for straggler in all_slow if straggler.grade != "slight"]
    return marked, [straggler for straggler in all_slow if straggler.grade == "slight"]
