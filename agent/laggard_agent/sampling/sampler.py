"""The sampler: one collector on a plain thread, which waits for a tick, reads, and adds the rows to a batch.

A blocking read thus holds up its own collector only, and no tick wakes the event loop, which handles complete
batches. The errors of a collector become its health.

Ticks are multiples of the interval on the agent's timeline, even across steps of the wall clock (Intrepid
4.1.1 asks for collection that survives them). The timeline is the monotonic clock plus an offset. A step of
the wall clock moves the offset:

- forward, or after a suspend: the offset follows at once; the ticks between never existed.
- back by up to a minute (leap seconds, ordinary corrections): the timeline runs slower by 1/16 until the wall
  clock has caught up. No tick is repeated or left out.
- back by more: the earlier time was wrong, so the offset follows at once and nominal times repeat.

Reading times come from the same timeline, so the time between two readings stays true.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from laggard_agent.collectors.interface import Collector, Reading
from laggard_agent.sampling.batcher import Batcher, EncodedBatch
from laggard_common.clock import Clock
from laggard_common.errors import CollectError

_log = logging.getLogger(__name__)

_STALLED_NS = 10 * 1_000_000_000
_OVERDUE_SECONDS = 10.0
_MAX_ERROR_CHARS = 500
_MAX_SLEW_NS = 60 * 1_000_000_000
_TOLERANCE_NS = 1_000_000
_SLEW_SHARE = 16
_READ_TOGETHER_NS = 200_000


class Timeline:
    """The agent's time. `steps` counts steps of the wall clock that were followed at once."""

    def __init__(self, clock: Clock, interval_ns: int) -> None:
        self._monotonic_ns, self._wall_ns = clock.monotonic_ns, clock.wall_ns
        self._interval_ns = interval_ns
        self._corrected_ns = self._monotonic_ns()
        self._offset_ns = self._wall_ns() - self._corrected_ns
        self._next_ns = (self.now_ns() // interval_ns + 1) * interval_ns
        self.steps = 0
        self.missed_ticks = 0

    def now_ns(self) -> int:
        """Nanoseconds since the epoch on this timeline; safe from any thread."""
        return self._monotonic_ns() + self._offset_ns

    def wait_seconds(self) -> float:
        """Seconds until the next tick."""
        return max(0, self._next_ns - self.now_ns()) / 1e9

    def overdue_seconds(self) -> float:
        """Seconds for which a tick has been due; safe from any thread."""
        return max(0, self.now_ns() - self._next_ns) / 1e9

    def due_tick_ns(self) -> int | None:
        """Nominal time of the tick that is due, returned once; None when none is due.

        Ticks that passed since the last call are counted as missed.
        """
        stepped = self._follow_wall_clock()
        interval = self._interval_ns
        due = self.now_ns() // interval * interval
        if stepped:
            self._next_ns = due if due >= self._next_ns else due + interval
        if due < self._next_ns:
            return None
        self.missed_ticks += (due - self._next_ns) // interval
        self._next_ns = due + interval
        return due

    def _follow_wall_clock(self) -> bool:
        """Corrects the offset; True when it jumped."""
        error = self._error_ns()
        if error > self._interval_ns // 2 or error < -_MAX_SLEW_NS:
            self._offset_ns += error
            self.steps += 1
            return True
        now = self._monotonic_ns()
        if abs(error) > _TOLERANCE_NS:
            limit = (now - self._corrected_ns) // _SLEW_SHARE
            self._offset_ns += max(-limit, min(limit, error))
        self._corrected_ns = now
        return False

    def _error_ns(self) -> int:
        """Wall clock minus timeline: the first of three tries that read both at once, else the quickest."""
        best = (2**63, 0)
        for _ in range(3):
            before = self._monotonic_ns()
            wall = self._wall_ns()
            took = self._monotonic_ns() - before
            best = min(best, (took, wall - before - took // 2 - self._offset_ns))
            if took < _READ_TOGETHER_NS:
                break
        return best[1]


@dataclass(frozen=True, slots=True)
class Health:
    """Result of a collector's latest read. `components`: rows read; `error`: empty on success."""

    success: bool
    seconds: float
    components: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Collected:
    """One read of a collector. `readings` includes those before an error.

    `bug`: an error other than CollectError, which no collector should raise.
    """

    readings: tuple[Reading, ...]
    health: Health
    bug: Exception | None = None


def collect(collector: Collector, clock: Clock) -> Collected:
    """Reads `collector` once; never raises."""
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
    return Collected(tuple(readings), Health(not error, seconds, rows, error[:_MAX_ERROR_CHARS]), bug)


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
        deliver: Callable[[list[EncodedBatch]], None],
        changed: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.name = collector.name
        self.timeline = timeline
        self.health: Health | None = None
        self._collector = collector
        self._clock = clock
        self._batcher = batcher
        self._deliver = deliver
        self._changed = changed
        self._failed = failed
        self._batchers: dict[str, Batcher] = {}
        self._reading_since_ns: int | None = None
        self._lock = threading.Lock()  # of batchers and health
        self._running = threading.Lock()  # released by `stop`; an Event costs five times as much a wait
        self._running.acquire()
        self._thread = threading.Thread(target=self._run, name=f"collect-{self.name}", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after the current read; does not wait."""
        if self._running.locked():
            self._running.release()

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
            while not self._running.acquire(timeout=self.timeline.wait_seconds()):
                tick_ns = self.timeline.due_tick_ns()
                if tick_ns is not None:
                    self._sample(tick_ns)
            self.flush()  # of a read that took longer than the caller of `stop` waits
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
            _log.warning("collector %s works, but there is nothing for it to read", self.name)
        self._changed()
