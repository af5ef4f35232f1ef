"""Every metric of `/metrics` and `/metrics/nodes`: name, labels, help and getter; the name gives the type.

A name or label that changes breaks dashboards and alerting rules, and needs an entry in the changelog. A test
holds the tables of docs/metrics.md equal to this one.
"""

from collections.abc import Callable, Iterable, Mapping

from laggard_aggregator.ingest.node_view import NodeState, NodeView, RoleView
from laggard_aggregator.log.journal import Durability
from laggard_aggregator.status.straggler_list import Standing
from laggard_aggregator.status.view import Counters
from laggard_aggregator.web.exposition import Getter, MetricRow, Scrape, Value

NODE_STATES: tuple[NodeState, ...] = ("up", "silent", "stopped", "down")


def _value(get: Callable[[Scrape], Value]) -> Getter:
    return lambda values: [((), get(values))]


def _counter(get: Callable[[Counters], Value]) -> Getter:
    return lambda values: [((), get(values.counters))]


def _per_component(get: Callable[[Standing], Value]) -> Getter:
    return lambda values: (((s.group, s.component, s.metric, s.level), get(s)) for s in values.standings)


def _per_node(get: Callable[[NodeView], Value]) -> Getter:
    return lambda values: (((node.node,), get(node)) for node in values.nodes)


def _per_role(get: Callable[[RoleView], Value]) -> Getter:
    return lambda values: (((role.role,), get(role)) for role in values.roles)


def _role_quantiles(get: Callable[[RoleView], Mapping[float, float]]) -> Getter:
    return lambda values: (
        ((role.role, f"{quantile:g}"), value)
        for role in values.roles
        for quantile, value in get(role).items()
    )


def _state(get: Callable[[Durability], Value]) -> Getter:
    return lambda values: [] if values.durability is None else [((), get(values.durability))]


def _notifications(values: Scrape) -> Iterable[tuple[tuple[str, ...], Value]]:
    for name, channel in sorted(values.counters.notifications.items()):
        for result, count in sorted(channel.results.items()):
            yield (name, result), count


def _component_names(values: Scrape) -> Iterable[tuple[tuple[str, ...], Value]]:
    return ((key, 1) for key in dict.fromkeys((s.group, s.component, s.name) for s in values.standings))


def _alarm_causes(values: Scrape) -> Iterable[tuple[tuple[str, ...], Value]]:
    for standing in values.standings:
        for cause, amount in standing.causes if standing.alarm is not None else ():
            yield (standing.group, standing.component, standing.metric, cause), amount


def _group_components(values: Scrape) -> Iterable[tuple[tuple[str, ...], Value]]:
    for group in values.groups:
        yield (group.name, "live"), group.live
        yield (group.name, "silent"), group.silent


def _node_counts(values: Scrape) -> Iterable[tuple[tuple[str, ...], Value]]:
    for role in sorted({role for role, _ in values.node_counts}):
        for state in NODE_STATES:
            yield (role, state), values.node_counts.get((role, state), 0)


_COMPONENT = ("group", "component", "metric", "level")

PER_COMPONENT = (
    MetricRow(
        "laggard_alarm_active",
        _COMPONENT,
        "1 while an alarm is raised; the series ends when it is cleared.",
        _per_component(lambda s: None if s.alarm is None else 1),
    ),
    MetricRow(
        "laggard_component_anomalous",
        _COMPONENT,
        "Whether the latest window was anomalous (0 or 1).",
        _per_component(lambda s: s.anomalous if s.judged else None),
    ),
    MetricRow(
        "laggard_component_persistence",
        _COMPONENT,
        "Accumulator: anomalous windows minus normal windows, at least 0.",
        _per_component(lambda s: s.persistence),
    ),
    MetricRow(
        "laggard_component_score",
        _COMPONENT,
        "Score of the latest window in the detector's unit; larger is worse.",
        _per_component(lambda s: s.score),
    ),
    MetricRow(
        "laggard_component_severity_ratio",
        _COMPONENT,
        "Slowness relative to the peers; 1 is as fast as the peers, 2 takes twice as long.",
        _per_component(lambda s: s.severity),
    ),
    MetricRow(
        "laggard_component_info",
        ("group", "component", "name"),
        "Always 1; name is the component's current name, such as node/sda.",
        _component_names,
    ),
    MetricRow(
        "laggard_alarm_cause",
        ("group", "component", "metric", "cause"),
        "Functions that differ most while an alarm of the detector manhattan is raised, at most ten.",
        _alarm_causes,
    ),
    MetricRow(
        "laggard_alarm_silenced",
        _COMPONENT,
        "1 while a raised alarm is silenced by an operator; it sends no notifications.",
        _per_component(lambda s: None if s.alarm is None or s.silenced is None else 1),
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
    MetricRow("laggard_nodes", ("role", "state"), "Nodes by role and state.", _node_counts),
)

PER_NODE = (
    MetricRow(
        "laggard_node_up",
        ("node", "role"),
        "Whether the node's agent is up and sends samples (0 or 1).",
        lambda values: (((node.node, node.role), node.state == "up") for node in values.nodes),
    ),
    MetricRow(
        "laggard_node_clock_offset_seconds",
        ("node",),
        "Clock of the node minus clock of the aggregator.",
        _per_node(lambda n: n.clock_offset_seconds),
    ),
    MetricRow(
        "laggard_node_last_sample_timestamp_seconds",
        ("node",),
        "Time of the node's latest sample.",
        _per_node(lambda n: n.last_sample),
    ),
    MetricRow(
        "laggard_agent_collector_success",
        ("node", "collector"),
        "Whether the collector's latest collection succeeded (0 or 1).",
        lambda values: (
            ((node.node, name), collector.success)
            for node in values.nodes
            for name, collector in sorted(node.collectors.items())
        ),
    ),
    MetricRow(
        "laggard_agent_collector_seconds",
        ("node", "collector"),
        "Duration of the collector's latest collection.",
        lambda values: (
            ((node.node, name), collector.seconds)
            for node in values.nodes
            for name, collector in sorted(node.collectors.items())
        ),
    ),
    MetricRow(
        "laggard_agent_spool_bytes",
        ("node",),
        "Size of the agent's spool.",
        _per_node(lambda n: n.spool_bytes),
    ),
    MetricRow(
        "laggard_agent_dropped_samples_total",
        ("node",),
        "Samples dropped because the agent's spool was full.",
        _per_node(lambda n: n.dropped_samples),
    ),
    MetricRow(
        "laggard_agent_cpu_seconds_total",
        ("node",),
        "CPU time used by the agent.",
        _per_node(lambda n: n.cpu_seconds),
    ),
    MetricRow(
        "laggard_agent_resident_bytes",
        ("node",),
        "Resident memory of the agent.",
        _per_node(lambda n: n.resident_bytes),
    ),
)

PER_ROLE = (
    MetricRow(
        "laggard_role_spool_bytes",
        ("role",),
        "Size of the spools of all agents of the role.",
        _per_role(lambda r: r.spool_bytes),
    ),
    MetricRow(
        "laggard_role_dropped_samples",
        ("role",),
        "Samples dropped because the spool was full, sum over the agents of the role.",
        _per_role(lambda r: r.dropped_samples),
    ),
    MetricRow(
        "laggard_role_missed_ticks",
        ("role",),
        "Ticks missed because the agent was late, sum over the agents of the role.",
        _per_role(lambda r: r.missed_ticks),
    ),
    MetricRow(
        "laggard_role_cpu_seconds",
        ("role",),
        "CPU time used since each agent's start, sum over the agents of the role.",
        _per_role(lambda r: r.cpu_seconds),
    ),
    MetricRow(
        "laggard_role_spool_bytes_quantile",
        ("role", "q"),
        "Size of an agent's spool.",
        _role_quantiles(lambda r: r.spool),
    ),
    MetricRow(
        "laggard_role_resident_bytes_quantile",
        ("role", "q"),
        "Resident memory of an agent.",
        _role_quantiles(lambda r: r.resident_bytes),
    ),
    MetricRow(
        "laggard_role_clock_offset_seconds_quantile",
        ("role", "q"),
        "Absolute clock offset of a node.",
        _role_quantiles(lambda r: r.clock_offset_seconds),
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
        ("role", "collector", "q"),
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
    MetricRow("laggard_messages_total", (), "Messages received from agents.", _counter(lambda c: c.messages)),
    MetricRow(
        "laggard_samples_total",
        (),
        "Samples accepted; a sample is one reading of one component.",
        _counter(lambda c: c.samples),
    ),
    MetricRow(
        "laggard_gaps_total", (), "Batches missing from a stream, declared lost.", _counter(lambda c: c.gaps)
    ),
    MetricRow(
        "laggard_duplicates_total", (), "Duplicate messages dropped.", _counter(lambda c: c.duplicates)
    ),
    MetricRow(
        "laggard_two_streams_total",
        (),
        "Times that two streams of one node and source were live at once.",
        _counter(lambda c: c.two_streams),
    ),
    MetricRow(
        "laggard_late_samples_total",
        (),
        "Samples that arrived after their window had closed.",
        _counter(lambda c: c.late_samples),
    ),
    MetricRow(
        "laggard_future_samples_total",
        (),
        "Samples set aside because their time was in the future.",
        _counter(lambda c: c.future_samples),
    ),
    MetricRow(
        "laggard_resets_total",
        (),
        "Counter resets; the interval of a reset is discarded.",
        _counter(lambda c: c.resets),
    ),
    MetricRow(
        "laggard_wire_errors_total",
        (),
        "Messages rejected because they are malformed or of another version.",
        _counter(lambda c: sum(c.wire_errors.values())),
    ),
    MetricRow(
        "laggard_held_messages", (), "Messages that wait for their schema.", _counter(lambda c: c.held)
    ),
    MetricRow(
        "laggard_queue_dropped_messages_total",
        (),
        "Messages dropped because the ingest queue was full.",
        _counter(lambda c: c.queue_dropped),
    ),
    MetricRow("laggard_queue_bytes", (), "Size of the ingest queue.", _counter(lambda c: c.queue_bytes)),
    MetricRow(
        "laggard_archive_dropped_records_total",
        (),
        "Records dropped because the archive's write queue was full.",
        _counter(lambda c: c.archive_dropped),
    ),
    MetricRow(
        "laggard_archive_returned_batches_total",
        (),
        "Batches not acknowledged because the archive's write queue was full; agents send them again.",
        _counter(lambda c: c.archive_returned),
    ),
    MetricRow(
        "laggard_windows_total", (), "Windows judged, over all peer groups.", _counter(lambda c: c.windows)
    ),
    MetricRow(
        "laggard_window_lag_seconds",
        (),
        "Time from the deadline of the latest window to its verdicts.",
        _counter(lambda c: c.window_lag_seconds),
    ),
    MetricRow(
        "laggard_window_lag_most_seconds",
        (),
        "Maximum of laggard_window_lag_seconds since the start.",
        _counter(lambda c: c.window_lag_most_seconds),
    ),
    MetricRow(
        "laggard_start_time_seconds",
        (),
        "Start time of the aggregator.",
        _value(lambda values: values.started_at),
    ),
    MetricRow(
        "laggard_ready",
        (),
        "Whether the state is restored and the aggregator is subscribed at the broker (0 or 1).",
        _value(lambda values: values.ready),
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
        lambda values: (
            []
            if values.counters.flooding is None
            else [((values.counters.flooding[0],), values.counters.flooding[1])]
        ),
    ),
    MetricRow(
        "laggard_mails_total",
        ("result",),
        "Mails by result (sent, refused, expired), and attempts that will be repeated (retried).",
        lambda values: (((labels[1],), n) for labels, n in _notifications(values) if labels[0] == "mail"),
    ),
    MetricRow(
        "laggard_mails_waiting",
        (),
        "Mails that wait for the mail server.",
        _counter(lambda c: c.notifications["mail"].waiting if "mail" in c.notifications else None),
    ),
    MetricRow(
        "laggard_notifications_total",
        ("channel", "result"),
        "Notifications by result (sent, refused, expired), and attempts that will be repeated (retried).",
        _notifications,
    ),
    MetricRow(
        "laggard_notifications_waiting",
        ("channel",),
        "Notifications that wait for their destination.",
        lambda values: (
            ((name,), channel.waiting) for name, channel in sorted(values.counters.notifications.items())
        ),
    ),
    MetricRow(
        "laggard_decisions",
        ("kind",),
        "Silences and drains in force.",
        lambda values: (
            ((kind,), sum(each.kind == kind for each in values.decisions)) for kind in ("silence", "drain")
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
    MetricRow(
        "laggard_state_durable",
        (),
        "Whether batches are journaled and acknowledged (0 or 1); 0 withholds acknowledgements.",
        _state(lambda d: d.whole),
    ),
    MetricRow("laggard_journal_bytes", (), "Size of the journal.", _state(lambda d: d.journal_bytes)),
    MetricRow(
        "laggard_snapshot_bytes", (), "Size of the latest snapshot.", _state(lambda d: d.snapshot_bytes)
    ),
    MetricRow(
        "laggard_snapshot_timestamp_seconds",
        (),
        "Time of the latest snapshot.",
        _state(lambda d: d.snapshot_at),
    ),
    MetricRow(
        "laggard_snapshot_seconds",
        (),
        "Time for which ingest paused for the latest snapshot.",
        _state(lambda d: d.snapshot_seconds),
    ),
    MetricRow(
        "laggard_state_failures_total",
        (),
        "Failed writes of journal or snapshot.",
        _state(lambda d: d.failures),
    ),
)

TABLE = (*PER_COMPONENT, *PER_GROUP, *PER_NODE, *PER_ROLE, *AGGREGATOR, *STATE)
"""Every metric of `/metrics`, in the order of its exposition."""
