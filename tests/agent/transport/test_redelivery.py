import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from laggard_agent.sampling.batcher import Dictionary, EncodedBatch
from laggard_agent.settings import AgentSettings, SpoolSettings
from laggard_agent.spool.segments import Key
from laggard_agent.spool.spool import Spool
from laggard_agent.spool.worker import Worker
from laggard_agent.transport.redelivery import Redelivery
from laggard_common.wire import Ack
from tests.support.builders.trees import FIELDS, components

Ranges = tuple[tuple[int, int], ...]


class Taken:
    """A spool with batches that the broker took, all of them, and what finds out which it lost."""

    def __init__(self, folder: Path, batches: int) -> None:
        settings = AgentSettings(node="oss-1", batch_samples=5, spool=SpoolSettings(folder))
        self.spool = Spool(settings, "boot", random.Random(1).randbytes)
        self.worker = Worker("spool", lambda exc: pytest.fail(repr(exc)))
        self.redelivery = Redelivery(self.spool, self.worker, random.Random(1))
        self.key: Key = (b"", "")
        for _ in range(batches):
            self.take()

    def take(self) -> None:
        batch = EncodedBatch("net", Dictionary(0, 1, FIELDS, components("a")), 10**18, 10**9, 5, 1, b"x")
        stored = self.spool.append(batch)
        assert stored is not None
        self.spool.mark_sent(stored)
        self.key = stored.key

    def acknowledge(self, *ranges: tuple[int, int]) -> None:
        self.redelivery.acknowledged(Ack(*self.key, ranges))

    def backlog(self) -> list[int]:
        seqs = []
        while (stored := self.spool.next_backlog()) is not None:
            seqs.append(stored.envelope.seq)
        return seqs


def taken_test(folder: Path, test: Callable[[Taken], Awaitable[None]], batches: int = 4) -> None:
    async def run() -> None:
        taken = Taken(folder, batches)
        try:
            await test(taken)
        finally:
            await taken.worker.call(taken.spool.close)
            taken.worker.end()

    asyncio.run(run())


def test_what_stays_unacknowledged_from_one_look_to_the_next_is_sent_again(tmp_path: Path) -> None:
    async def test(taken: Taken) -> None:
        taken.acknowledge((0, 1))
        assert await taken.redelivery.find(5.0) == []  # it may just be on its way
        taken.acknowledge((0, 1))
        assert await taken.redelivery.find(15.0) == [taken.key]
        assert taken.backlog() == [2, 3]

    taken_test(tmp_path, test)


def test_what_is_acknowledged_between_two_looks_was_not_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def test(taken: Taken) -> None:
        taken.acknowledge((0, 1))
        assert await taken.redelivery.find(5.0) == []
        taken.acknowledge((0, 2))  # the oldest is another one now
        assert await taken.redelivery.find(15.0) == []
        assert taken.backlog() == []
        assert not caplog.records

    taken_test(tmp_path, test)


def test_nothing_is_sent_again_while_nobody_acknowledges(tmp_path: Path) -> None:
    async def test(taken: Taken) -> None:
        for at in range(5):
            assert await taken.redelivery.find(10.0 * at) == []
        taken.redelivery.acknowledged(Ack(bytes(16), "net", ((0, 9),)))  # of somebody else's
        assert await taken.redelivery.find(60.0) == []
        assert not taken.redelivery.acks_seen

    taken_test(tmp_path, test)


def test_it_is_looked_for_ever_less_often_and_once_a_minute_at_least(tmp_path: Path) -> None:
    async def test(taken: Taken) -> None:
        await taken.redelivery.connected(100.0)
        assert taken.redelivery.due == 105.0
        for least in (10, 20, 40, 60, 60):
            now = taken.redelivery.due
            await taken.redelivery.find(now)
            assert now + least <= taken.redelivery.due <= now + 1.5 * least
        await taken.redelivery.connected(1000.0)
        assert taken.redelivery.due == 1005.0

    taken_test(tmp_path, test)


@pytest.mark.parametrize(
    ("ranges", "idle", "soon"),
    [
        (((0, 0), (2, 3)), True, True),  # passed over, and nothing older is on its way
        (((0, 0), (2, 3)), False, False),
        ((), False, True),  # it is there, and cannot be read
        (((0, 2),), True, None),
    ],
)
def test_a_suspicion_brings_the_next_look_forward(
    tmp_path: Path, ranges: Ranges, idle: bool, soon: bool | None
) -> None:
    async def test(taken: Taken) -> None:
        await taken.redelivery.connected(0.0)
        for _ in range(3):
            await taken.redelivery.find(0.0)
        before = taken.redelivery.due
        taken.acknowledge(*ranges)
        assert taken.redelivery.suspected is (soon is not None)
        if soon is not None:
            taken.redelivery.check_soon(0.0, idle=idle)
            assert not taken.redelivery.suspected
        assert (5.0 <= taken.redelivery.due <= 7.5) if soon else taken.redelivery.due == before

    taken_test(tmp_path, test)


def test_a_stream_whose_schema_is_missing_is_sent_again_while_a_full_spool_drops_its_oldest_batches(
    tmp_path: Path,
) -> None:
    async def test(taken: Taken) -> None:
        for oldest in (1, 2):
            taken.spool.acknowledge(taken.key, ((0, oldest - 1),))  # gone, as a dropped one is
            taken.acknowledge()
            assert await taken.redelivery.find(5.0 * oldest) == [taken.key]
            for batch in list(taken.spool.queue.unsent()):
                taken.spool.mark_sent(batch)
        taken.acknowledge()
        taken.acknowledge((0, 2))
        assert await taken.redelivery.find(15.0) == [], "it has the schema now"

    taken_test(tmp_path, test)


def test_a_suspicion_never_puts_the_next_look_off(tmp_path: Path) -> None:
    async def test(taken: Taken) -> None:
        await taken.redelivery.connected(0.0)
        taken.acknowledge()
        taken.redelivery.check_soon(3.0, idle=False)
        assert taken.redelivery.due == 5.0

    taken_test(tmp_path, test)


def test_after_a_connection_with_acknowledgements_what_they_left_out_is_sent_at_once(tmp_path: Path) -> None:
    async def test(taken: Taken) -> None:
        await taken.redelivery.connected(0.0)
        assert taken.backlog() == []
        taken.acknowledge((0, 1))
        heard = taken.redelivery.acks_in_connection
        await taken.redelivery.connected(10.0)
        assert taken.backlog() == [2, 3]
        assert (heard, taken.redelivery.acks_in_connection) == (True, False)
        assert taken.redelivery.acks_seen

    taken_test(tmp_path, test)
