"""The built-in broker with real clients on loopback."""

import asyncio
from collections.abc import Awaitable, Callable

from laggard_aggregator.demo.site import free_port
from laggard_aggregator.embedded.broker import embedded_broker
from laggard_aggregator.settings.aggregator import BrokerSettings
from laggard_common.mqtt.settings import client_arguments
from laggard_common.mqtt_connection import Connection
from laggard_common.mqtt_packets import Message
from tests.support.wait import time_limit

HOST = "laggard-aggregator-site"
SCHEMA = "laggard/1/site/storage/oss-1/schema/diskstats"
LIMIT = 65_536

Connect = Callable[[str, list[str]], Awaitable[Connection]]


def site_test(test: Callable[[Connect], Awaitable[None]]) -> None:
    settings = BrokerSettings(port=free_port(), embedded=True)

    async def connect(name: str, heard: list[str]) -> Connection:
        def hear(message: Message) -> None:
            heard.append(message.topic)

        return await Connection.open(
            client_arguments(settings),
            name,
            hear=hear,
            most_bytes=LIMIT,
            keepalive_seconds=30,
            timeout_seconds=5.0,
        )

    async def run() -> None:
        async with embedded_broker(settings, HOST), time_limit():
            await test(connect)

    asyncio.run(run())


def test_what_nodes_send_as_soon_as_they_are_let_in_reaches_the_aggregator() -> None:
    async def test(connect: Connect) -> None:
        async def node(number: int) -> None:
            connection = await connect(f"laggard-oss-{number}@site", [])
            await connection.publish(f"laggard/1/site/storage/oss-{number}/data/diskstats", b"x")
            await connection.close(1.0)

        heard: list[str] = []
        nodes = [asyncio.create_task(node(number)) for number in range(3)]
        await asyncio.sleep(0)  # they are at the door before the aggregator is
        aggregator = await connect(HOST, heard)
        assert not any(each.done() for each in nodes)
        await aggregator.subscribe(["laggard/1/site/#"])
        await asyncio.gather(*nodes)
        while len(heard) < 3:
            await asyncio.sleep(0.005)
        await aggregator.close(1.0)

    site_test(test)


def test_what_is_retained_goes_to_those_who_subscribed_to_it() -> None:
    async def test(connect: Connect) -> None:
        heard: list[str] = []
        aggregator = await connect(HOST, heard)
        await aggregator.subscribe(["laggard/1/site/+/+/schema/+"])
        first = await connect("laggard-oss-1@site", [])
        await first.publish(SCHEMA, b"x", retain=True)
        while not heard:
            await asyncio.sleep(0.005)
        others: list[str] = []
        second = await connect("laggard-oss-2@site", others)
        await second.subscribe(["laggard/1/site/ack/oss-2"])
        await second.publish("laggard/1/site/storage/oss-2/status", b"x")
        assert others == []
        await second.subscribe([SCHEMA])
        while not others:
            await asyncio.sleep(0.005)
        for connection in (second, first, aggregator):
            await connection.close(1.0)

    site_test(test)
