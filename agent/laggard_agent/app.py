"""The agent: samplers, spool and publisher together."""

import asyncio
import contextlib
import logging
import math
import random
import time
from asyncio import FIRST_COMPLETED
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from laggard_agent.collectors.host import self_usage
from laggard_agent.collectors.interface import Roots
from laggard_agent.collectors.registry import make_collector
from laggard_agent.sampling.batcher import Batcher, Dictionary, splay_ns
from laggard_agent.sampling.sampler import Sampler, Timeline
from laggard_agent.settings import AgentSettings
from laggard_agent.spool.spool import Spool
from laggard_agent.spool.worker import Worker
from laggard_agent.transport.outbox import POLL_SECONDS, NodeOutbox
from laggard_agent.transport.publisher import Publisher
from laggard_common.clock import Clock, SystemClock
from laggard_common.daemon.host_name import HostName, host_name
from laggard_common.daemon.sd_notify import Notifier
from laggard_common.daemon.service import HUNG_SECONDS, answer_of, is_set_within
from laggard_common.mqtt.settings import client_arguments
from laggard_common.wire.codec import Encoder

_log = logging.getLogger(__name__)

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_WATCH_SECONDS = 10.0
_WATCHES_A_WATCHDOG = 3
_NAME_SECONDS = 1.0
_OPENING_SECONDS = 5.0
_FEW_BYTES = 64 * 1024
"""Batches in memory that may be lost when the spool returns to its directory; they are with the broker."""
# An orderly end takes at most the sum of these, spooling counted twice (batches, then closing).
_READING_ENDS_SECONDS = 0.5
_SPOOLING_ENDS_SECONDS = 1.0
_PUBLISHING_ENDS_SECONDS = 2.0


class App:
    """One agent. Several may run in one loop, each with its own settings, roots and spool directory.

    `notifier` reports start, status and life to the service manager.

    The agent runs again from its start, in the same process, when the host's name changes (while `node` is
    not set), when the spool's directory does not answer (then without it), and when it answers again.
    """

    def __init__(
        self,
        settings: AgentSettings,
        roots: Roots,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        notifier: Notifier | None = None,
    ) -> None:
        self._settings = settings
        self._roots = roots
        self._clock = clock or SystemClock()
        self._rng = rng or random.SystemRandom()
        self._notifier = notifier or Notifier()
        self._arguments = partial(client_arguments, settings.mqtt)
        self._phase_ticks = 0
        self._publish_delay_seconds = 0.0
        self._hung: Worker | None = None
        """The spool's thread that a directory holds up, which does not answer."""
        self._again = asyncio.Event()
        self._encoder = Encoder()
        self._dictionaries: dict[str, Dictionary] = {}
        self._samplers: list[Sampler] = []
        self._outbox: NodeOutbox | None = None
        self._failure: asyncio.Future[None]
        self._worker: Worker
        self._spool: Spool
        self._publisher: Publisher

    async def run(self, stop: asyncio.Event, started: asyncio.Event | None = None) -> None:
        """Samples and publishes until `stop` is set, then ends within 5 s. Raises ServiceError at start.

        Sets `started` when sampling begins.
        """
        while await self._has_name(stop):
            self._again.clear()
            await self._startup(stop)
            if started is not None:
                started.set()
            try:
                await self._main_loop(stop)
            finally:
                await self._shutdown()
            if stop.is_set():
                break
        _log.info("stopped")

    async def _has_name(self, stop: asyncio.Event) -> bool:
        """Waits for a name of the node; False when `stop` was set before there is one."""
        name = self._settings.node
        waits = False
        while isinstance(name, HostName) and not (name := host_name()).is_usable:
            text = f"waiting for a host name: {str(name)!r} could be any host; rename it, or set node"
            if not waits:
                _log.warning("%s", text)
            waits = True
            self._notifier.ready(text)
            self._notifier.alive()
            if await is_set_within(stop, _NAME_SECONDS):
                return False
        self._settings = s = replace(self._settings, node=name)
        phase = splay_ns(s.site, s.node, s.batch_samples * s.interval_ns)
        self._phase_ticks, phase_rest_ns = divmod(phase, s.interval_ns)
        self._publish_delay_seconds = phase_rest_ns / 1e9
        return not stop.is_set()

    async def _startup(self, stop: asyncio.Event) -> None:
        s = self._settings
        self._failure = asyncio.get_running_loop().create_future()
        self._worker = Worker("spool", self._fail)
        self._spool = await self._open_spool(stop)
        self._dictionaries = self._spool.dictionaries()
        self._publisher = Publisher(
            s,
            self._arguments,
            spool=self._spool,
            worker=self._worker,
            status=self._status,
            clock=self._clock,
            rng=self._rng,
            delay_seconds=self._publish_delay_seconds,
        )
        self._samplers = [self._make_sampler(name) for name in s.collectors]
        _log.info(
            "node %s (%s) samples %s every %g s", s.node, s.role, ", ".join(s.collectors), s.interval_seconds
        )

    async def _open_spool(self, stop: asyncio.Event) -> Spool:
        """The spool in its directory, or in memory while that does not answer. Raises ServiceError."""
        make = partial(Spool, self._settings, boot_id(), self._rng.randbytes)
        if self._hung is None:
            opened: list[Spool] = []
            opening = asyncio.ensure_future(self._worker.call(lambda: opened.append(make())))
            stopped = asyncio.ensure_future(stop.wait())
            await _ends_within(_first_of(opening, stopped), _OPENING_SECONDS)
            stopped.cancel()
            if opening.done():
                opening.result()
                return opened[0]
            opening.cancel()
            self._abandon_disk(partial(_close_all, opened))
            self._worker = Worker("spool in memory", self._fail)
        return await self._worker.call(partial(make, on_disk=False))

    def _abandon_disk(self, close: Callable[[], object]) -> None:
        """Leaves the spool's thread to the directory that holds it up; it ends when that answers."""
        _log.warning(
            "spool: %s does not answer; keeping batches in memory only", self._settings.spool.directory
        )
        self._hung = self._worker
        self._worker.submit(close)
        self._worker.end()

    def _make_sampler(self, collector: str) -> Sampler:
        s = self._settings
        timeline = Timeline(self._clock, s.interval_ns)
        return Sampler(
            make_collector(collector, s.tables, self._roots, timeline.now_ns, self._clock),
            timeline,
            self._clock,
            batcher=self._batcher,
            deliver=self._publisher.submit,
            changed=lambda: self._worker.run_on_loop(self._health_changed),
            failed=self._fail,
        )

    async def _main_loop(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            publishing = group.create_task(self._publisher.run(), name="publish")
            watching = group.create_task(self._watch(), name="watch")
            sending = group.create_task(self._send_documents(), name="outbox")
            following = group.create_task(self._follow_traces(), name="traces")
            for sampler in self._samplers:
                sampler.start()
            again = asyncio.ensure_future(self._again.wait())
            await asyncio.wait({asyncio.ensure_future(stop.wait()), again}, return_when=FIRST_COMPLETED)
            await self._end_sampling()
            watching.cancel()
            sending.cancel()
            following.cancel()
            self._publisher.finish()
            await _bounded(publishing, _PUBLISHING_ENDS_SECONDS)

    async def _send_documents(self) -> None:
        """Moves documents from the outbox to the spool until cancelled."""
        directory = self._settings.outbox.directory
        if directory is None:
            return
        store = partial(self._worker.wait_for, self._publisher.store_document)
        outbox = self._outbox = NodeOutbox(directory, store, self._clock.wall_ns)
        worker = Worker("outbox", self._fail)
        problem = ""
        try:
            while True:
                await answer_of(worker.call(outbox.send), f"outbox: {directory}", self._spool_answers)
                if outbox.problem != problem:
                    problem = outbox.problem
                    self._publisher.publish_status_soon()
                await asyncio.sleep(POLL_SECONDS)
        finally:
            worker.end()

    def _spool_answers(self) -> bool:
        return not self._worker.busy_seconds

    async def _follow_traces(self) -> None:
        """Moves records of the trace logs to the spool until cancelled."""
        s = self._settings
        if not s.traces.files:
            return
        from laggard_agent.tools.iotrace.follow import TraceFollower

        follower = await asyncio.to_thread(
            TraceFollower, s.traces, s.node, s.spool.directory, self._roots.procfs, self._clock
        )
        while True:
            await answer_of(asyncio.to_thread(follower.read), "traces: a file or folder")
            await self._worker.call(partial(follower.send, self._publisher.store_document))
            await asyncio.sleep(POLL_SECONDS)

    async def _watch(self) -> None:
        """Watches the threads and raises the exception of one that failed.

        The service manager's watchdog is fed from here while every sampler takes its ticks.
        """
        watchdog_seconds = self._notifier.watchdog_seconds or math.inf
        seconds = min(_WATCH_SECONDS, watchdog_seconds / _WATCHES_A_WATCHDOG)
        while True:
            if await _ends_within(self._failure, seconds):
                self._failure.result()
            for sampler in self._samplers:
                sampler.watch(sampler.timeline.now_ns())
            if all(sampler.works() for sampler in self._samplers):
                self._tell_manager()
                self._notifier.alive()
            await self._watch_surroundings()

    async def _watch_surroundings(self) -> None:
        """Lets the agent start again when its name changed, or its disk hangs or works again."""
        node = self._settings.node
        if isinstance(node, HostName) and (name := host_name()) != node and name.is_usable:
            _log.warning("the host was renamed from %s to %s; restarting under the new name", node, name)
            self._again.set()
        elif self._hung is None:
            if self._worker.busy_seconds > HUNG_SECONDS:
                self._abandon_disk(self._spool.close)
                self._again.set()
        elif self._hung.has_ended and self._publisher.connected:
            waiting = await self._worker.call(self._spool.queue.pending_bytes)
            if waiting < _FEW_BYTES:
                _log.info("spool: %s answers again", self._settings.spool.directory)
                self._hung = None
                self._again.set()

    def _health_changed(self) -> None:
        """Publishes a status after the first read of a collector or a change of its success."""
        self._publisher.publish_status_soon()
        self._tell_manager()

    def _tell_manager(self) -> None:
        """Reports the agent's status to the service manager; the first time, that it is ready."""
        health = {sampler.name: sampler.health for sampler in self._samplers}
        failing = ", ".join(name for name, h in health.items() if h is not None and not h.success)
        collectors = f"{failing} failing" if failing else "all collectors work"
        broker = f"{'' if self._publisher.connected else 'not '}connected to {self._settings.mqtt.address}"
        status = f"node {self._settings.node}: {collectors}, {broker}"
        self._notifier.ready(status)
        self._notifier.status(status)

    async def _end_sampling(self) -> None:
        """Stops the samplers and spools their incomplete batches."""
        for sampler in self._samplers:
            sampler.stop()
        await asyncio.to_thread(_join, self._samplers, _READING_ENDS_SECONDS)
        for sampler in self._samplers:
            sampler.flush()
        await _bounded(asyncio.ensure_future(self._worker.call(lambda: None)), _SPOOLING_ENDS_SECONDS)

    async def _shutdown(self) -> None:
        if self._worker is not self._hung:
            closing = asyncio.ensure_future(self._worker.call(self._spool.close))
            await _bounded(closing, _SPOOLING_ENDS_SECONDS)
            self._worker.end()
        self._publisher.close()

    def _fail(self, exc: BaseException) -> None:
        """Ends the agent with the exception of a thread."""
        self._worker.run_on_loop(lambda: None if self._failure.done() else self._failure.set_exception(exc))

    def _batcher(self, source: str) -> Batcher:
        s = self._settings
        return Batcher(
            source,
            s.interval_ns,
            s.batch_samples,
            phase_ticks=self._phase_ticks,
            dictionary=self._dictionaries.get(source),
            encoder=self._encoder,
        )

    def _status(self, spool: dict[str, int]) -> dict[str, Any]:
        s = self._settings
        problem = self._outbox.problem if self._outbox is not None else ""
        outbox = {"outbox": {"success": False, "error": problem}} if problem else {}
        by_aggregator = s.spool.acknowledge == "aggregator" and self._publisher.acks_seen
        return {
            "interval_ns": s.interval_ns,
            "batch_ticks": s.batch_samples,
            "collectors": {
                **{sampler.name: asdict(sampler.health) for sampler in self._samplers if sampler.health},
                **outbox,
            },
            **spool,
            "unacknowledged_seconds": round(self._publisher.unacknowledged_seconds),
            "dropped_samples": spool["dropped_samples"] + self._publisher.overflow_samples,
            "missed_ticks": sum(sampler.timeline.missed_ticks for sampler in self._samplers),
            "clock_steps": max((sampler.timeline.steps for sampler in self._samplers), default=0),
            "cpu_seconds": self_usage.cpu_ns() / 1e9,
            "resident_bytes": self_usage.resident_bytes(),
            "acknowledged_by": "aggregator" if by_aggregator else "broker",
        }


def boot_id() -> str:
    """The kernel's ID of this boot, empty when unknown."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _join(samplers: Sequence[Sampler], seconds: float) -> None:
    """Waits for the samplers' threads to end, at most `seconds` for all of them."""
    end = time.monotonic() + seconds
    for sampler in samplers:
        sampler.join(max(0.0, end - time.monotonic()))


async def _bounded(task: "asyncio.Future[Any]", seconds: float) -> None:
    """Waits for `task` and cancels it after `seconds`."""
    if not await _ends_within(task, seconds):
        task.cancel()


async def _ends_within(future: "asyncio.Future[Any]", seconds: float) -> bool:
    """Whether `future` ends within `seconds`. Exact, while time-outs of `asyncio.wait` are coarse."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.wait({future})
    return future.done()


def _first_of(*futures: "asyncio.Future[Any]") -> "asyncio.Future[Any]":
    """Ends with the first of `futures`."""
    return asyncio.ensure_future(asyncio.wait(futures, return_when=FIRST_COMPLETED))


def _close_all(spools: Sequence[Spool]) -> None:
    for spool in spools:
        spool.close()
