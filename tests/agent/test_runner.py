import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest

from laggard_agent.collectors.base import Reading
from laggard_agent.runner import Runner
from laggard_common.clock import SystemClock
from laggard_common.errors import CollectError
from tests.agent.made import FIELDS, FakeClock, components


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
    """Reads only when it is let."""

    def __init__(self) -> None:
        super().__init__("stalled")
        self.let = threading.Event()

    def read(self) -> Iterator[Reading]:
        self.let.wait()
        yield from super().read()


class Taken:
    """What the runner handed on."""

    def __init__(self) -> None:
        self.got: list[tuple[int, str]] = []
        self._more = asyncio.Event()

    def __call__(self, tick_ns: int, readings: tuple[Reading, ...]) -> None:
        self.got += [(tick_ns, reading.source) for reading in readings]
        self._more.set()

    async def until(self, count: int) -> None:
        while len(self.got) < count:
            self._more.clear()
            await self._more.wait()


async def _each_on_its_own_thread() -> None:
    taken = Taken()
    collectors = [Good("a"), Good("b")]
    runner = Runner(collectors, SystemClock(), taken)
    for tick in range(3):
        runner.start(tick)
        await taken.until(2 * (tick + 1))
    await runner.finish(1)
    assert sorted(taken.got) == [(tick, name) for tick in range(3) for name in "ab"]
    assert [c.threads for c in collectors] == [{"collect-a"}, {"collect-b"}]
    assert runner.health["a"].success
    assert runner.health["a"].components == 1
    assert runner.missed_ticks == 0


def test_each_collector_reads_on_a_thread_of_its_own() -> None:
    asyncio.run(_each_on_its_own_thread())


async def _a_stalled_one(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    taken = Taken()
    stalled = Stalled()
    runner = Runner([stalled, Good()], clock, taken)
    changes = []
    runner.on_change = lambda: changes.append(dict(runner.health))
    for tick in range(12):
        runner.start(tick)
        await taken.until(tick + 1)
        clock.sleep(1)
    assert taken.got == [(tick, "good") for tick in range(12)]
    assert runner.missed_ticks == 11
    unwell = runner.health["stalled"]
    assert (unwell.success, unwell.error) == (False, "stalled: a read does not return")
    assert len([record for record in caplog.records if "stalled" in record.message]) == 1
    stalled.let.set()
    await taken.until(13)
    assert taken.got[12] == (0, "stalled")
    assert runner.health["stalled"].success
    assert changes
    await runner.finish(1)


def test_a_stalled_collector_hurts_no_other(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(_a_stalled_one(caplog))


async def _finishing_with_a_stalled_one() -> None:
    stalled = Stalled()
    runner = Runner([stalled], SystemClock(), Taken())
    runner.start(0)
    await asyncio.wait_for(runner.finish(0.01), 5)
    stalled.let.set()


def test_finishing_does_not_wait_for_a_stalled_collector() -> None:
    asyncio.run(_finishing_with_a_stalled_one())


async def _failing(error: Exception, expected: str, caplog: pytest.LogCaptureFixture) -> None:
    taken = Taken()
    failing = Failing(error)
    runner = Runner([failing, Good()], SystemClock(), taken)
    for tick in range(3):
        runner.start(tick)
        await taken.until(2 * (tick + 1))
    assert runner.health["failing"].error == expected
    assert runner.health["good"].success
    warnings = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert [r.message for r in warnings] == [f"collector failing failed: {expected}"]
    assert ("Traceback" in caplog.text) == (not isinstance(error, CollectError))  # for whoever mends it
    failing.error = None
    runner.start(3)
    await taken.until(8)
    assert runner.health["failing"].success
    await runner.finish(1)


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
    asyncio.run(_failing(error, expected, caplog))
