"""The built-in broker with real clients on loopback."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import aiomqtt

from laggard_aggregator.embedded.broker import embedded_broker
from laggard_aggregator.settings.aggregator import BrokerSettings
from laggard_common.mqtt.settings import client_arguments
from tests.support.ports import free_port
from tests.support.wait import LIMIT_SECONDS, time_limit

HOST = "laggard-aggregator-site"
SCHEMA = "laggard/1/site/storage/oss-1/schema/diskstats"

Connect = Callable[..., Awaitable[aiomqtt.Client]]


def site_test(test: Callable[[Connect], Awaitable[None]]) -> None:
    settings = BrokerSettings(port=free_port(), embedded=True)

    async def run() -> None:
        async with (
            embedded_broker(settings, HOST),
            time_limit(),
            contextlib.AsyncExitStack() as clients,
        ):

            async def connect(name: str, **rest: Any) -> aiomqtt.Client:
                client = aiomqtt.Client(
                    **client_arguments(settings), identifier=name, timeout=LIMIT_SECONDS, **rest
                )
                return await clients.enter_async_context(client)

            await test(connect)

    asyncio.run(run())


async def topics(client: aiomqtt.Client, count: int) -> list[str]:
    """Topics of the next messages that `client` receives."""
    return [(await anext(client.messages)).topic.value for _ in range(count)]


def test_messages_of_nodes_that_connect_before_the_aggregator_reach_it() -> None:
    async def test(connect: Connect) -> None:
        async def node(number: int) -> None:
            client = await connect(f"laggard-oss-{number}@site")
            await client.publish(f"laggard/1/site/storage/oss-{number}/data/diskstats", b"x", qos=1)

        nodes = [asyncio.create_task(node(number)) for number in range(3)]
        await asyncio.sleep(0)  # they connect before the aggregator
        aggregator = await connect(HOST)
        assert not any(each.done() for each in nodes)
        await aggregator.subscribe("laggard/1/site/#", qos=1)
        await asyncio.gather(*nodes)
        assert len(await topics(aggregator, 3)) == 3

    site_test(test)


def test_retained_messages_go_to_their_subscribers_only() -> None:
    async def test(connect: Connect) -> None:
        aggregator = await connect(HOST)
        await aggregator.subscribe("laggard/1/site/+/+/schema/+", qos=1)
        first = await connect("laggard-oss-1@site")
        await first.publish(SCHEMA, b"x", qos=1, retain=True)
        assert await topics(aggregator, 1) == [SCHEMA]
        second = await connect("laggard-oss-2@site")
        await second.subscribe("laggard/1/site/ack/oss-2", qos=1)
        await second.publish("laggard/1/site/storage/oss-2/status", b"x", qos=1)
        assert len(second.messages) == 0
        await second.subscribe(SCHEMA, qos=1)
        assert await topics(second, 1) == [SCHEMA]

    site_test(test)


def test_a_new_connection_of_a_name_ends_the_previous_one() -> None:
    async def test(connect: Connect) -> None:
        aggregator = await connect(HOST)
        await aggregator.subscribe("laggard/1/site/#", qos=1)
        status = "laggard/1/site/storage/oss-1/status"
        await connect("laggard-oss-1@site", will=aiomqtt.Will(status, b"down", qos=1))
        later = await connect("laggard-oss-1@site", will=aiomqtt.Will(status, b"later", qos=1))
        await later.publish(status, b"up", qos=1)
        assert [(await anext(aggregator.messages)).payload for _ in range(2)] == [b"down", b"up"]

    site_test(test)
