"""One collector on a thread of its own: it waits for its ticks, reads, and makes batches of what it read.

Nothing of this wakes the event loop, which costs several times what a reading does: the loop hears of
finished batches alone. A collector that can be read in two parts is read at its ticks, and what was read is
interpreted when a batch ends, or sooner: when a file fails, or what it lists comes or goes. Where there is
compiled code for it, this thread does not wake up at ordinary ticks either.
"""

import ctypes
import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from laggard_agent.collectors.capture import Capturing
from laggard_agent.collectors.interface import Collector
from laggard_agent.compiled import Came, Compiled, Taken
from laggard_agent.sampling.batcher import Batch, Batcher
from laggard_agent.sampling.collect_once import Collected, Health, collect
from laggard_agent.sampling.timeline import Timeline
from laggard_common.clock import Clock

_log = logging.getLogger(__name__)

_STALLED_NS = 10 * 1_000_000_000
_LONGEST_WAIT_NS = 10 * 1_000_000_000
_MOST_WAITING_BYTES = 1024 * 1024
_OVERDUE_SECONDS = 10.0


class Sampler:
    """Samples `collector` at the ticks of `timeline`, which is its own, from `start` until `stop`.

    No two collectors may read one source. `batcher` makes what gathers the readings of a source, `last_tick`
    says when the batch of a tick ends; `deliver` gets what is finished, `changed` is called when the health
    is another; both on the sampler's thread or on whichever calls `watch` and `flush`, one at a time.
    `failed` gets an error of anything but the collector. `library` is what `compiled.library` gives, for the
    system's clock alone.
    """

    def __init__(
        self,
        collector: Collector,
        timeline: Timeline,
        clock: Clock,
        *,
        batcher: Callable[[str], Batcher],
        last_tick: Callable[[int], int],
        deliver: Callable[[list[Batch]], None],
        changed: Callable[[], None],
        failed: Callable[[BaseException], None],
        library: ctypes.CDLL | None = None,
    ) -> None:
        self.name = collector.name
        self.timeline = timeline
        self.health: Health | None = None
        self.missed_ticks = 0
        self._collector = collector
        self._in_parts = collector if isinstance(collector, Capturing) else None
        self._captures = None if self._in_parts is None else self._in_parts.captures
        self._compiled: Compiled | None = None
        if library is not None and self._captures is not None:
            self._compiled = Compiled(library, self._captures, timeline.state)
        self._clock = clock
        self._monotonic_ns = clock.monotonic_ns
        self._batcher = batcher
        self._last_tick = last_tick
        self._deliver = deliver
        self._changed = changed
        self._failed = failed
        self._batchers: dict[str, Batcher] = {}
        self._reading_since_ns: int | None = None
        self._waiting: deque[Taken] = deque()
        self._waits_from_ns = self._waits_until_ns = 0
        self._waiting_bytes = 0
        self._interpreting = threading.Lock()
        self._mine = threading.Lock()  # batchers and health
        self._running = threading.Lock()  # released by the end; to wait for it costs less than for an Event
        self._running.acquire()
        self._thread = threading.Thread(target=self._run, name=f"collect-{self.name}", daemon=True)

    def start(self) -> None:
        """Begins to sample."""
        self._thread.start()

    def stop(self) -> None:
        """Lets the thread end when it has read; called once, does not wait."""
        self._running.release()
        if self._compiled is not None:
            self._compiled.stop()

    def join(self, timeout_seconds: float) -> None:
        """Waits for the thread to end, at most so long."""
        self._thread.join(timeout_seconds)

    def watch(self, now_ns: int) -> None:
        """Notes a reading that does not return, and delivers what waits too long because of it.

        `now_ns`: the time on the timeline.
        """
        since = self._since_ns()
        stalled = 0 if since is None else self._clock.monotonic_ns() - since
        if stalled > _STALLED_NS:
            self._interpret()
            with self._mine:
                self._note(Health(False, stalled / 1e9, 0, "stalled: a read does not return"))
                self._expire(now_ns)

    def works(self) -> bool:
        """Whether the thread takes its ticks; a reading that does not return is a matter of `watch`."""
        return self._since_ns() is not None or self.timeline.overdue_seconds() < _OVERDUE_SECONDS

    def flush(self) -> None:
        """Delivers what is gathered so far."""
        self._interpret()
        with self._mine:
            for batcher in self._batchers.values():
                self._deliver(batcher.flush())

    def _since_ns(self) -> int | None:
        """Since when it reads or interprets; None while it does not."""
        since = self._reading_since_ns
        return self._compiled.reading_since_ns if since is None and self._compiled is not None else since

    def _run(self) -> None:
        try:
            while not self._is_stopped():
                tick = self.timeline.take()
                if tick is not None:
                    self.missed_ticks += tick.missed
                    self._sample(tick.time_ns)
            self.flush()  # nobody else may wait until all of many devices is interpreted
        except BaseException as exc:
            self._failed(exc)

    def _is_stopped(self) -> bool:
        """Waits for the next tick that is not taken by compiled code; True when it is to stop."""
        compiled = self._compiled
        while compiled is not None and compiled.can_take():
            if not self._waiting:
                self._wait_from(self.timeline.state.next_ns)
            came = compiled.take(self._waits_until_ns)
            if came is Came.STOPPED:
                return True
            self._reading_since_ns = self._monotonic_ns()
            compiled.fetch(self._waiting)
            self._interpret()
            self._reading_since_ns = None
            if came is Came.LEFT:
                break
        return self._running.acquire(timeout=self.timeline.wait_seconds())

    def _wait_from(self, tick_ns: int) -> None:
        """The first tick of those that are interpreted together."""
        self._waits_from_ns = tick_ns
        self._waits_until_ns = min(self._last_tick(tick_ns), tick_ns + _LONGEST_WAIT_NS)
        self._waiting_bytes = 0

    def _sample(self, tick_ns: int) -> None:
        began_ns = self._reading_since_ns = self._monotonic_ns()
        if self._captures is None:
            collected = collect(self._collector.read, self._clock)
            self._reading_since_ns = None
            self._gather(tick_ns, collected)
            return
        capture = self._captures.take()
        took_ns = self._monotonic_ns() - began_ns
        if not self._waiting:
            self._wait_from(tick_ns)
        self._waiting.append(Taken(tick_ns, took_ns, capture))
        self._waiting_bytes += capture.size_bytes
        if (
            not capture.can_wait
            or not self._waits_from_ns <= tick_ns < self._waits_until_ns
            or self._waiting_bytes > _MOST_WAITING_BYTES
            or (self.health is not None and not self.health.success)  # that it works again is told at once
        ):
            self._interpret()
        self._reading_since_ns = None

    def _interpret(self) -> None:
        """Interprets what waits, unless another thread does it."""
        if self._in_parts is None or not self._interpreting.acquire(blocking=False):
            return
        try:
            if self._compiled is not None:
                self._compiled.fetch(self._waiting)
            while self._waiting:
                tick_ns, took_ns, capture = self._waiting.popleft()
                interpret = partial(self._in_parts.interpret, capture)
                self._gather(tick_ns, collect(interpret, self._clock, took_ns))
        finally:
            self._interpreting.release()

    def _gather(self, tick_ns: int, collected: Collected) -> None:
        with self._mine:
            self._note(collected.health, collected.bug)
            self._expire(tick_ns)
            for reading in collected.readings:
                batcher = self._batchers.get(reading.source)
                if batcher is None:
                    batcher = self._batchers[reading.source] = self._batcher(reading.source)
                self._deliver(batcher.add(tick_ns, reading))

    def _expire(self, now_ns: int) -> None:
        for batcher in self._batchers.values():
            self._deliver(batcher.expire(now_ns))

    def _note(self, health: Health, bug: Exception | None = None) -> None:
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
