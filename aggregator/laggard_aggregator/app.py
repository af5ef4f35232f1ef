"""The aggregator daemon: the one module that knows all of its parts.

Batches and window closes get their sequence numbers on the event loop, each followed by its effect on the
machine before the next one gets its own. Closing, judging and writing run in threads; while a window is
closed, messages wait in the ingest queue. So journal and archive record the order that a replay follows.
"""

import asyncio
import logging
import random
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from typing import Any

from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.archive.write_queue import WriteQueue
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.control import storage
from laggard_aggregator.control.requests import RequestHandler
from laggard_aggregator.control.socket import Control
from laggard_aggregator.embedded.broker import embedded_broker
from laggard_aggregator.engine.checkpoint import Head, capture, restore, rules_of
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.engine.recovery import Recovery
from laggard_aggregator.ingest.ingest_queue import IngestQueue
from laggard_aggregator.ingest.mqtt.subscriber import Subscriber
from laggard_aggregator.ingest.prometheus_input import PrometheusInput
from laggard_aggregator.jobs.background import BackgroundTask
from laggard_aggregator.jobs.join.path_pass import read_forwarders
from laggard_aggregator.jobs.loads.load_days import LoadDays
from laggard_aggregator.jobs.records.poll_task import PollTask
from laggard_aggregator.notify.channel import Channel, make_channels
from laggard_aggregator.notify.dispatcher import Dispatcher
from laggard_aggregator.notify.email.channel import MailChannel
from laggard_aggregator.notify.email.owner_mails import OwnerMails
from laggard_aggregator.runtime.loops import (
    CatchUp,
    IngestLoop,
    MachineLocks,
    Results,
    Watchdog,
    WindowLoop,
    keep_house,
)
from laggard_aggregator.settings.aggregator import AggregatorSettings, StateTable
from laggard_aggregator.settings.from_settings import membership, topology
from laggard_aggregator.settings.http import tls_context
from laggard_aggregator.status.background import BackgroundWork, JobPolls
from laggard_aggregator.status.view import Status
from laggard_aggregator.status.window_history import WindowHistory
from laggard_aggregator.web.actions import Actions
from laggard_aggregator.web.app import make_app
from laggard_aggregator.web.auth import authenticated, read_credentials
from laggard_aggregator.web.identity import Identity
from laggard_aggregator.web.server import HttpServer
from laggard_aggregator.windows.schedule import WindowClock
from laggard_common.clock import Clock, SystemClock
from laggard_common.daemon.sd_notify import Notifier
from laggard_common.daemon.service import answer_of
from laggard_common.errors import LaggardError
from laggard_common.mqtt.settings import client_arguments

_log = logging.getLogger(__name__)


class App:
    """One aggregator. `view` is its status during `run`, `url` the address of its HTTP server.

    `notifier` gets readiness and keep-alives. `before`: the predecessor in the same process, after a reload;
    without `[state]` its machine's state is taken over. Raises ConfigError when a file named in `settings`
    cannot be used.
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
        self._final_state: list[dict[str, Any]] | None = before._final_state if before is not None else None
        host = clock or SystemClock()
        self._clock: WindowClock = (
            before._clock if before is not None else WindowClock(host.wall_ns, host.monotonic_ns)
        )
        self._rng = rng or random.SystemRandom()
        self._arguments = partial(client_arguments, settings.mqtt)
        self._arguments()  # so that unusable files are reported now
        self._tls = tls_context(settings.http)
        self._credentials = read_credentials(settings.http.credentials_file, settings.http.operators)
        self._identity = Identity(settings.identity, settings.principal, settings.http.operators)
        self._actions = Actions(
            settings.http.operators if settings.state is not None else (),
            settings.http.external_url,
            "" if settings.state is None else str(settings.state.directory),
        )
        channels = make_channels(settings.channels)
        self._owner_mails = self._new_owner_mails(channels)
        self._dispatcher = self._new_dispatcher(channels, before)
        self._membership = membership(settings)
        self._topology = topology(settings.topology)
        for table in settings.prometheus:
            table.servers()  # as for the broker
        self._machine = self._new_machine()
        self._run_ns = 0
        self._queue = IngestQueue(settings.mqtt.queue_messages, settings.mqtt.queue_max_bytes)
        self._subscriber = self._new_subscriber()
        self.view: Status = self._new_view(before.view.history if before is not None else WindowHistory())
        self._loads = LoadDays(settings.archive.directory) if settings.archive is not None else None
        self._background = self._new_background()
        self._watchdog = Watchdog(
            notifier or Notifier(),
            progress=lambda: (
                self._ingest.iterations if len(self._queue) else None,
                self._windows.iterations,
            ),
            status=self._status_line,
        )
        self._locks = MachineLocks(asyncio.Lock(), asyncio.Lock())
        self._ended = asyncio.Event()  # stops writing and serving
        self._control = AsyncExitStack()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._recovery: Recovery | None = None
        self._archive: WriteQueue | None = None
        self._http: HttpServer
        self._ingest: IngestLoop
        self._windows: WindowLoop

    @property
    def url(self) -> str:
        """The address of `/metrics` and the API, once `run` has started."""
        return self._http.url

    async def run(self, stop: asyncio.Event, started: asyncio.Event | None = None) -> None:
        """Runs until `stop` is set; sets `started` when the state is restored and all tasks are created.

        Raises ServiceError when a port is taken or another aggregator has the state, StateError when its
        directory cannot be used. An archive that cannot be used is opened as soon as it can.
        """
        async with AsyncExitStack() as stack:
            with _single_error():
                async with asyncio.TaskGroup() as tasks:
                    await self._startup(stack, tasks)
                    await self._main_loop(tasks, stop, started)
                    await self._shutdown()
        _log.info("stopped")

    async def _startup(self, stack: AsyncExitStack, tasks: asyncio.TaskGroup) -> None:
        """Opens ports and directories, then restores the machine while HTTP is served already."""
        s = self._settings
        if s.http.operators and s.http.exposed:
            _log.warning("http: operators' credentials travel unencrypted, because cert_file is not set")
        if s.http.operators and s.state is None:
            _log.warning("http: operators cannot silence or drain without [state]")
        archive = s.archive.directory if s.archive is not None else None
        forwarders = s.jobs.forwarders
        app = make_app(
            self.view,
            archive,
            s.http.nodes,
            s.http.page,
            self._actions,
            peaks=s.peak,
            served_by=read_forwarders(forwarders) if forwarders is not None else {},
            jobid_format=s.jobs.jobid_format,
            loads=self._loads,
        )
        self._http = HttpServer(
            authenticated(app, self._credentials, self._identity), s.http.listen, self._tls
        )
        self._http.bind()
        stack.callback(self._http.close)
        if s.state is not None:
            opening = asyncio.to_thread(Recovery, s.state, self._clock)
            self._recovery = await answer_of(opening, f"state: {s.state.directory}")
            stack.callback(self._recovery.close)
        if s.mqtt.embedded:
            await stack.enter_async_context(embedded_broker(s.mqtt, self._subscriber.identifier))
        _log.info("site %s: pages at %s/, metrics at %s/metrics", s.site, self._http.url, self._http.url)
        await stack.enter_async_context(self._control)
        self._start(tasks, http=self._http.run(self._ended))
        await self._restore()

    async def _main_loop(
        self, tasks: asyncio.TaskGroup, stop: asyncio.Event, started: asyncio.Event | None
    ) -> None:
        """Starts all loops and waits for `stop`."""
        results = Results(self.view, self._archive, self._machine.sequence)
        requests = await self._open_control(results)
        self._start_loops(tasks, stop, results, requests)
        if started is not None:
            started.set()
        await stop.wait()

    async def _shutdown(self) -> None:
        """Ends the loops in the order in which data flows, and writes the state."""
        await self._actions.close()
        await self._control.aclose()
        inputs = (f"prometheus {table.name}" for table in self._settings.prometheus)
        await self._cancel("watchdog", "ingest", "housekeeping", "release", *inputs)
        await self._join("windows", "snapshots", "background", "jobs")
        await self._cancel("notify")
        await self._ingest.drain()
        self.view.close()
        self._ended.set()
        await self._join("archive", "journal")
        if self._recovery is not None:
            await self._recovery.snapshot((), self._archived())
        else:
            self._final_state = await asyncio.to_thread(
                capture, self._machine, self._run_ns, self._clock.wall_ns()
            )
        await self._subscriber.publish(self._machine.admission.acks.messages())
        await self._join("http")
        self._tasks["subscriber"].cancel()

    def _start_loops(
        self, tasks: asyncio.TaskGroup, stop: asyncio.Event, results: Results, requests: RequestHandler | None
    ) -> None:
        machine, clock, locks = self._machine, self._clock, self._locks
        archive, recovery = self._archive, self._recovery
        journal = recovery.journal if recovery is not None else None
        self._ingest = IngestLoop(self._queue, self._subscriber, machine, locks.order, archive, journal)
        inputs = {
            table.name: PrometheusInput(table, machine.admission, clock, self._ingest.admit)
            for table in self._settings.prometheus
        }
        self._ingest.inputs = [prometheus.view for prometheus in inputs.values()]
        self.view.scrapes = {name: prometheus.view for name, prometheus in inputs.items()}
        self._start(
            tasks, **{f"prometheus {name}": prometheus.run(stop) for name, prometheus in inputs.items()}
        )
        self._windows = WindowLoop(machine, clock, locks, results, journal, requests)
        self._start(
            tasks,
            subscriber=self._subscriber.run(),
            watchdog=self._watchdog.run(),
            ingest=self._ingest.run(),
            housekeeping=keep_house(
                machine, clock, locks, results, subscriber=self._subscriber, senders=self._queue.senders
            ),
            windows=self._windows.run(stop, self._catch_up()),
        )
        if self._settings.channels:
            self._start(tasks, notify=self._dispatcher.run(self.view))
        if archive is not None:
            self._start(tasks, archive=archive.run(self._ended))
        if self._background is not None:
            self._start(tasks, background=self._background.run(stop))
        if self._settings.archive is not None and self._settings.jobs.sacct:
            polls = self.view.job_polls = JobPolls()
            self._start(tasks, jobs=PollTask(self._settings, clock, polls).run(stop, self._ingest.job_told))
        if recovery is not None:
            self._start(
                tasks,
                snapshots=recovery.run(stop, locks, self._archived(), self._windows.free_seconds),
                release=self._ingest.release(recovery.journal),
                journal=recovery.journal.run(self._ended),
            )

    def _start(self, tasks: asyncio.TaskGroup, **work: Coroutine[Any, Any, None]) -> None:
        self._tasks |= {name: tasks.create_task(coroutine, name=name) for name, coroutine in work.items()}

    async def _cancel(self, *names: str) -> None:
        running = [self._tasks[name] for name in names if name in self._tasks]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _join(self, *names: str) -> None:
        await asyncio.gather(*(self._tasks[name] for name in names if name in self._tasks))

    def _catch_up(self) -> CatchUp | None:
        """After a restart, the wait for the messages that the broker kept, and for the scrapes since then."""
        state = self._settings.state
        if state is None or not self._machine.groups:
            return None
        return partial(self._ingest.caught_up, state.catch_up_seconds)

    def _new_machine(self) -> Machine:
        s = self._settings
        return Machine(
            self._membership,
            self._topology,
            lateness_seconds=s.detect.lateness,
            after_seconds=s.alarm.after_seconds,
            site=s.site,
            forget_ns=round((s.state or StateTable()).forget_days * 86_400 * 1e9),
        )

    def _new_subscriber(self) -> Subscriber:
        s = self._settings
        return Subscriber(
            s.mqtt,
            s.site,
            self._arguments,
            queue=self._queue,
            clock=self._clock,
            rng=self._rng,
            hold_back=s.state is not None,
        )

    def _new_view(self, history: WindowHistory) -> Status:
        view = Status(
            self._machine,
            self._clock,
            history,
            queue=self._queue,
            subscriber=self._subscriber,
            channels=self._dispatcher.channels,
        )
        view.decides = bool(self._actions.operators)
        view.needs_token = self._settings.needs_token
        return view

    def _new_dispatcher(self, channels: Sequence[Channel], before: "App | None") -> Dispatcher:
        s, mails = self._settings, self._owner_mails
        return Dispatcher(
            channels,
            s.site,
            s.http.page,
            s.state.directory if s.state is not None else None,
            clock=self._clock,
            rng=self._rng,
            before=before._dispatcher if before is not None else None,
            further={} if mails is None else {MailChannel.name: mails.waiting},
            is_right=lambda: self._clock.confirmed,
        )

    def _new_owner_mails(self, channels: Sequence[Channel]) -> OwnerMails | None:
        """Mails to the owners of slow jobs, None where the site does not want them."""
        s = self._settings
        mail = next((channel.settings for channel in channels if isinstance(channel, MailChannel)), None)
        if mail is None or not s.jobs.owner_mail:
            return None
        return OwnerMails(s.jobs.owner_mail, mail, s.site, s.http.page, self._clock)

    def _new_background(self) -> BackgroundTask | None:
        """The work that follows the archive, None without any."""
        archive, jobs, clock = self._settings.archive, self._settings.jobs, self._clock
        if archive is None or not (archive.rollups or jobs.enabled):
            return None
        work = self.view.background = BackgroundWork()
        site, is_right = self._settings.site, lambda: clock.confirmed
        judged = None if self._owner_mails is None else self._owner_mails.judged
        return BackgroundTask(
            archive, jobs, site, work, clock=clock, is_right=is_right, judged=judged, loads=self._loads
        )

    async def _restore(self) -> None:
        """Restores the machine from the state directory or the predecessor, and opens the archive."""
        head = await self._load()
        machine, now_ns = self._machine, self._clock.wall_ns()
        continues = head is not None and head.rules == rules_of(machine)
        self._run_ns = head.run_ns if head is not None and continues else now_ns
        if not continues:
            self.view.history.drop_shadows()
        if self._settings.archive is not None:
            opening = asyncio.to_thread(self._open_archive, head)
            self._archive = await answer_of(opening, f"archive: {self._settings.archive.directory}")
        judged: list[Judgement] = []
        if self._recovery is not None:
            await asyncio.to_thread(self._replay, self._recovery, judged, head)
        if self._recovery is not None or head is not None:
            machine.admission.nodes.listening(now_ns)
            machine.start_counting()
        self._queue.is_known = machine.admission.is_known
        self.view.adopt(machine, judged)
        self.view.archive = self._archive
        if self._recovery is not None:
            durable = machine.admission.acks.durable
            await self._recovery.start(machine, self._run_ns, durable, self._archived(), continues=continues)
            if self._archive is not None:
                self._archive.journal = self._recovery.journal
            self.view.recovery = self._recovery
        self.view.restored = True

    async def _load(self) -> Head | None:
        """The machine as of the newest snapshot, and the snapshot's head."""
        if self._recovery is not None:
            self._machine, head = await asyncio.to_thread(self._recovery.load, self._new_machine)
            return head
        if self._final_state is not None and self._final_state[0]["site"] == self._settings.site:
            head = restore(self._machine, iter(self._final_state), "reload")
            list(self._machine.receive(self._machine.admission.pop_restored()))  # they wait again
            return head
        return None

    def _replay(self, recovery: Recovery, judged: list[Judgement], head: Head | None) -> None:
        is_archived = (self._archive.has_batch,) if self._archive is not None else ()
        for result in recovery.replay(self._machine, *is_archived):
            if self._archive is not None:
                self._archive.replay((result,))
            if isinstance(result, Judgement):
                judged.append(result)
        if self._archive is not None and (head is not None or recovery.has_journal):
            recovery.skip_to(self._machine.sequence, self._archive.last_written)

    def _open_archive(self, head: Head | None) -> WriteQueue:
        s, archive, recovery = self._settings, self._settings.archive, self._recovery
        assert archive is not None
        writer = ArchiveWriter(
            archive.directory,
            s.site,
            self._run_ns,
            continues_at_ns=head.taken_ns if head is not None else None,
            continued_run_ns=head.run_ns if head is not None else None,
            repeats=recovery.entry_times() if recovery is not None and head is None else None,
        )
        writer.groups(self._membership, self._topology, s.detect.lateness, s.alarm.after_seconds)
        durable = self._machine.admission.acks.durable if recovery is None else None
        queue = WriteQueue(writer, archive, durable, self._clock, lambda: self._clock.confirmed)
        queue.open()
        return queue

    def _archived(self) -> Any:
        """The check whether the archive has a result, which a snapshot waits for; None without an archive."""
        return self._archive.has if self._archive is not None else None

    async def _open_control(self, results: Results) -> RequestHandler | None:
        """Loads the overrides and serves the control socket until shutdown."""
        if self._settings.state is None:
            return None
        directory = self._settings.state.directory
        self._machine.overrides, damaged = await asyncio.to_thread(storage.recover, directory)
        if self._recovery is not None:
            self._recovery.damaged += damaged
        requests = RequestHandler(directory, self._machine, self._clock, self._locks, results.cleared)
        await self._control.enter_async_context(Control(directory, requests.answer))
        self._actions.answer = requests.answer
        return requests

    def _status_line(self) -> str:
        """A line for `systemctl status`."""
        counts = self.view.node_counts()
        up = sum(n for (_, state), n in counts.items() if state == "up")
        broker = f"{'' if self._subscriber.connected else 'not '}connected to {self._settings.mqtt.address}"
        if not self._settings.mqtt.enabled:
            broker = next(iter(self.view.unconnected()), "all servers answer")
        waiting = sum(channel.waiting for channel in self._dispatcher.channels().values())
        late = f", {waiting} notifications wait" if waiting else ""
        return f"{len(self.view.alarms())} alarms, {up} of {sum(counts.values())} nodes up, {broker}{late}"


@contextmanager
def _single_error() -> Iterator[None]:
    """Raises the only LaggardError of a TaskGroup without its group."""
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1 and isinstance(group.exceptions[0], LaggardError):
            raise group.exceptions[0] from group
        raise
