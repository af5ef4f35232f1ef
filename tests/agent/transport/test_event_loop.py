import asyncio
import math
from collections.abc import Iterator

import pytest

from laggard_agent.transport.event_loop import CoarseEventLoop
from tests.support.wait import LIMIT_SECONDS, time_limit


class Stepped(CoarseEventLoop):
    """Its clock stands at `now`."""

    now = 0.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def loop() -> Iterator[Stepped]:
    stepped = Stepped()
    yield stepped
    stepped.close()


def due(loop: Stepped, delay: float) -> float:
    timer = loop.call_later(delay, print)
    timer.cancel()
    return timer.when()


@pytest.mark.parametrize("delay", [1.0, 1.5, 4.9, 5.0, 10.0, 61.0])
@pytest.mark.parametrize("now", [1000.0, 1000.001, 1003.7, 1004.999])
def test_a_delay_of_a_second_and_more_ends_at_most_five_seconds_late(
    loop: Stepped, now: float, delay: float
) -> None:
    loop.now = now
    assert now + delay <= due(loop, delay) < now + delay + 5.0
    assert math.fmod(due(loop, delay), 5.0) == 0.0


@pytest.mark.parametrize("delay", [0.0, 0.25, 0.999])
def test_a_shorter_delay_is_exact(loop: Stepped, delay: float) -> None:
    loop.now = 1003.0
    assert due(loop, delay) == 1003.0 + delay


def test_sleeps_of_a_second_wake_up_every_five(loop: Stepped) -> None:
    loop.now = 1003.0
    woken = []
    for _ in range(3):
        loop.now = due(loop, 1.0)
        woken.append(loop.now)
    assert woken == [1005.0, 1010.0, 1015.0]


def test_an_absolute_time_is_exact(loop: Stepped) -> None:
    loop.now = 1003.0
    assert loop.call_at(1007.0, print).when() == 1007.0


def test_a_time_out_is_exact() -> None:
    async def limited() -> None:
        loop = asyncio.get_running_loop()
        before = loop.time()
        async with time_limit() as limit:
            assert before <= (limit.when() or math.inf) - LIMIT_SECONDS <= loop.time()

    with asyncio.Runner(loop_factory=CoarseEventLoop) as runner:
        runner.run(limited())
