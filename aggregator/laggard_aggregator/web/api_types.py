"""The shapes of the answers of `/api/v1`, which `web.openapi` describes. Times are epoch seconds."""

from typing import Any, NotRequired, TypedDict


class DecisionAnswer(TypedDict):
    """A decision of an operator; `until` is null without an end."""

    kind: str
    target: str
    by: str
    at: float
    until: float | None
    comment: str
    ticket: str


class CauseAnswer(TypedDict):
    """A difference from the peers, in the unit of the metric."""

    name: str
    amount: float


class StragglerAnswer(TypedDict):
    """A component by one metric of a group; `factor` is `observed` by `reference`, `severity` an average."""

    group: str
    component: str
    name: str
    level: str
    metric: str
    straggler: bool
    anomalous: bool
    judged: bool
    persistence: int | None
    score: float | None
    factor: float | None
    severity: float | None
    worst_severity: float | None
    slow_share: float | None
    slow_severity: float | None
    stops: str | None
    observed: float | None
    reference: float | None
    unit: str
    since: float | None
    window_end: float
    alarm: bool
    raised_at: float | None
    silenced: DecisionAnswer | None
    comments: list[DecisionAnswer]
    causes: list[CauseAnswer]
    located_level: str | None
    located_component: str | None
    located_name: str | None
    evidence: str | None
    beside: list[str]


class StragglersAnswer(TypedDict):
    """The stragglers and standing alarms, most persistent first."""

    time: float
    stragglers: list[StragglerAnswer]


class SplitAnswer(TypedDict):
    """A metric by which a group fell into two sides; `factor`: how many times slower the slow side is."""

    metric: str
    attribute: str
    value: str
    other: str
    members: int
    others: int
    median: float
    other_median: float
    factor: float
    changed: str
    changed_at: float
    text: str


class RotationAnswer(TypedDict):
    """A metric by which members were slow one after the other."""

    metric: str
    text: str


class GroupAnswer(TypedDict):
    """A peer group; `note`: why it has no verdict, or empty."""

    group: str
    source: str
    role: str
    detector: str
    metrics: list[str]
    live: int
    silent: int
    interval_seconds: float
    window_seconds: float
    automatic: bool
    window_end: float | None
    note: str
    splits: list[SplitAnswer]
    rotations: list[RotationAnswer]


class GroupsAnswer(TypedDict):
    """All peer groups by name."""

    time: float
    groups: list[GroupAnswer]


class NodeAnswer(TypedDict):
    """An unhealthy node; `failing`: its collectors that fail."""

    node: str
    role: str
    state: str
    last_sample: float | None
    clock_offset_seconds: float | None
    failing: list[str]


class NodesAnswer(TypedDict):
    """Counts of nodes by role and state, and the parts of the aggregator that fail, with a sentence each."""

    time: float
    ready: bool
    failing: dict[str, str]
    nodes: dict[str, dict[str, int]]
    unwell: list[NodeAnswer]


class DecisionsAnswer(TypedDict):
    """The decisions in force, oldest first."""

    time: float
    decisions: list[DecisionAnswer]


class DecidedAnswer(TypedDict):
    """The components that a decision covers, at most 100 of them by name."""

    count: int
    components: list[str]
    until: NotRequired[float | None]


class AlarmAnswer(TypedDict):
    """An episode; `state` is `raised` or `cleared`."""

    name: str
    component: str
    level: str
    group: str
    metric: str
    since: float | None
    raised_at: float | None
    cleared_at: float | None
    duration_seconds: float | None
    severity: float | None
    worst_severity: float | None
    state: str
    silenced: DecisionAnswer | None
    comments: list[DecisionAnswer]


class AlarmsAnswer(TypedDict):
    """The latest alarms; `total` counts all that match."""

    time: float
    total: int
    alarms: list[AlarmAnswer]


class ComponentAnswer(TypedDict):
    """One component by all metrics of its group."""

    time: float
    group: GroupAnswer
    component: str
    name: str
    metrics: list[StragglerAnswer]


class SeriesAnswer(TypedDict):
    """Values of a component and percentiles of its group, one for each interval."""

    metric: str
    unit: str
    values: list[float | None]
    p5: list[float | None]
    p25: list[float | None]
    p50: list[float | None]
    p75: list[float | None]
    p95: list[float | None]


class WindowAnswer(TypedDict):
    """An anomalous window."""

    metric: str
    start: float
    end: float
    severity: float | None
    score: float | None
    observed: float | None
    reference: float | None
    straggler: bool


HistoryAnswer = TypedDict(
    "HistoryAnswer",
    {
        "time": float,
        "group": str,
        "component": str,
        "from": float,
        "to": float,
        "step_seconds": float | None,
        "ends": list[float],
        "peers": int,
        "metrics": list[SeriesAnswer],
        "load": list[SeriesAnswer],
        "anomalous_windows": list[WindowAnswer],
        "notes": list[str],
    },
)
HistoryAnswer.__doc__ = "A component over a range of time, from the archive."


class JobAnswer(TypedDict):
    """A job of the list; times and figures are null where unknown."""

    key: str
    cluster: str
    job: str
    raw_id: int | None
    restarts: int | None
    user: str
    account: str
    name: str
    application: str
    partition: str
    state: str
    submit: float | None
    start: float | None
    end: float | None
    node_count: int | None
    shared: bool | None
    summary: dict[str, Any]
    coverage: float | None
    trace_difference: float | None
    verdict: str
    findings: list[dict[str, Any]]


class OneJobAnswer(JobAnswer):
    """A job with its verdict's evidence."""

    sentence: str
    factor: float | None
    phases: list[dict[str, Any]]
    nodes: list[str]
    volumes: dict[str, float | None]
    components: list[dict[str, Any]]
    slow_components: str
    shared_layers: list[str]
    mib_per_second: float | None
    mib_per_second_error: float | None
    darshan: dict[str, Any] | None
    history: dict[str, float] | None
    neighbours: list[dict[str, str | None]]


class JobsAnswer(TypedDict):
    """A page of jobs; `next`: the cursor of the next page. `count`: of all that match, where asked for."""

    jobs: list[JobAnswer]
    next: str | None
    count: NotRequired[int]


class RunsAnswer(TypedDict):
    """The runs of one job ID, newest first."""

    jobs: list[OneJobAnswer]


class ErrorAnswer(TypedDict):
    """An error, with its status code."""

    error: str
    status: int
