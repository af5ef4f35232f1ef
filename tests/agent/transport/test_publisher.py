"""The publisher against a broker on loopback, with batches and a clock of the test."""

import asyncio
import random
from functools import partial
from pathlib import Path

from laggard_agent.sampling.batcher import Dictionary, EncodedBatch
from laggard_agent.settings import AgentMqttSettings, AgentSettings, SpoolSettings
from laggard_agent.spool.spool import Spool
from laggard_agent.spool.worker import Worker
from laggard_agent.transport.publisher import Publisher
from laggard_common.mqtt.settings import client_arguments
from laggard_common.wire.schema import Component, Field
from tests.support.broker import Broker
from tests.support.clock import FakeClock
from tests.support.wait import async_wait_until

SOURCES = ("diskstats", "net", "tcp")


def batch(source: str) -> EncodedBatch:
    dictionary = Dictionary(fields=(Field("reads"),), components=(Component("sda", "sda"),))
    return EncodedBatch(source, dictionary, t0_ns=10**18, dt_ns=10**9, n=1, codec=0, payload=b"counters")


def test_batches_that_are_due_together_do_not_wait_for_one_another(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        settings = AgentSettings(
            node="oss-1", mqtt=AgentMqttSettings(port=broker.port), spool=SpoolSettings(tmp_path / "spool")
        )
        clock, failures = FakeClock(), list[BaseException]()
        worker = Worker("spool", failures.append)
        spool = Spool(settings, "boot")
        publisher = Publisher(
            settings,
            partial(client_arguments, settings.mqtt),
            spool=spool,
            worker=worker,
            status=lambda facts: facts,
            clock=clock,
            rng=random.Random(1),
            delay_seconds=0.5,
        )
        running = asyncio.create_task(publisher.run())
        await async_wait_until(lambda: publisher.connected)
        broker.acknowledge = False
        for source in SOURCES:
            await worker.call(partial(publisher.store, batch(source)))
        clock.sleep(1.0)

        def sent() -> list[str]:
            return [m.topic.rpartition("/")[2] for m in broker.messages if "/data/" in m.topic]

        await broker.until(lambda: sent() == list(SOURCES))
        assert all(f"laggard/1/site/storage/oss-1/schema/{source}" in broker.retained for source in SOURCES)
        assert len(broker.logins) == 1
        running.cancel()
        await asyncio.wait({running})
        await worker.call(spool.close)
        worker.end()
        assert not failures

    async def run() -> None:
        async with Broker() as broker:
            await test(broker)

    asyncio.run(run())
