"""The aggregator: subscriber, intake, pipeline, windows, archive and HTTP together. Only this file knows all.

Batches and window closes get their ordinals on the loop, each followed by its effect on the pipeline before
the next one gets its own. Closing, judging and writing happen in threads; while a window is being closed,
messages wait in the inbox. So the order that the archive records is the one that a replay has to follow.
"""

import asyncio
import itertools
import logging
import random
from contextlib import AsyncExitStack

from laggard_aggregator.archive.keep import Retention
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.archiving import ArchiveFeed, is_set_within
from laggard_aggregator.configured import membership, topology
from laggard_aggregator.embedded import embedded_broker
from laggard_aggregator.engine import Engine, Judgement
from laggard_aggregator.export.access import guarded
from laggard_aggregator.export.credentials import read_credentials
from laggard_aggregator.export.http import make_app
from laggard_aggregator.export.server import HttpServer
from laggard_aggregator.export.settings import tls_context
from laggard_aggregator.ingest.inbox import Inbox
from laggard_aggregator.ingest.intake import Intake
from laggard_aggregator.ingest.subscriber import Subscriber
from laggard_aggregator.ingest.taken import WindowClose
from laggard_aggregator.live import LiveView
from laggard_aggregator.pipeline import Pipeline, closes
from laggard_aggregator.settings import AggregatorSettings
from laggard_common.clock import Clock, SystemClock
from laggard_common.mqtt import client_arguments

_log = logging.getLogger(__name__)

ACK_SECONDS = 1.0
SWEEP_SECONDS = 60.0
WINDOWS_SECONDS = 0.2
"""How often groups that are new are looked for; a deadline that is known is met when it comes."""


class App:
    """One aggregator. `view` shows it from the start of `run` on, `url` is where it is served.

    Raises ConfigError when a file that `settings` names cannot be used.
    """

    def __init__(
        self, settings: AggregatorSettings, clock: Clock | None = None, rng: random.Random | None = None
    ) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._arguments = client_arguments(settings.mqtt)
        self._tls = tls_context(settings.http)
        self._credentials = read_credentials(settings.http.credentials_file)
        self._rng = rng or random.SystemRandom()
        self._ordinals = itertools.count(1)
        self._order = asyncio.Lock()
        self._membership = membership(settings)
        self._lateness_seconds = settings.detect.lateness
        self._intake = Intake(settings.site, self._ordinals)
        self._topology = topology(settings.topology)
        engine = Engine({}, settings.alarm.after_seconds, self._topology)
        self._pipeline = Pipeline(self._membership, engine, self._lateness_seconds)
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
        """Runs until `stop` is set; sets `started` when everything listens.

        Raises ServiceError when a port is taken, ArchiveError when the archive's folder cannot be written.
        """
        async with AsyncExitStack() as outside:
            await self._startup(outside)
            if started is not None:
                started.set()
            await self._main_loop(stop)
        _log.info("stopped")

    async def _startup(self, outside: AsyncExitStack) -> None:
        s = self._settings
        for section in (name for name, given in s.unused.items() if given):
            _log.warning("this version does not use %s yet", section)
        self._inbox = Inbox(s.mqtt.queue_messages)
        self._subscriber = Subscriber(
            s.mqtt, s.site, self._arguments, inbox=self._inbox, clock=self._clock, rng=self._rng
        )
        self.view = LiveView(
            self._intake,
            self._pipeline,
            self._clock,
            ready=lambda: self._subscriber.connected,
            queue_dropped=lambda: self._inbox.dropped,
            archive_dropped=lambda: self._archive.dropped if self._archive else 0,
        )
        self._http = HttpServer(guarded(make_app(self.view), self._credentials), s.http.listen, self._tls)
        self._http.bind()
        outside.callback(self._http.close)
        if s.archive is not None:
            self._archive = await self._open_archive()
        if s.mqtt.embedded:
            await outside.enter_async_context(embedded_broker(s.mqtt))
        _log.info("site %s: metrics at %s/metrics", s.site, self._http.url)

    async def _open_archive(self) -> ArchiveFeed:
        archive = self._settings.archive
        assert archive is not None
        writer = ArchiveWriter(archive.directory, self._settings.site, self._clock.wall_ns())
        after_seconds = self._settings.alarm.after_seconds
        writer.groups(self._membership, self._topology, self._lateness_seconds, after_seconds)
        await asyncio.to_thread(writer.flush)
        retention = Retention(archive.raw_days, archive.rollup_days, archive.max_bytes)
        return ArchiveFeed(writer, retention, self._intake.safe, self._clock)

    async def _main_loop(self, stop: asyncio.Event) -> None:
        ended = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            connection = group.create_task(self._subscriber.run(), name="subscriber")
            serving = group.create_task(self._http.run(ended), name="http")
            working = [
                group.create_task(self._take_in(), name="intake"),
                group.create_task(self._acknowledge(), name="acknowledge"),
            ]
            closing = group.create_task(self._close_windows(stop), name="windows")
            archiving = None
            if self._archive is not None:
                archiving = group.create_task(self._archive.run(ended), name="archive")
            await stop.wait()
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)
            await closing
            while burst := self._inbox.burst():
                self._take(burst)
            ended.set()
            if archiving is not None:
                await archiving
            await self._subscriber.publish(self._intake.acknowledgements())
            await serving
            connection.cancel()

    async def _take_in(self) -> None:
        """Brings messages from the inbox into the pipeline, a burst at a time."""
        while True:
            await self._inbox.some()
            async with self._order:
                self._take(self._inbox.burst())
            await asyncio.sleep(0)

    def _take(self, burst: list[tuple[str, bytes, int]]) -> None:
        for topic, payload, received_ns in burst:
            for batch in self._intake.receive(topic, payload, received_ns):
                taken = self._pipeline.take(batch)
                if self._archive is not None:
                    self._archive.offer(taken)
                else:
                    self._intake.safe(taken.ordinal)

    async def _close_windows(self, stop: asyncio.Event) -> None:
        """Closes and judges every window when it is due; what is under way at the end is done first."""
        seconds = 0.0
        while not await is_set_within(stop, seconds):
            now_ns = self._clock.wall_ns()
            due = self._pipeline.due(now_ns)
            to_close = closes(due, self._ordinals, self._pipeline.groups, now_ns)
            for window in due:
                if stop.is_set():
                    return
                async with self._order:
                    close = next(to_close)
                    sealed = await asyncio.to_thread(self._pipeline.seal, close)
                judged = () if sealed is None else await asyncio.to_thread(self._pipeline.judge, sealed)
                self._judged(close, judged)
                self.view.window_lag_seconds = max(self._clock.wall_ns() - window.due_ns, 0) / 1e9
            next_ns = self._pipeline.windows.next_due_ns()
            ahead = WINDOWS_SECONDS if next_ns is None else (next_ns - self._clock.wall_ns()) / 1e9
            seconds = min(max(ahead, 0.0), WINDOWS_SECONDS)

    def _judged(self, close: WindowClose, judgements: tuple[Judgement, ...]) -> None:
        """Hands on what was found, the archive's part without anything in between."""
        self.view.judged(judgements)
        if self._archive is not None:
            self._archive.offer(close)
            for judgement in judgements:
                self._archive.offer(judgement)
        for judgement in judgements:
            for transition in judgement.transitions:
                alarm = transition.alarm
                name = self.view.shown(alarm.component)
                if transition.kind == "raised":
                    _log.warning(
                        "%s is a straggler of %s: %s %.4g, its peers %.4g (%.2f times)",
                        name,
                        alarm.group,
                        alarm.metric,
                        alarm.observed,
                        alarm.reference,
                        alarm.severity,
                    )
                else:
                    _log.info("%s of %s is no straggler any more", name, alarm.group)

    async def _acknowledge(self) -> None:
        """Tells agents what is safe, at most once a second, and looks after what the intake holds."""
        sweep_due_ns = 0
        while True:
            await asyncio.sleep(ACK_SECONDS)
            await self._subscriber.publish(self._intake.acknowledgements())
            now_ns = self._clock.monotonic_ns()
            if now_ns >= sweep_due_ns:
                sweep_due_ns = now_ns + round(SWEEP_SECONDS * 1e9)
                self._intake.sweep(self._clock.wall_ns())
