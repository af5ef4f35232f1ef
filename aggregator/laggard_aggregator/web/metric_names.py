"""What `/metrics` and `/metrics/nodes` promise: names, types, labels. docs/metrics.md is held against it.

Renaming one breaks dashboards and alerting rules, so it needs a reason in the changelog.
"""

from dataclasses import dataclass
from typing import Literal

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

Family = CounterMetricFamily | GaugeMetricFamily


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `name` is what is scraped, `_total` of counters included."""

    name: str
    type: Literal["gauge", "counter"]
    labels: tuple[str, ...]
    help: str

    def family(self) -> Family:
        """An empty family to be filled with samples."""
        if self.type == "counter":
            return CounterMetricFamily(self.name, self.help, labels=self.labels)
        return GaugeMetricFamily(self.name, self.help, labels=self.labels)


_COMPONENT = ("group", "component", "metric", "level")

ALARM_ACTIVE = Metric(
    "laggard_alarm_active", "gauge", _COMPONENT, "1 while an alarm stands; the series ends when it clears."
)
ALARM_SILENCED = Metric(
    "laggard_alarm_silenced",
    "gauge",
    _COMPONENT,
    "1 while an alarm stands that an operator silenced; nobody is to be told of it.",
)
COMPONENT_ANOMALOUS = Metric(
    "laggard_component_anomalous", "gauge", _COMPONENT, "Whether the latest window was anomalous (0 or 1)."
)
COMPONENT_PERSISTENCE = Metric(
    "laggard_component_persistence", "gauge", _COMPONENT, "Anomalous windows less normal ones, never below 0."
)
COMPONENT_SCORE = Metric(
    "laggard_component_score",
    "gauge",
    _COMPONENT,
    "Score of the latest window in the detector's own unit; larger is worse.",
)
COMPONENT_SEVERITY = Metric(
    "laggard_component_severity_ratio",
    "gauge",
    _COMPONENT,
    "How many times slower than its peers; 1 is like them.",
)
COMPONENT_INFO = Metric(
    "laggard_component_info",
    "gauge",
    ("group", "component", "name"),
    "Always 1; name is the component's name of the day, such as node/sda.",
)
ALARM_CAUSE = Metric(
    "laggard_alarm_cause",
    "gauge",
    ("group", "component", "metric", "cause"),
    "What differs most while an alarm of the detector manhattan stands: a function, at most ten of them.",
)

GROUP_COMPONENTS = Metric(
    "laggard_group_components", "gauge", ("group", "state"), "Components of a peer group, live or silent."
)
GROUP_JUDGED = Metric(
    "laggard_group_judged",
    "gauge",
    ("group", "metric"),
    "1 when the group's latest window got a verdict, 0 when it could not be judged.",
)
NODES = Metric("laggard_nodes", "gauge", ("role", "state"), "Nodes by role and state.")

NODE_UP = Metric(
    "laggard_node_up", "gauge", ("node", "role"), "Whether the node's agent is up and sends samples."
)
NODE_CLOCK_OFFSET = Metric(
    "laggard_node_clock_offset_seconds", "gauge", ("node",), "The node's clock less the aggregator's."
)
NODE_LAST_SAMPLE = Metric(
    "laggard_node_last_sample_timestamp_seconds", "gauge", ("node",), "Time of the node's newest sample."
)
COLLECTOR_SUCCESS = Metric(
    "laggard_agent_collector_success",
    "gauge",
    ("node", "collector"),
    "Whether a collector's latest reading succeeded.",
)
COLLECTOR_SECONDS = Metric(
    "laggard_agent_collector_seconds",
    "gauge",
    ("node", "collector"),
    "How long a collector's latest reading took.",
)
AGENT_SPOOL = Metric("laggard_agent_spool_bytes", "gauge", ("node",), "Bytes that wait in the agent's spool.")
AGENT_DROPPED = Metric(
    "laggard_agent_dropped_samples_total",
    "counter",
    ("node",),
    "Samples that the agent's spool had no room for.",
)
AGENT_CPU = Metric(
    "laggard_agent_cpu_seconds_total", "counter", ("node",), "CPU time that the agent has used."
)
AGENT_RESIDENT = Metric("laggard_agent_resident_bytes", "gauge", ("node",), "Resident memory of the agent.")

ROLE_SPOOL = Metric("laggard_role_spool_bytes", "gauge", ("role",), "Bytes that wait in all agents' spools.")
ROLE_DROPPED = Metric(
    "laggard_role_dropped_samples",
    "gauge",
    ("role",),
    "Samples that the agents' spools had no room for, in all.",
)
ROLE_MISSED = Metric(
    "laggard_role_missed_ticks", "gauge", ("role",), "Ticks that agents were late for, in all."
)
ROLE_CPU = Metric(
    "laggard_role_cpu_seconds", "gauge", ("role",), "CPU time that all agents have used since each began."
)
ROLE_SPOOL_QUANTILE = Metric(
    "laggard_role_spool_bytes_quantile", "gauge", ("role", "q"), "Bytes that wait in an agent's spool."
)
ROLE_RESIDENT = Metric(
    "laggard_role_resident_bytes_quantile", "gauge", ("role", "q"), "Resident memory of an agent."
)
ROLE_CLOCK = Metric(
    "laggard_role_clock_offset_seconds_quantile",
    "gauge",
    ("role", "q"),
    "How far a node's clock is off, to either side.",
)
ROLE_COLLECTORS_FAILING = Metric(
    "laggard_role_collectors_failing", "gauge", ("role", "collector"), "Nodes whose collector fails."
)
ROLE_COLLECTOR_SECONDS = Metric(
    "laggard_role_collector_seconds_quantile",
    "gauge",
    ("role", "collector", "q"),
    "How long a collector's latest reading took.",
)

MESSAGES = Metric("laggard_messages_total", "counter", (), "Messages received from agents.")
SAMPLES = Metric("laggard_samples_total", "counter", (), "Readings of one component taken in.")
GAPS = Metric("laggard_gaps_total", "counter", (), "Messages that never came.")
DUPLICATES = Metric("laggard_duplicates_total", "counter", (), "Messages that came again, and were dropped.")
TWO_STREAMS = Metric(
    "laggard_two_streams_total",
    "counter",
    (),
    "How often two streams of one node and source were live at once.",
)
LATE_SAMPLES = Metric(
    "laggard_late_samples_total", "counter", (), "Readings that came after a window over them had closed."
)
FUTURE_SAMPLES = Metric(
    "laggard_future_samples_total", "counter", (), "Readings held apart, as their time lay in the future."
)
RESETS = Metric("laggard_resets_total", "counter", (), "Counters that started over, and were cut out.")
WIRE_ERRORS = Metric(
    "laggard_wire_errors_total", "counter", (), "Messages that are not a message of this version."
)
REFUSED = Metric(
    "laggard_refused_messages_total",
    "counter",
    ("reason",),
    "Messages over a limit, or contradicting their topic or schema.",
)
HELD = Metric("laggard_held_messages", "gauge", (), "Messages that wait for their schema.")
QUEUE_DROPPED = Metric(
    "laggard_queue_dropped_messages_total", "counter", (), "Messages dropped as ingest did not keep up."
)
QUEUE_BYTES = Metric("laggard_queue_bytes", "gauge", (), "Memory of the messages that wait to be taken in.")
FLOODING = Metric(
    "laggard_flooding_node_messages_per_second",
    "gauge",
    ("node",),
    "What the fastest sender sends, when it is more than any agent does; no series otherwise.",
)
ARCHIVE_DROPPED = Metric(
    "laggard_archive_dropped_records_total", "counter", (), "Records lost as the archive did not keep up."
)
ARCHIVE_RETURNED = Metric(
    "laggard_archive_returned_batches_total",
    "counter",
    (),
    "Batches that the archive had no room for; not acknowledged, so that they come again.",
)
STATE_DURABLE = Metric(
    "laggard_state_durable", "gauge", (), "Whether batches are journaled and acknowledged; 0 withholds."
)
JOURNAL_BYTES = Metric("laggard_journal_bytes", "gauge", (), "Size of the ingest journal.")
SNAPSHOT_BYTES = Metric("laggard_snapshot_bytes", "gauge", (), "Size of the latest snapshot.")
SNAPSHOT_TIME = Metric(
    "laggard_snapshot_timestamp_seconds", "gauge", (), "When the latest snapshot was taken."
)
SNAPSHOT_SECONDS = Metric(
    "laggard_snapshot_seconds", "gauge", (), "How long nothing was taken in for the latest snapshot."
)
STATE_FAILURES = Metric(
    "laggard_state_failures_total", "counter", (), "How often journal or snapshot could not be written."
)
WINDOWS = Metric("laggard_windows_total", "counter", (), "Windows of a peer group that were judged.")
WINDOW_LAG = Metric(
    "laggard_window_lag_seconds", "gauge", (), "How long after its deadline the latest window was judged."
)
MAILS = Metric(
    "laggard_mails_total",
    "counter",
    ("result",),
    "Mails by what became of them, and tries that have to be made again (retried).",
)
MAILS_WAITING = Metric("laggard_mails_waiting", "gauge", (), "Mails that wait for the server.")
DECISIONS = Metric(
    "laggard_decisions", "gauge", ("kind",), "What operators silenced or drained, and still stands."
)
WINDOW_LAG_MOST = Metric(
    "laggard_window_lag_most_seconds",
    "gauge",
    (),
    "How long after its deadline a window was judged at most since the start.",
)
BUILD_INFO = Metric("laggard_build_info", "gauge", ("version", "site"), "Always 1; what runs here.")
START_TIME = Metric("laggard_start_time_seconds", "gauge", (), "When the aggregator started.")
READY = Metric(
    "laggard_ready",
    "gauge",
    (),
    "Whether the aggregator is restored, connected to the broker and subscribed.",
)

PER_COMPONENT = (
    ALARM_ACTIVE,
    COMPONENT_ANOMALOUS,
    COMPONENT_PERSISTENCE,
    COMPONENT_SCORE,
    COMPONENT_SEVERITY,
    COMPONENT_INFO,
    ALARM_CAUSE,
    ALARM_SILENCED,
)
PER_GROUP = (GROUP_COMPONENTS, GROUP_JUDGED, NODES)
PER_NODE = (
    NODE_UP,
    NODE_CLOCK_OFFSET,
    NODE_LAST_SAMPLE,
    COLLECTOR_SUCCESS,
    COLLECTOR_SECONDS,
    AGENT_SPOOL,
    AGENT_DROPPED,
    AGENT_CPU,
    AGENT_RESIDENT,
)
PER_ROLE = (
    ROLE_SPOOL,
    ROLE_DROPPED,
    ROLE_MISSED,
    ROLE_CPU,
    ROLE_SPOOL_QUANTILE,
    ROLE_RESIDENT,
    ROLE_CLOCK,
    ROLE_COLLECTORS_FAILING,
    ROLE_COLLECTOR_SECONDS,
)
OWN = (
    MESSAGES,
    SAMPLES,
    GAPS,
    DUPLICATES,
    TWO_STREAMS,
    LATE_SAMPLES,
    FUTURE_SAMPLES,
    RESETS,
    WIRE_ERRORS,
    REFUSED,
    HELD,
    QUEUE_DROPPED,
    QUEUE_BYTES,
    FLOODING,
    ARCHIVE_DROPPED,
    ARCHIVE_RETURNED,
    WINDOWS,
    WINDOW_LAG,
    WINDOW_LAG_MOST,
    MAILS,
    MAILS_WAITING,
    DECISIONS,
    BUILD_INFO,
    START_TIME,
    READY,
)
STATE = (STATE_DURABLE, JOURNAL_BYTES, SNAPSHOT_BYTES, SNAPSHOT_TIME, SNAPSHOT_SECONDS, STATE_FAILURES)
ALL = (*PER_COMPONENT, *PER_GROUP, *PER_NODE, *PER_ROLE, *OWN, *STATE)
