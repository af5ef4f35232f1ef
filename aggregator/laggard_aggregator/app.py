"""The aggregator: subscriber, core, windows, state, archive and HTTP together. Only this file knows all.

Batches and window closes get their ordinals on the loop, each followed by its effect on the core before the
next one gets its own. Closing, judging and writing happen in threads; while a window is being closed,
messages wait in the inbox. So the order that journal and archive record is the one that a replay follows.
"""

import asyncio
import logging
import math
import random
from collections.abc import Iterable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from laggard_aggregator.alarms.life import Ended, Transition
from laggard_aggregator.archive import progress
from laggard_aggregator.archive.keep import Retention
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.archiving import ArchiveFeed, is_set_within
from laggard_aggregator.configured import membership, topology
from laggard_aggregator.core import Core
from laggard_aggregator.decisions import storage
from laggard_aggregator.decisions.control import Control
from laggard_aggregator.decisions.desk import Desk
from laggard_aggregator.embedded.broker import embedded_broker
from laggard_aggregator.engine import Judgement, Window
from laggard_aggregator.export.access import guarded
from laggard_aggregator.export.credentials import read_credentials
from laggard_aggregator.export.http import make_app
from laggard_aggregator.export.server import HttpServer
from laggard_aggregator.export.settings import tls_context
from laggard_aggregator.history import History
from laggard_aggregator.ingest.inbox import Inbox
from laggard_aggregator.ingest.subscriber import Subscriber
from laggard_aggregator.ingest.taken import WindowClose
from laggard_aggregator.lease import NAME_BYTES, Lease
from laggard_aggregator.live import LiveView
from laggard_aggregator.liveness import Liveness
from laggard_aggregator.mail.post import Post
from laggard_aggregator.mail.settings import access
from laggard_aggregator.settings import AggregatorSettings, StateTable
from laggard_aggregator.state.capture import Head, capture, restore, rules_of
from laggard_aggregator.state.keeper import Keeper
from laggard_common import allocator
from laggard_common.clock import Clock, SystemClock
from laggard_common.errors import LaggardError, WireError
from laggard_common.mqtt import client_arguments
from laggard_common.notify import Notifier
from laggard_common.topics import lease_topic

_log = logging.getLogger(__name__)

ACK_SECONDS = 1.0
ACKS_AT_ONCE = 3000
"""Nodes that are told at a time what is safe: at a very large site several batches share one message then."""
SWEEP_SECONDS = 60.0
FORGET_SWEEPS = 60
"""What is silent for too long is looked for in every so many sweeps."""
RELEASE_SECONDS = 0.2
"""How long the broker keeps a message for us at most: it has a limited number of them under way."""
SETTLE_SECONDS = 5.0
"""How long a judgement waits at most for its close to be journaled, so that it is not found twice."""
MOST_CATCH_UP = 12
"""After a restart windows wait at most so many times `catch_up_seconds` for the inbox to empty."""
WINDOWS_SECONDS = 0.2
"""How often groups that are new are looked for; a deadline that is known is met when it comes."""


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
        self._lease: Lease | None = None
        if settings.standby is not None:
            name, monotonic_ns = self._rng.randbytes(NAME_BYTES), self._clock.monotonic_ns
            self._lease = Lease(settings.standby.lease_seconds, name, lambda: monotonic_ns() / 1e9)
        self._post: Post | None = self._make_post(before._post if before is not None else None)
        self._notifier = notifier or Notifier()
        self._liveness = Liveness(
            self._notifier,
            ("intake", "windows"),
            idle=lambda loop: loop == "intake" and not len(self._inbox),
            status=self._status,
        )
        self._order = asyncio.Lock()  # held while something gets its ordinal and takes effect
        self._judging = asyncio.Lock()  # held from the close of a window until it is judged
        self._membership = membership(settings)
        self._topology = topology(settings.topology)
        self._core = self._new_core()
        self._keeper: Keeper | None = None
        self._restored = False
        self._closing = False  # windows that are due
        self._run_ns = 0
        self._taken = 0  # messages that the broker still keeps
        self._some_taken = asyncio.Event()
        self._desk: Desk | None = None
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
            may_notify=self._acts,
            before=before,
        )

    def _acts(self) -> bool:
        """Whether this aggregator acknowledges and mails; without a standby it always does."""
        return self._lease is None or self._lease.held

    async def _startup(self, outside: AsyncExitStack) -> None:
        s = self._settings
        for section in (name for name, given in s.unused.items() if given):
            _log.warning("this version does not use %s yet", section)
        self._inbox = Inbox(s.mqtt.queue_messages, s.mqtt.queue_max_bytes, self._knows)
        self._subscriber = Subscriber(
            s.mqtt,
            s.site,
            self._arguments,
            inbox=self._inbox,
            clock=self._clock,
            rng=self._rng,
            hold_back=s.state is not None,
            aside={lease_topic(s.site): self._hear_lease} if self._lease is not None else {},
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
            lease_held=lambda: self._lease.held if self._lease is not None else None,
            flooding=lambda: self._inbox.senders.flooding,
        )
        app = make_app(self.view, s.archive.directory if s.archive is not None else None, s.http.nodes)
        self._http = HttpServer(guarded(app, self._credentials), s.http.listen, self._tls)
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
            await keeper.begin(core, run_ns, core.intake.safe, archived)
        self._restored = True

    async def _open_desk(self, asked: AsyncExitStack) -> None:
        """Takes up what operators decided, and takes in what they decide until `asked` is closed."""
        if self._settings.state is None:
            return
        directory = self._settings.state.directory
        self._core.decisions = await asyncio.to_thread(storage.load, directory)
        locked = (self._judging, self._order)
        self._desk = Desk(directory, self._core, self._clock, locked, self._ended)
        await asked.enter_async_context(Control(directory, self._desk.answer))

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
            goes_on_ns, written = head.taken_ns, progress.written(archive.directory, head.run_ns)
        writer = ArchiveWriter(
            archive.directory, self._settings.site, run_ns, goes_on_ns=goes_on_ns, written=written
        )
        detect, alarm = self._settings.detect, self._settings.alarm
        writer.groups(self._membership, self._topology, detect.lateness, alarm.after_seconds)
        writer.flush()
        retention = Retention(archive.raw_days, archive.rollup_days, archive.max_bytes)
        keeper = self._keeper
        if keeper is None:
            return ArchiveFeed(writer, retention, self._core.intake.safe, self._clock)
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
            asked = await outside.enter_async_context(AsyncExitStack())
            await self._open_desk(asked)
            if started is not None:
                started.set()
            connection = group.create_task(self._subscriber.run(), name="subscriber")
            working = [
                group.create_task(self._liveness.run(), name="liveness"),
                group.create_task(self._take_in(), name="intake"),
                group.create_task(self._acknowledge(), name="acknowledge"),
            ]
            if self._lease is not None:
                working.append(group.create_task(self._contend(self._lease), name="lease"))
            if self._post is not None:
                mailing = self._post.run(self.view, self._settings.http.page)
                working.append(group.create_task(mailing, name="mail"))
            ending = [group.create_task(self._close_windows(stop), name="windows")]
            writing = []
            if self._archive is not None:
                writing.append(group.create_task(self._archive.run(ended), name="archive"))
            if self._keeper is not None:
                locked = (self._judging, self._order)
                archived = self._archive.has if self._archive is not None else None
                keeping = self._keeper.run(stop, locked, archived, self._free_seconds)
                ending.append(group.create_task(keeping, name="snapshots"))
                working.append(group.create_task(self._release(self._keeper), name="release"))
                writing.append(group.create_task(self._keeper.commits.run(ended), name="journal"))
            await stop.wait()
            await asked.aclose()
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)
            await asyncio.gather(*ending)
            while burst := self._inbox.burst():
                self._take(burst)
            if self._keeper is not None:
                await self._keeper.commits.commit()
                self._subscriber.done(self._taken)
            self.view.close()
            ended.set()
            await asyncio.gather(*writing)
            if self._keeper is not None:
                await self._keeper.snapshot((), archived)
            else:
                self._left = await asyncio.to_thread(capture, self._core, self._run_ns, self._clock.wall_ns())
            if self._acts():
                await self._subscriber.publish(self._core.intake.acknowledgements())
            await serving
            connection.cancel()

    async def _take_in(self) -> None:
        """Brings messages from the inbox into the core, a burst at a time."""
        while True:
            await self._inbox.some()
            async with self._order:
                self._take(self._inbox.burst())
                self._bring(self._inbox.behind())
            self._liveness.moved("intake")
            await asyncio.sleep(0)

    def _knows(self, node: str) -> bool:
        return self._core.intake.knows(node)

    async def _release(self, keeper: Keeper) -> None:
        """Tells the broker what it need not keep, once it is in the journal, or has waited for that."""
        while True:
            await self._some_taken.wait()
            self._some_taken.clear()
            messages, self._taken = self._taken, 0
            await keeper.commits.settled(self._core.ordinals.last, RELEASE_SECONDS)
            self._subscriber.done(messages)

    def _take(self, burst: list[tuple[str, bytes, int]]) -> None:
        """Takes in what the broker keeps until it is in the journal."""
        self._taken += len(burst)
        self._some_taken.set()
        self._bring(burst)

    def _bring(self, messages: list[tuple[str, bytes, int]]) -> None:
        for taken in self._core.receive_all(messages):
            if self._archive is not None:
                if not self._archive.offer(taken):
                    self._core.give_back(taken)
            elif self._keeper is None:
                self._core.intake.safe(taken.ordinal)

    async def _caught_up(self, stop: asyncio.Event) -> None:
        """After a restart waits for what the broker kept, which the windows that are due now need."""
        if self._keeper is None or not self._core.pipeline.groups:
            return
        assert self._settings.state is not None
        seconds = self._settings.state.catch_up_seconds
        loop = asyncio.get_running_loop()
        latest = loop.time() + MOST_CATCH_UP * seconds
        connected: float | None = None
        while loop.time() < latest and not await is_set_within(stop, min(seconds, WINDOWS_SECONDS)):
            self._liveness.moved("windows")
            if not self._subscriber.connected:
                connected = None
            elif connected is None:
                connected = loop.time()
            elif loop.time() >= connected + seconds and not len(self._inbox):
                return

    async def _close_windows(self, stop: asyncio.Event) -> None:
        """Closes and judges every window when it is due; what is under way at the end is done first."""
        await self._caught_up(stop)
        seconds = 0.0
        while not await is_set_within(stop, seconds):
            self._liveness.moved("windows")
            if self._desk is not None:
                await self._desk.lapse()
            now_ns = self._clock.wall_ns()
            pipeline = self._core.pipeline
            due = pipeline.due(now_ns)
            self._closing = bool(due)
            to_close = self._core.closes(due, now_ns)
            for window in due:
                if stop.is_set():
                    return
                async with self._judging:
                    async with self._order:
                        close = next(to_close)
                        sealed = await asyncio.to_thread(self._core.seal, close)
                    judged = () if sealed is None else await asyncio.to_thread(pipeline.judge, sealed)
                if self._keeper is not None:
                    await self._keeper.commits.settled(close.ordinal, SETTLE_SECONDS)
                self._judged(close, judged, sealed)
                if close.afresh and self._desk is not None:
                    self._ended(pipeline.ended())
                    await self._desk.changed()
                self._liveness.moved("windows")
                self.view.lagged(max(self._clock.wall_ns() - window.due_ns, 0) / 1e9)
            self._closing = False
            seconds = min(self._free_seconds(), WINDOWS_SECONDS)

    def _free_seconds(self) -> float:
        """How long until a window is to be closed."""
        if self._closing:
            return 0.0
        next_ns = self._core.pipeline.windows.next_due_ns()
        if next_ns is None:
            return math.inf
        return max((next_ns - self._clock.wall_ns()) / 1e9, 0.0)

    def _judged(self, close: WindowClose, judgements: tuple[Judgement, ...], sealed: Window | None) -> None:
        """Hands on what was found, the archive's part without anything in between."""
        self.view.judged(judgements, sealed)
        if self._archive is not None:
            self._archive.offer(close)
            for judgement in judgements:
                self._archive.offer(judgement)
        self._tell(transition for judgement in judgements for transition in judgement.transitions)

    def _ended(self, transitions: list[Transition]) -> None:
        """Takes in that alarms ended otherwise than by a window."""
        self.view.ended(transitions)
        if self._archive is not None and transitions:
            self._archive.offer(Ended(self._core.ordinals.last, tuple(transitions)))
        self._tell(transitions)

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

    def _tell(self, transitions: Iterable[Transition]) -> None:
        """Logs alarms that were raised and cleared."""
        for transition in transitions:
            alarm = transition.alarm
            name = self.view.shown(alarm.component)
            if transition.kind == "raised":
                _log.warning(
                    "%s is a straggler of %s: %s %s", name, alarm.group, alarm.metric, alarm.evidence
                )
            else:
                _log.info("%s of %s is no straggler any more", name, alarm.group)

    async def _contend(self, lease: Lease) -> None:
        """Says that this aggregator is there, or claims the lease, and logs when it gets or loses it."""
        held = False
        while True:
            message = lease.next_message(connected=self._subscriber.connected)
            if message is not None:
                await self._subscriber.publish([(lease_topic(self._settings.site), message)])
            if lease.held != held:
                held = not held
                does = "acknowledges and mails" if held else "leaves acknowledging and mailing to another"
                _log.warning("this aggregator %s from now on", does)
            await asyncio.sleep(lease.pause_seconds)

    def _hear_lease(self, payload: bytes) -> None:
        assert self._lease is not None
        try:
            self._lease.hear(payload)
        except WireError as exc:
            _log.debug("not a lease: %s", exc)

    async def _acknowledge(self) -> None:
        """Tells agents what is safe, at most once a second, and looks after what the core holds."""
        swept_ns, sweep_due_ns, sweeps = 0, 0, 0
        while True:
            await asyncio.sleep(ACK_SECONDS)
            if self._subscriber.connected and self._acts():
                await self._subscriber.publish(self._core.intake.acknowledgements(ACKS_AT_ONCE))
            now_ns = self._clock.monotonic_ns()
            if now_ns >= sweep_due_ns:
                if sweeps:
                    self._inbox.senders.turn((now_ns - swept_ns) / 1e9)
                swept_ns, sweep_due_ns = now_ns, now_ns + round(SWEEP_SECONDS * 1e9)
                sweeps += 1
                async with self._judging, self._order:
                    ended = self._core.sweep(self._clock.wall_ns(), forget=sweeps % FORGET_SWEEPS == 0)
                self._ended(ended)
                # What a burst, or merging files, took at its worst.
                await asyncio.to_thread(allocator.give_back)
