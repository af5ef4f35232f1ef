"""The page of a component: its metrics against the band of its peers, its windows, its evidence."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from laggard_aggregator.detect import registry as detectors
from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.metrics.registry import unit
from laggard_aggregator.status import formatting
from laggard_aggregator.status.straggler_list import Standing, component_standings
from laggard_aggregator.status.urls import NotKnownError
from laggard_aggregator.status.view import GroupView
from laggard_aggregator.status.window_history import (
    ABSENT,
    ANOMALOUS,
    BAND,
    NORMAL,
    ComponentHistory,
    Samples,
    bands,
)
from laggard_aggregator.web.pages.charts import band_chart, cdf_chart, samples_chart
from laggard_aggregator.web.pages.page_state import Event, Now, Page, paged
from laggard_aggregator.web.pages.straggler_rows import Advice, Evidence, NextSteps, Slow, evidence_of

WINDOWS_A_PAGE = 24
PEERS_DRAWN = 40
_VERDICTS = {ABSENT: "no data", NORMAL: "like its peers", ANOMALOUS: "anomalous"}


@dataclass(frozen=True, slots=True)
class WindowRow:
    """One window of a metric as text."""

    start: float
    end: float
    observed: str
    peers: str
    severity: str
    score: str
    verdict: str
    anomalous: bool


@dataclass(frozen=True, slots=True)
class MetricPart:
    """One metric of the component. Pictures are empty without data."""

    metric: str
    unit: str
    course: ComponentHistory
    picture: Markup
    samples: Markup
    samples_from: float
    samples_to: float
    cdf: Markup
    cdf_said: str
    windows: Page[WindowRow]

    @property
    def data(self) -> str:
        """The course as JSON for the interactive chart: ends, own values, band, anomalous windows."""
        course = self.course
        hot = np.where(course.state == ANOMALOUS, course.observed, np.nan)
        columns = [course.observed, *course.band.T, hot]
        return json.dumps([course.end.tolist(), *(_short(column) for column in columns)], allow_nan=False)


@dataclass(frozen=True, slots=True)
class ComponentPage:
    """Contents of the page."""

    component: str
    name: str
    node: str
    group: GroupView
    level: str
    note: str
    slow: Slow
    is_slow: bool
    blamed: str
    advice: Advice
    parts: tuple[MetricPart, ...]
    causes: tuple[tuple[str, float, float], ...]
    causes_unit: str
    others: tuple[str, ...]
    alarms: tuple[Event, ...]


def component(
    now: Now, group_name: str, name: str, *, metric: str, page: int, alarms: Sequence[Event]
) -> ComponentPage:
    """The page of a component by its permanent ID or current name. Raises NotKnownError."""
    group = now.groups.get(group_name)
    if group is None:
        raise NotKnownError(f"no group {group_name!r}")
    lasting = _lasting(now, group, name)
    rows = component_standings(
        now.judgements, now.alarms, now.shown, now.silenced, group=group.name, component=lasting
    )
    rows = rows or (_absent(now, group, lasting),)
    evidence = evidence_of(now, rows)
    first = evidence[0].standing
    each = Slow(lasting, now.shown(lasting), first.level, evidence, now.decided(lasting, now.shown(lasting)))
    by_metric = {one.standing.metric: one for one in evidence}
    metrics = [name for name in group.metrics if not metric or name == metric] or list(group.metrics)
    causes = next((one.standing for one in evidence if one.standing.causes), None)
    node = now.shown(lasting).partition("/")[0]
    return ComponentPage(
        component=lasting,
        name=now.shown(lasting),
        node=node,
        group=group,
        level=first.level,
        note="; ".join(
            dict.fromkeys(j.verdicts.note for j in now.judgements_of(group.name) if j.verdicts.note)
        ),
        slow=each,
        is_slow=any(row.straggler or row.alarm is not None for row in rows),
        blamed=_blamed(now, group.name, node) if node != now.shown(lasting) else "",
        advice=NextSteps(now).on(each),
        parts=tuple(
            _part(now, group, lasting, one, evidence=by_metric.get(one), page=page) for one in metrics
        ),
        causes=_shares(causes.causes if causes else ()),
        causes_unit=unit(group.source, causes.metric) if causes else "",
        others=_elsewhere(now, group.name, lasting),
        alarms=tuple(event for event in alarms if event.component == lasting),
    )


def _part(
    now: Now, group: GroupView, name: str, metric: str, *, evidence: Evidence | None, page: int
) -> MetricPart:
    course = now.history.course(group.name, metric, name)
    known = unit(group.source, metric)
    title = (
        f"{metric} of {now.shown(name)} in "
        f"{formatting.counted(int((course.state != ABSENT).sum()), 'window')} "
        "against the band of its peers; the table of windows has the same in figures"
    )
    samples = now.history.samples(group.name)
    picture, cdf, said = Markup(""), Markup(""), ""
    if samples is not None and name in samples.components and metric in samples.metrics:
        at = samples.components.index(name)
        picture = _samples(samples, metric, at, known, now.shown(name))
        known_detector = detectors.registered.get(group.detector) or detectors.find(group.detector)
        distributions = known_detector.distributions
        if distributions is not None:
            values = distributions(samples.metrics[metric].astype(np.float64), samples.history)
            cdf, said = _cdf(values, metric, at, known, evidence)
    return MetricPart(
        metric=metric,
        unit=known,
        course=course,
        picture=band_chart(course, known, title),
        samples=picture,
        samples_from=np.nan if samples is None else samples.start,
        samples_to=np.nan if samples is None else samples.end,
        cdf=cdf,
        cdf_said=said,
        windows=paged(_windows(course, known), page, WINDOWS_A_PAGE),
    )


def _windows(course: ComponentHistory, known: str) -> list[WindowRow]:
    """The windows as text, newest first."""
    middle = BAND.index(0.5)
    columns = (course.start, course.end, course.state, course.observed, course.band[:, middle])
    every = zip(*(column.tolist() for column in (*columns, course.severity, course.score)), strict=True)
    rows = [
        WindowRow(
            start=start,
            end=end,
            observed=formatting.figure(observed, known),
            peers=formatting.figure(peers, known),
            severity=formatting.factor(severity),
            score=formatting.figure(score),
            verdict=_VERDICTS.get(state, "not judged"),
            anomalous=state == ANOMALOUS,
        )
        for start, end, state, observed, peers, severity, score in every
    ]
    return rows[::-1]


def _samples(samples: Samples, metric: str, at: int, known: str, name: str) -> Markup:
    """The samples of the latest window against the band of all members."""
    values = samples.metrics[metric].astype(np.float64)
    band = bands(values)
    count = values.shape[1]
    step = (samples.end - samples.start) / (count - samples.history)
    time = samples.end - step * np.arange(count - 1, -1, -1)
    title = f"{metric} of {name}, sample by sample, against the band of its peers"
    return samples_chart(time, values[at], band, known, title)


def _cdf(
    values: FloatArray, metric: str, at: int, known: str, evidence: Evidence | None
) -> tuple[Markup, str]:
    """The distributions of `values` (W, C), as the detector compares them; NaN for absent components."""
    enough = np.isfinite(values).sum(axis=0) > 0
    if not enough[at]:
        return Markup(""), "too few samples in the latest window"
    others = np.flatnonzero(enough)
    others = others[others != at]
    drawn = others[np.unique(np.linspace(0, len(others) - 1, min(PEERS_DRAWN, len(others))).astype(int))]
    peers = [_sorted(values[:, other]) for other in drawn.tolist()]
    title = (
        f"cumulative distributions of {metric}: this component and {formatting.counted(len(peers), 'peer')}"
    )
    said = (
        f"{len(peers)} of {formatting.counted(len(others), 'peer')} drawn" if len(peers) < len(others) else ""
    )
    if evidence is not None and evidence.standing.judged:
        distance = (
            f"distance to the group's median {formatting.figure(evidence.standing.score)} times its threshold"
        )
        said = f"{distance}; {said}" if said else distance
    return cdf_chart(_sorted(values[:, at]), peers, known, title), said


def _sorted(values: FloatArray) -> FloatArray:
    return np.sort(values[np.isfinite(values)])


def _short(values: FloatArray) -> list[float | None]:
    """Values to five digits, None for missing ones."""
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in values.tolist()]


def _shares(causes: Iterable[tuple[str, float]]) -> tuple[tuple[str, float, float], ...]:
    """Causes with their amount and their share of the largest, in per cent."""
    kept = tuple(causes)
    most = max((abs(amount) for _, amount in kept), default=0.0) or 1.0
    return tuple((name, amount, 100 * abs(amount) / most) for name, amount in kept)


def _lasting(now: Now, group: GroupView, name: str) -> str:
    """Permanent ID of a component that was in a window of the group or has an alarm in it."""
    known = {c: None for judged in now.judgements_of(group.name) for c in judged.components}
    known |= {c: None for g, c, _ in now.alarms if g == group.name}
    for metric in group.metrics:
        lists = {id(column.members): column.members for column in now.history.columns(group.name, metric)}
        for members in lists.values():
            known |= dict.fromkeys(members.names)
    if name in known:
        return name
    found = next((component for component in known if now.shown(component) == name), None)
    if found is None:
        raise NotKnownError(f"no component {name!r} in a closed window of group {group.name!r}")
    return found


def _absent(now: Now, group: GroupView, name: str) -> Standing:
    """Text for a component that is no longer in any window."""
    nan = float("nan")
    ends = [judged.end for judged in now.judgements_of(group.name)]
    return Standing(
        group=group.name,
        component=name,
        name=now.shown(name),
        metric=group.metrics[0],
        level="component",
        judged=False,
        anomalous=False,
        straggler=False,
        persistence=None,
        score=nan,
        severity=nan,
        observed=nan,
        reference=nan,
        since=nan,
        window_end=max(ends, default=nan),
        alarm=None,
    )


def _blamed(now: Now, group: str, node: str) -> str:
    """The node, if it is a straggler of the group: it is blamed in place of its components."""
    rows = now.standings()
    slow = (
        row.straggler or row.alarm is not None for row in rows if (row.group, row.component) == (group, node)
    )
    return node if any(slow) else ""


def _elsewhere(now: Now, group: str, component: str) -> tuple[str, ...]:
    """Other groups in which the component is compared."""
    found = {j.group for j in now.judgements if j.group != group and component in j.components}
    return tuple(sorted(found))
