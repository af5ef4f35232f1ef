"""A small MQTT 3.1.1 broker on loopback: a real peer for the publisher, that can be told to misbehave.

QoS 0 and 1, retained messages, last wills, `#` and `+`. Messages are kept in the order in which they came.
"""

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tests.support.wait import time_limit

_CONNECT, _CONNACK, _PUBLISH, _PUBACK, _SUBSCRIBE, _SUBACK = 1, 2, 3, 4, 8, 9
_PINGREQ, _PINGRESP, _DISCONNECT = 12, 13, 14


@dataclass(frozen=True, slots=True)
class Published:
    """A message as the broker got it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    duplicate: bool


@dataclass(slots=True, eq=False)
class _Session:
    writer: asyncio.StreamWriter
    client_id: str = ""
    filters: list[str] = field(default_factory=list)
    will: Published | None = None


class Broker:
    """`async with Broker() as broker`; `broker.port`. `acknowledge` False: not that of batches."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.messages: list[Published] = []
        self.retained: dict[str, Published] = {}
        self.logins: list[tuple[str, str | None, bytes | None]] = []
        self.acknowledge = True
        self.refuse_with = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self._sessions: set[_Session] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listens, on the same port as before."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Hangs up on everyone without a word and listens no more."""
        assert self._server is not None
        self._server.close()
        self.hang_up()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()

    def hang_up(self) -> None:
        """Drops all connections, as a broker does that is killed."""
        for session in list(self._sessions):
            session.writer.transport.abort()

    def publish(self, topic: str, payload: bytes) -> None:
        """A message from elsewhere to whoever subscribed."""
        self._route(Published(topic, payload, 0, False, False))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits until `condition` holds after some message."""
        async with time_limit():
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        session = _Session(writer)
        self._sessions.add(session)
        try:
            while await self._packet(session, reader):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            if session.will is not None:
                self._take(session.will)
        finally:
            self._sessions.discard(session)
            self._tasks.discard(task)
            writer.close()
            self._changed.set()

    async def _packet(self, session: _Session, reader: asyncio.StreamReader) -> bool:
        first = (await reader.readexactly(1))[0]
        length = shift = 0
        while True:
            byte = (await reader.readexactly(1))[0]
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        body = _Body(await reader.readexactly(length))
        kind = first >> 4
        if kind == _CONNECT:
            self._connect(session, body)
        elif kind == _PUBLISH:
            await self._publish(session, first & 15, body)
        elif kind == _SUBSCRIBE:
            self._subscribe(session, body)
        elif kind == _PINGREQ:
            _send(session, _PINGRESP, b"")
        elif kind == _DISCONNECT:
            return False
        return True

    def _connect(self, session: _Session, body: "_Body") -> None:
        assert (body.text(), body.byte()) == ("MQTT", 4)
        flags = body.byte()
        body.number()
        session.client_id = body.text()
        if flags & 4:
            topic, payload = body.text(), body.data()
            session.will = Published(topic, payload, flags >> 3 & 3, bool(flags & 32), False)
        user = body.text() if flags & 128 else None
        password = body.data() if flags & 64 else None
        self.logins.append((session.client_id, user, password))
        _send(session, _CONNACK, bytes((0, self.refuse_with)))
        if self.refuse_with:
            session.will = None
        self._changed.set()

    async def _publish(self, session: _Session, flags: int, body: "_Body") -> None:
        topic = body.text()
        qos = flags >> 1 & 3
        number = body.number() if qos else 0
        self._take(Published(topic, body.rest(), qos, bool(flags & 1), bool(flags & 8)))
        if qos and (self.acknowledge or "/data/" not in topic):
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            await asyncio.sleep(0)  # let whatever else was sent come in, so that it is seen to be in flight
            self.in_flight -= 1
            _send(session, _PUBACK, struct.pack(">H", number))

    def _subscribe(self, session: _Session, body: "_Body") -> None:
        number = body.number()
        granted = []
        while body.left():
            session.filters.append(body.text())
            granted.append(body.byte())
        _send(session, _SUBACK, struct.pack(">H", number) + bytes(granted))
        self._changed.set()

    def _take(self, message: Published) -> None:
        self.messages.append(message)
        if message.retain:
            self.retained[message.topic] = message
        self._route(message)
        self._changed.set()

    def _route(self, message: Published) -> None:
        body = struct.pack(">H", len(message.topic)) + message.topic.encode() + message.payload
        for session in self._sessions:
            if any(_matches(pattern, message.topic) for pattern in session.filters):
                _send(session, _PUBLISH, body)


class _Body:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def rest(self) -> bytes:
        return self._data

    def left(self) -> int:
        return len(self._data)

    def byte(self) -> int:
        value, self._data = self._data[0], self._data[1:]
        return value

    def number(self) -> int:
        return self.byte() << 8 | self.byte()

    def data(self) -> bytes:
        length = self.number()
        value, self._data = self._data[:length], self._data[length:]
        return value

    def text(self) -> str:
        return self.data().decode()


def _send(session: _Session, kind: int, body: bytes) -> None:
    head = bytearray((kind << 4,))
    length = len(body)
    while True:
        length, byte = length >> 7, length & 127
        head.append(byte | (128 if length else 0))
        if not length:
            break
    session.writer.write(bytes(head) + body)


def _matches(pattern: str, topic: str) -> bool:
    wanted, levels = pattern.split("/"), topic.split("/")
    if wanted[-1] == "#":
        wanted, levels = wanted[:-1], levels[: len(wanted) - 1]
    return len(wanted) == len(levels) and all(
        w in ("+", level) for w, level in zip(wanted, levels, strict=True)
    )
