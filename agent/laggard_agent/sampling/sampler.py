"""The sampler: one collector on a plain thread, which waits for a tick, reads, and adds the rows to a batch.

A blocking read thus holds up its own collector only, and no tick wakes the event loop, which handles complete
batches.
"""

import logging
import threading
from collections.abc import Callable

from laggard_agent.collectors.interface import Collector
from laggard_agent.sampling.batcher import Batch, Batcher
from laggard_agent.sampling.collect_once import Health, collect
from laggard_agent.sampling.timeline import Timeline
from laggard_common.clock import Clock

_log = logging.getLogger(__name__)

_STALLED_NS = 10 * 1_000_000_000
_OVERDUE_SECONDS = 10.0


class Sampler:
    """Samples `collector` at the ticks of `timeline`, which no other sampler uses, from `start` until `stop`.

    `batcher` makes the batcher of a source, `deliver` receives complete batches, `changed` is called when the
    collector's health changes; each on the sampler's thread or the one that calls `watch` or `flush`, one at
    a time. `failed` receives an error outside the collector. No two collectors may read one source.
    """

    def __init__(
        self,
        collector: Collector,
        timeline: Timeline,
        clock: Clock,
        *,
        batcher: Callable[[str], Batcher],
        deliver: Callable[[list[Batch]], None],
        changed: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.name = collector.name
        self.timeline = timeline
        self.health: Health | None = None
        self.missed_ticks = 0
        self._collector = collector
        self._clock = clock
        self._batcher = batcher
        self._deliver = deliver
        self._changed = changed
        self._failed = failed
        self._batchers: dict[str, Batcher] = {}
        self._reading_since_ns: int | None = None
        self._lock = threading.Lock()  # of batchers and health
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"collect-{self.name}", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after the current read; does not wait."""
        self._stopped.set()

    def join(self, timeout_seconds: float) -> None:
        """Waits for the end of the thread, or until the timeout."""
        self._thread.join(timeout_seconds)

    def watch(self, now_ns: int) -> None:
        """Reports a read that does not return, and delivers batches that it leaves overdue.

        `now_ns`: the time on the timeline.
        """
        since = self._reading_since_ns
        stalled = 0 if since is None else self._clock.monotonic_ns() - since
        if stalled > _STALLED_NS:
            with self._lock:
                self._set_health(Health(False, stalled / 1e9, 0, "stalled: a read does not return"))
                self._expire(now_ns)

    def works(self) -> bool:
        """Whether the thread keeps up with its ticks or is in a read, which `watch` limits."""
        return self._reading_since_ns is not None or self.timeline.overdue_seconds() < _OVERDUE_SECONDS

    def flush(self) -> None:
        """Delivers incomplete batches."""
        with self._lock:
            for batcher in self._batchers.values():
                self._deliver(batcher.flush())

    def _run(self) -> None:
        try:
            while not self._stopped.wait(self.timeline.wait_seconds()):
                tick = self.timeline.due_tick()
                if tick is not None:
                    self.missed_ticks += tick.missed
                    self._sample(tick.time_ns)
        except BaseException as exc:
            self._failed(exc)

    def _sample(self, tick_ns: int) -> None:
        self._reading_since_ns = self._clock.monotonic_ns()
        collected = collect(self._collector, self._clock)
        self._reading_since_ns = None
        with self._lock:
            self._set_health(collected.health, collected.bug)
            self._expire(tick_ns)
            for reading in collected.readings:
                batcher = self._batchers.get(reading.source)
                if batcher is None:
                    batcher = self._batchers[reading.source] = self._batcher(reading.source)
                self._deliver(batcher.add(tick_ns, reading))

    def _expire(self, now_ns: int) -> None:
        for batcher in self._batchers.values():
            self._deliver(batcher.expire(now_ns))

    def _set_health(self, health: Health, bug: Exception | None = None) -> None:
        before = self.health
        self.health = health
        if before is not None and before.success == health.success:
            return
        if not health.success:
            _log.warning("collector %s failed: %s", self.name, health.error, exc_info=bug)
        elif before is not None:
            _log.info("collector %s works again", self.name)
        elif not health.components:
            _log.warning("collector %s works but found nothing to read", self.name)
        self._changed()
