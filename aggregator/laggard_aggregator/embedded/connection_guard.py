"""What lies between the network and amqtt: names, sizes and times are settled here, before it sees a byte.

amqtt looks a session up by its client id before it asks a plugin who that is, reads a packet of any size,
waits for the first one for ever, and sends clients that have just come what others subscribed to. So the door
takes the name from the certificate, makes it the client id of a new session, and lets out what the name may
receive, from its first subscription on. A node that sends too fast is read as slowly as it should send.

It also takes messages that nobody listens to, and says that it has them. After a restart nodes are there
before the aggregator that hosts it, and would learn only by and by that what they sent reached nobody. So the
door stays closed to them until that one has subscribed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from amqtt.adapters import StreamReaderAdapter, StreamWriterAdapter
from amqtt.mqtt.connect import ConnectPacket

from laggard_aggregator.embedded.acl import is_aggregator, may_receive
from laggard_aggregator.embedded.rate_limiter import Allowance
from laggard_common.wire.topics import is_level

_log = logging.getLogger(__name__)

MAX_PACKET_BYTES = 4_300_000  # a little more than the largest message that an aggregator takes
MAX_CONNECT_BYTES = 64 * 1024
CONNECT_SECONDS = 10.0  # how long the first packet may take
STALL_SECONDS = 30.0  # how long a client may leave what is sent to it unread
_PUBLISH, _SUBACK = 3, 9


class Packets(StreamReaderAdapter):  # type: ignore[misc]
    """Hands out one packet after the other, none larger than MAX_PACKET_BYTES, `first` before all others.

    `abort` ends the connection at once: amqtt would say goodbye first, and read on until it is answered.
    `allowance`: what its client may still send, None for anything.
    """

    def __init__(
        self,
        stream: asyncio.StreamReader,
        first: bytes,
        abort: Callable[[], object],
        allowance: Allowance | None = None,
    ) -> None:
        super().__init__(stream)
        self._stream = stream
        self._abort = abort
        self._packet = first
        self._at = 0
        self._ended = False
        self._allowance = allowance

    async def read(self, n: int = -1) -> bytes:
        """At most `n` bytes of one packet. Raises ConnectionResetError after the last."""
        if n != 0 and self._at == len(self._packet):
            if self._ended:
                raise ConnectionResetError
            if self._allowance is not None:
                await self._allowance.wait()
            self._ended = True  # also when amqtt stops to wait in the middle of a packet
            try:
                self._packet, self._at = await read_packet(self._stream, MAX_PACKET_BYTES), 0
            except ConnectionResetError:
                self._abort()
                raise
            self._ended = False
            if self._allowance is not None:
                self._allowance.spend(len(self._packet), asyncio.get_running_loop().time())
        end = len(self._packet) if n < 0 else min(self._at + n, len(self._packet))
        data, self._at = self._packet[self._at : end], end
        return data


class Guarded(StreamWriterAdapter):  # type: ignore[misc]
    """Sends a client what its name may receive, and gives up on one that does not read.

    `listens` is called when a subscription of it was granted.
    """

    def __init__(
        self, writer: asyncio.StreamWriter, name: str | None, listens: Callable[[], object] = lambda: None
    ) -> None:
        super().__init__(writer)
        self._stream = writer
        self._name = name
        self._listens = listens
        self._subscribed = False

    def write(self, data: bytes) -> None:
        """Sends one packet."""
        kind = data[0] >> 4
        if kind == _SUBACK:
            self._subscribed = True
            self._listens()
        if (
            self._name is None
            or kind != _PUBLISH
            or (self._subscribed and may_receive(self._name, _topic(data)))
        ):
            super().write(data)

    async def drain(self) -> None:
        """Waits for room. Raises ConnectionResetError when there is none for STALL_SECONDS."""
        try:
            async with asyncio.timeout(STALL_SECONDS):
                await super().drain()
        except TimeoutError:
            self._stream.transport.abort()
            raise ConnectionResetError from None


class Door:
    """Lets clients in to `serve`, which takes a connection until its end; with `named` by their certificates.

    There is one connection to a name: a new one ends the one before it, as its client has lost it. `host`:
    the client id of the aggregator that hosts the broker; others wait until it listens.
    """

    def __init__(
        self, serve: Callable[[Packets, Guarded], Awaitable[Any]], host: str, *, named: bool
    ) -> None:
        self._serve = serve
        self._host = host
        self._named = named
        self._open = asyncio.Event()
        self._allowances: dict[str, Allowance] = {}  # as many as there are certificates
        self._inside: dict[str, tuple[asyncio.StreamWriter, asyncio.Event]] = {}

    async def enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Takes one connection, until its end."""
        try:
            name = common_name(writer.get_extra_info("peercert")) if self._named else None
            if self._named and (name is None or (name.startswith("laggard-") and not is_aggregator(name))):
                return
            async with asyncio.timeout(CONNECT_SECONDS):
                first = await read_packet(reader, MAX_CONNECT_BYTES)
                connect = await as_connect(first)
                is_host = connect.client_id == self._host and (name is None or is_aggregator(name))
                if not is_host:
                    await self._open.wait()
            if name is not None:
                first = as_named(connect, name)
            packets = Packets(reader, first, writer.transport.abort, self._allowance(name))
            guarded = Guarded(writer, name, self._open.set if is_host else lambda: None)
            await self._let_in(name, packets, guarded, writer)
        except Exception as exc:  # amqtt raises whatever comes up; the client connects again
            _log.debug("a connection ended: %r", exc)
        finally:
            writer.transport.abort()

    def _allowance(self, name: str | None) -> Allowance | None:
        """A node's, which outlasts its connections; whoever has no name, and an aggregator, has no limit."""
        if name is None or is_aggregator(name):
            return None
        if name not in self._allowances:
            self._allowances[name] = Allowance(name, asyncio.get_running_loop().time())
        return self._allowances[name]

    async def _let_in(
        self, name: str | None, packets: Packets, guarded: Guarded, writer: asyncio.StreamWriter
    ) -> None:
        if name is None:
            await self._serve(packets, guarded)
            return
        while name in self._inside:
            old, gone = self._inside[name]
            old.transport.abort()
            await gone.wait()
        gone = asyncio.Event()
        self._inside[name] = (writer, gone)
        try:
            await self._serve(packets, guarded)
        finally:
            del self._inside[name]
            gone.set()


async def read_packet(stream: asyncio.StreamReader, most: int) -> bytes:
    """The next packet. Raises ConnectionResetError where it is longer than `most` bytes, or is none."""
    head, length = bytearray(await stream.readexactly(1)), 0
    for shift in (0, 7, 14, 21):
        head += await stream.readexactly(1)
        length |= (head[-1] & 0x7F) << shift
        if head[-1] < 0x80:
            break
    else:
        raise ConnectionResetError("no packet")
    if length > most:
        raise ConnectionResetError(f"a packet of {length} bytes")
    return bytes(head) + await stream.readexactly(length)


async def as_connect(packet: bytes) -> ConnectPacket:
    """What a client says first. Raises ConnectionResetError where it is none, and whatever amqtt raises."""
    if packet[0] != 0x10:
        raise ConnectionResetError("no CONNECT")
    stream = asyncio.StreamReader()
    stream.feed_data(packet)
    stream.feed_eof()
    return await ConnectPacket.from_stream(StreamReaderAdapter(stream))


def as_named(connect: ConnectPacket, name: str) -> bytes:
    """A CONNECT packet with `name` in place of what it says of the client, for a session that begins anew."""
    connect.payload.client_id = name
    connect.payload.client_id_is_random = False
    connect.clean_session_flag = True
    connect.username_flag = connect.password_flag = False
    return bytes(connect.to_bytes())


def common_name(certificate: Any) -> str | None:
    """The CN of a certificate as `ssl` shows it; None where it has not one that may be a node's name."""
    subject = certificate["subject"] if certificate else ()
    names = [value for part in subject for key, value in part if key == "commonName"]
    return names[0] if len(names) == 1 and is_level(names[0]) else None


def _topic(packet: bytes) -> str:
    """The topic of a PUBLISH packet."""
    at = 1
    while packet[at] >= 0x80:
        at += 1
    length = int.from_bytes(packet[at + 1 : at + 3])
    return packet[at + 3 : at + 3 + length].decode("utf-8", "replace")
