"""The aggregator's status: read-only values for exposition, API, page and notifications.

Everything is read on the event loop. The values returned are frozen, so that a thread may render them. Times
are epoch seconds.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from operator import add

from laggard_aggregator.alarms.alarms import Alarm, AlarmEvent, Key
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.alarms.overrides import Decision, commenting
from laggard_aggregator.archive.write_queue import WriteQueue
from laggard_aggregator.detect import LEVEL_OF_GROUPS, LEVEL_OF_SPLITS, OTHER_SIDE, OWN_PAST, registry
from laggard_aggregator.detect.interface import Window
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.engine.node_evidence import NodeSign
from laggard_aggregator.engine.recovery import Recovery
from laggard_aggregator.groups.membership import PeerGroup
from laggard_aggregator.groups.topology import Topology
from laggard_aggregator.ingest.ingest_queue import IngestQueue
from laggard_aggregator.ingest.mqtt.subscriber import Subscriber
from laggard_aggregator.ingest.node_view import NodeState, NodeView, RoleView
from laggard_aggregator.ingest.prometheus_input import ScrapeView
from laggard_aggregator.log.journal import Durability
from laggard_aggregator.metrics.registry import worse
from laggard_aggregator.status import shadows
from laggard_aggregator.status.background import BackgroundWork, JobPolls
from laggard_aggregator.status.formatting import lasting
from laggard_aggregator.status.location import Location
from laggard_aggregator.status.node_signs import BesideAlarm, beside
from laggard_aggregator.status.paths import located
from laggard_aggregator.status.straggler_list import standings
from laggard_aggregator.status.window_history import WindowHistory
from laggard_aggregator.windows.schedule import STEP_NS, WindowClock
from laggard_common import __version__

MAX_LAG_SECONDS = 60.0
"""Later windows mean that the aggregator does not keep up."""
STEPPED = STEP_NS / 1e9
"""Seconds by which the host's clock may differ from that of windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView(PeerGroup):
    """A peer group; `live` of its `live + silent` components had data since the window before the latest."""

    live: int
    silent: int
    window_seconds: float

    def reference(self, level: str) -> str:
        """The name of the values that its components of that level are held against, such as `peers`."""
        return reference_of(self.detect.detector, level)


@dataclass(frozen=True, slots=True)
class ChannelView:
    """A notification channel. `results`: messages by outcome since the start, and repeated attempts.

    `unavailable`: why its messages wait, or empty.
    """

    results: Mapping[str, int]
    waiting: int
    unavailable: str = ""


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals since the start. Mappings are by reason.

    `samples`: ticks times components. `gaps`: messages that never arrived. `queue_dropped`: messages dropped
    because ingest did not keep up; `queue_bytes`: size of the ingest queue now. `archive_dropped`: records
    the archive lost. `archive_returned`: batches not accepted for want of room in the archive's queue; their
    agents send them again. `refused`: messages over a limit, or against their topic or an earlier schema.
    `held`: messages that wait for their schema now. `two_streams`: times that two streams of one node and
    source were live at once. `window_lag_seconds`: from the deadline of the latest window to its judgement;
    `window_lag_most_seconds`: its maximum. `notifications`: by channel.
    `archive_failure`: why the archive cannot be written now, or empty. `archive_up`: None without an archive.
    `archive_damaged`: files set aside in its folder. `archive_refused`: rows left out, by node, for too many
    fields.
    `flooding`: the node with the highest message rate, per second, where it exceeds any agent's.
    `documents`: accepted from outboxes; `refused_documents`: those of them that are malformed.
    `clock_steps`: of the host's clock; `clock_difference_seconds`: the host's clock minus that of windows.
    `scrapes`: by the name of the `[[prometheus]]`.
    `shadow_verdicts`: by group with a shadow, the number of verdicts by state (`shadows.NOT_COMPARED` on).
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
    notifications: Mapping[str, ChannelView] = field(default_factory=dict)
    flooding: tuple[str, float] | None = None
    archive_failure: str = ""
    shadow_verdicts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    clock_steps: int = 0
    clock_difference_seconds: float = 0.0
    archive_up: bool | None = None
    archive_lag_seconds: float = 0.0
    archive_damaged: int = 0
    archive_refused: Mapping[str, int] = field(default_factory=dict)
    documents: int = 0
    refused_documents: int = 0
    background: BackgroundWork | None = None
    job_polls: JobPolls | None = None
    scrapes: Mapping[str, ScrapeView] = field(default_factory=dict)


def failing(counters: Counters, durability: Durability | None) -> dict[str, str]:
    """The parts of Laggard that fail now, each with a line about it: archive, journal, windows, channels."""
    late, ahead = counters.window_lag_seconds, counters.clock_difference_seconds
    side = "ahead of" if ahead > 0 else "behind"
    parts = {
        "journal": "cannot be written" if durability is not None and not durability.whole else "",
        "archive": counters.archive_failure and f"cannot be written: {counters.archive_failure}",
        "windows": f"are judged {lasting(late)} late" if late > MAX_LAG_SECONDS else "",
        "clock": f"of this host is {lasting(abs(ahead))} {side} its nodes'" if abs(ahead) > STEPPED else "",
        **{
            f"prometheus {name}": f"cannot be read: {scrape.failure}"
            for name, scrape in counters.scrapes.items()
            if scrape.failure
        },
        **{name: c.unavailable and f"waits: {c.unavailable}" for name, c in counters.notifications.items()},
    }
    return {part: f"{part} {problem}" for part, problem in parts.items() if problem}


class Status:
    """The running aggregator, read from its parts; the parts are set as they come into being.

    Alarms are copied after each judgement, as the judge works in a thread. `history`: the latest windows,
    maybe from before a reload. `channels`: the notification channels by name. `revision` changes with every
    judged window.
    """

    decides = False
    """Whether the pages have forms for operators' decisions."""
    needs_token = False
    """Whether commands need a token to read."""

    def __init__(
        self,
        machine: Machine,
        clock: WindowClock,
        history: WindowHistory | None = None,
        *,
        queue: IngestQueue | None = None,
        subscriber: Subscriber | None = None,
        channels: Callable[[], Mapping[str, ChannelView]] = dict,
    ) -> None:
        self.site = machine.admission.site
        self.version = __version__
        self.started_at = clock.wall_ns() / 1e9
        self.history = history if history is not None else WindowHistory()
        self.revision = 0
        self.restored = False
        self.recovery: Recovery | None = None
        self.archive: WriteQueue | None = None
        self.background: BackgroundWork | None = None
        self.job_polls: JobPolls | None = None
        self.scrapes: Mapping[str, ScrapeView] = {}
        self._queue = queue
        self._subscriber = subscriber
        self._channels = channels
        self._machine = machine
        self._clock = clock
        self._changed = asyncio.Event()
        self._closed = False
        self._lag_seconds = self._max_lag_seconds = 0.0
        self._judgements: dict[tuple[str, str], Judgement] = {}
        self._alarms: Mapping[Key, Alarm] = {}
        self._shadow_verdicts: dict[str, tuple[int, ...]] = {}

    def adopt(self, machine: Machine, judgements: Iterable[Judgement]) -> None:
        """Shows a restored machine and the judgements of its replay from now on."""
        self._machine = machine
        self.judged(judgements)
        self._shadow_verdicts.clear()  # those of the replay were counted before
        self.restored = True

    def judged(self, judgements: Iterable[Judgement], window: Window | None = None) -> None:
        """Publishes the judgements of a window.

        A window without any belongs to a group without components, whose earlier judgements are dropped.
        """
        judgements = tuple(judgements)
        if not judgements:
            stores = self._machine.stores
            compared = {name for name, store in stores.items() if store.compared}
            self._judgements = {key: kept for key, kept in self._judgements.items() if kept.group in compared}
        for judgement in judgements:
            self._judgements[judgement.group, judgement.metric] = judgement
            if judgement.shadow is not None:
                counted = shadows.count(judgement)
                before = self._shadow_verdicts.get(judgement.group, (0,) * len(counted))
                self._shadow_verdicts[judgement.group] = tuple(map(add, before, counted))
        self.history.judged(judgements, window)
        self.alarms_changed(())

    def alarms_changed(self, events: Iterable[AlarmEvent]) -> None:
        """Publishes the standing alarms, and `events` that no window caused."""
        self._alarms = dict(self._machine.judge.alarms.standing)
        self.history.transitions.extend(events)
        self._notify()

    def lagged(self, seconds: float) -> None:
        """Publishes the time from a window's deadline to its judgement."""
        self._lag_seconds = seconds
        self._max_lag_seconds = max(self._max_lag_seconds, seconds)

    def close(self) -> None:
        """Ends every `changed`."""
        self._closed = True
        self._notify()

    async def changed(self, revision: int) -> int | None:
        """Waits until the revision is not `revision`, and returns it; None after `close`."""
        while self.revision == revision and not self._closed:
            await self._changed.wait()
        return None if self._closed else self.revision

    def _notify(self) -> None:
        self.revision += 1
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def now(self) -> float:
        """The aggregator's clock."""
        return self._clock.wall_ns() / 1e9

    def unconnected(self) -> tuple[str, ...]:
        """The broker and the Prometheus servers that do not answer, each as text."""
        broker = self._subscriber is None or self._subscriber.connected
        silent = [name for name, scrape in self.scrapes.items() if scrape.failure or not scrape.polled]
        names = (*(() if broker else ("the broker",)), *(f"prometheus {name}" for name in silent))
        return tuple(f"not connected to {name}" for name in names)

    @property
    def ready(self) -> bool:
        """Whether the state is restored, and nothing is `unconnected`."""
        return not self.unready

    @property
    def unready(self) -> str:
        """Why it is not `ready`, or empty."""
        return "; ".join(self.unconnected()) or ("" if self.restored else "not restored yet")

    @property
    def overdue_seconds(self) -> float:
        """How long the judgement of a window has been due, 0 when none is."""
        due_ns = self._machine.windows.next_due_ns()
        return max(self.now - due_ns / 1e9, 0.0) if due_ns is not None else 0.0

    def groups(self) -> tuple[GroupView, ...]:
        """All groups, by name."""
        views = []
        for name, group in sorted(self._machine.groups.items()):
            store = self._machine.stores[name]
            same = {field.name: getattr(group, field.name) for field in fields(group)}
            silent = len(store.compared) - store.live
            seconds = store.window_seconds
            views.append(GroupView(**same, live=store.live, silent=silent, window_seconds=seconds))
        return tuple(views)

    def compared(self, group: str) -> tuple[str, ...]:
        """The components compared in a group, also before its first window."""
        return tuple(self._machine.stores[group].compared)

    def judgements(self) -> tuple[Judgement, ...]:
        """The latest judgement of every group and metric, in this order."""
        return tuple(judgement for _, judgement in sorted(self._judgements.items()))

    def alarms(self) -> Mapping[Key, Alarm]:
        """The standing alarms."""
        return self._alarms

    def reference(self, alarm: Alarm) -> str:
        """The name of the values that the alarm's component is held against."""
        known = self._machine.groups.get(alarm.group)
        return "peers" if known is None else reference_of(known.detect.detector, alarm.level)

    def worse(self, alarm: Alarm) -> int:
        """The worse side of the alarm's metric, 1 where it is unknown."""
        known = self._machine.groups.get(alarm.group)
        return 1 if known is None else worse(known.source, alarm.metric)

    def shown(self, component: str) -> str:
        """The current name (`node/sda`) of a component by its permanent ID."""
        return self._machine.names.get(component, component)

    def topology(self) -> Topology:
        """The configured parents of components."""
        return self._machine.topology

    def hosts(self) -> Mapping[str, str]:
        """The nodes of the components that may move between nodes."""
        return self._machine.hosts()

    def node_signs(self, node: str) -> tuple[NodeSign, ...]:
        """Evidence of a node that raises no alarm."""
        return self._machine.evidence.of(node, self.now)

    def beside(self, components: Iterable[str]) -> Mapping[str, tuple[BesideAlarm, ...]]:
        """Evidence of the nodes of `components` (permanent IDs) that is shown beside their alarms."""
        remarks: dict[str, tuple[BesideAlarm, ...]] = {}
        signs_of = cache(self.node_signs)  # of many alarms of one node
        hosts: Mapping[str, str] | None = None
        for component in components:
            node, slash, _ = component.partition("/")
            if not slash and hosts is None:
                hosts = self.hosts()
            signs = signs_of(node if slash else (hosts or {}).get(node, node))
            if signs:
                remarks[component] = beside(signs, self.shown(component))
        return remarks

    def locating(self) -> Callable[[], Mapping[Key, Location]]:
        """Locates the causes of the stragglers, by group, component and metric, of the status at this call.

        The function returned takes long on a large site: it is for a thread.
        """
        judgements, alarms, topology, hosts = self.judgements(), self.alarms(), self.topology(), self.hosts()
        groups = {group.name: group for group in self.groups()}

        def locate() -> Mapping[Key, Location]:
            rows = standings(judgements, alarms, self.shown, lambda *_: None)
            return located(rows, judgements, groups, topology, hosts)

        return locate

    def decisions(self) -> tuple[Decision, ...]:
        """The operators' overrides in force, oldest first."""
        overrides = self._machine.overrides
        return overrides.standing if overrides.decisions else ()

    def silenced(self, *names: str) -> Decision | None:
        """The override that silences a component with these names, or None."""
        overrides = self._machine.overrides
        return overrides.silenced(*names) if overrides.decisions else None

    def comments(self, *names: str) -> tuple[Decision, ...]:
        """The decisions with a comment or a ticket about a component with these names, newest first."""
        decisions = self.decisions()
        return tuple(commenting(decisions, *names)) if decisions else ()

    def node_counts(self) -> Mapping[tuple[str, NodeState], int]:
        """Number of nodes by role and state."""
        return self._machine.admission.nodes.counts(self._clock.wall_ns())

    def roles(self) -> tuple[RoleView, ...]:
        """The figures of each role's agents, by role."""
        return self._machine.admission.nodes.roles()

    def nodes(self) -> tuple[NodeView, ...]:
        """Every node, by name."""
        return self._machine.admission.nodes.views(self._clock.wall_ns())

    def node(self, name: str) -> NodeView | None:
        """One node, None when unknown."""
        return self._machine.admission.nodes.view(name, self._clock.wall_ns())

    def unhealthy_nodes(self) -> tuple[NodeView, ...]:
        """The unhealthy nodes, by name."""
        return self._machine.admission.nodes.unhealthy(self._clock.wall_ns())

    def durability(self) -> Durability | None:
        """State of journal and snapshots; None without `[state]`."""
        recovery = self.recovery
        if recovery is None or not self.restored:
            return None
        return Durability(
            whole=recovery.journal.whole,
            journal_bytes=recovery.journal.bytes,
            snapshot_bytes=recovery.snapshot_bytes,
            snapshot_at=recovery.snapshot_at,
            snapshot_seconds=recovery.snapshot_seconds,
            failures=recovery.journal.failures,
            damaged_files=recovery.damaged,
            lost_batches=recovery.lost,
        )

    def counters(self) -> Counters:
        """Totals since the start."""
        machine, admission = self._machine, self._machine.admission
        queue, archive = self._queue, self.archive
        stores = [store.counts for store in machine.stores.values()]
        return Counters(
            messages=admission.counts.messages,
            samples=machine.samples,
            gaps=admission.counts.gaps,
            duplicates=admission.counts.duplicates,
            late_samples=sum(store.late for store in stores),
            future_samples=sum(store.future for store in stores),
            resets=sum(store.resets for store in stores),
            windows=machine.windows_closed,
            window_lag_seconds=self._lag_seconds,
            window_lag_most_seconds=self._max_lag_seconds,
            queue_dropped=queue.dropped if queue is not None else 0,
            queue_bytes=queue.size_bytes if queue is not None else 0,
            archive_dropped=archive.dropped if archive is not None else 0,
            archive_failure=archive.failure if archive is not None else "",
            archive_up=not archive.failure if archive is not None else None,
            archive_lag_seconds=archive.lag_seconds if archive is not None else 0.0,
            archive_damaged=archive.damaged if archive is not None else 0,
            archive_refused=dict(archive.refused_rows) if archive is not None else {},
            background=self.background,
            job_polls=self.job_polls,
            scrapes=self.scrapes,
            archive_returned=admission.counts.unaccepted,
            documents=admission.counts.documents,
            refused_documents=archive.refused_documents if archive is not None else 0,
            held=admission.held,
            two_streams=admission.counts.two_streams,
            wire_errors=dict(admission.wire_errors),
            refused=admission.refused + machine.refused,
            notifications=self._channels(),
            flooding=queue.senders.flooding if queue is not None else None,
            clock_steps=self._clock.steps,
            clock_difference_seconds=self._clock.difference_ns / 1e9,
            shadow_verdicts=dict(self._shadow_verdicts),
        )


def reference_of(detector: str, level: str) -> str:
    """The name of the values that a component of that level is held against by that detector."""
    if level == LEVEL_OF_SPLITS:
        return OTHER_SIDE
    return OWN_PAST if level == LEVEL_OF_GROUPS else registry.find(detector).reference
