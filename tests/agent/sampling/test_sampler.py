import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from laggard_agent.collectors.interface import Collector, Reading
from laggard_agent.sampling.batcher import Batcher, EncodedBatch
from laggard_agent.sampling.sampler import Sampler, Timeline
from laggard_agent.spool.worker import Worker
from laggard_common.clock import SystemClock
from laggard_common.errors import CollectError
from tests.support.builders.trees import FIELDS, components
from tests.support.clock import FakeClock
from tests.support.wait import LIMIT_SECONDS, async_wait_until

INTERVAL_NS = 10_000_000


class Good:
    """Reads one row."""

    def __init__(self, name: str = "good") -> None:
        self.name = name
        self.threads: set[str] = set()

    def read(self) -> Iterator[Reading]:
        self.threads.add(threading.current_thread().name)
        yield Reading(self.name, FIELDS, 1, components("x"), [(1, 2)])


class Failing(Good):
    """Reads a row and then fails, as long as `error` is set."""

    def __init__(self, error: Exception | None) -> None:
        super().__init__("failing")
        self.error = error

    def read(self) -> Iterator[Reading]:
        yield from super().read()
        if self.error:
            raise self.error


class Stalled(Good):
    """Reads once, and then only when it is let."""

    def __init__(self) -> None:
        super().__init__("stalled")
        self.reads = 0
        self.hangs, self.let = threading.Event(), threading.Event()

    def read(self) -> Iterator[Reading]:
        self.reads += 1
        if self.reads > 1:
            self.hangs.set()
            self.let.wait()
        yield from super().read()


class Sampled:
    """A sampler that has begun, and what came of it; batches of `ticks` readings."""

    def __init__(
        self,
        collector: Collector,
        *,
        clock: FakeClock | None = None,
        ticks: int = 1,
    ) -> None:
        self.batches: list[EncodedBatch] = []
        self.failures: list[BaseException] = []
        self.changes = 0
        self._more = threading.Condition()
        self.sampler = Sampler(
            collector,
            Timeline(SystemClock(), INTERVAL_NS),
            clock or SystemClock(),
            batcher=lambda source: Batcher(source, INTERVAL_NS, ticks),
            deliver=self._deliver,
            changed=self._changed,
            failed=self._failed,
        )
        self.sampler.start()

    def until(self, fulfilled: Callable[[], bool]) -> None:
        with self._more:
            assert self._more.wait_for(fulfilled, LIMIT_SECONDS)

    def end(self) -> None:
        self.sampler.stop()
        self.sampler.join(LIMIT_SECONDS)

    def _deliver(self, batches: list[EncodedBatch]) -> None:
        with self._more:
            self.batches += batches
            self._more.notify()

    def _changed(self) -> None:
        with self._more:
            self.changes += 1
            self._more.notify()

    def _failed(self, exc: BaseException) -> None:
        with self._more:
            self.failures.append(exc)
            self._more.notify()


def test_each_collector_reads_on_a_thread_of_its_own() -> None:
    collectors = [Good("a"), Good("b")]
    sampled = [Sampled(collector) for collector in collectors]
    for each in sampled:
        each.until(lambda each=each: len(each.batches) >= 3)  # type: ignore[misc]
        each.end()
    assert [c.threads for c in collectors] == [{"collect-a"}, {"collect-b"}]
    for each, name in zip(sampled, "ab", strict=True):
        times = [batch.t0_ns for batch in each.batches]
        assert all(time % INTERVAL_NS == 0 for time in times)
        assert times == sorted(set(times))
        assert {batch.source for batch in each.batches} == {name}
        assert each.sampler.health is not None
        assert (each.sampler.health.success, each.sampler.health.components) == (True, 1)
        assert each.changes == 1


def test_what_is_gathered_is_delivered_when_it_is_flushed() -> None:
    sampled = Sampled(Good(), ticks=3600)
    sampled.until(lambda: sampled.sampler.health is not None or bool(sampled.batches))
    sampled.end()
    sampled.sampler.flush()
    sampled.sampler.flush()
    assert [batch.n > 0 for batch in sampled.batches] == [True]


def test_a_stalled_collector_is_said_once_and_what_it_read_is_not_held_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    stalled = Stalled()
    sampled = Sampled(stalled, clock=clock, ticks=3600)
    sampler = sampled.sampler
    assert stalled.hangs.wait(LIMIT_SECONDS)
    sampler.watch(sampler.timeline.now_ns())
    assert sampler.health is not None
    assert sampler.health.success
    clock.sleep(11)
    for _ in range(2):
        sampler.watch(sampler.timeline.now_ns() + 4000 * INTERVAL_NS)
    assert (sampler.health.success, sampler.health.error) == (False, "stalled: a read does not return")
    assert len([record for record in caplog.records if "stalled" in record.message]) == 1
    assert [batch.n for batch in sampled.batches] == [1]
    stalled.let.set()
    sampled.end()
    assert sampler.health.success
    assert sampled.changes == 3


def test_ending_does_not_wait_for_a_stalled_collector() -> None:
    stalled = Stalled()
    sampled = Sampled(stalled)
    assert stalled.hangs.wait(LIMIT_SECONDS)
    sampled.sampler.stop()
    sampled.sampler.join(0.01)
    sampled.sampler.flush()
    stalled.let.set()
    sampled.sampler.join(LIMIT_SECONDS)


def test_a_read_that_returns_after_nobody_waits_any_longer_is_delivered() -> None:
    stalled = Stalled()
    sampled = Sampled(stalled, ticks=3600)
    assert stalled.hangs.wait(LIMIT_SECONDS)
    sampled.sampler.stop()
    sampled.sampler.flush()
    assert sum(batch.n for batch in sampled.batches) == 1
    stalled.let.set()
    sampled.sampler.join(LIMIT_SECONDS)
    assert sum(batch.n for batch in sampled.batches) == stalled.reads == 2


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (CollectError("/proc/x", "gone"), "/proc/x: gone"),
        (ZeroDivisionError("oops"), "ZeroDivisionError: oops"),
    ],
)
def test_a_failure_is_said_once_and_what_was_read_before_it_is_kept(
    error: Exception, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    failing = Failing(error)
    sampled = Sampled(failing)
    sampled.until(lambda: len(sampled.batches) >= 3)
    assert sampled.sampler.health is not None
    assert sampled.sampler.health.error == expected
    warnings = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert [r.message for r in warnings] == [f"collector failing failed: {expected}"]
    assert ("Traceback" in caplog.text) == (not isinstance(error, CollectError))  # for whoever mends it
    failing.error = None
    had = len(sampled.batches)
    sampled.until(lambda: len(sampled.batches) >= had + 2)
    assert sampled.sampler.health.success
    sampled.end()
    assert not sampled.failures


def test_an_error_of_our_own_is_handed_on() -> None:
    class Wrong(Good):
        def read(self) -> Iterator[Reading]:
            yield Reading(self.name, FIELDS, 1, components("x"), [("no number", 2)])  # type: ignore[list-item]

    sampled = Sampled(Wrong())
    sampled.until(lambda: bool(sampled.failures))
    sampled.end()


async def _workers_failing() -> None:
    failed = asyncio.Event()
    worker = Worker("w", lambda exc: worker.run_on_loop(failed.set))
    with pytest.raises(ZeroDivisionError):
        await worker.call(lambda: 1 // 0)
    worker.submit(lambda: 1 // 0)
    await failed.wait()


def test_a_job_that_nobody_waits_for_does_not_fail_in_silence() -> None:
    asyncio.run(_workers_failing())


async def _deferring() -> None:
    done: list[str] = []
    worker = Worker("w", lambda exc: None)
    for i in range(3):
        worker.piggyback(lambda i=i: done.append(f"deferred {i}"))  # type: ignore[misc]
    await worker.call(lambda: done.append("called"))
    assert done == ["deferred 0", "deferred 1", "deferred 2", "called"]
    many = threading.Event()
    for _ in range(100):
        worker.piggyback(lambda: None)
    worker.piggyback(many.set)
    assert await asyncio.to_thread(many.wait, 10)
    worker.end()


def test_what_is_deferred_comes_before_what_is_called_and_does_not_pile_up() -> None:
    asyncio.run(_deferring())


async def _hanging() -> tuple[int, list[int]]:
    done: list[int] = []
    worker, goes_on = Worker("spool", lambda exc: None), threading.Event()
    hanging = asyncio.create_task(worker.call(goes_on.wait))
    await async_wait_until(lambda: worker.busy_seconds > 0)
    for at in range(10_000):
        worker.piggyback(partial(done.append, at))
    waiting = worker.waiting
    goes_on.set()
    await hanging
    await worker.call(lambda: None)
    worker.end()
    return waiting, done


def test_what_is_deferred_while_a_job_hangs_is_bounded_and_takes_no_room_of_batches(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waiting, done = asyncio.run(_hanging())
    assert waiting == 1
    assert done == list(range(10_000 - 4096, 10_000))
    (warning,) = (each.getMessage() for each in caplog.records if each.levelname == "WARNING")
    assert warning == "spool: does not answer: acknowledgements are left out, batches sent again"


def test_a_sampler_that_misses_its_ticks_does_not_work_and_one_that_reads_does() -> None:
    clock = FakeClock()
    sampler = Sampler(
        Good(),
        Timeline(clock, 10**9),
        clock,
        batcher=lambda source: Batcher(source, 10**9, 1),
        deliver=lambda batches: None,
        changed=lambda: None,
        failed=lambda exc: None,
    )
    clock.sleep(10.0)
    assert sampler.works()  # the first tick came at 1 s
    clock.sleep(2.0)
    assert not sampler.works()
    assert sampler.timeline.due_tick_ns() is not None
    assert sampler.works()
