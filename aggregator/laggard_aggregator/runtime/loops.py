"""The daemon's loops: admission, windows and their results, periodic work, keep-alives to its manager."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from laggard_aggregator.alarms.alarms import AlarmEvent, AlarmsCleared
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.archive.write_queue import WriteQueue
from laggard_aggregator.control.requests import RequestHandler
from laggard_aggregator.detect.interface import Window
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.ingest.batches import JOBS, Document, Message
from laggard_aggregator.ingest.ingest_queue import FloodDetector, IngestQueue
from laggard_aggregator.ingest.mqtt.subscriber import Subscriber
from laggard_aggregator.ingest.prometheus_input import ScrapeView
from laggard_aggregator.log.entries import LogSequence, WindowClose
from laggard_aggregator.log.journal import GroupCommit
from laggard_aggregator.status.view import Status
from laggard_aggregator.windows.schedule import WindowClock
from laggard_common.daemon import memory
from laggard_common.daemon.sd_notify import Notifier
from laggard_common.daemon.service import is_set_within

_log = logging.getLogger(__name__)

DURABLE_SECONDS = 5.0
"""Longest time that a judgement waits for its close to be durable, so that a restart does not repeat it."""
RELEASE_SECONDS = 0.2
"""Longest time without a PUBACK to the broker: it limits the messages in flight."""
MAX_CATCH_UP = 12
"""After a restart windows wait at most this many times `catch_up_seconds` for the queue to empty."""
POLL_SECONDS = 0.2
"""Interval of checking for that, and of looking for new groups; a known deadline is met exactly."""
ACK_SECONDS = 1.0
MAX_ACKS = 3000
"""Nodes acknowledged at a time: at a very large site several batches share one acknowledgement."""
MAX_NAMED = 10
"""Log lines a second about nodes of one name."""
CLOCK_SECONDS = 5.0
SWEEP_SECONDS = 60.0
FORGET_SWEEPS = 60
"""Number of sweeps after which silent nodes and components are dropped."""
STATUS_SECONDS = 10.0
CHECKS_PER_WATCHDOG = 4
CatchUp = Callable[[asyncio.Event, Callable[[], None]], Awaitable[None]]
"""Waits for stored messages of the broker until done or stopped; calls its second argument in between."""


@dataclass(slots=True)
class IngestLoop:
    """Admits messages while it holds `order`.

    With an `archive`, its queue has room for a batch before the batch is accepted. Without an archive and a
    `journal`, a batch is durable at once.
    """

    queue: IngestQueue
    subscriber: Subscriber
    machine: Machine
    order: asyncio.Lock
    archive: WriteQueue | None
    journal: GroupCommit | None
    job_told: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by each document about a job, such as a scheduler's hook leaves one."""
    inputs: Sequence[ScrapeView] = ()
    iterations: int = 0  # for the watchdog
    _unreleased: int = 0  # messages that the broker still keeps
    _has_unreleased: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Admits messages burst by burst until cancelled."""
        while True:
            await self.queue.wait()
            async with self.order:
                self._admit_live(self.queue.take_live())
                self._admit(self.queue.take_deferred())
            self.iterations += 1
            await asyncio.sleep(0)

    async def admit(self, messages: list[Message]) -> bool:
        """Admits messages that did not come from the broker; whether all their batches were accepted."""
        async with self.order:
            before = self.machine.admission.counts.unaccepted
            self._admit(messages)
            return self.machine.admission.counts.unaccepted == before

    async def release(self, journal: GroupCommit) -> None:
        """Acknowledges messages to the broker once they are durable, or RELEASE_SECONDS have passed."""
        while True:
            await self._has_unreleased.wait()
            self._has_unreleased.clear()
            messages, self._unreleased = self._unreleased, 0
            await journal.wait_durable(self.machine.sequence.last, RELEASE_SECONDS)
            self.subscriber.done(messages)

    async def caught_up(self, seconds: float, stop: asyncio.Event, progress: Callable[[], None]) -> None:
        """Waits until the queue is empty `seconds` after the connection to the broker, or `stop` is set.

        And until each of `inputs` was polled once.
        """
        loop = asyncio.get_running_loop()
        latest = loop.time() + MAX_CATCH_UP * seconds
        connected: float | None = None
        while loop.time() < latest and not await is_set_within(stop, min(seconds, POLL_SECONDS)):
            progress()
            if not self.subscriber.connected:
                connected = None
            elif connected is None:
                connected = loop.time()
            elif (
                loop.time() >= connected + seconds
                and not len(self.queue)
                and all(view.polled for view in self.inputs)
            ):
                return

    async def drain(self) -> None:
        """Admits the rest after `run` was cancelled, and waits until it is durable."""
        while messages := self.queue.take_live():
            self._admit_live(messages)
        if self.journal is not None:
            await self.journal.commit()
            self.subscriber.done(self._unreleased)

    def _admit_live(self, messages: list[Message]) -> None:
        """Admits messages that the broker keeps until they are durable."""
        self._unreleased += len(messages)
        self._has_unreleased.set()
        self._admit(messages)

    def _admit(self, messages: list[Message]) -> None:
        room = None if self.archive is None else self.archive.room()
        for batch in self.machine.receive(messages, room):
            if isinstance(batch, Document) and batch.source == JOBS:
                self.job_told.set()
            if self.archive is not None:
                self.archive.put(batch)
            elif self.journal is None:
                self.machine.admission.acks.durable(batch.lsn)


@dataclass(frozen=True, slots=True)
class Results:
    """Results of the machine go to `status`, to the `archive` if there is one, and to the log."""

    status: Status
    archive: WriteQueue | None
    sequence: LogSequence

    def judged(self, close: WindowClose, judgements: tuple[Judgement, ...], window: Window | None) -> None:
        """Publishes the judgements of a window; in the archive they follow their close directly."""
        self.status.judged(judgements, window)
        if self.archive is not None:
            self.archive.put(close)
            for judgement in judgements:
                self.archive.put(judgement)
        self._log_events(transition for judgement in judgements for transition in judgement.transitions)

    def cleared(self, events: list[AlarmEvent]) -> None:
        """Publishes alarms that were cleared by something other than a window."""
        self.status.alarms_changed(events)
        if self.archive is not None and events:
            self.archive.put(AlarmsCleared(self.sequence.last, tuple(events)))
        self._log_events(events)

    def _log_events(self, events: Iterable[AlarmEvent]) -> None:
        for event in events:
            alarm = event.alarm
            name = self.status.shown(alarm.component)
            if event.kind == "raised":
                _log.warning(
                    "alarm raised: component=%s group=%s metric=%s: %s",
                    name,
                    alarm.group,
                    alarm.metric,
                    alarm.evidence(self.status.reference(alarm), self.status.worse(alarm)),
                )
            else:
                _log.info("alarm cleared: component=%s group=%s", name, alarm.group)


class MachineLocks(NamedTuple):
    """`judging`: held from the close of a window until it is judged. `order`: held while a batch or close
    gets its sequence number and takes effect. Who takes both takes them in this order.
    """

    judging: asyncio.Lock
    order: asyncio.Lock


@dataclass(slots=True)
class WindowLoop:
    """Holds both of `locks` while a window is closed, and `judging` until it is judged.

    `results` gets the judgements once the close is durable in the `journal`. Overrides of `requests` expire
    before windows are closed.
    """

    machine: Machine
    clock: WindowClock
    locks: MachineLocks
    results: Results
    journal: GroupCommit | None
    requests: RequestHandler | None
    iterations: int = 0  # for the watchdog
    _closing: bool = False  # windows that are due

    async def run(self, stop: asyncio.Event, catch_up: CatchUp | None = None) -> None:
        """Closes and judges windows until `stop`, after `catch_up`."""
        if catch_up is not None:
            await catch_up(stop, self.progress)
        while not stop.is_set():
            self.iterations += 1
            if self.clock.confirmed:
                if self.requests is not None and self.machine.overrides.decisions:
                    await self.requests.expire()
                await self._rewind()
            await self._close_due(stop)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), min(self.free_seconds(), POLL_SECONDS))

    def progress(self) -> None:
        """Counts an iteration spent waiting for the broker's messages."""
        self.iterations += 1

    def free_seconds(self) -> float:
        """Time until the next window is to be closed."""
        if self._closing:
            return 0.0
        next_ns = self.machine.windows.next_due_ns()
        if next_ns is None:
            return math.inf
        return max((next_ns - self.clock.wall_ns()) / 1e9, 0.0)

    async def _rewind(self) -> None:
        """Sets groups back that closed windows in the future, while the clock was ahead."""
        machine, now_ns = self.machine, self.clock.wall_ns()
        if not machine.windows.ahead(now_ns):
            return
        async with self.locks.judging, self.locks.order:
            for close in machine.rewinds(now_ns):
                machine.seal(close)
                self.results.judged(close, (), None)
                _log.warning(
                    "group %s: the clock was ahead when its last windows closed; its history is discarded",
                    close.group,
                )

    async def _close_due(self, stop: asyncio.Event) -> None:
        """Closes and judges the windows that are due; the current one is finished at `stop`."""
        machine, now_ns = self.machine, self.clock.wall_ns()
        due = machine.windows.due(now_ns)
        self._closing = bool(due)
        closes = machine.closes(due, now_ns)
        for _, _, deadline_ns in due:
            if stop.is_set():
                return
            async with self.locks.judging:
                async with self.locks.order:
                    close = next(closes)
                    sealed = await asyncio.to_thread(machine.seal, close)
                judged = () if sealed is None else await asyncio.to_thread(machine.judge.evaluate, sealed)
            if self.journal is not None:
                await self.journal.wait_durable(close.lsn, DURABLE_SECONDS)
            self.results.judged(close, judged, sealed)
            if close.restart and self.requests is not None:
                self.results.cleared(machine.pop_cleared())
                await self.requests.changed()
            self.iterations += 1
            self.results.status.lagged(max(self.clock.wall_ns() - deadline_ns, 0) / 1e9)
        self._closing = False


async def keep_house(
    machine: Machine,
    clock: WindowClock,
    locks: MachineLocks,
    results: Results,
    *,
    subscriber: Subscriber,
    senders: FloodDetector,
) -> None:
    """Publishes acknowledgements, checks the clock, and sweeps the machine, until cancelled.

    A sweep holds both of `locks`; `results` gets the alarms that it cleared. It gives up old data, and
    waits until the clock is confirmed.
    """
    swept_ns, sweep_due_ns, clock_due_ns, sweeps = 0, 0, 0, 0
    named: set[str] = set()
    while True:
        await asyncio.sleep(ACK_SECONDS)
        if subscriber.connected:
            await subscriber.publish(machine.admission.acks.messages(MAX_ACKS))
        named &= machine.admission.nodes_twice
        for node in sorted(machine.admission.nodes_twice - named)[:MAX_NAMED]:
            _log.warning("two agents publish as node %s, or its spool was copied", node)
            named.add(node)
        now_ns = clock.monotonic_ns()
        if now_ns >= clock_due_ns:
            clock_due_ns = now_ns + round(CLOCK_SECONDS * 1e9)
            nodes = machine.admission.nodes
            offsets = nodes.latest_offsets(now_ns)
            spread_ns = nodes.median_interval_ns if offsets else 0
            if clock.check(offsets, known=nodes.with_clock > 0, spread_ns=spread_ns):
                nodes.clock_set(clock.wall_ns())
        if now_ns < sweep_due_ns or not clock.confirmed:
            continue
        if sweeps:
            senders.end_period((now_ns - swept_ns) / 1e9)
        swept_ns, sweep_due_ns = now_ns, now_ns + round(SWEEP_SECONDS * 1e9)
        sweeps += 1
        async with locks.judging, locks.order:
            cleared = machine.sweep(clock.wall_ns(), forget=sweeps % FORGET_SWEEPS == 0)
        results.cleared(cleared)
        await asyncio.to_thread(memory.trim)  # memory that a burst or a compaction needed


class Watchdog:
    """Sends a keep-alive each time that every loop made progress since the last one.

    `progress()`: iterations of each loop so far, None for a loop without work. `status`: the status line.
    """

    def __init__(
        self,
        notifier: Notifier,
        *,
        progress: Callable[[], Sequence[int | None]],
        status: Callable[[], str],
    ) -> None:
        self._notifier = notifier
        self._progress = progress
        self._status = status
        self._seen: Sequence[int] = ()

    def check(self) -> bool:
        """Sends a keep-alive if all loops made progress or are idle; whether it did."""
        now = self._progress()
        last = self._seen or (0,) * len(now)
        if any(count == before for count, before in zip(now, last, strict=True)):
            return False
        self._seen = [before if count is None else count for count, before in zip(now, last, strict=True)]
        self._notifier.alive()
        return True

    async def run(self) -> None:
        """Reports readiness, then the status and keep-alives until cancelled."""
        self._notifier.ready(self._status())
        seconds = STATUS_SECONDS
        if self._notifier.watchdog_seconds is not None:
            seconds = min(seconds, self._notifier.watchdog_seconds / CHECKS_PER_WATCHDOG)
        while True:
            await asyncio.sleep(seconds)
            self._notifier.status(self._status())
            self.check()
