"""What the aggregator shows of itself: read-only values for the exposition, the API and the page.

Everything here is asked on the event loop. What is returned is frozen, so it may be rendered in a thread
afterwards. Times are epoch seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from laggard_aggregator.alarms.alarms import Alarm, Key
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.alarms.overrides import Decision
from laggard_aggregator.status.window_history import History

NodeState = Literal["up", "silent", "stopped", "down"]
"""`silent`: no sample for several batches though the agent should be up; `stopped`: ended in order; `down`:
the broker lost the agent."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """A peer group. `live` of its `live + silent` components had data since the window before the latest.

    `metrics`: what is judged. `automatic`: from the default grouping, not from configuration.
    """

    name: str
    source: str
    role: str
    detector: str
    metrics: tuple[str, ...]
    live: int
    silent: int
    interval_seconds: float
    window_seconds: float
    automatic: bool


@dataclass(frozen=True, slots=True)
class CollectorView:
    """An agent's collector as of its latest reading; `error` is empty on success."""

    success: bool
    seconds: float
    error: str


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node. NaN and None: not known, as before the first status or sample.

    `last_sample`: newest time of reading. `clock_offset_seconds`: the node's clock less the aggregator's.
    `well`: up, every collector succeeds, and the clock is off by less than one sampling interval. The agent's
    own figures, `collectors` to `resident_bytes`, mean what docs/wire-format.md says.
    """

    node: str
    role: str
    state: NodeState
    well: bool
    last_sample: float
    clock_offset_seconds: float
    version: str = ""
    collectors: Mapping[str, CollectorView] = field(default_factory=dict)
    spool_bytes: int | None = None
    dropped_samples: int | None = None
    missed_ticks: int | None = None
    cpu_seconds: float | None = None
    resident_bytes: int | None = None


QUANTILES = (0.5, 0.99, 1.0)
"""Of which figures of a role's agents are told."""


@dataclass(frozen=True, slots=True)
class CollectorsView:
    """A collector on all nodes of a role. `seconds`: the time of a reading, by quantile."""

    failing: int
    seconds: Mapping[float, float]


@dataclass(frozen=True, slots=True)
class RoleView:
    """What the agents of a role say of themselves, as far as they do; figures as in NodeView.

    Sums, and what is by quantile (nearest rank, QUANTILES): empty where no agent of the role says it.
    `clock_offset_seconds`: how far off, to either side.
    """

    role: str
    spool_bytes: int
    dropped_samples: int
    missed_ticks: int
    cpu_seconds: float
    spool: Mapping[float, float]
    resident_bytes: Mapping[float, float]
    clock_offset_seconds: Mapping[float, float]
    collectors: Mapping[str, CollectorsView]


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals since the start. Mappings are by reason.

    `samples`: readings of one component (ticks x components). `gaps`: messages that never came.
    `queue_dropped`: messages thrown away because ingest did not keep up; `queue_bytes`: what those take that
    wait to be taken in, now; `archive_dropped`: records that the archive lost for the same reason;
    `archive_returned`: batches that it had no room for, which are not acknowledged, so that they come again.
    `refused`: messages over a limit, or against their topic or an earlier schema. `held`: messages that wait
    for their schema, now. `two_streams`: how often two streams of one node and source turned out to be live
    at once. `window_lag_seconds`: how long after its deadline the latest window was judged;
    `window_lag_most_seconds`: the most of that. `mails`: by result, empty where none are sent;
    `mails_waiting`: now. `flooding`: the node that sends most, and its messages a second, where it sends more
    than any agent does.
    """

    messages: int = 0
    samples: int = 0
    gaps: int = 0
    duplicates: int = 0
    late_samples: int = 0
    future_samples: int = 0
    resets: int = 0
    windows: int = 0
    window_lag_seconds: float = 0.0
    window_lag_most_seconds: float = 0.0
    queue_dropped: int = 0
    queue_bytes: int = 0
    archive_dropped: int = 0
    archive_returned: int = 0
    held: int = 0
    two_streams: int = 0
    wire_errors: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    mails: Mapping[str, int] = field(default_factory=dict)
    mails_waiting: int = 0
    flooding: tuple[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Durability:
    """How journal and snapshots fare. `whole`: what is taken now will be acknowledged after its group commit.

    `failures`: how often one of them could not be written. `snapshot_at`: when the latest snapshot was taken,
    epoch seconds, NaN before the first. `snapshot_seconds`: how long nothing was taken in for it.
    """

    whole: bool
    journal_bytes: int
    snapshot_bytes: int
    snapshot_at: float
    snapshot_seconds: float
    failures: int


class View(Protocol):
    """The aggregator as others may see it."""

    site: str
    version: str
    started_at: float
    history: History
    revision: int

    @property
    def now(self) -> float:
        """The aggregator's clock."""

    @property
    def ready(self) -> bool:
        """Whether its state is restored, and it is connected to the broker and subscribed."""

    async def changed(self, revision: int) -> int | None:
        """The revision, once it is another than `revision`; None when there will be none any more.

        It changes with every window that is judged.
        """

    def groups(self) -> tuple[GroupView, ...]:
        """All groups, by name."""

    def judgements(self) -> tuple[Judgement, ...]:
        """The latest judgement of every group and metric, by group and metric."""

    def alarms(self) -> Mapping[Key, Alarm]:
        """The alarms that stand."""

    def shown(self, component: str) -> str:
        """The name of the day (`node/sda`) of a component that judgements name by what never changes."""

    def decisions(self) -> tuple[Decision, ...]:
        """What operators decided about components and nodes, and still stands, oldest first."""

    def silenced(self, *names: str) -> Decision | None:
        """The decision by which nobody is told of a component of these names, None where there is none."""

    def node_counts(self) -> Mapping[tuple[str, NodeState], int]:
        """How many nodes there are of each role and state."""

    def roles(self) -> tuple[RoleView, ...]:
        """What the agents of each role say of themselves, by role."""

    def nodes(self) -> tuple[NodeView, ...]:
        """Every node, by name."""

    def node(self, name: str) -> NodeView | None:
        """One node, None when unknown."""

    def unwell_nodes(self) -> tuple[NodeView, ...]:
        """The nodes that are not well, by name."""

    def durability(self) -> Durability | None:
        """How the journal and the snapshots fare; None where there is no `[state]`."""

    def counters(self) -> Counters:
        """Totals since the start."""
