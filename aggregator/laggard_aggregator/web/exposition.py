"""Exposition for Prometheus: the values of one moment, and a collector over the rows of `exported_metrics`.

`/metrics` stays small: a component has series while its accumulator is above zero or an alarm stands, a node
while it is unhealthy or listed. `/metrics/nodes` has every node.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as MetricFamily
from prometheus_client.registry import Collector

from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.alarms.overrides import Decision, silencing
from laggard_aggregator.ingest.node_view import NodeState, NodeView, RoleView
from laggard_aggregator.log.journal import Durability
from laggard_aggregator.status.straggler_list import Standing, standings
from laggard_aggregator.status.view import Counters, GroupView, Status


@dataclass(frozen=True, slots=True)
class Scrape:
    """The values of one moment from which all metrics are computed.

    `standings`: makes them, once, in the thread that encodes. `nodes`: those that have series;
    `unlisted_nodes`: unhealthy nodes that have none. `page`: address of the site's pages.
    """

    standings: Callable[[], Sequence[Standing]] = tuple
    groups: Sequence[GroupView] = ()
    judgements: Sequence[Judgement] = ()
    node_counts: Mapping[tuple[str, NodeState], int] = field(default_factory=dict)
    nodes: Sequence[NodeView] = ()
    unlisted_nodes: int = 0
    roles: Sequence[RoleView] = ()
    counters: Counters = field(default_factory=Counters)
    durability: Durability | None = None
    decisions: Sequence[Decision] = ()
    ready: bool = False
    version: str = ""
    site: str = ""
    page: str = ""
    started_at: float = math.nan

    @property
    def sources(self) -> Mapping[str, str]:
        """The source of each group."""
        return {group.name: group.source for group in self.groups}

    @property
    def drained(self) -> list[NodeView]:
        """Those of `nodes` under maintenance."""
        return drained(self.nodes, self.decisions)


def drained(nodes: Iterable[NodeView], decisions: Iterable[Decision]) -> list[NodeView]:
    """Those of `nodes` that one of `decisions` drains."""
    drains = [decision for decision in decisions if decision.kind == "drain"]
    return [node for node in nodes if any(drain.covers(node.node) for drain in drains)] if drains else []


MAX_UNHEALTHY = 500
"""Limit of unhealthy nodes with series of their own in `/metrics`; thousands of them are a number."""


def _urgency(node: NodeView) -> tuple[bool, float]:
    """Order of unhealthy nodes: those that are up, then those whose last sample is the latest."""
    return node.state != "up", -node.last_sample if math.isfinite(node.last_sample) else math.inf


def scrape(view: Status, listed: Collection[str] = (), page: str = "") -> Scrape:
    """The values of `view` now; to be called on the event loop.

    `listed`: names of nodes that have series even while they are healthy, as those under maintenance have.
    `page`: as in Scrape.
    """
    judgements, alarms, decisions = view.judgements(), view.alarms(), view.decisions()
    every = view.unhealthy_nodes()
    urgent = {node.node for node in sorted(every, key=_urgency)[:MAX_UNHEALTHY]}
    unhealthy = [node for node in every if node.node in urgent]
    named = drained(view.nodes(), decisions) if decisions else ()
    healthy = {*listed, *(node.node for node in named)}.difference(node.node for node in unhealthy)

    def silenced(*names: str) -> Decision | None:
        return next(silencing(decisions, *names), None) if decisions else None

    return Scrape(
        standings=cache(lambda: standings(judgements, alarms, view.shown, silenced)),
        groups=view.groups(),
        judgements=judgements,
        node_counts=view.node_counts(),
        nodes=(*unhealthy, *filter(None, map(view.node, sorted(healthy)))),
        unlisted_nodes=len(every) - len(unhealthy),
        roles=view.roles(),
        counters=view.counters(),
        durability=view.durability(),
        decisions=decisions,
        ready=view.ready,
        version=view.version,
        site=view.site,
        page=page,
        started_at=view.started_at,
    )


Value = float | None
"""None and NaN have no series."""
Series = Iterable[tuple[tuple[str, ...], Value]]
"""Label values and value of each series."""


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric. The suffix `_total` of its name makes it a counter, the label `quantile` a summary."""

    name: str
    labels: tuple[str, ...]
    help: str
    series: Callable[[Scrape], Series]

    @property
    def type(self) -> str:
        """`counter`, `summary` (quantiles alone, without sum and count) or `gauge`."""
        if "quantile" in self.labels:
            return "summary"
        return "counter" if self.name.endswith("_total") else "gauge"

    def family(self, values: Scrape) -> MetricFamily:
        """The metric with its series; without any, its help is exposed all the same."""
        series = ((labels, v) for labels, v in self.series(values) if v is not None and not math.isnan(v))
        if self.type == "summary":
            quantiles = MetricFamily(self.name, self.help, self.type)
            for labels, value in series:
                quantiles.add_sample(self.name, dict(zip(self.labels, labels, strict=True)), value)
            return quantiles
        make = CounterMetricFamily if self.type == "counter" else GaugeMetricFamily
        family = make(self.name, self.help, labels=self.labels)
        for labels, value in series:
            family.add_metric(labels, value)
        return family


class Exposition(Collector):
    """The metrics of `rows` at the moment of `values`, then those of `others`; a registry of its own."""

    def __init__(self, values: Scrape, rows: Sequence[MetricRow], *others: Collector) -> None:
        self._values = values
        self._rows = rows
        self._others = others

    def collect(self) -> Iterator[MetricFamily]:
        """One family per row, also without series."""
        for row in self._rows:
            yield row.family(self._values)
        for other in self._others:
            yield from other.collect()
