"""MQTT 3.1.1 reader: receives messages by the hundred and acknowledges them in one write.

aiomqtt costs 7 to 20 times as much CPU a message, and acknowledges before the application has the message
(`python -m bench.mqtt_readers`). This reader passes on all messages of a socket read together, and
acknowledges on request.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from laggard_aggregator.ingest.mqtt import packets
from laggard_common.errors import MqttError
from laggard_common.mqtt.settings import ClientArguments

KEEPALIVE_SECONDS = 30
PUBLISHES_AT_ONCE = 256
_READ_SECONDS = 0.01
"""Pause between socket reads, to read messages together: a wakeup costs more than a message."""
_REFUSED = {
    1: "it does not speak MQTT 3.1.1",
    2: "the client id is refused",
    3: "it is not available",
    4: "bad user name or password",
    5: "not authorized",
}

_BUFFER_BYTES = 256 * 1024
"""Largest socket read; with _READ_SECONDS it bounds the bytes a second."""
PIECE_BYTES = 16 * 1024
"""Bytes parsed at a time: at most some thousand messages, of the shortest kind."""

OnMessages = Callable[[list[packets.Message]], None]


class MqttReader(asyncio.BufferedProtocol):
    """A connection to the broker. `on_messages` receives messages; those of QoS 1 need `acknowledge`.

    Bytes are read into one buffer and parsed in pieces, so a flood takes little more memory than a trickle.

    Coroutines raise MqttError when the connection is lost, or when the broker does not answer.
    """

    def __init__(self, on_messages: OnMessages) -> None:
        self._on_messages = on_messages
        self._loop = asyncio.get_running_loop()
        self._incoming = packets.PacketParser()
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Any] | None = None  # kind and body of the packet that was asked for
        self._lost: asyncio.Future[str] = self._loop.create_future()  # why
        self._number = 0
        self._unpublished: set[int] = set()
        self._all_published = asyncio.Event()
        self._heard = self._said = self._taken = self._loop.time()
        self._untaken_bytes = 0
        self._watching: asyncio.TimerHandle | None = None
        self._pausing: asyncio.TimerHandle | None = None

    async def open(self, arguments: ClientArguments, identifier: str, *, clean: bool, seconds: float) -> None:
        """Connects and waits for CONNACK. Raises MqttError and OSError."""
        context = arguments["tls_context"]
        try:
            async with asyncio.timeout(seconds):
                await self._loop.create_connection(
                    lambda: self,
                    arguments["hostname"],
                    arguments["port"],
                    ssl=context,
                    server_hostname=arguments["hostname"] if context is not None else None,
                )
                hello = packets.connect(
                    identifier,
                    clean=clean,
                    keepalive=KEEPALIVE_SECONDS,
                    username=arguments["username"],
                    password=arguments["password"],
                )
                body = await self._ask(hello, packets.CONNACK)
        except TimeoutError as exc:
            raise MqttError(f"no answer within {seconds:g} s") from exc
        code = body[1] if len(body) == 2 else -1
        if code:
            raise MqttError(_REFUSED.get(code, f"refused with code {code}"))
        self._watch()

    async def subscribe(self, filters: Sequence[str], seconds: float) -> list[str]:
        """Subscribes at QoS 1; returns the filters that the broker denies."""
        try:
            async with asyncio.timeout(seconds):
                body = await self._ask(packets.subscribe(1, filters), packets.SUBACK)
        except TimeoutError as exc:
            raise MqttError(f"no answer to the subscription within {seconds:g} s") from exc
        return [topic_filter for topic_filter, code in zip(filters, body[2:], strict=False) if code >= 0x80]

    async def publish(self, messages: Sequence[tuple[str, bytes]], seconds: float) -> None:
        """Publishes at QoS 1, PUBLISHES_AT_ONCE at a time, and waits for each PUBACK."""
        for first in range(0, len(messages), PUBLISHES_AT_ONCE):
            self._all_published.clear()
            out = []
            for topic, payload in messages[first : first + PUBLISHES_AT_ONCE]:
                self._number = self._number % 65_535 + 1
                self._unpublished.add(self._number)
                out.append(packets.publish(topic, payload, self._number))
            self._write(b"".join(out))
            try:
                async with asyncio.timeout(seconds):
                    await self._all_published.wait()
            except TimeoutError as exc:
                self._unpublished.clear()
                raise MqttError(f"no answer to a message within {seconds:g} s") from exc
            if self._lost.done():
                await self.lost()

    def acknowledge(self, numbers: Sequence[int]) -> None:
        """Sends PUBACK for these messages; without a connection it does nothing."""
        if numbers and not self._lost.done():
            self._write(packets.acknowledge(numbers))

    async def lost(self) -> None:
        """Waits until the connection is lost, and raises MqttError with the reason.

        Each call raises a new error: a kept one would keep, by its traceback, the objects that keep this one.
        """
        raise MqttError(await asyncio.shield(self._lost))

    def close(self) -> None:
        """Disconnects in order, unless the connection is lost."""
        self._end(None)

    # -- callbacks of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As asyncio calls it."""
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - as asyncio calls it
        """As asyncio calls it; `sizehint` is no more than a hint."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """As asyncio calls it."""
        self._heard = self._loop.time()
        some = False
        try:
            for first in range(0, nbytes, PIECE_BYTES):
                some |= self._parse(bytes(self._buffer[first : min(first + PIECE_BYTES, nbytes)]))
        except MqttError as exc:
            self._end(exc)
            return
        if some and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
            self._pausing = self._loop.call_later(_READ_SECONDS, self._read_on)

    def eof_received(self) -> None:
        """As asyncio calls it; the connection is closed then."""

    def connection_lost(self, exc: Exception | None) -> None:
        """As asyncio calls it."""
        self._end(MqttError(str(exc) if exc is not None and str(exc) else "the broker ended the connection"))
        self._transport = None  # with TLS it has 256 KiB, which must not wait for the garbage collector

    # -- inside

    async def _ask(self, packet: bytes, kind: int) -> bytes:
        """Body of the answer. Raises MqttError when it is not of `kind`."""
        answer = self._answer = self._loop.create_future()
        self._write(packet)
        await asyncio.wait((answer, self._lost), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            await self.lost()
        came: int
        body: bytes
        came, body = answer.result()
        if came != kind:
            raise MqttError(f"a packet of kind {came} instead of {kind}")
        return body

    def _parse(self, data: bytes) -> bool:
        """Parses a piece of a socket read; True when it completed messages. Raises MqttError."""
        messages = self._incoming.feed(data)
        if messages:
            self._on_messages(messages)
        if self._incoming.published:
            self._unpublished.difference_update(self._incoming.published)
            self._incoming.published.clear()
            if not self._unpublished:
                self._all_published.set()
        for kind, body in self._incoming.control:
            self._control(kind, body)
        self._incoming.control.clear()
        return bool(messages)

    def _control(self, kind: int, body: bytes) -> None:
        if kind == packets.PINGRESP:
            return
        if self._answer is None or self._answer.done():
            raise MqttError(f"a packet of kind {kind} that nobody asked for")
        self._answer.set_result((kind, body))

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._said = self._loop.time()
            self._transport.write(data)

    def _read_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _watch(self) -> None:
        """Sends PINGREQ on an idle connection, and ends one whose broker is silent or takes nothing.

        A broker that sends and does not read would leave acknowledgements in memory without a limit.
        """
        now = self._loop.time()
        waiting = 0 if self._transport is None else self._transport.get_write_buffer_size()
        if not waiting or waiting < self._untaken_bytes:
            self._taken = now
        self._untaken_bytes = waiting
        if now - self._taken > 1.5 * KEEPALIVE_SECONDS:
            self._end(MqttError("the broker takes nothing any more"))
            return
        if now - self._heard > 1.5 * KEEPALIVE_SECONDS:
            self._end(MqttError("the broker says nothing any more"))
            return
        if now - min(self._said, self._heard) > KEEPALIVE_SECONDS / 2:
            self._write(packets.PINGREQ)
        self._watching = self._loop.call_later(KEEPALIVE_SECONDS / 4, self._watch)

    def _end(self, why: MqttError | None) -> None:
        for timer in (self._watching, self._pausing):
            if timer is not None:
                timer.cancel()
        if self._transport is not None and not self._transport.is_closing():
            if why is None:
                self._transport.write(packets.DISCONNECT)
                self._transport.close()
            else:
                self._transport.abort()
        if not self._lost.done():
            self._lost.set_result("closed" if why is None else str(why))
        self._all_published.set()
