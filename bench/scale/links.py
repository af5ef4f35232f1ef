"""Thousands of MQTT connections in one thread: epoll, and as few system calls as may be."""

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.scale import packets

_NO_PORT_YET = 24  # IP_BIND_ADDRESS_NO_PORT: an address may be used with more than 28,000 ports
_PORTS = 25_000  # of one address
_CONNACK, _PUBLISH, _PUBACK, _SUBACK = 2, 3, 4, 9
_WAIT_SECONDS = 60.0


@dataclass(slots=True, eq=False)
class Link:
    """One connection. `waiting`: by MQTT's number, what the broker has not acknowledged yet."""

    sock: socket.socket
    received: bytes = b""
    unsent: bytes = b""
    number: int = 0
    ready: int = 0  # CONNACK and SUBACKs that came
    waiting: dict[int, object] = field(default_factory=dict)


class Links:
    """Connections to one broker. `acknowledged` is told of what the broker has, `heard` of what it says."""

    def __init__(
        self,
        port: int,
        acknowledged: Callable[[Link, object], None],
        heard: Callable[[bytes, bytes], None],
    ) -> None:
        self.all: list[Link] = []
        self.unacknowledged = 0
        self._port = port
        self._acknowledged = acknowledged
        self._heard = heard
        self._epoll = select.epoll()
        self._by_fd: dict[int, Link] = {}

    def add(self, name: str, user: str, topics: list[str], context: ssl.SSLContext | None = None) -> Link:
        """A new connection that says who it is and subscribes; not waited for, but for its handshake."""
        sock = socket.socket()
        sock.setsockopt(socket.IPPROTO_IP, _NO_PORT_YET, 1)
        sock.bind((f"127.0.0.{2 + len(self.all) // _PORTS}", 0))
        sock.connect(("127.0.0.1", self._port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            sock = context.wrap_socket(sock, server_hostname="localhost")
        sock.setblocking(False)
        link = Link(sock)
        self.all.append(link)
        self._by_fd[sock.fileno()] = link
        self._epoll.register(sock.fileno(), select.EPOLLIN)
        asked = [topics[at : at + 100] for at in range(0, len(topics), 100)]
        subscriptions = (packets.subscribe(1 + at, some) for at, some in enumerate(asked))
        link.ready = -1 - len(asked)
        self.send(link, packets.connect(name, user) + b"".join(subscriptions))
        return link

    def publish(
        self, link: Link, topic: bytes, payload: bytes, what: object, first: int = packets.PUBLISH
    ) -> bytes:
        """The packet of a message, to be sent by `send`; `what` comes back when the broker has it."""
        number = link.number = link.number % 65_535 + 1
        link.waiting[number] = what
        self.unacknowledged += 1
        return packets.publish(topic, number, payload, first)

    def send(self, link: Link, data: bytes) -> None:
        """Sends now what the socket takes, and the rest when it can."""
        if link.unsent:
            link.unsent += data
            return
        try:
            sent = link.sock.send(data)
        except (BlockingIOError, ssl.SSLWantWriteError):
            sent = 0
        if sent < len(data):
            link.unsent = data[sent:]
            self._epoll.modify(link.sock.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def poll(self, seconds: float) -> None:
        """Hears what has come, or comes within so many seconds. Raises OSError when a connection is lost."""
        for fd, events in self._epoll.poll(seconds, len(self.all) or 1):
            link = self._by_fd[fd]
            if events & select.EPOLLOUT:
                self._send_rest(link)
            if events & ~select.EPOLLOUT:
                self._receive(link)

    def until(self, condition: Callable[[], bool], seconds: float = _WAIT_SECONDS) -> None:
        """Hears until `condition`. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while not condition():
            self.poll(0.05)
            if time.monotonic() > deadline:
                raise TimeoutError(f"no answer from the broker within {seconds:.0f} s")

    def close(self) -> None:
        """Ends all connections in order."""
        for link in self.all:
            with contextlib.suppress(OSError):
                link.sock.send(b"\xe0\x00")
            link.sock.close()
        self._epoll.close()

    def _send_rest(self, link: Link) -> None:
        rest, link.unsent = link.unsent, b""
        self.send(link, rest)
        if not link.unsent:
            self._epoll.modify(link.sock.fileno(), select.EPOLLIN)

    def _receive(self, link: Link) -> None:
        try:
            data = link.sock.recv(262_144)
            while isinstance(link.sock, ssl.SSLSocket) and link.sock.pending():
                data += link.sock.recv(262_144)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        if not data:
            raise ConnectionError("the broker ended a connection")
        if link.received:
            data = link.received + data
        at, size, answers = 0, len(data), b""
        while size - at >= 2:
            kind, length, start = data[at] >> 4, data[at + 1], at + 2
            if length > 127:
                length, shift = length & 127, 7
                while start < size:
                    length |= (data[start] & 127) << shift
                    shift += 7
                    start += 1
                    if data[start - 1] < 128:
                        break
                else:
                    break
            end = start + length
            if end > size:
                break
            if kind == _PUBACK:
                what = link.waiting.pop(data[start] << 8 | data[start + 1], None)
                if what is not None:
                    self.unacknowledged -= 1
                    self._acknowledged(link, what)
            elif kind == _PUBLISH:
                body = start + 2 + (data[start] << 8 | data[start + 1])
                if data[at] & 6:
                    answers += b"\x40\x02" + data[body : body + 2]
                    self._heard(data[start + 2 : body], data[body + 2 : end])
                else:
                    self._heard(data[start + 2 : body], data[body:end])
            elif kind in (_CONNACK, _SUBACK):
                refused = data[start + 1] if kind == _CONNACK else max(data[start + 2 : end])
                if refused > 1 or (kind == _CONNACK and refused):
                    raise ConnectionError(f"the broker refuses: {data[at:end].hex()}")
                link.ready += 1
            at = end
        link.received = data[at:]
        if answers:
            self.send(link, answers)
