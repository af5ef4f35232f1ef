"""Every metric of `/metrics` and `/metrics/nodes`: name, labels, help and getter; the name gives the type.

A name or label that changes breaks dashboards and alerting rules, and needs an entry in the changelog. A test
holds the tables of docs/metrics.md equal to this one.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from laggard_aggregator.alarms.factors import factor_now
from laggard_aggregator.ingest.node_view import NodeState, RoleView
from laggard_aggregator.metrics.registry import unit, worse
from laggard_aggregator.status import shadows, urls
from laggard_aggregator.status.formatting import claim
from laggard_aggregator.status.view import Counters
from laggard_aggregator.web.exposition import MetricRow, Scrape, Series, Value

NODE_STATES: tuple[NodeState, ...] = ("up", "silent", "stopped", "down")

_Subject = TypeVar("_Subject")
_Row = Callable[[str, str, Callable[[_Subject], Value]], MetricRow]
"""A metric by its name, its help and the getter of a subject's value."""


def _per(
    labels: tuple[str, ...], subjects: Callable[[Scrape], Iterable[tuple[tuple[str, ...], _Subject]]]
) -> _Row[_Subject]:
    """Metrics with one series per subject; `subjects`: label values and subjects."""

    def row(name: str, text: str, get: Callable[[_Subject], Value]) -> MetricRow:
        return MetricRow(
            name, labels, text, lambda values: ((key, get(subject)) for key, subject in subjects(values))
        )

    return row


def _role_quantiles(name: str, text: str, get: Callable[[RoleView], Mapping[float, float]]) -> MetricRow:
    def series(values: Scrape) -> Series:
        for role in values.roles:
            for quantile, value in get(role).items():
                yield (role.role, f"{quantile:g}"), value

    return MetricRow(name, ("role", "quantile"), text, series)


_component = _per(
    ("group", "component", "metric", "level"),
    lambda values: (((s.group, s.component, s.metric, s.level), s) for s in values.standings()),
)
_value = _per(
    ("group", "component", "metric", "level", "unit"),
    lambda values: (
        ((s.group, s.component, s.metric, s.level, unit(values.sources.get(s.group, ""), s.metric)), s)
        for s in values.standings()
    ),
)
_node = _per(("node",), lambda values: (((node.node,), node) for node in values.nodes))
_collector = _per(
    ("node", "collector"),
    lambda values: (
        ((node.node, name), collector)
        for node in values.nodes
        for name, collector in sorted(node.collectors.items())
    ),
)
_role = _per(("role",), lambda values: (((role.role,), role) for role in values.roles))
_counter: _Row[Counters] = _per((), lambda values: [((), values.counters)])
_site: _Row[Scrape] = _per((), lambda values: [((), values)])
_state = _per((), lambda values: [] if values.durability is None else [((), values.durability)])
_channel = _per(
    ("channel",),
    lambda values: (((name,), channel) for name, channel in sorted(values.counters.notifications.items())),
)


_scrape = _per(
    ("input",), lambda values: (((name,), s) for name, s in sorted(values.counters.scrapes.items()))
)


def _notifications(values: Scrape) -> Series:
    for name, channel in sorted(values.counters.notifications.items()):
        for result, count in sorted(channel.results.items()):
            yield (name, result), count


def _alarm_infos(values: Scrape) -> Series:
    sources = {group.name: group.source for group in values.groups}
    for row in values.standings():
        if row.alarm is not None:
            source = sources.get(row.group, "")
            said = claim(row.severity, worse(source, row.metric))
            url = values.page + urls.component(row.group, row.component, row.metric, row.alarm.since)
            yield (*row.key, row.name, said, unit(source, row.metric), url), 1


def _alarm_causes(values: Scrape) -> Series:
    for standing in values.standings():
        for cause, amount in standing.causes if standing.alarm is not None else ():
            yield (standing.group, standing.component, standing.metric, cause), amount


def _group_components(values: Scrape) -> Series:
    for group in values.groups:
        yield (group.name, "live"), group.live
        yield (group.name, "silent"), group.silent


def _node_counts(values: Scrape) -> Series:
    gone: Counter[tuple[str, str]] = Counter(
        (node.role, node.state) for node in values.drained if node.state in ("silent", "down")
    )
    for role in sorted({role for role, _ in values.node_counts}):
        for state in NODE_STATES:
            yield (role, state), values.node_counts.get((role, state), 0) - gone[role, state]
        yield (role, "drained"), gone[role, "silent"] + gone[role, "down"]


def _shadow_verdicts(values: Scrape) -> Series:
    for group in values.groups:
        shadow, counted = group.detect.shadow, values.counters.shadow_verdicts.get(group.name)
        if shadow is not None and counted is not None:
            for state, labels in _SHADOW_LABELS.items():
                yield (group.name, shadow.detector, *labels), counted[state]


def _shadow_stragglers(values: Scrape) -> Series:
    of_groups = {group.name: group.detect.shadow for group in values.groups}
    stragglers_of: dict[str, tuple[set[str], set[str]]] = {}
    for judged in values.judgements:
        if judged.shadow is not None:
            both = stragglers_of.setdefault(judged.group, (set(), set()))
            for every, of_metric in zip(both, shadows.stragglers(judged), strict=True):
                every.update(of_metric)
    for name, (own, other) in stragglers_of.items():
        shadow = of_groups.get(name)
        if shadow is not None:
            yield (name, shadow.detector, "yes"), len(own & other)
            yield (name, shadow.detector, "no"), len(other - own)


_SHADOW_LABELS = {
    shadows.NEITHER: ("yes", "no"),
    shadows.BOTH: ("yes", "yes"),
    shadows.SHADOW: ("no", "yes"),
    shadows.DETECTOR: ("no", "no"),
}
"""Values of the labels `agrees` and `anomalous` by state."""

PER_COMPONENT = (
    _component(
        "laggard_alarm_active",
        "1 while an alarm is raised; the series ends when it is cleared.",
        lambda s: None if s.alarm is None else 1,
    ),
    _component(
        "laggard_alarm_since_timestamp_seconds",
        "Start of the episode of a raised alarm.",
        lambda s: None if s.alarm is None else s.alarm.since,
    ),
    MetricRow(
        "laggard_alarm_info",
        ("group", "component", "metric", "name", "claim", "unit", "page_url"),
        "Always 1 while an alarm is raised: current name, relation to the peers, unit of the metric, page.",
        _alarm_infos,
    ),
    _component(
        "laggard_component_anomalous",
        "Whether the latest window was anomalous (0 or 1).",
        lambda s: s.anomalous if s.judged else None,
    ),
    _component(
        "laggard_component_persistence",
        "Accumulator: anomalous windows minus normal windows, at least 0.",
        lambda s: s.persistence,
    ),
    _component(
        "laggard_component_score",
        "Score of the latest window in the detector's unit; larger is worse.",
        lambda s: s.score,
    ),
    _component(
        "laggard_component_severity_ratio",
        "Times slower than the peers, on average over the windows of the evidence; 2 takes twice as long.",
        lambda s: s.severity,
    ),
    MetricRow(
        "laggard_component_factor_ratio",
        ("group", "component", "metric", "level"),
        "Times slower than the peers in the latest window: observed by reference (inverse if less is worse).",
        lambda values: (
            (
                (s.group, s.component, s.metric, s.level),
                factor_now(s, worse(values.sources.get(s.group, ""), s.metric)),
            )
            for s in values.standings()
        ),
    ),
    _value(
        "laggard_component_observed",
        "Value of the component in the latest window, in the unit of the label (none: a number or share).",
        lambda s: s.observed,
    ),
    _value(
        "laggard_component_reference",
        "Value of the component's peers in the latest window, in the unit of the label.",
        lambda s: s.reference,
    ),
    MetricRow(
        "laggard_component_info",
        ("group", "component", "name"),
        "Always 1; name is the component's current name, such as node/sda.",
        lambda values: (
            (key, 1) for key in dict.fromkeys((s.group, s.component, s.name) for s in values.standings())
        ),
    ),
    MetricRow(
        "laggard_alarm_cause",
        ("group", "component", "metric", "cause"),
        "Functions that differ most while an alarm of the detector manhattan is raised, at most ten.",
        _alarm_causes,
    ),
    _component(
        "laggard_alarm_silenced",
        "1 while a raised alarm is silenced by an operator; it sends no notifications.",
        lambda s: None if s.alarm is None or s.silenced is None else 1,
    ),
)

PER_GROUP = (
    MetricRow(
        "laggard_group_components",
        ("group", "state"),
        "Components of a peer group by state (live, silent).",
        _group_components,
    ),
    MetricRow(
        "laggard_group_judged",
        ("group", "metric"),
        "Whether the group's latest window got a verdict (0 or 1).",
        lambda values: (((j.group, j.metric), bool(j.verdicts.judged.any())) for j in values.judgements),
    ),
    MetricRow(
        "laggard_group_split_ratio",
        ("group", "metric", "attribute", "value"),
        "Of a group that falls into two: slowness of the components with that value relative to the rest.",
        lambda values: (
            ((j.group, j.metric, j.split.attribute, j.split.value), j.split.factor)
            for j in values.judgements
            if j.split is not None
        ),
    ),
    MetricRow(
        "laggard_nodes",
        ("role", "state"),
        "Nodes by role and state; drained: silent or down under maintenance.",
        _node_counts,
    ),
    MetricRow(
        "laggard_unlisted_nodes",
        (),
        "Unhealthy nodes without series in /metrics, beyond 500; /metrics/nodes has all.",
        lambda values: (((), values.unlisted_nodes),),
    ),
    MetricRow(
        "laggard_shadow_verdicts_total",
        ("group", "detector", "agrees", "anomalous"),
        "Verdicts of a group's shadow detector, by agreement with the group's detector, over all metrics.",
        _shadow_verdicts,
    ),
    MetricRow(
        "laggard_shadow_stragglers",
        ("group", "detector", "agrees"),
        "Stragglers by a group's shadow detector, by whether the group's detector agrees.",
        _shadow_stragglers,
    ),
)

PER_NODE = (
    MetricRow(
        "laggard_node_up",
        ("node", "role"),
        "Whether the node's agent is up and sends samples (0 or 1).",
        lambda values: (((node.node, node.role), node.state == "up") for node in values.nodes),
    ),
    MetricRow(
        "laggard_node_drained",
        ("node", "role"),
        "Always 1, of a node under maintenance (laggard drain).",
        lambda values: (((node.node, node.role), 1) for node in values.drained),
    ),
    _node(
        "laggard_node_clock_offset_seconds",
        "Clock of the node minus clock of the aggregator.",
        lambda n: n.clock_offset_seconds,
    ),
    _node(
        "laggard_node_last_sample_timestamp_seconds",
        "Time of the node's latest sample.",
        lambda n: n.last_sample,
    ),
    _collector(
        "laggard_agent_collector_success",
        "Whether the collector's latest collection succeeded (0 or 1).",
        lambda c: c.success,
    ),
    _collector(
        "laggard_agent_collector_seconds",
        "Duration of the collector's latest collection.",
        lambda c: c.seconds,
    ),
    _node("laggard_agent_spool_bytes", "Size of the agent's spool.", lambda n: n.spool_bytes),
    _node(
        "laggard_agent_dropped_samples_total",
        "Samples dropped because the agent's spool was full.",
        lambda n: n.dropped_samples,
    ),
    _node("laggard_agent_cpu_seconds_total", "CPU time used by the agent.", lambda n: n.cpu_seconds),
    _node("laggard_agent_resident_bytes", "Resident memory of the agent.", lambda n: n.resident_bytes),
    _node(
        "laggard_agent_unacknowledged_seconds",
        "Time for which the agent's batches have not been acknowledged by the aggregator.",
        lambda n: n.unacknowledged_seconds,
    ),
)

PER_ROLE = (
    _role(
        "laggard_role_spool_bytes", "Size of the spools of all agents of the role.", lambda r: r.spool_bytes
    ),
    _role(
        "laggard_role_dropped_samples_total",
        "Samples that the agents of the role dropped because their spool was full.",
        lambda r: r.dropped_samples,
    ),
    _role(
        "laggard_role_missed_ticks_total",
        "Ticks that the agents of the role missed because they were late.",
        lambda r: r.missed_ticks,
    ),
    _role(
        "laggard_role_cpu_seconds_total",
        "CPU time used by the agents of the role.",
        lambda r: r.cpu_seconds,
    ),
    _role_quantiles("laggard_role_spool_bytes_quantile", "Size of an agent's spool.", lambda r: r.spool),
    _role_quantiles(
        "laggard_role_resident_bytes_quantile", "Resident memory of an agent.", lambda r: r.resident_bytes
    ),
    _role_quantiles(
        "laggard_role_clock_offset_seconds_quantile",
        "Absolute clock offset of a node.",
        lambda r: r.clock_offset_seconds,
    ),
    MetricRow(
        "laggard_role_collectors_failing",
        ("role", "collector"),
        "Nodes on which the collector fails.",
        lambda values: (
            ((role.role, name), collector.failing)
            for role in values.roles
            for name, collector in role.collectors.items()
        ),
    ),
    MetricRow(
        "laggard_role_collector_seconds_quantile",
        ("role", "collector", "quantile"),
        "Duration of the collector's latest collection on a node.",
        lambda values: (
            ((role.role, name, f"{quantile:g}"), seconds)
            for role in values.roles
            for name, collector in role.collectors.items()
            for quantile, seconds in collector.seconds.items()
        ),
    ),
)

AGGREGATOR = (
    _counter("laggard_messages_total", "Messages received from agents.", lambda c: c.messages),
    _counter(
        "laggard_samples_total",
        "Samples accepted; a sample is one reading of one component.",
        lambda c: c.samples,
    ),
    _counter("laggard_gaps_total", "Batches missing from a stream, declared lost.", lambda c: c.gaps),
    _counter("laggard_duplicates_total", "Duplicate messages dropped.", lambda c: c.duplicates),
    _counter(
        "laggard_two_streams_total",
        "Times that two streams of one node and source were live at once.",
        lambda c: c.two_streams,
    ),
    _counter(
        "laggard_late_samples_total",
        "Samples that arrived after their window had closed.",
        lambda c: c.late_samples,
    ),
    _counter(
        "laggard_future_samples_total",
        "Samples set aside because their time was in the future.",
        lambda c: c.future_samples,
    ),
    _counter(
        "laggard_resets_total", "Counter resets; the interval of a reset is discarded.", lambda c: c.resets
    ),
    _counter(
        "laggard_wire_errors_total",
        "Messages rejected because they are malformed or of another version.",
        lambda c: sum(c.wire_errors.values()),
    ),
    _counter("laggard_held_messages", "Messages that wait for their schema.", lambda c: c.held),
    _counter(
        "laggard_queue_dropped_messages_total",
        "Messages dropped because the ingest queue was full.",
        lambda c: c.queue_dropped,
    ),
    _counter("laggard_queue_bytes", "Size of the ingest queue.", lambda c: c.queue_bytes),
    _counter(
        "laggard_archive_dropped_records_total",
        "Records dropped because the archive's write queue was full.",
        lambda c: c.archive_dropped,
    ),
    _counter(
        "laggard_archive_returned_batches_total",
        "Batches not acknowledged because the archive's write queue was full; agents send them again.",
        lambda c: c.archive_returned,
    ),
    _counter(
        "laggard_archive_up",
        "Whether the archive can be written (0 or 1); no series without an archive.",
        lambda c: c.archive_up,
    ),
    _counter(
        "laggard_archive_lag_seconds",
        "Time for which the oldest accepted record has waited to be written to the archive.",
        lambda c: None if c.archive_up is None else c.archive_lag_seconds,
    ),
    _counter(
        "laggard_archive_damaged_files",
        "Damaged files of the archive that were moved to its folder damaged.",
        lambda c: None if c.archive_up is None else c.archive_damaged,
    ),
    MetricRow(
        "laggard_archive_refused_rows_total",
        ("node",),
        "Rows not archived because the node's schema has more new fields than a table takes.",
        lambda values: (
            ((node,), rows) for node, rows in Counter(values.counters.archive_refused).most_common(20)
        ),
    ),
    _counter(
        "laggard_documents_total", "Documents accepted from the nodes' outboxes.", lambda c: c.documents
    ),
    _counter(
        "laggard_refused_documents_total",
        "Accepted documents that are malformed and so not archived.",
        lambda c: c.refused_documents,
    ),
    _counter(
        "laggard_rollup_rows_total",
        "Rows added to the archive's series60.",
        lambda c: None if c.background is None else c.background.rolled_rows,
    ),
    _counter(
        "laggard_rollup_lag_seconds",
        "Time for which the oldest hour that is due has waited for its rollup.",
        lambda c: None if c.background is None else c.background.lag_seconds,
    ),
    _counter(
        "laggard_joined_jobs_total",
        "Jobs that were joined with the archive's counters, each time.",
        lambda c: None if c.background is None else c.background.joined_jobs,
    ),
    _counter(
        "laggard_judged_jobs_total",
        "Verdicts on jobs that were stored, one after each join.",
        lambda c: None if c.background is None else c.background.judged_jobs,
    ),
    _counter(
        "laggard_waiting_jobs",
        "Jobs that are over and wait to be joined with the archive's counters.",
        lambda c: None if c.background is None else c.background.waiting_jobs,
    ),
    _counter(
        "laggard_background_failures_total",
        "Passes over the archive, for rollups or jobs, that ended with an error and are tried again.",
        lambda c: None if c.background is None else c.background.failures,
    ),
    _counter(
        "laggard_sacct_up",
        "Whether the last poll of sacct succeeded (0 or 1); no series without [jobs] sacct.",
        lambda c: None if c.job_polls is None else not c.job_polls.failure,
    ),
    _counter(
        "laggard_sacct_last_success_timestamp_seconds",
        "Time of the last successful poll of sacct.",
        lambda c: None if c.job_polls is None else c.job_polls.succeeded_at,
    ),
    _counter(
        "laggard_sacct_failures_total",
        "Polls of sacct that failed.",
        lambda c: None if c.job_polls is None else c.job_polls.failures,
    ),
    _counter(
        "laggard_sacct_rows_left_out_total",
        "Rows of sacct that could not be used.",
        lambda c: None if c.job_polls is None else c.job_polls.left_out,
    ),
    _counter(
        "laggard_job_revisions_total",
        "Revisions of jobs that polls of sacct wrote to the archive.",
        lambda c: None if c.job_polls is None else c.job_polls.revisions,
    ),
    _counter(
        "laggard_clock_steps_total", "Steps of the host's clock that were noticed.", lambda c: c.clock_steps
    ),
    _counter(
        "laggard_clock_difference_seconds",
        "The host's clock minus the clock of windows, which follows most nodes.",
        lambda c: c.clock_difference_seconds,
    ),
    _counter("laggard_windows_total", "Windows judged, over all peer groups.", lambda c: c.windows),
    _counter(
        "laggard_window_lag_seconds",
        "Time from the deadline of the latest window to its verdicts.",
        lambda c: c.window_lag_seconds,
    ),
    _counter(
        "laggard_window_lag_most_seconds",
        "Maximum of laggard_window_lag_seconds since the start.",
        lambda c: c.window_lag_most_seconds,
    ),
    _site("laggard_start_time_seconds", "Start time of the aggregator.", lambda values: values.started_at),
    _site(
        "laggard_ready",
        "Whether the state is restored, the broker subscribed to, and every [[prometheus]] read (0 or 1).",
        lambda values: values.ready,
    ),
    _scrape(
        "laggard_prometheus_up",
        "Whether the latest poll of the [[prometheus]] succeeded (0 or 1).",
        lambda s: s.polled and not s.failure,
    ),
    _scrape("laggard_prometheus_polls_total", "Polls of the [[prometheus]].", lambda s: s.polls),
    _scrape("laggard_prometheus_poll_failures_total", "Polls that failed.", lambda s: s.failures),
    _scrape(
        "laggard_prometheus_newest_timestamp_seconds",
        "End of the newest scrape interval that was read.",
        lambda s: s.newest,
    ),
    _scrape(
        "laggard_prometheus_readings_total",
        "Readings of components that were admitted.",
        lambda s: s.readings,
    ),
    _scrape("laggard_prometheus_series", "Series in the latest answers.", lambda s: s.series),
    _scrape(
        "laggard_prometheus_further_series",
        "Sets of series in the latest answers besides the one of their component that counts.",
        lambda s: s.ambiguous,
    ),
    _scrape(
        "laggard_prometheus_left_out_total",
        "Values that no counter has, and readings of components without a usable name or room.",
        lambda s: s.left_out,
    ),
    _scrape(
        "laggard_prometheus_lost_seconds_total",
        "Time that was not read, as it was older than backlog_seconds.",
        lambda s: s.lost_seconds,
    ),
    MetricRow(
        "laggard_refused_messages_total",
        ("reason",),
        "Messages rejected because they exceed a limit or contradict their topic or schema.",
        lambda values: (((reason,), n) for reason, n in sorted(values.counters.refused.items())),
    ),
    MetricRow(
        "laggard_flooding_node_messages_per_second",
        ("node",),
        "Message rate of the fastest node while it exceeds the rate of any agent; no series otherwise.",
        lambda values: (((node,), rate) for node, rate in filter(None, [values.counters.flooding])),
    ),
    MetricRow(
        "laggard_mails_total",
        ("result",),
        "Mails by result (sent, refused, expired), and attempts that will be repeated (retried).",
        lambda values: (((labels[1],), n) for labels, n in _notifications(values) if labels[0] == "mail"),
    ),
    _counter(
        "laggard_mails_waiting",
        "Mails that wait for the mail server.",
        lambda c: c.notifications["mail"].waiting if "mail" in c.notifications else None,
    ),
    MetricRow(
        "laggard_notifications_total",
        ("channel", "result"),
        "Notifications by result (sent, refused, expired), and attempts that will be repeated (retried).",
        _notifications,
    ),
    _channel(
        "laggard_notifications_waiting", "Notifications that wait for their destination.", lambda c: c.waiting
    ),
    MetricRow(
        "laggard_decisions",
        ("kind",),
        "Silences and drains in force.",
        lambda values: (
            ((kind,), sum(decision.kind == kind for decision in values.decisions))
            for kind in ("silence", "drain")
        ),
    ),
    MetricRow(
        "laggard_build_info",
        ("version", "site"),
        "Always 1; version and site of the aggregator.",
        lambda values: [((values.version, values.site), 1)],
    ),
)

STATE = (
    _state(
        "laggard_state_durable",
        "Whether batches are journaled and acknowledged (0 or 1); 0 withholds acknowledgements.",
        lambda d: d.whole,
    ),
    _state("laggard_journal_bytes", "Size of the journal.", lambda d: d.journal_bytes),
    _state("laggard_snapshot_bytes", "Size of the latest snapshot.", lambda d: d.snapshot_bytes),
    _state("laggard_snapshot_timestamp_seconds", "Time of the latest snapshot.", lambda d: d.snapshot_at),
    _state(
        "laggard_snapshot_seconds",
        "Time for which ingest paused for the latest snapshot.",
        lambda d: d.snapshot_seconds,
    ),
    _state("laggard_state_failures_total", "Failed writes of journal or snapshot.", lambda d: d.failures),
    _state(
        "laggard_state_damaged_files",
        "Damaged, missing or unreadable files of the state that the last start found.",
        lambda d: d.damaged_files,
    ),
    _state(
        "laggard_lost_batches_total",
        "Batches and window closes that the last start could not read from the journal.",
        lambda d: d.lost_batches,
    ),
)

TABLE = (*PER_COMPONENT, *PER_GROUP, *PER_NODE, *PER_ROLE, *AGGREGATOR, *STATE)
"""Every metric of `/metrics`, in the order of its exposition."""
