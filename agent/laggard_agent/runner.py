"""Runs the collectors, each on a thread of its own, and keeps a bad one from hurting another."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from laggard_agent.collectors.base import Collector, Reading
from laggard_agent.worker import Worker
from laggard_common.clock import Clock
from laggard_common.errors import CollectError

_log = logging.getLogger(__name__)

_STALLED_NS = 10 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class Health:
    """How a collector's latest reading went. `components`: rows read; `error`: empty on success."""

    success: bool
    seconds: float
    components: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Collected:
    """What one collector read at one tick; `readings` holds what there was before an error, too.

    `bug`: an error that no collector should raise.
    """

    readings: tuple[Reading, ...]
    health: Health
    bug: Exception | None = None


def collect(collector: Collector, clock: Clock) -> Collected:
    """Reads `collector` once; never raises, whatever the collector does."""
    started = clock.monotonic_ns()
    readings: list[Reading] = []
    error = ""
    bug: Exception | None = None
    try:
        readings.extend(collector.read())
    except CollectError as exc:
        error = str(exc)
    except Exception as exc:
        error = f"{type(exc).__name__}: {exc}"
        bug = exc
    seconds = (clock.monotonic_ns() - started) / 1e9
    rows = sum(len(reading.rows) for reading in readings)
    return Collected(tuple(readings), Health(not error, seconds, rows, error[:500]), bug)


class Runner:
    """Starts every collector at a tick and hands on what each has read as soon as it has.

    `take(tick_ns, readings)` is called in the event loop. A collector that still reads when the next tick
    comes misses that tick, alone.
    """

    def __init__(
        self, collectors: Sequence[Collector], clock: Clock, take: Callable[[int, tuple[Reading, ...]], None]
    ) -> None:
        self._collectors = tuple(collectors)
        self._clock = clock
        self._take = take
        self._workers = {collector.name: Worker(f"collect-{collector.name}") for collector in collectors}
        self._started_ns: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.health: dict[str, Health] = {}
        self.missed_ticks = 0
        self.on_change: Callable[[], None] = lambda: None

    def start(self, tick_ns: int) -> None:
        """Starts the collectors that are idle for this tick; returns at once."""
        for collector in self._collectors:
            started = self._started_ns.get(collector.name)
            if started is None:
                self._started_ns[collector.name] = self._clock.monotonic_ns()
                task = asyncio.create_task(self._one(collector, tick_ns), name=f"collect-{collector.name}")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                self.missed_ticks += 1
                stalled = self._clock.monotonic_ns() - started
                if stalled > _STALLED_NS:
                    self._note(
                        collector.name, Health(False, stalled / 1e9, 0, "stalled: a read does not return")
                    )

    async def finish(self, timeout_seconds: float) -> None:
        """Waits for the readings under way, at most so long; ends the threads that can end."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_seconds)
        for task in self._tasks:
            task.cancel()
        for worker in self._workers.values():
            worker.end()

    async def _one(self, collector: Collector, tick_ns: int) -> None:
        try:
            collected = await self._workers[collector.name].call(lambda: collect(collector, self._clock))
        finally:
            del self._started_ns[collector.name]
        self._note(collector.name, collected.health, collected.bug)
        self._take(tick_ns, collected.readings)

    def _note(self, name: str, health: Health, bug: Exception | None = None) -> None:
        before = self.health.get(name)
        self.health[name] = health
        if before is not None and before.success == health.success:
            return
        if not health.success:
            _log.warning("collector %s failed: %s", name, health.error, exc_info=bug)
        elif before is not None:
            _log.info("collector %s works again", name)
        elif not health.components:
            _log.warning("collector %s works but found nothing to read", name)
        self.on_change()
