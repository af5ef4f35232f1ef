"""What Prometheus scrapes: a snapshot of the view, taken on the event loop, and its metrics.

Small by design: a component has series only while its accumulator is not zero or an alarm stands, a node only
while it is not well. `/metrics/nodes` has every node.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.metrics_core import Metric as PrometheusMetric
from prometheus_client.registry import Collector

from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.alarms.overrides import Decision
from laggard_aggregator.status.straggler_list import Standing, standings
from laggard_aggregator.status.view import (
    Counters,
    Durability,
    GroupView,
    NodeState,
    NodeView,
    RoleView,
    View,
)
from laggard_aggregator.web import metric_names as m

NODE_STATES: tuple[NodeState, ...] = ("up", "silent", "stopped", "down")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that `/metrics` needs of the view at one moment."""

    standings: tuple[Standing, ...]
    groups: tuple[GroupView, ...]
    judgements: tuple[Judgement, ...]
    node_counts: Mapping[tuple[str, NodeState], int]
    nodes: tuple[NodeView, ...]
    roles: tuple[RoleView, ...]
    counters: Counters
    durability: Durability | None
    decisions: tuple[Decision, ...]
    ready: bool
    version: str
    site: str
    started_at: float


def take(view: View, listed: Collection[str] = ()) -> Snapshot:
    """The snapshot of `view` now. To be called on the event loop.

    `listed`: nodes of which is told though they are well.
    """
    judgements, unwell = view.judgements(), view.unwell_nodes()
    well = set(listed).difference(node.node for node in unwell)
    return Snapshot(
        standings=standings(judgements, view.alarms(), view.shown, view.silenced),
        groups=view.groups(),
        judgements=judgements,
        node_counts=view.node_counts(),
        nodes=(*unwell, *filter(None, map(view.node, sorted(well)))),
        roles=view.roles(),
        counters=view.counters(),
        durability=view.durability(),
        decisions=view.decisions(),
        ready=view.ready,
        version=view.version,
        site=view.site,
        started_at=view.started_at,
    )


class Exposition(Collector):
    """The metrics of one snapshot, for `/metrics`."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[PrometheusMetric]:
        """Every family, also those that have no sample now, so that their help is always there."""
        yield from _component_families(self._snapshot.standings)
        yield from _group_families(self._snapshot)
        yield from _node_families(self._snapshot.nodes)
        yield from _role_families(self._snapshot.roles)
        yield from _own_families(self._snapshot)
        yield from _state_families(self._snapshot.durability)


class NodeExposition(Collector):
    """The per-node metrics of `nodes`, for `/metrics/nodes`."""

    def __init__(self, nodes: tuple[NodeView, ...]) -> None:
        self._nodes = nodes

    def collect(self) -> Iterator[PrometheusMetric]:
        """The families of m.PER_NODE."""
        yield from _node_families(self._nodes)


class Together(Collector):
    """Several collectors as one; no registry, and so nothing of the library's global one."""

    def __init__(self, *collectors: Collector) -> None:
        self._collectors = collectors

    def collect(self) -> Iterator[PrometheusMetric]:
        """The families of each in turn."""
        for collector in self._collectors:
            yield from collector.collect()


def _component_families(rows: Iterable[Standing]) -> Iterator[PrometheusMetric]:
    families = [metric.family() for metric in m.PER_COMPONENT]
    active, anomalous, persistence, score, severity, info, cause, silenced = families
    names: dict[tuple[str, str, str], None] = {}
    for row in rows:
        labels = (row.group, row.component, row.metric, row.level)
        names[row.group, row.component, row.name] = None
        if row.alarm is not None:
            active.add_metric(labels, 1)
            if row.silenced is not None:
                silenced.add_metric(labels, 1)
            for what, amount in row.causes:
                cause.add_metric((row.group, row.component, row.metric, what), amount)
        if row.judged:
            anomalous.add_metric(labels, row.anomalous)
        if row.persistence is not None:
            persistence.add_metric(labels, row.persistence)
        _add_known(score, labels, row.score)
        _add_known(severity, labels, row.severity)
    for name in names:
        info.add_metric(name, 1)
    yield from families


def _group_families(snapshot: Snapshot) -> Iterator[PrometheusMetric]:
    components, judged, nodes = (metric.family() for metric in m.PER_GROUP)
    for group in snapshot.groups:
        components.add_metric((group.name, "live"), group.live)
        components.add_metric((group.name, "silent"), group.silent)
    for judgement in snapshot.judgements:
        judged.add_metric((judgement.group, judgement.metric), bool(judgement.verdicts.judged.any()))
    for role in sorted({role for role, _ in snapshot.node_counts}):
        for state in NODE_STATES:
            nodes.add_metric((role, state), snapshot.node_counts.get((role, state), 0))
    yield from (components, judged, nodes)


def _node_families(nodes: Iterable[NodeView]) -> Iterator[PrometheusMetric]:
    families = [metric.family() for metric in m.PER_NODE]
    up, offset, last_sample, success, seconds, spool, dropped, cpu, resident = families
    for node in nodes:
        labels = (node.node,)
        up.add_metric((node.node, node.role), node.state == "up")
        _add_known(offset, labels, node.clock_offset_seconds)
        _add_known(last_sample, labels, node.last_sample)
        for name, collector in sorted(node.collectors.items()):
            success.add_metric((node.node, name), collector.success)
            _add_known(seconds, (node.node, name), collector.seconds)
        _add_known(spool, labels, node.spool_bytes)
        _add_known(dropped, labels, node.dropped_samples)
        _add_known(cpu, labels, node.cpu_seconds)
        _add_known(resident, labels, node.resident_bytes)
    yield from families


def _role_families(roles: Iterable[RoleView]) -> Iterator[PrometheusMetric]:
    families = [metric.family() for metric in m.PER_ROLE]
    spool, dropped, missed, cpu, spools, resident, clock, failing, seconds = families
    for role in roles:
        labels = (role.role,)
        for family, figure in (
            (spool, role.spool_bytes),
            (dropped, role.dropped_samples),
            (missed, role.missed_ticks),
            (cpu, role.cpu_seconds),
        ):
            family.add_metric(labels, figure)
        _add_quantiles(spools, labels, role.spool)
        _add_quantiles(resident, labels, role.resident_bytes)
        _add_quantiles(clock, labels, role.clock_offset_seconds)
        for name, collectors in role.collectors.items():
            failing.add_metric((*labels, name), collectors.failing)
            _add_quantiles(seconds, (*labels, name), collectors.seconds)
    yield from families


def _add_quantiles(family: m.Family, labels: tuple[str, ...], figures: Mapping[float, float]) -> None:
    for quantile, figure in figures.items():
        family.add_metric((*labels, f"{quantile:g}"), figure)


def _own_families(snapshot: Snapshot) -> Iterator[PrometheusMetric]:
    c = snapshot.counters
    figures = (
        (m.MESSAGES, c.messages),
        (m.SAMPLES, c.samples),
        (m.GAPS, c.gaps),
        (m.DUPLICATES, c.duplicates),
        (m.TWO_STREAMS, c.two_streams),
        (m.LATE_SAMPLES, c.late_samples),
        (m.FUTURE_SAMPLES, c.future_samples),
        (m.RESETS, c.resets),
        (m.WIRE_ERRORS, sum(c.wire_errors.values())),
        (m.HELD, c.held),
        (m.QUEUE_DROPPED, c.queue_dropped),
        (m.QUEUE_BYTES, c.queue_bytes),
        (m.ARCHIVE_DROPPED, c.archive_dropped),
        (m.ARCHIVE_RETURNED, c.archive_returned),
        (m.WINDOWS, c.windows),
        (m.WINDOW_LAG, c.window_lag_seconds),
        (m.WINDOW_LAG_MOST, c.window_lag_most_seconds),
        (m.START_TIME, snapshot.started_at),
        (m.READY, snapshot.ready),
    )
    for metric, figure in figures:
        family = metric.family()
        family.add_metric((), figure)
        yield family
    refused = m.REFUSED.family()
    for reason, count in sorted(c.refused.items()):
        refused.add_metric((reason,), count)
    yield refused
    flooding = m.FLOODING.family()
    if c.flooding is not None:
        flooding.add_metric((c.flooding[0],), c.flooding[1])
    yield flooding
    mails, waiting = m.MAILS.family(), m.MAILS_WAITING.family()
    for result, count in sorted(c.mails.items()):
        mails.add_metric((result,), count)
    if c.mails:
        waiting.add_metric((), c.mails_waiting)
    yield from (mails, waiting)
    decided = m.DECISIONS.family()
    for kind in ("silence", "drain"):
        decided.add_metric((kind,), sum(each.kind == kind for each in snapshot.decisions))
    yield decided
    info = m.BUILD_INFO.family()
    info.add_metric((snapshot.version, snapshot.site), 1)
    yield info


def _state_families(durability: Durability | None) -> Iterator[PrometheusMetric]:
    """Without a state directory there is nothing to say."""
    families = [metric.family() for metric in m.STATE]
    if durability is not None:
        d = durability
        figures = (d.whole, d.journal_bytes, d.snapshot_bytes, d.snapshot_at, d.snapshot_seconds, d.failures)
        for family, figure in zip(families, figures, strict=True):
            _add_known(family, (), figure)
    yield from families


def _add_known(family: m.Family, labels: tuple[str, ...], figure: float | None) -> None:
    """Adds a sample unless there is nothing to say: a missing series, not a NaN."""
    if figure is not None and not math.isnan(figure):
        family.add_metric(labels, figure)
