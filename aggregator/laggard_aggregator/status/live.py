"""The running aggregator as others may see it (`view.View`)."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from laggard_aggregator.alarms.alarms import Alarm, Key, Transition
from laggard_aggregator.alarms.judge import Judgement, Window
from laggard_aggregator.alarms.overrides import Decision
from laggard_aggregator.engine.machine import Core
from laggard_aggregator.status.view import Counters, Durability, GroupView, NodeState, NodeView, RoleView
from laggard_aggregator.status.window_history import History
from laggard_common import __version__
from laggard_common.clock import Clock


class LiveView:
    """Asks the core, and keeps the latest judgements.

    Alarms are copied after each judgement, as the engine works in a thread. `ready`, `queue_dropped`,
    `archive_dropped`, `archive_returned`, `durability`, `mails`, `mails_waiting`, `queue_bytes`
    and `flooding` ask the parts that only the application knows.
    `history`: what a view before this one has kept.
    """

    def __init__(
        self,
        core: Core,
        clock: Clock,
        *,
        ready: Callable[[], bool],
        queue_dropped: Callable[[], int],
        archive_dropped: Callable[[], int],
        archive_returned: Callable[[], int],
        durability: Callable[[], Durability | None],
        history: History,
        mails: Callable[[], Mapping[str, int]],
        mails_waiting: Callable[[], int],
        queue_bytes: Callable[[], int] = lambda: 0,
        flooding: Callable[[], tuple[str, float] | None] = lambda: None,
    ) -> None:
        self.site = core.intake.site
        self.version = __version__
        self.started_at = clock.wall_ns() / 1e9
        self.window_lag_seconds = self.window_lag_most_seconds = 0.0
        self.history = history
        self.revision = 0
        self._news = asyncio.Event()
        self._closed = False
        self._core = core
        self._clock = clock
        self._ready = ready
        self._queue_dropped = queue_dropped
        self._queue_bytes = queue_bytes
        self._archive_dropped = archive_dropped
        self._archive_returned = archive_returned
        self._durability = durability
        self._mails = mails
        self._mails_waiting = mails_waiting
        self._flooding = flooding
        self._judgements: dict[tuple[str, str], Judgement] = {}
        self._alarms: Mapping[Key, Alarm] = {}

    def adopt(self, core: Core, judgements: Iterable[Judgement]) -> None:
        """Shows `core` from now on, which was restored, and what was found on the way."""
        self._core = core
        self.judged(judgements)

    def judged(self, judgements: Iterable[Judgement], window: Window | None = None) -> None:
        """Takes in what was found in a window, and the window itself where it is at hand.

        Of a group of which nobody is left, as all were forgotten, there is no judgement any more.
        """
        judgements = tuple(judgements)
        if not judgements:
            stores = self._core.pipeline.stores
            some = {name for name, store in stores.items() if store.compared}
            self._judgements = {key: kept for key, kept in self._judgements.items() if kept.group in some}
        for judgement in judgements:
            self._judgements[judgement.group, judgement.metric] = judgement
        self.history.judged(judgements, window)
        self.ended(())

    def ended(self, transitions: Iterable[Transition]) -> None:
        """Takes in that alarms ended otherwise than by what was found in a window."""
        self._alarms = dict(self._core.pipeline.engine.alarms.standing)
        self.history.transitions.extend(transitions)
        self._tell()

    def close(self) -> None:
        """There will be no news any more: ends all that wait for some."""
        self._closed = True
        self._tell()

    async def changed(self, revision: int) -> int | None:
        """The revision, once it is another than `revision`; None when there will be none any more."""
        while self.revision == revision and not self._closed:
            await self._news.wait()
        return None if self._closed else self.revision

    def _tell(self) -> None:
        self.revision += 1
        self._news.set()
        self._news = asyncio.Event()

    def lagged(self, seconds: float) -> None:
        """Takes in how long after its deadline a window was judged."""
        self.window_lag_seconds = seconds
        self.window_lag_most_seconds = max(self.window_lag_most_seconds, seconds)

    @property
    def now(self) -> float:
        """The aggregator's clock."""
        return self._clock.wall_ns() / 1e9

    @property
    def ready(self) -> bool:
        """Whether its state is restored, and it is connected to the broker and subscribed."""
        return self._ready()

    def groups(self) -> tuple[GroupView, ...]:
        """All groups, by name."""
        views = []
        for name, group in sorted(self._core.pipeline.groups.items()):
            store = self._core.pipeline.stores[name]
            views.append(
                GroupView(
                    name=name,
                    source=group.source,
                    role=group.role,
                    detector=group.detect.detector,
                    metrics=group.metrics,
                    live=store.live,
                    silent=len(store.compared) - store.live,
                    interval_seconds=group.detect.interval_seconds,
                    window_seconds=group.detect.window_seconds,
                    automatic=group.automatic,
                )
            )
        return tuple(views)

    def judgements(self) -> tuple[Judgement, ...]:
        """The latest judgement of every group and metric, by group and metric."""
        return tuple(judgement for _, judgement in sorted(self._judgements.items()))

    def alarms(self) -> Mapping[Key, Alarm]:
        """The alarms that stand."""
        return self._alarms

    def shown(self, component: str) -> str:
        """The component's name of the day."""
        return self._core.pipeline.shown.get(component, component)

    def decisions(self) -> tuple[Decision, ...]:
        """What operators decided, oldest first."""
        return self._core.decisions.standing

    def silenced(self, *names: str) -> Decision | None:
        """The decision by which nobody is told of a component of these names."""
        return self._core.decisions.silenced(*names)

    def node_counts(self) -> Mapping[tuple[str, NodeState], int]:
        """How many nodes there are of each role and state."""
        return self._core.intake.nodes.counts(self._clock.wall_ns())

    def roles(self) -> tuple[RoleView, ...]:
        """What the agents of each role say of themselves, by role."""
        return self._core.intake.nodes.roles()

    def nodes(self) -> tuple[NodeView, ...]:
        """Every node, by name."""
        return self._core.intake.nodes.views(self._clock.wall_ns())

    def node(self, name: str) -> NodeView | None:
        """One node, None when unknown."""
        return self._core.intake.nodes.view(name, self._clock.wall_ns())

    def unwell_nodes(self) -> tuple[NodeView, ...]:
        """The nodes that are not well, by name."""
        return self._core.intake.nodes.unwell(self._clock.wall_ns())

    def durability(self) -> Durability | None:
        """How the journal and the snapshots fare."""
        return self._durability()

    def counters(self) -> Counters:
        """Totals since the start."""
        counts = self._core.intake.counts
        stores = [store.counts for store in self._core.pipeline.stores.values()]
        return Counters(
            messages=counts.messages,
            samples=self._core.pipeline.samples,
            gaps=counts.gaps,
            duplicates=counts.duplicates,
            late_samples=sum(store.late for store in stores),
            future_samples=sum(store.future for store in stores),
            resets=sum(store.resets for store in stores),
            windows=self._core.pipeline.windows_closed,
            window_lag_seconds=self.window_lag_seconds,
            window_lag_most_seconds=self.window_lag_most_seconds,
            queue_dropped=self._queue_dropped(),
            queue_bytes=self._queue_bytes(),
            archive_dropped=self._archive_dropped(),
            archive_returned=self._archive_returned(),
            held=self._core.intake.held,
            two_streams=counts.two_streams,
            wire_errors=dict(self._core.intake.wire_errors),
            refused=self._core.intake.refused + self._core.pipeline.refused,
            mails=dict(self._mails()),
            mails_waiting=self._mails_waiting(),
            flooding=self._flooding(),
        )
