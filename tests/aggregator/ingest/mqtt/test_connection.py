"""The connection by itself, against a broker that does what a test tells it to."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest

from laggard_aggregator.ingest.mqtt import connection as under_test
from laggard_aggregator.ingest.mqtt.connection import MqttReader
from laggard_aggregator.ingest.mqtt.packets import Message, publish
from laggard_common.errors import MqttError
from laggard_common.mqtt.settings import MqttSettings, client_arguments
from tests.support.wait import async_wait_until, time_limit

WELCOME = b"\x20\x02\x00\x00"
Answer = Callable[[bytes], bytes]


class Scripted:
    """Answers what comes as `answer` says, a read at a time; `said` is all that came."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.said = b""
        self.writer: asyncio.StreamWriter | None = None
        self.heard = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        while data := await reader.read(65_536):
            self.said += data
            writer.write(self.answer(data))
            self.heard.set()
        writer.close()

    async def until_said(self, piece: bytes) -> None:
        """Waits until the client has sent this."""
        async with time_limit():
            while piece not in self.said:
                self.heard.clear()
                await self.heard.wait()


@asynccontextmanager
async def broker(answer: Answer) -> AsyncIterator[tuple[Scripted, int]]:
    scripted = Scripted(answer)
    server = await asyncio.start_server(scripted.serve, "127.0.0.1", 0)
    try:
        yield scripted, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        if scripted.writer is not None:
            scripted.writer.transport.abort()
        await server.wait_closed()


async def opened(port: int, take: Callable[[list[Message]], None] = lambda _: None) -> MqttReader:
    made = MqttReader(take)
    arguments = client_arguments(MqttSettings(port=port))
    await made.open(arguments, "me", clean=True, seconds=5)
    return made


def welcoming(data: bytes) -> bytes:
    return WELCOME if data[0] == 0x10 else b""


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"\x20\x02\x00\x05", "not authorized"),
        (b"\x20\x02\x00\x02", "the client id is refused"),
        (b"\x20\x02\x00\x63", "refused with code 99"),
        (b"\x20\x00", "refused with code -1"),
        (b"\xd0\x00" + WELCOME, None),  # a PINGRESP too many harms nobody
        (b"\x90\x03\x00\x01\x00", "a packet of kind 9 instead of 2"),
        (b"\x30\x01\x00", "a message of 1 bytes with the flags 0"),
    ],
)
def test_who_is_not_let_in_is_told_why(answer: bytes, why: str | None) -> None:
    async def story() -> None:
        async with broker(lambda data: answer if data[0] == 0x10 else b"") as (_, port):
            if why is None:
                (await opened(port)).close()
                return
            with pytest.raises(MqttError) as failed:
                await opened(port)
            assert str(failed.value) == why

    asyncio.run(story())


def test_a_broker_that_says_nothing_is_not_waited_for() -> None:
    async def story() -> None:
        async with broker(lambda _: b"") as (_, port):
            made = MqttReader(lambda _: None)
            with pytest.raises(MqttError, match=r"no answer within 0.1 s"):
                await made.open(client_arguments(MqttSettings(port=port)), "me", clean=True, seconds=0.1)
            made.close()

    asyncio.run(story())


def test_one_that_falls_silent_later_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "KEEPALIVE_SECONDS", 0.2)
    monkeypatch.setattr("laggard_aggregator.ingest.mqtt.packets.connect", lambda *_, **__: b"\x10\x00")

    async def story() -> None:
        async with broker(welcoming) as (scripted, port):
            made = await opened(port)
            with pytest.raises(MqttError, match="says nothing any more"):
                async with time_limit():
                    await made.lost()
            assert b"\xc0\x00" in scripted.said  # it was asked
            assert not made._lost.cancelled()

    asyncio.run(story())


def test_one_that_sends_and_takes_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acknowledgements would wait in memory for as long as it sends."""
    monkeypatch.setattr(under_test, "KEEPALIVE_SECONDS", 0.4)
    monkeypatch.setattr("laggard_aggregator.ingest.mqtt.packets.connect", lambda *_, **__: b"\x10\x00")

    async def story() -> None:
        async with broker(welcoming) as (scripted, port):
            made = await opened(port)
            assert scripted.writer is not None
            cast(asyncio.Transport, scripted.writer.transport).pause_reading()
            lost = asyncio.create_task(made.lost())
            async with time_limit():
                while not lost.done():
                    made.acknowledge([7] * 65_536)
                    scripted.writer.write(publish("a/b", b"one", 7))
                    await asyncio.sleep(0.01)
            with pytest.raises(MqttError, match="takes nothing any more"):
                await lost

    asyncio.run(story())


def test_messages_are_acknowledged_when_they_are_said_to_be() -> None:
    async def story() -> None:
        came: list[Message] = []
        async with broker(welcoming) as (scripted, port):
            made = await opened(port, came.extend)
            assert scripted.writer is not None
            scripted.writer.write(publish("a/b", b"one", 7) + publish("a/b", b"two", 8)[:-1])
            await async_wait_until(lambda: len(came) >= 1)
            assert came == [("a/b", b"one", 7)]
            assert b"\x40" not in scripted.said[20:]
            scripted.writer.write(b"o")
            await async_wait_until(lambda: len(came) >= 2)
            made.acknowledge([7, 8])
            await scripted.until_said(b"\x40\x02\x00\x07\x40\x02\x00\x08")
            made.close()
            await scripted.until_said(b"\xe0\x00")

    asyncio.run(story())


def test_our_own_messages_wait_for_the_broker_and_end_with_the_connection() -> None:
    async def story() -> None:
        def answer(data: bytes) -> bytes:
            if data[0] == 0x10:
                return WELCOME
            return b"\x40\x02\x00\x01\x40\x02\x00\x02" if b"three" not in data else b""

        async with broker(answer) as (scripted, port):
            made = await opened(port)
            await made.publish([("t", b"one"), ("t", b"two")], 10)
            waiting = asyncio.create_task(made.publish([("t", b"three")], 10))
            await scripted.until_said(b"three")
            assert not waiting.done()
            assert scripted.writer is not None
            scripted.writer.transport.abort()
            with pytest.raises(MqttError):
                await waiting
            with pytest.raises(MqttError):
                await made.lost()
            made.acknowledge([1])  # nobody to tell

    asyncio.run(story())


def test_a_message_that_is_not_confirmed_in_time_is_an_error() -> None:
    async def story() -> None:
        async with broker(welcoming) as (_, port):
            made = await opened(port)
            with pytest.raises(MqttError, match="no answer to a message"):
                await made.publish([("t", b"one")], 0.05)
            made.close()

    asyncio.run(story())


def test_what_nobody_asked_for_ends_the_connection() -> None:
    async def story() -> None:
        async with broker(welcoming) as (scripted, port):
            made = await opened(port)
            assert scripted.writer is not None
            scripted.writer.write(b"\x20\x02\x00\x00")
            with pytest.raises(MqttError, match="that nobody asked for"):
                async with time_limit():
                    await made.lost()

    asyncio.run(story())


def test_a_lost_connection_has_no_buffers_any_more() -> None:
    """Also where something holds on to it: of TLS they are 256 KiB."""

    def transports(port: int) -> int:
        gc.collect()
        every = [each for each in gc.get_objects() if isinstance(each, asyncio.Transport)]
        return sum((each.get_extra_info("peername") or ("", 0))[1] == port for each in every)

    async def story() -> None:
        async with broker(welcoming) as (scripted, port):
            made = await opened(port)
            assert transports(port) == 1
            assert scripted.writer is not None
            scripted.writer.transport.abort()
            with pytest.raises(MqttError):
                await made.lost()
            await asyncio.sleep(0)
            assert transports(port) == 0

    asyncio.run(story())


def test_a_burst_is_taken_a_piece_at_a_time() -> None:
    """Or thousands of messages would be objects at once, and the memory for them stay."""

    async def story() -> None:
        came: list[int] = []
        every = asyncio.Event()

        def take(messages: list[Message]) -> None:
            came.append(len(messages))
            if sum(came) == 10_000:
                every.set()

        async with broker(welcoming) as (scripted, port):
            made = await opened(port, take)
            assert scripted.writer is not None
            scripted.writer.write(publish("a/b", b"some text", 7) * 10_000)
            async with time_limit():
                await every.wait()
            made.close()
        assert max(came) <= under_test.PIECE_BYTES // len(publish("a/b", b"some text", 7)) + 1

    asyncio.run(story())


def test_a_lost_connection_goes_without_the_garbage_collector() -> None:
    async def lose(port: int, scripted: Scripted) -> "weakref.ref[MqttReader]":
        made = await opened(port)
        assert scripted.writer is not None
        scripted.writer.transport.abort()
        with pytest.raises(MqttError):
            await made.lost()
        made.close()
        return weakref.ref(made)

    async def story() -> None:
        async with broker(welcoming) as (scripted, port):
            gone = await lose(port, scripted)
            await async_wait_until(lambda: gone() is None)

    gc.collect()
    gc.disable()
    try:
        asyncio.run(story())
    finally:
        gc.enable()
