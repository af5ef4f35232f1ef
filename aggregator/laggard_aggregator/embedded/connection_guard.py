"""Admits connections to amqtt: time for CONNECT, number of connections, packet size, names of certificates.

amqtt identifies a session by the client id before it asks a plugin, so the guard replaces the client id by
the CN of the certificate. amqtt also acknowledges messages without a subscriber; nodes therefore wait until
the aggregator that runs the broker has subscribed.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from amqtt.adapters import ReaderAdapter, StreamReaderAdapter, StreamWriterAdapter, WriterAdapter
from amqtt.mqtt.connect import ConnectPacket

from laggard_aggregator.embedded.acl import is_aggregator
from laggard_common.wire.topics import is_level

_log = logging.getLogger(__name__)

MAX_CONNECTIONS = 1000
"""Further connections are closed at once."""
MAX_PACKET_BYTES = 4_300_000
"""Slightly more than the largest message that the aggregator accepts."""
CONNECT_SECONDS = 10.0
"""Time limit for the CONNECT packet."""
_SUBACK = 9

Serve = Callable[[ReaderAdapter, WriterAdapter], Awaitable[Any]]


class LimitedReader(StreamReaderAdapter):  # type: ignore[misc]
    """Reads `first`, then the stream; a read over MAX_PACKET_BYTES aborts the connection."""

    def __init__(self, stream: asyncio.StreamReader, first: bytes, abort: Callable[[], object]) -> None:
        super().__init__(stream)
        self._first = first
        self._abort = abort

    async def read(self, n: int = -1) -> bytes:
        """The next `n` bytes. Raises ConnectionResetError for a packet that is too large."""
        if n > MAX_PACKET_BYTES:
            self._abort()
            raise ConnectionResetError(f"a packet of {n} bytes")
        if self._first:
            data, self._first = self._first[:n], self._first[n:]
            return data
        data = await super().read(n)
        return bytes(data)


class SubscriptionWriter(StreamWriterAdapter):  # type: ignore[misc]
    """Calls `subscribed` when amqtt grants a subscription."""

    def __init__(self, stream: asyncio.StreamWriter, subscribed: Callable[[], object]) -> None:
        super().__init__(stream)
        self._subscribed = subscribed

    def write(self, data: bytes) -> None:
        """Writes one packet."""
        if data[0] >> 4 == _SUBACK:
            self._subscribed()
        super().write(data)


class ConnectionGuard:
    """Hands admitted connections to `serve`, which returns at the end of the connection.

    `host` is the client id of the aggregator that runs the broker. With `certificates` a client is named by
    its certificate, and a new connection of a name ends the previous one.
    """

    def __init__(self, serve: Serve, host: str, *, certificates: bool) -> None:
        self._serve = serve
        self._host = host
        self._certificates = certificates
        self._subscribed = asyncio.Event()
        self._connections = 0
        self._named: dict[str, tuple[asyncio.StreamWriter, asyncio.Event]] = {}

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection until its end; a callback of `asyncio.start_server`."""
        self._connections += 1
        try:
            if self._connections <= MAX_CONNECTIONS:
                await self._admit(reader, writer)
        except Exception as exc:  # amqtt raises many types; the client connects again
            _log.debug("connection ended: %r", exc)
        finally:
            self._connections -= 1
            writer.transport.abort()

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = common_name(writer.get_extra_info("peercert")) if self._certificates else None
        if self._certificates and (name is None or (name.startswith("laggard-") and not is_aggregator(name))):
            return
        async with asyncio.timeout(CONNECT_SECONDS):
            connect = await ConnectPacket.from_stream(StreamReaderAdapter(reader))
            is_host = connect.client_id == self._host and (name is None or is_aggregator(name))
            if not is_host:
                await self._subscribed.wait()
        if name is not None:
            set_identity(connect, name)
        limited = LimitedReader(reader, bytes(connect.to_bytes()), writer.transport.abort)
        async with self._only_connection(name, writer):
            if is_host:
                await self._serve(limited, SubscriptionWriter(writer, self._subscribed.set))
            else:
                await self._serve(limited, StreamWriterAdapter(writer))

    @asynccontextmanager
    async def _only_connection(self, name: str | None, writer: asyncio.StreamWriter) -> AsyncIterator[None]:
        """Ends the previous connection of `name` first, so that its last will precedes the new session."""
        if name is None:
            yield
            return
        while name in self._named:
            previous, ended = self._named[name]
            previous.transport.abort()
            await ended.wait()
        ended = asyncio.Event()
        self._named[name] = (writer, ended)
        try:
            yield
        finally:
            del self._named[name]
            ended.set()


def set_identity(connect: ConnectPacket, name: str) -> None:
    """Makes `name` the client id, of a clean session without user name and password."""
    connect.payload.client_id = name
    connect.payload.client_id_is_random = False
    connect.clean_session_flag = True
    connect.username_flag = connect.password_flag = False


def common_name(certificate: Any) -> str | None:
    """The CN of a certificate as `ssl` shows it; None unless there is exactly one valid node name."""
    subject = certificate["subject"] if certificate else ()
    names = [value for part in subject for key, value in part if key == "commonName"]
    return names[0] if len(names) == 1 and is_level(names[0]) else None
