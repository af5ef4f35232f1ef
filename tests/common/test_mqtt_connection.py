"""A connection to brokers that behave, misbehave and go; and to mosquitto beside another client."""

import asyncio
import shutil
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from laggard_common import mqtt_packets as packets
from laggard_common.errors import MqttError
from laggard_common.mqtt.settings import MqttSettings, client_arguments
from laggard_common.mqtt_connection import Connection
from laggard_common.mqtt_packets import Message, Will
from tests.agent.broker import Broker
from tests.support.wait import time_limit

MOSQUITTO = shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin")
CONNACK = b"\x20\x02\0\0"


async def connect(port: int, heard: list[Message] | None = None, **changes: Any) -> Connection:
    arguments = client_arguments(MqttSettings(port=port))
    settings: dict[str, Any] = {"most_bytes": 4096, "keepalive_seconds": 60, "timeout_seconds": 5.0}
    hear = ([] if heard is None else heard).append
    return await Connection.open(arguments, "me", hear=hear, **settings | changes)


async def answers(count: int, heard: list[Message]) -> None:
    async with time_limit():
        while len(heard) < count:
            await asyncio.sleep(0)


def with_broker(test: Callable[[Broker], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Broker() as broker:
            await test(broker)

    asyncio.run(run())


def with_server(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], test: Any
) -> None:
    """A server that does what `talk` does; the connection is made by `test`, which gets its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        finally:
            writer.close()

    async def run() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            await test(server.sockets[0].getsockname()[1])

    asyncio.run(run())


async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Accepts a client."""
    await reader.read(1024)
    writer.write(CONNACK)


def test_a_message_is_taken_and_one_is_heard() -> None:
    async def test(broker: Broker) -> None:
        heard: list[Message] = []
        connection = await connect(broker.port, heard)
        assert await connection.subscribe(["a/+"]) == []
        await connection.publish("a/b", b"x" * 300, retain=True)
        await answers(1, heard)
        assert (broker.messages[0].qos, broker.messages[0].retain) == (1, True)
        assert (heard[0].topic, heard[0].payload) == ("a/b", b"x" * 300)
        await connection.close(1.0)
        assert connection.lost.done()

    with_broker(test)


def test_the_will_comes_of_an_end_without_goodbye_alone() -> None:
    async def test(broker: Broker) -> None:
        will = Will("w", b"gone")
        await (await connect(broker.port, will=will)).close(1.0)
        assert not broker.messages
        (await connect(broker.port, will=will)).abort()
        await broker.until(lambda: bool(broker.messages))
        assert (broker.messages[0].topic, broker.messages[0].payload) == ("w", b"gone")
        assert (broker.messages[0].qos, broker.messages[0].retain) == (1, True)

    with_broker(test)


def test_a_broker_that_hangs_up_fails_whoever_waits() -> None:
    async def test(broker: Broker) -> None:
        broker.acknowledge = False
        connection = await connect(broker.port)
        waiting = connection.publish("a/data/b", b"x")
        await broker.until(lambda: bool(broker.messages))
        broker.hang_up()
        with pytest.raises(MqttError, match=r"hung up|lost"):
            await waiting
        await connection.lost
        with pytest.raises(MqttError):
            connection.publish("a", b"")
        with pytest.raises(MqttError):
            await connection.subscribe(["a"])

    with_broker(test)


def test_a_refusal_says_why() -> None:
    async def test(broker: Broker) -> None:
        broker.refuse_with = 5
        with pytest.raises(MqttError, match="refuses us: not authorized"):
            await connect(broker.port)

    with_broker(test)


def test_while_reading_pauses_nothing_is_heard_and_nothing_is_lost() -> None:
    async def test(broker: Broker) -> None:
        heard: list[Message] = []
        connection = await connect(broker.port, heard)
        await connection.subscribe(["a"])
        connection.pause_reading()
        for i in range(3):
            broker.publish("a", bytes((i,)))
        taken = connection.publish("b", b"x")
        await broker.until(lambda: any(message.topic == "b" for message in broker.messages))
        for _ in range(20):
            await asyncio.sleep(0)
        assert (heard, taken.done()) == ([], False)
        connection.resume_reading()
        await taken
        assert [message.payload for message in heard] == [b"\0", b"\1", b"\2"]
        await connection.close(1.0)

    with_broker(test)


def test_who_does_not_answer_a_ping_is_lost() -> None:
    pings: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await hello(reader, writer)
        pings.append(await reader.read(16))
        await reader.read(16)

    async def test(port: int) -> None:
        connection = await connect(port, keepalive_seconds=1)
        await connection.lost
        assert pings == [packets.PINGREQ]
        assert str(connection.error) == "the broker does not answer"

    with_server(talk, test)


def test_a_ping_that_is_answered_keeps_the_connection() -> None:
    pings: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await hello(reader, writer)
        for _ in range(2):
            pings.append(await reader.read(16))
            writer.write(b"\xd0\0")

    async def test(port: int) -> None:
        connection = await connect(port, keepalive_seconds=1)
        await connection.lost
        assert pings == [packets.PINGREQ] * 2
        assert str(connection.error) == "the broker hung up"

    with_server(talk, test)


def test_who_speaks_and_is_answered_need_not_ping() -> None:
    """Time is made up: the loop's clock is put forward."""
    heard: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await hello(reader, writer)
        while said := await reader.read(64):
            heard.append(said)
            if said != packets.PINGREQ:
                writer.write(b"\x40\x02" + said[5:7])  # the number behind the topic `t`

    async def test(port: int) -> None:
        loop = asyncio.get_running_loop()
        connection = await connect(port, keepalive_seconds=60)
        began = loop.time()
        at = [0]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "time", lambda: began + at[0])
            for at[0] in (20, 40, 60):
                await connection.publish("t", b"x")
            assert packets.PINGREQ not in heard
            at[0] = 91
            while packets.PINGREQ not in heard:
                await asyncio.sleep(0)
        assert len(heard) == 4
        await connection.close(1.0)

    with_server(talk, test)


@pytest.mark.parametrize(
    "said",
    [
        b"\x20\x03\0\0\0",
        b"\x20\x02\0\0\x20\x02\0\0",  # twice
        b"\x90\x03\0\x01\0",  # before it accepts us
        b"\x20\x02\0\0\x30\xff\xff\xff\x7f",  # 256 MiB
        b"\x20\x02\0\0\x30\xff\xff\xff\xff\x7f",
        b"\x20\x02\0\0\x34\x05\0\x01t\0\x01",  # QoS 2
        b"\x20\x02\0\0\x00\0",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"",
    ],
)
def test_what_does_not_speak_mqtt_ends_in_one_error(said: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1024)
        writer.write(said)

    async def test(port: int) -> None:
        with pytest.raises(MqttError, match=r"does not speak MQTT|hung up"):
            await (await connect(port)).subscribe(["a"])

    with_server(talk, test)


def test_an_answer_to_nothing_is_passed_over() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await hello(reader, writer)
        writer.write(b"\x40\x02\x12\x34\x90\x03\x12\x34\0")
        await reader.read(64)
        writer.write(b"\x90\x04\0\x01\x01\x80")
        await reader.read(64)

    async def test(port: int) -> None:
        connection = await connect(port)
        assert await connection.subscribe(["a", "b"]) == ["b"]
        await connection.close(1.0)

    with_server(talk, test)


def test_a_server_that_says_nothing_and_one_that_is_not_there() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def test(port: int) -> None:
        with pytest.raises(TimeoutError, match="it does not answer"):
            await connect(port, timeout_seconds=0.1)

    with_server(talk, test)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            asyncio.run(connect(taken.getsockname()[1]))


async def _beside_another_client(folder: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "m.conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    assert MOSQUITTO is not None
    broker = await asyncio.create_subprocess_exec(MOSQUITTO, "-c", str(folder / "m.conf"), stderr=-3)
    try:
        heard: list[Message] = []
        async with time_limit():
            while True:
                try:
                    connection = await connect(port, heard, most_bytes=1 << 20, hold_back=True)
                    break
                except ConnectionRefusedError:
                    await asyncio.sleep(0.02)
        async with aiomqtt.Client("127.0.0.1", port) as other, time_limit():
            await other.subscribe("to/other", qos=1)
            assert await connection.subscribe(["to/me"]) == []
            for size in (0, 1, 127, 128, 70_000):
                await asyncio.gather(*(connection.publish("to/other", bytes(size)) for _ in range(3)))
                await other.publish("to/me", bytes(size), qos=1)
                got = [await anext(aiter(other.messages)) for _ in range(3)]
                assert [(m.payload, m.qos) for m in got] == [(bytes(size), 1)] * 3
                await answers(1, heard)
                message = heard.pop()
                assert (message.topic, message.payload, message.retain) == ("to/me", bytes(size), False)
                connection.acknowledge(message.number)
        await connection.close(1.0)
    finally:
        broker.terminate()
        await broker.wait()


@pytest.mark.skipif(MOSQUITTO is None, reason="needs mosquitto")
def test_mosquitto_and_another_client_understand_it(tmp_path: Path) -> None:
    asyncio.run(_beside_another_client(tmp_path))
