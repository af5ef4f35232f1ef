"""The embedded broker's admission: time for CONNECT, names from certificates, last wills."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from amqtt.adapters import BufferReader
from amqtt.contexts import BaseContext
from amqtt.mqtt.connect import ConnectPacket, ConnectPayload, ConnectVariableHeader
from amqtt.session import Session

from laggard_aggregator.embedded import amqtt_broker
from laggard_aggregator.embedded.amqtt_broker import AclPlugin, NamedBroker, common_name, set_identity
from tests.support.wait import time_limit

HOST = "laggard-aggregator-site"
CONNACK = 2


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
async def served(*, certificates: bool) -> AsyncIterator[tuple[str, int]]:
    """The address at which a broker admits connections."""
    broker = NamedBroker(HOST, certificates=certificates)
    await broker.start()
    server = await asyncio.start_server(broker.handle, "127.0.0.1", 0)
    try:
        async with server, time_limit():
            yield server.sockets[0].getsockname()
    finally:
        await broker.shutdown()


async def answer(address: tuple[str, int], data: bytes) -> bytes:
    """The first bytes that a client receives; none when its connection ends."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    try:
        return await reader.read(100)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("packet", [b"", b"\x10", b"\x30\x00", b"\x10\x00", b"\x10\x05\x00\x04MQT"])
def test_a_connection_without_a_connect_packet_ends(packet: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqtt_broker, "CONNECT_SECONDS", 0.05)

    async def run() -> None:
        async with served(certificates=False) as address:
            assert await answer(address, packet) == b""

    asyncio.run(run())


def test_a_node_is_not_admitted_before_the_aggregator_has_subscribed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqtt_broker, "CONNECT_SECONDS", 0.1)

    async def run() -> None:
        async with served(certificates=False) as address:
            assert await answer(address, connect_of("oss-1", user=None, will=None)) == b""
            assert (await answer(address, CONNECT))[0] >> 4 == CONNACK

    asyncio.run(run())


@pytest.mark.parametrize(("name", "let_in"), [(None, False), ("laggard-x", False), ("laggard-broker", True)])
def test_a_connection_without_a_name_of_its_own_ends(
    name: str | None, let_in: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amqtt_broker, "common_name", lambda _: name)

    async def run() -> None:
        async with served(certificates=True) as address:
            found = await answer(address, CONNECT)
            assert (found[:1] == bytes([CONNACK << 4])) == let_in

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
