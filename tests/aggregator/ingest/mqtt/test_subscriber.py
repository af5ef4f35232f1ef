import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from laggard_aggregator.ingest.ingest_queue import BURST, IngestQueue
from laggard_aggregator.ingest.mqtt.subscriber import Subscriber
from laggard_aggregator.settings.aggregator import BrokerSettings
from laggard_common.clock import SystemClock
from laggard_common.mqtt.settings import client_arguments
from tests.support.broker import Broker
from tests.support.wait import async_wait_until


@asynccontextmanager
async def subscribed(broker: Broker, inbox: IngestQueue, **settings: object) -> AsyncIterator[Subscriber]:
    made = BrokerSettings(port=broker.port, **settings)  # type: ignore[arg-type]
    subscriber = Subscriber(
        made, "site", partial(client_arguments, made), queue=inbox, clock=SystemClock(), rng=random.Random(1)
    )
    task = asyncio.create_task(subscriber.run())
    try:
        await async_wait_until(lambda: subscriber.connected)
        yield subscriber
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_messages_come_with_topic_payload_and_time() -> None:
    async def story() -> None:
        inbox = IngestQueue(100)
        async with Broker() as broker, subscribed(broker, inbox):
            assert broker.logins[0][0] == "laggard-aggregator-site"
            broker.publish("laggard/1/site/storage/oss-1/data/diskstats", b"one")
            broker.publish("laggard/1/site/ack/oss-1", b"not for us")
            broker.publish("laggard/1/elsewhere/storage/oss-1/status", b"nor this")
            broker.publish("laggard/1/site/storage/oss-1/status", b"two")
            await async_wait_until(lambda: len(inbox) == 2)
            (one, two) = inbox.take_live()
            assert one[:2] == ("laggard/1/site/storage/oss-1/data/diskstats", b"one")
            assert two[1] == b"two"
            assert 0 <= two[2] - one[2] < 10**10

    asyncio.run(story())


def test_a_lost_broker_is_one_warning_and_a_found_one_one_info(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        inbox = IngestQueue(100)
        async with Broker() as broker, subscribed(broker, inbox) as subscriber:
            broker.hang_up()
            await async_wait_until(lambda: not subscriber.connected)
            await async_wait_until(lambda: subscriber.connected)
            broker.publish("laggard/1/site/storage/oss-1/status", b"again")
            await async_wait_until(lambda: len(inbox) == 1)

    with caplog.at_level(logging.INFO):
        asyncio.run(story())
    found = [(r.levelname, r.getMessage().split(" at ")[0]) for r in caplog.records]
    assert found == [
        ("INFO", "connected to the broker"),
        ("WARNING", "no connection to the broker"),
        ("INFO", "connected to the broker"),
    ]


def test_a_password_that_is_renewed_is_used_by_the_next_connection(tmp_path: Path) -> None:
    async def story() -> None:
        password = tmp_path / "password"
        password.write_text("swordfish")
        password.chmod(0o600)
        secret = {"username": "laggard", "password_file": password}
        async with Broker() as broker, subscribed(broker, IngestQueue(100), **secret) as subscriber:
            password.unlink()
            broker.hang_up()
            await async_wait_until(lambda: not subscriber.connected)
            password.write_text("marlin")
            password.chmod(0o600)
            await async_wait_until(lambda: subscriber.connected)
        assert [given for _, _, given in broker.logins] == [b"swordfish", b"marlin"]

    asyncio.run(story())


def test_acknowledgements_are_published_and_nothing_happens_without_a_broker() -> None:
    async def story() -> None:
        async with Broker() as broker:
            async with subscribed(broker, IngestQueue(100)) as subscriber:
                await subscriber.publish([(f"laggard/1/site/ack/n{n}", b"x") for n in range(150)])
                assert len(broker.messages) == 150
                assert all(message.qos == 1 for message in broker.messages)
            await subscriber.publish([("laggard/1/site/ack/n", b"x")])
            assert len(broker.messages) == 150

    asyncio.run(story())


def test_what_is_subscribed_to_can_be_said() -> None:
    async def story() -> None:
        inbox = IngestQueue(100)
        async with Broker() as broker, subscribed(broker, inbox, topics=("laggard/1/other/#",)):
            broker.publish("laggard/1/site/storage/oss-1/status", b"one")
            broker.publish("laggard/1/other/storage/oss-1/status", b"two")
            await async_wait_until(lambda: len(inbox) == 1)

    asyncio.run(story())


def test_an_inbox_is_bounded_and_emptied_in_bursts() -> None:
    async def story() -> None:
        inbox = IngestQueue(BURST + 10)
        assert all(inbox.put([(f"t/{n}", b"", n) for n in range(BURST + 8)]))
        more = [(f"t/{n}", b"", n) for n in range(BURST + 8, BURST + 15)]
        assert inbox.put(more) == [True] * 2 + [False] * 5
        assert inbox.put([]) == []
        assert (len(inbox), inbox.dropped) == (BURST + 10, 5)
        assert len(inbox.take_live()) == BURST
        assert [m[2] for m in inbox.take_live()] == list(range(BURST, BURST + 10))
        waiting = asyncio.create_task(inbox.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        inbox.put([("t", b"", 7)])
        await waiting
        assert inbox.take_live() == [("t", b"", 7)]
        assert inbox.take_live() == []

    asyncio.run(story())
