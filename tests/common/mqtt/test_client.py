"""The adapter over aiomqtt against a scripted broker on loopback."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import aiomqtt
import pytest

from laggard_common.errors import MqttError
from laggard_common.mqtt.client import MqttClient, log_unhandled
from laggard_common.mqtt.settings import MqttSettings, client_arguments
from tests.support.broker import Broker
from tests.support.wait import time_limit

CONNACK = b"\x20\x02\x00\x00"
GARBAGE = b"\x90\xff\xff\xff\xff\xff"

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Client(MqttClient):
    """Keeps the messages; `lost` is set when the connection ends."""

    def __init__(self, port: int, timeout_seconds: float = 30.0, will: aiomqtt.Will | None = None) -> None:
        self.messages: list[bytes] = []
        self.lost = asyncio.Event()
        super().__init__(
            client_arguments(MqttSettings(port=port)),
            "client",
            on_message=self.messages.append,
            on_lost=self.lost.set,
            timeout_seconds=timeout_seconds,
            will=will,
        )


@asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[int]:
    """A server that runs `script` for each connection; its port."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await script(reader, writer)

    writers: list[asyncio.StreamWriter] = []
    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        for writer in writers:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with time_limit():
            await story()

    asyncio.run(limited())


def test_messages_are_published_at_qos_1_and_received(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with Broker() as broker:
            client = Client(broker.port)
            await client.connect()
            assert await client.subscribe("a/+")
            await client.publish("a/b", b"x", retain=True)
            await broker.until(lambda: bool(client.messages))
            assert client.messages == [b"x"]
            (message,) = broker.messages
            assert (message.topic, message.qos, message.retain) == ("a/b", 1, True)
            await client.close(5.0)
            with pytest.raises(MqttError):
                client.check()

    run(story)
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


@pytest.mark.parametrize("orderly", [True, False])
def test_the_will_is_published_unless_the_client_disconnects(orderly: bool) -> None:
    async def story() -> None:
        async with Broker() as broker:
            client = Client(broker.port, will=aiomqtt.Will("status", b"down", qos=1, retain=True))
            await client.connect()
            if orderly:
                await client.close(5.0)
            else:
                broker.hang_up()
            await client.lost.wait()
            await broker.until(lambda: not broker._sessions)
            assert [m.payload for m in broker.messages] == ([] if orderly else [b"down"])

    run(story)


def test_a_refused_connection_is_one_line() -> None:
    async def story() -> None:
        async with Broker() as broker:
            broker.refuse_with = 5
            with pytest.raises(MqttError, match=r"^the broker refuses the connection: Not authorized$"):
                await Client(broker.port).connect()

    run(story)


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "no-such-host.invalid"])
def test_a_host_that_cannot_be_resolved_is_one_line(host: str) -> None:
    async def story() -> None:
        arguments = client_arguments(MqttSettings())
        arguments["hostname"] = host
        client = MqttClient(arguments, "client", on_message=lambda _: None, on_lost=lambda: None)
        with pytest.raises(MqttError) as failed:
            await client.connect()
        assert "\n" not in str(failed.value)

    run(story)


def test_a_broker_that_never_answers_is_given_up_and_its_socket_closed() -> None:
    closed = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        while await reader.read(1000):
            pass
        closed.set()

    async def story() -> None:
        async with scripted(silent) as port:
            with pytest.raises(MqttError):
                await Client(port, timeout_seconds=0.1).connect()
            await closed.wait()

    run(story)


def test_a_publish_without_an_answer_times_out() -> None:
    async def story() -> None:
        async with Broker() as broker:
            broker.acknowledge = False
            client = Client(broker.port, timeout_seconds=0.1)
            await client.connect()
            with pytest.raises(MqttError, match="the broker does not answer"):
                await client.publish("a/data/b", b"x")
            await client.close(5.0)

    run(story)


def test_a_connection_lost_during_a_publish_is_noticed_before_the_time_out() -> None:
    async def story() -> None:
        async with Broker() as broker:
            broker.acknowledge = False
            client = Client(broker.port, timeout_seconds=1e6)
            await client.connect()
            publishing = asyncio.create_task(client.publish("a/data/b", b"x"))
            await broker.until(lambda: bool(broker.messages))
            broker.hang_up()
            with pytest.raises(MqttError, match="the connection is lost: the broker closed the connection"):
                await publishing
            assert client.lost.is_set()
            with pytest.raises(MqttError, match="the connection is lost"):
                client.check()
            await client.close(5.0)

    run(story)


def test_a_connection_that_completes_after_a_cancellation_is_closed() -> None:
    asked, answer, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        asked.set()
        await answer.wait()
        writer.write(CONNACK)
        while await reader.read(1000):
            pass
        closed.set()

    async def story() -> None:
        async with scripted(late) as port:
            connecting = asyncio.create_task(Client(port).connect())
            await asked.wait()
            connecting.cancel()
            await asyncio.wait({connecting})
            answer.set()
            await closed.wait()

    run(story)


@pytest.mark.parametrize("code", [0, 1, 0x80])
def test_a_denied_subscription_is_false(code: int) -> None:
    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(CONNACK)
        subscribe = await reader.read(1000)
        writer.write(b"\x90\x03" + subscribe[2:4] + bytes((code,)))
        await reader.read()

    async def story() -> None:
        async with scripted(broker) as port:
            client = Client(port)
            await client.connect()
            assert await client.subscribe("a") is (code < 0x80)
            await client.close(5.0)

    run(story)


@pytest.mark.parametrize(
    "said",
    [
        GARBAGE,
        CONNACK + b"\x30\x00",
        b"\x30\x04\x00\x02\xff\xfe\x00",
        b"\x40\x02\xff\xff\x90\x03\x00\x01\x00",
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_hostile_bytes_end_in_one_line_at_most(
    said: bytes, at_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def hostile(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(CONNACK)
        if not at_once:
            await reader.read(1000)
        writer.write(said)
        await reader.read()

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(log_unhandled)
        async with scripted(hostile) as port:
            client = Client(port, timeout_seconds=0.2)
            await client.connect()
            with pytest.raises(MqttError) as failed:
                await client.publish("a", b"x")
            assert "\n" not in str(failed.value)
            await client.close(0.2)

    run(story)
    gc.collect()
    assert all(
        "\n" not in r.getMessage() and not r.exc_info for r in caplog.records if r.levelno > logging.DEBUG
    )


@pytest.mark.parametrize("said", [GARBAGE, b"\x20\x02\x00\xff", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_server_that_speaks_something_else_is_one_line(said: bytes) -> None:
    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await reader.read(1000)

    async def story() -> None:
        async with scripted(other) as port:
            with pytest.raises(MqttError) as failed:
                await Client(port, timeout_seconds=0.2).connect()
            assert "\n" not in str(failed.value)

    run(story)
