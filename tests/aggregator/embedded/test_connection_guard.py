"""The embedded broker's limits: time for CONNECT, packet size, connections, names from certificates."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from amqtt.adapters import BufferReader, ReaderAdapter, WriterAdapter
from amqtt.contexts import BaseContext
from amqtt.mqtt.connect import ConnectPacket, ConnectPayload, ConnectVariableHeader
from amqtt.session import Session

from laggard_aggregator.embedded import connection_guard
from laggard_aggregator.embedded.amqtt_plugin import AclPlugin
from laggard_aggregator.embedded.connection_guard import (
    MAX_PACKET_BYTES,
    ConnectionGuard,
    LimitedReader,
    common_name,
    set_identity,
)
from tests.support.wait import async_wait_until, time_limit

HOST = "laggard-aggregator-site"
CONNACK = b"\x20\x02\x00\x00"


def connect_of(client: str, *, user: str | None, will: str | None) -> bytes:
    header = ConnectVariableHeader()
    payload = ConnectPayload(client, will, b"bye" if will else None, user, None)
    header.will_flag, header.username_flag = will is not None, user is not None
    return bytes(ConnectPacket(None, header, payload).to_bytes())


CONNECT = connect_of(HOST, user=None, will=None)


@pytest.mark.parametrize("user", [None, "oss-2"])
@pytest.mark.parametrize("will", [None, "laggard/1/site/storage/oss-1/status"])
@pytest.mark.parametrize("client", ["oss-2", ""])
def test_a_client_is_who_its_certificate_says(client: str, user: str | None, will: str | None) -> None:
    async def named() -> Any:
        connect = await ConnectPacket.from_stream(BufferReader(connect_of(client, user=user, will=will)))
        set_identity(connect, "oss-1")
        return await ConnectPacket.from_stream(BufferReader(bytes(connect.to_bytes())))

    connect = asyncio.run(named())
    assert connect.client_id == "oss-1"
    assert connect.clean_session_flag
    assert (connect.will_topic, connect.username) == (will, None)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        (((("commonName", "oss-1"),),), "oss-1"),
        (((("organizationName", "x"),), (("commonName", "oss-1"),)), "oss-1"),
        (((("commonName", "oss-1"),), (("commonName", "oss-2"),)), None),
        (((("commonName", "oss/1"),),), None),
        (((("commonName", "+"),),), None),
        (((("commonName", ""),),), None),
        ((), None),
    ],
)
def test_names_in_certificates(subject: Any, name: str | None) -> None:
    assert common_name({"subject": subject}) == name
    assert common_name(None) is None


@asynccontextmanager
async def guarded(guard: ConnectionGuard) -> AsyncIterator[tuple[str, int]]:
    """The address at which `guard` admits connections."""
    server = await asyncio.start_server(guard.handle, "127.0.0.1", 0)
    async with server, time_limit():
        yield server.sockets[0].getsockname()


async def answer(address: tuple[str, int], data: bytes) -> bytes:
    """The bytes that a client receives until its connection ends."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def greet(_: ReaderAdapter, writer: WriterAdapter) -> None:
    """Answers an admitted client and ends its connection."""
    writer.write(CONNACK)
    await writer.close()


@pytest.mark.parametrize("packet", [b"", b"\x10", b"\x30\x00", b"\x10\x00", b"\x10\x05\x00\x04MQT"])
def test_a_connection_without_a_connect_packet_ends(packet: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_guard, "CONNECT_SECONDS", 0.05)

    async def run() -> None:
        async with guarded(ConnectionGuard(greet, HOST, certificates=False)) as address:
            assert await answer(address, packet) == b""

    asyncio.run(run())


def test_a_connection_without_a_certificate_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with guarded(ConnectionGuard(greet, HOST, certificates=True)) as address:
            assert await answer(address, CONNECT) == b""
            monkeypatch.setattr(connection_guard, "common_name", lambda _: "laggard-broker")
            assert await answer(address, CONNECT) == CONNACK

    asyncio.run(run())


def test_connections_over_the_limit_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_guard, "MAX_CONNECTIONS", 1)

    async def run() -> None:
        async with guarded(ConnectionGuard(greet, HOST, certificates=False)) as address:
            _, idle = await asyncio.open_connection(*address)
            assert await answer(address, CONNECT) == b""
            idle.close()
            while await answer(address, CONNECT) != CONNACK:
                await asyncio.sleep(0.005)

    asyncio.run(run())


def test_a_packet_over_the_limit_aborts_the_connection() -> None:
    async def read() -> list[str]:
        stream, aborted = asyncio.StreamReader(), list[str]()
        stream.feed_data(b"body")
        reader = LimitedReader(stream, b"first", lambda: aborted.append("aborted"))
        assert (await reader.read(2), await reader.read(3), await reader.read(4)) == (b"fi", b"rst", b"body")
        with pytest.raises(ConnectionResetError):
            await reader.read(MAX_PACKET_BYTES + 1)
        return aborted

    assert asyncio.run(read()) == ["aborted"]


def test_a_new_connection_of_a_name_ends_the_previous_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_guard, "common_name", lambda _: "laggard-broker")
    events = []

    async def serve(reader: ReaderAdapter, _: WriterAdapter) -> None:
        events.append("begins")
        try:
            while await reader.read(1):
                pass
        except (asyncio.IncompleteReadError, ConnectionResetError):
            events.append("ends")

    async def run() -> None:
        async with guarded(ConnectionGuard(serve, HOST, certificates=True)) as address:
            writers = []
            for number in (1, 2):
                _, writer = await asyncio.open_connection(*address)
                writers.append(writer)
                writer.write(CONNECT)
                await async_wait_until(lambda: events.count("begins") >= number)  # noqa: B023
            assert events == ["begins", "ends", "begins"]
            for writer in writers:
                writer.close()

    asyncio.run(run())


@pytest.mark.parametrize(("node", "let_in"), [("oss-1", True), ("oss-2", False)])
def test_a_last_will_is_the_nodes_own(node: str, let_in: bool) -> None:
    session = Session()
    session.client_id, session.will_flag = "oss-1", True
    session.will_topic = f"laggard/1/site/storage/{node}/status"
    assert asyncio.run(AclPlugin(context()).authenticate(session=session)) == let_in


def context() -> BaseContext:
    made = BaseContext()
    made.config = AclPlugin.Config()
    return made
