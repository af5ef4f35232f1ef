"""What the built-in broker's door lets through: packets as they come off a socket, whole, bounded, named."""

import asyncio
from typing import Any

import pytest
from amqtt.adapters import BufferReader
from amqtt.contexts import Action, BaseContext
from amqtt.mqtt.connect import ConnectPacket, ConnectPayload, ConnectVariableHeader
from amqtt.session import Session
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.embedded import connection_guard
from laggard_aggregator.embedded.amqtt_plugin import MAX_TOPICS, NodeRules
from laggard_aggregator.embedded.connection_guard import (
    MAX_PACKET_BYTES,
    Door,
    Guarded,
    Packets,
    as_connect,
    as_named,
    common_name,
)
from tests.support.wait import time_limit

HOST = "laggard-aggregator-site"
SUBSCRIBE, SUBACK = b"\x82\x06\x00\x01\x00\x01#\x01", b"\x90\x03\x00\x01\x01"


def stream_of(data: bytes) -> asyncio.StreamReader:
    stream = asyncio.StreamReader()
    stream.feed_data(data)
    stream.feed_eof()
    return stream


def length_of(size: int) -> bytes:
    """MQTT's remaining length."""
    out = b""
    while True:
        size, low = divmod(size, 128)
        out += bytes([low | (0x80 if size else 0)])
        if not size:
            return out


@given(st.lists(st.binary(max_size=300), max_size=5), st.integers(1, 50))
def test_packets_are_handed_out_as_they_came(bodies: list[bytes], step: int) -> None:
    first, *rest = [b"\x30" + length_of(len(body)) + body for body in (b"first", *bodies)]

    async def read() -> bytes:
        packets, got = Packets(stream_of(b"".join(rest)), first, list), b""
        while True:
            try:
                got += await packets.read(step)
            except (asyncio.IncompleteReadError, ConnectionResetError):
                return got

    assert asyncio.run(read()) == first + b"".join(rest)


@pytest.mark.parametrize(
    "head", [b"\x30" + length_of(MAX_PACKET_BYTES + 1), b"\x30\xff\xff\xff\xff\x01", b"\x30\xff"]
)
def test_what_is_no_packet_or_too_long_ends_it_for_good(head: bytes) -> None:
    async def read() -> None:
        packets = Packets(stream_of(head + b"x" * 100), b"", list)
        for _ in range(2):
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await packets.read(1)

    asyncio.run(read())


def connect_of(client: str, *, user: str | None, will: str | None) -> bytes:
    header = ConnectVariableHeader()
    payload = ConnectPayload(client, will, b"bye" if will else None, user, None)
    header.will_flag, header.username_flag = will is not None, user is not None
    return bytes(ConnectPacket(None, header, payload).to_bytes())


@pytest.mark.parametrize("user", [None, "oss-2"])
@pytest.mark.parametrize("will", [None, "laggard/1/site/storage/oss-1/status"])
@pytest.mark.parametrize("client", ["oss-2", ""])
def test_a_client_is_who_its_certificate_says(client: str, user: str | None, will: str | None) -> None:
    async def named() -> Any:
        packet = as_named(await as_connect(connect_of(client, user=user, will=will)), "oss-1")
        return await ConnectPacket.from_stream(BufferReader(packet))

    connect = asyncio.run(named())
    assert connect.client_id == "oss-1"
    assert connect.clean_session_flag
    assert (connect.will_topic, connect.username) == (will, None)


@pytest.mark.parametrize("packet", [b"\x30\x00", b"\xc0\x00", b"\x10\x00", b"\x10\x05\x00\x04MQT"])
def test_the_first_packet_must_be_a_whole_connect(packet: bytes) -> None:
    with pytest.raises(Exception):  # noqa: B017 - amqtt has many
        asyncio.run(as_connect(packet))


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


def test_a_client_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_guard, "CONNECT_SECONDS", 0.05)
    monkeypatch.setattr(connection_guard, "common_name", lambda _: "oss-1")

    async def said() -> bytes:
        async def never(*_: object) -> None:
            raise AssertionError

        server = await asyncio.start_server(Door(never, HOST, named=True).enter, "127.0.0.1", 0)
        async with server, time_limit():
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            try:
                return await reader.read()
            except ConnectionResetError:
                return b""
            finally:
                writer.close()

    assert asyncio.run(said()) == b""


def test_nodes_wait_until_the_aggregator_listens() -> None:
    """What they publish before that would be taken, and reach nobody."""
    inside: list[str] = []

    async def serve(packets: Packets, writer: Guarded) -> None:
        connect = await ConnectPacket.from_stream(packets)
        inside.append(connect.client_id)
        writer.write(b"\x20\x02\x00\x00")
        if await packets.read(1) == SUBSCRIBE[:1]:
            writer.write(SUBACK)
        await packets.read()

    async def run() -> None:
        server = await asyncio.start_server(Door(serve, HOST, named=False).enter, "127.0.0.1", 0)
        async with server, time_limit():
            ends = []
            for client in ("oss-1", "oss-2", HOST):
                reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
                writer.write(connect_of(client, user=None, will=None))
                ends.append((reader, writer))
            host, host_writer = ends.pop()
            assert await host.readexactly(4)
            assert inside == [HOST]
            host_writer.write(SUBSCRIBE)
            assert await host.readexactly(len(SUBACK)) == SUBACK
            for reader, _ in ends:
                assert await reader.readexactly(4)
            assert sorted(inside) == [HOST, "oss-1", "oss-2"]
            for _, writer in (*ends, (host, host_writer)):
                writer.close()

    asyncio.run(run())


def test_a_node_fills_the_broker_with_no_more_than_so_many_topics() -> None:
    async def allowed(topics: list[str]) -> list[bool]:
        session = Session()
        session.client_id = "oss-1"
        rules = NodeRules(context())
        return [
            await rules.topic_filtering(session=session, topic=topic, action=Action.PUBLISH)
            for topic in topics
        ]

    topics = [f"laggard/1/site/storage/oss-1/schema/s{at}" for at in range(MAX_TOPICS + 1)]
    assert asyncio.run(allowed([*topics, topics[0]])) == [True] * MAX_TOPICS + [False, True]


@pytest.mark.parametrize(("node", "let_in"), [("oss-1", True), ("oss-2", False)])
def test_a_last_will_is_the_nodes_own(node: str, let_in: bool) -> None:
    session = Session()
    session.client_id, session.will_flag = "oss-1", True
    session.will_topic = f"laggard/1/site/storage/{node}/status"
    assert asyncio.run(NodeRules(context()).authenticate(session=session)) == let_in


def context() -> BaseContext:
    made = BaseContext()
    made.config = NodeRules.Config()
    return made
