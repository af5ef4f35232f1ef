"""The aggregator: subscriber, core, windows, state, archive and HTTP together. Only this file knows all.

Batches and window closes get their ordinals on the loop, each followed by its effect on the core before the
next one gets its own. Closing, judging and writing happen in threads; while a window is being closed,
messages wait in the inbox. So the order that journal and archive record is the one that a replay follows.
"""

import asyncio
import logging
import random
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.archive import resume
from laggard_aggregator.archive.retention import Retention
from laggard_aggregator.archive.write_queue import ArchiveFeed
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.control import storage
from laggard_aggregator.control.requests import Desk
from laggard_aggregator.control.socket import Control
from laggard_aggregator.embedded.broker import embedded_broker
from laggard_aggregator.engine.checkpoint import Head, capture, restore, rules_of
from laggard_aggregator.engine.machine import Core
from laggard_aggregator.engine.recovery import Keeper
from laggard_aggregator.ingest.ingest_queue import Inbox
from laggard_aggregator.ingest.mqtt.subscriber import Subscriber
from laggard_aggregator.notify.dispatcher import Post
from laggard_aggregator.notify.email.settings import access
from laggard_aggregator.runtime.housekeeping import Upkeep
from laggard_aggregator.runtime.ingest_loop import Inflow
from laggard_aggregator.runtime.results import Announcer
from laggard_aggregator.runtime.watchdog import Liveness
from laggard_aggregator.runtime.window_loop import WindowCloser
from laggard_aggregator.settings.aggregator import AggregatorSettings, StateTable
from laggard_aggregator.settings.from_settings import membership, topology
from laggard_aggregator.settings.http import tls_context
from laggard_aggregator.status.live import LiveView
from laggard_aggregator.status.window_history import History
from laggard_aggregator.web.app import make_app
from laggard_aggregator.web.auth import authenticated, read_credentials
from laggard_aggregator.web.server import HttpServer
from laggard_common.clock import Clock, SystemClock
from laggard_common.daemon.sd_notify import Notifier
from laggard_common.errors import LaggardError
from laggard_common.mqtt.settings import client_arguments

_log = logging.getLogger(__name__)


class App:
    """One aggregator. `view` shows it from the start of `run` on, `url` is where it is served.

    `notifier` is told that its state is restored and it serves, and that its loops get on. `before`: the one
    whose place this one takes in the same process; without `[state]` it goes on from what that one knew.
    Raises ConfigError when a file that `settings` names cannot be used.
    """

    def __init__(
        self,
        settings: AggregatorSettings,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        notifier: Notifier | None = None,
        before: "App | None" = None,
    ) -> None:
        self._settings = settings
        self._left: list[dict[str, Any]] | None = before._left if before is not None else None
        self._history: History = before._history if before is not None else History()
        self._clock = clock or SystemClock()
        self._arguments = partial(client_arguments, settings.mqtt)
        self._arguments()  # so that what is wrong from the beginning is told now
        self._tls = tls_context(settings.http)
        self._credentials = read_credentials(settings.http.credentials_file)
        self._rng = rng or random.SystemRandom()
        self._post: Post | None = self._make_post(before._post if before is not None else None)
        self._notifier = notifier or Notifier()
        self._liveness = Liveness(
            self._notifier,
            ("intake", "windows"),
            idle=lambda loop: loop == "intake" and not len(self._inbox),
            status=self._status,
        )
        judging = asyncio.Lock()  # held from the close of a window until it is judged
        self._order = asyncio.Lock()  # held while something gets its ordinal and takes effect
        self._locked = (judging, self._order)
        self._membership = membership(settings)
        self._topology = topology(settings.topology)
        self._core = self._new_core()
        self._keeper: Keeper | None = None
        self._restored = False
        self._run_ns = 0
        self._archive: ArchiveFeed | None = None
        self._inbox: Inbox
        self._subscriber: Subscriber
        self._http: HttpServer
        self.view: LiveView

    @property
    def url(self) -> str:
        """Where `/metrics` and the API are, once `run` has begun."""
        return self._http.url

    async def run(self, stop: asyncio.Event, started: asyncio.Event | None = None) -> None:
        """Runs until `stop` is set; sets `started` when the state is restored and everything listens.

        Raises ServiceError when a port is taken or another aggregator has the state, ArchiveError and
        StateError when their folders cannot be used.
        """
        async with AsyncExitStack() as outside:
            await self._startup(outside)
            try:
                await self._main_loop(stop, started, outside)
            except BaseExceptionGroup as group:
                if len(group.exceptions) == 1 and isinstance(group.exceptions[0], LaggardError):
                    raise group.exceptions[0] from group
                raise
        _log.info("stopped")

    def _new_core(self) -> Core:
        s = self._settings
        return Core(
            s.site,
            self._membership,
            self._topology,
            lateness_seconds=s.detect.lateness,
            after_seconds=s.alarm.after_seconds,
            forget_ns=round((s.state or StateTable()).forget_days * 86_400 * 1e9),
        )

    def _make_post(self, before: Post | None) -> Post | None:
        """Who mails, None where nobody is to be told. Raises ConfigError."""
        s = self._settings
        if s.mail is None:
            return None
        return Post(
            s.mail,
            access(s.mail),
            s.site,
            s.state.directory if s.state is not None else None,
            clock=self._clock,
            rng=self._rng,
            before=before,
        )

    async def _startup(self, outside: AsyncExitStack) -> None:
        s = self._settings
        for section in (name for name, given in s.unused.items() if given):
            _log.warning("%s is checked but has no effect in this version", section)
        self._inbox = Inbox(s.mqtt.queue_messages, s.mqtt.queue_max_bytes, self._knows)
        self._subscriber = Subscriber(
            s.mqtt,
            s.site,
            self._arguments,
            inbox=self._inbox,
            clock=self._clock,
            rng=self._rng,
            hold_back=s.state is not None,
        )
        self.view = LiveView(
            self._core,
            self._clock,
            ready=lambda: self._restored and self._subscriber.connected,
            queue_dropped=lambda: self._inbox.dropped,
            queue_bytes=lambda: self._inbox.size_bytes,
            archive_dropped=lambda: self._archive.dropped if self._archive else 0,
            archive_returned=lambda: self._archive.returned if self._archive else 0,
            durability=lambda: self._keeper.durability if self._keeper and self._restored else None,
            history=self._history,
            mails=lambda: self._post.sender.counts if self._post else {},
            mails_waiting=lambda: self._post.sender.waiting if self._post else 0,
            flooding=lambda: self._inbox.senders.flooding,
        )
        app = make_app(self.view, s.archive.directory if s.archive is not None else None, s.http.nodes)
        self._http = HttpServer(authenticated(app, self._credentials), s.http.listen, self._tls)
        self._http.bind()
        outside.callback(self._http.close)
        if s.state is not None:
            self._keeper = Keeper(s.state, self._clock)
            outside.callback(self._keeper.close)
        if s.mqtt.embedded:
            await outside.enter_async_context(embedded_broker(s.mqtt, self._subscriber.identifier))
        _log.info("site %s: metrics at %s/metrics", s.site, self._http.url)

    async def _restore(self) -> None:
        """Takes up the state and the archive's run where an earlier process left them; readies both."""
        keeper, head = self._keeper, None
        if keeper is not None:
            self._core, head = await asyncio.to_thread(keeper.load, self._new_core)
        elif self._left is not None and self._left[0]["site"] == self._settings.site:
            core = self._new_core()
            head = restore(core, iter(self._left), "reload")
            core.intake.nodes.listening(self._clock.wall_ns())
            core.begin_counting()
            self._core = core
        core, now_ns = self._core, self._clock.wall_ns()
        goes_on = head is not None and head.rules == rules_of(core)
        run_ns = head.run_ns if head is not None and goes_on else now_ns
        self._run_ns = run_ns
        if self._settings.archive is not None:
            self._archive = await asyncio.to_thread(self._open_archive, run_ns, head)
        found: list[Judgement] = []
        if keeper is not None:
            await asyncio.to_thread(self._replay, keeper, found)
            if self._archive is not None:  # it may be ahead of a journal that was damaged
                core.ordinals.last = max(core.ordinals.last, self._archive.last_written)
            core.intake.nodes.listening(now_ns)
            core.begin_counting()
        self.view.adopt(core, found)
        if keeper is not None:
            archived = self._archive.has if self._archive is not None else None
            await keeper.begin(core, run_ns, core.intake.acks.safe, archived)
        self._restored = True

    async def _open_desk(self, asked: AsyncExitStack, announcer: Announcer) -> Desk | None:
        """Takes up what operators decided, and takes in what they decide until `asked` is closed."""
        if self._settings.state is None:
            return None
        directory = self._settings.state.directory
        self._core.decisions = await asyncio.to_thread(storage.load, directory)
        desk = Desk(directory, self._core, self._clock, self._locked, announcer.ended)
        await asked.enter_async_context(Control(directory, desk.answer))
        return desk

    def _replay(self, keeper: Keeper, found: list[Judgement]) -> None:
        for record in keeper.replay(self._core):
            if self._archive is not None:
                self._archive.replay((record,))
            if isinstance(record, Judgement):
                found.append(record)

    def _open_archive(self, run_ns: int, head: Head | None) -> ArchiveFeed:
        archive = self._settings.archive
        assert archive is not None
        goes_on_ns, written = None, None
        if head is not None:
            goes_on_ns, written = head.taken_ns, resume.written(archive.directory, head.run_ns)
        writer = ArchiveWriter(
            archive.directory, self._settings.site, run_ns, goes_on_ns=goes_on_ns, written=written
        )
        detect, alarm = self._settings.detect, self._settings.alarm
        writer.groups(self._membership, self._topology, detect.lateness, alarm.after_seconds)
        writer.flush()
        retention = Retention(archive.raw_days, archive.rollup_days, archive.max_bytes)
        keeper = self._keeper
        if keeper is None:
            return ArchiveFeed(writer, retention, self._core.intake.acks.safe, self._clock)
        return ArchiveFeed(
            writer, retention, lambda _: None, self._clock, until=lambda: keeper.commits.safe_until
        )

    async def _main_loop(
        self, stop: asyncio.Event, started: asyncio.Event | None, outside: AsyncExitStack
    ) -> None:
        ended = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(self._http.run(ended), name="http")
            await self._restore()
            core, keeper, archive = self._core, self._keeper, self._archive
            announcer = Announcer(self.view, archive, core.ordinals)
            asked = await outside.enter_async_context(AsyncExitStack())
            desk = await self._open_desk(asked, announcer)
            inflow = Inflow(
                self._inbox,
                self._subscriber,
                core,
                self._order,
                archive=archive,
                journaled=keeper is not None,
            )
            closer = WindowCloser(core, self._clock, self._locked, announcer, keeper=keeper, desk=desk)
            upkeep = Upkeep(
                core,
                self._clock,
                self._locked,
                announcer,
                subscriber=self._subscriber,
                senders=self._inbox.senders,
            )
            if started is not None:
                started.set()
            connection = group.create_task(self._subscriber.run(), name="subscriber")
            working = [
                group.create_task(self._liveness.run(), name="liveness"),
                group.create_task(inflow.run(partial(self._liveness.moved, "intake")), name="intake"),
                group.create_task(upkeep.run(), name="acknowledge"),
            ]
            if self._post is not None:
                mailing = self._post.run(self.view, self._settings.http.page)
                working.append(group.create_task(mailing, name="mail"))
            ending = [group.create_task(self._close_windows(inflow, closer, stop), name="windows")]
            writing = []
            if archive is not None:
                writing.append(group.create_task(archive.run(ended), name="archive"))
            if keeper is not None:
                archived = archive.has if archive is not None else None
                keeping = keeper.run(stop, self._locked, archived, closer.free_seconds)
                ending.append(group.create_task(keeping, name="snapshots"))
                working.append(group.create_task(inflow.release(keeper), name="release"))
                writing.append(group.create_task(keeper.commits.run(ended), name="journal"))
            await stop.wait()
            await asked.aclose()
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)
            await asyncio.gather(*ending)
            inflow.drain()
            if keeper is not None:
                await keeper.commits.commit()
                inflow.done()
            self.view.close()
            ended.set()
            await asyncio.gather(*writing)
            if keeper is not None:
                await keeper.snapshot((), archived)
            else:
                self._left = await asyncio.to_thread(capture, core, self._run_ns, self._clock.wall_ns())
            await self._subscriber.publish(core.intake.acks.messages())
            await serving
            connection.cancel()

    async def _close_windows(self, inflow: Inflow, closer: WindowCloser, stop: asyncio.Event) -> None:
        """After a restart waits for what the broker kept, which the windows that are due now need."""
        moved = partial(self._liveness.moved, "windows")
        if self._keeper is not None and self._core.pipeline.groups:
            assert self._settings.state is not None
            await inflow.caught_up(stop, self._settings.state.catch_up_seconds, moved)
        await closer.run(stop, moved)

    def _knows(self, node: str) -> bool:
        return self._core.intake.knows(node)

    def _status(self) -> str:
        """A line for `systemctl status`."""
        counts = self.view.node_counts()
        up = sum(n for (_, state), n in counts.items() if state == "up")
        broker = f"{'' if self._subscriber.connected else 'not '}connected to {self._settings.mqtt.address}"
        alarms = len(self.view.alarms())
        waiting = self._post.sender.waiting if self._post is not None else 0
        mails = (
            f", {waiting} mails wait for {self._settings.mail.address}"
            if waiting and self._settings.mail
            else ""
        )
        return f"{alarms} alarms, {up} of {sum(counts.values())} nodes up, {broker}{mails}"
