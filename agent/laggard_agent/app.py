"""The agent: ticks, collectors, batches, spool and publisher together. Only this file knows all of them."""

import asyncio
import logging
import random
from functools import partial
from pathlib import Path
from typing import Any

from laggard_agent import own_cost
from laggard_agent.batch import Batch, Batcher, Dictionary
from laggard_agent.collectors import make_collectors
from laggard_agent.collectors.base import Reading
from laggard_agent.publisher import Publisher, phase_ns
from laggard_agent.runner import Runner
from laggard_agent.settings import AgentSettings, Roots
from laggard_agent.spool import Spool
from laggard_agent.spool_segments import Owner, SpoolFacts
from laggard_agent.ticks import Timeline
from laggard_agent.worker import Worker
from laggard_common.clock import Clock, SystemClock
from laggard_common.codec import Encoder
from laggard_common.mqtt import client_arguments

_log = logging.getLogger(__name__)

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_QUEUED_BATCHES = 1000
# An orderly end takes at most the sum of these, spooling counted twice (batches, then closing).
_READING_ENDS_SECONDS = 0.5
_SPOOLING_ENDS_SECONDS = 1.0
_PUBLISHING_ENDS_SECONDS = 2.0


class App:
    """One agent. Several may run in one loop, each with its own settings, roots and spool directory.

    Raises ConfigError when a file that `settings` names cannot be used.
    """

    def __init__(
        self,
        settings: AgentSettings,
        roots: Roots,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._settings = settings
        self._roots = roots
        self._clock = clock or SystemClock()
        self._rng = rng or random.SystemRandom()
        self._arguments = client_arguments(settings.mqtt)
        batch_ns = settings.batch_samples * settings.interval_ns
        phase = phase_ns(settings.site, settings.node, batch_ns)
        self._phase_ticks, phase_rest_ns = divmod(phase, settings.interval_ns)
        self._publish_delay_seconds = phase_rest_ns / 1e9
        self._timeline = Timeline(self._clock, settings.interval_ns)
        self._encoder = Encoder()
        self._batchers: dict[str, Batcher] = {}
        self._dictionaries: dict[str, Dictionary] = {}
        self._batches: asyncio.Queue[Batch | None] = asyncio.Queue(_QUEUED_BATCHES)
        self._overflow_samples = 0
        self._missed_ticks = 0
        self._worker: Worker
        self._spool: Spool
        self._runner: Runner
        self._publisher: Publisher

    async def run(self, stop: asyncio.Event) -> None:
        """Samples and publishes until `stop` is set, then ends within 5 s. Raises ServiceError at start."""
        await self._startup()
        try:
            await self._main_loop(stop)
        finally:
            await self._shutdown()

    async def _startup(self) -> None:
        s = self._settings
        self._worker = Worker("spool")
        owner = Owner(s.node, s.interval_ns, s.batch_samples)
        self._spool = await self._worker.call(
            partial(Spool.open, s.spool.directory, owner, s.spool.max_bytes, boot_id(), self._rng.randbytes)
        )
        self._dictionaries = self._spool.dictionaries()
        collectors = make_collectors(s, self._roots, self._timeline.now_ns, self._clock)
        self._runner = Runner(collectors, self._clock, self._take)
        self._publisher = Publisher(
            s,
            self._arguments,
            spool=self._spool,
            worker=self._worker,
            status=self._status,
            clock=self._clock,
            rng=self._rng,
        )
        self._runner.on_change = self._publisher.status_soon
        _log.info(
            "node %s (%s) samples %s every %g s", s.node, s.role, ", ".join(s.collectors), s.interval_seconds
        )

    async def _main_loop(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            publishing = group.create_task(self._publisher.run(), name="publish")
            keeping = group.create_task(self._keep(), name="spool")
            await group.create_task(self._sample(stop), name="sample")
            await _bounded(keeping, _SPOOLING_ENDS_SECONDS)
            self._publisher.finish()
            await _bounded(publishing, _PUBLISHING_ENDS_SECONDS)

    async def _shutdown(self) -> None:
        closing = asyncio.ensure_future(self._worker.call(self._spool.close))
        await _bounded(closing, _SPOOLING_ENDS_SECONDS)
        self._worker.end()
        _log.info("stopped")

    async def _sample(self, stop: asyncio.Event) -> None:
        """Starts the collectors at every tick; at the end gathers what is under way and half full."""
        while not await _is_set_within(stop, self._timeline.wait_seconds()):
            tick = self._timeline.take()
            if tick is not None:
                self._missed_ticks += tick.missed
                for batcher in self._batchers.values():
                    self._queue(batcher.expire(tick.time_ns))
                self._runner.start(tick.time_ns)
        await self._runner.finish(_READING_ENDS_SECONDS)
        for batcher in self._batchers.values():
            self._queue(batcher.flush())
        if self._batches.full():  # the spool's disk hangs: that must not hold up the end
            oldest = self._batches.get_nowait()
            self._overflow_samples += oldest.n if oldest else 0
        self._batches.put_nowait(None)

    def _take(self, tick_ns: int, readings: tuple[Reading, ...]) -> None:
        for reading in readings:
            self._queue(self._batcher(reading.source).add(tick_ns, reading))

    def _batcher(self, source: str) -> Batcher:
        batcher = self._batchers.get(source)
        if batcher is None:
            s = self._settings
            batcher = Batcher(
                source,
                s.interval_ns,
                s.batch_samples,
                phase_ticks=self._phase_ticks,
                dictionary=self._dictionaries.get(source),
                encoder=self._encoder,
            )
            self._batchers[source] = batcher
        return batcher

    def _queue(self, batches: list[Batch]) -> None:
        for batch in batches:
            try:
                self._batches.put_nowait(batch)
            except asyncio.QueueFull:
                self._overflow_samples += batch.n

    async def _keep(self) -> None:
        """Brings batches into the spool, and from there to the publisher."""
        while (batch := await self._batches.get()) is not None:
            stored = await self._worker.call(partial(self._spool.append, batch))
            if stored is not None:
                self._publisher.offer(stored, self._publish_delay_seconds)

    def _status(self, spool: SpoolFacts) -> dict[str, Any]:
        s = self._settings
        by_aggregator = s.spool.acknowledge == "aggregator" and self._publisher.acks_seen
        return {
            "interval_ns": s.interval_ns,
            "batch_ticks": s.batch_samples,
            "collectors": {
                name: {
                    "success": h.success,
                    "seconds": h.seconds,
                    "components": h.components,
                    "error": h.error,
                }
                for name, h in self._runner.health.items()
            },
            "spool_bytes": spool.pending_bytes,
            "spool_in_memory": spool.in_memory,
            "dropped_samples": spool.dropped_samples + self._overflow_samples,
            "unconfirmed_samples": spool.unconfirmed_samples,
            "missed_ticks": self._missed_ticks + self._runner.missed_ticks,
            "clock_steps": self._timeline.steps,
            "cpu_seconds": own_cost.cpu_ns() / 1e9,
            "resident_bytes": own_cost.resident_bytes(),
            "acknowledged_by": "aggregator" if by_aggregator else "broker",
        }


def boot_id(path: Path = _BOOT_ID) -> str:
    """What the kernel calls this boot, empty when it does not say."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    if not event.is_set() and seconds > 0:
        try:
            await asyncio.wait_for(event.wait(), seconds)
        except TimeoutError:
            return False
    return event.is_set()


async def _bounded(task: "asyncio.Future[Any]", seconds: float) -> None:
    """Waits for `task` to end, and cancels it when it takes longer."""
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done:
        task.cancel()
