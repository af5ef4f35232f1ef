"""The HTTP server: uvicorn in the aggregator's event loop.

uvicorn limits the number of requests under way, the size of a request's head and the keep-alive time, and
asyncio the time of a TLS handshake. The time for a request's head, the number of silent connections, and the
time for an answer that its client does not take, are limited here.
"""

import asyncio
import contextlib
import errno
import fcntl
import logging
import socket
import ssl
import sys
import termios
import time
from collections.abc import Collection, Generator
from dataclasses import dataclass
from typing import Protocol

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from laggard_aggregator.settings.http import parse_listen
from laggard_common.errors import ServiceError

_log = logging.getLogger(__name__)

MAX_HEADER_BYTES = 16 * 1024  # request line and headers; a longer request is answered with 400, see web.app
MAX_CONNECTIONS = 128  # open at once; beyond that a request is answered with 503
SPARE_CONNECTIONS = 384  # beyond them, for HEALTH alone; the oldest idle ones make room within a second
HEALTH = ("/healthz",)  # answered whatever others do: a container is restarted without it
KEEP_ALIVE_SECONDS = 75  # longer than Prometheus' usual scrape interval of 15 to 60 s
SHUTDOWN_SECONDS = 2  # time limit for answers under way at the end
HEAD_SECONDS = 10.0  # for a request's head, from the connection's first byte or the request's on
TAKEN_SECONDS = 30.0  # in which the client must take something of its answer
ANSWER_SECONDS = 600.0  # in which it must take all of it
_CHECK_SECONDS = 1.0


class HttpServer:
    """Serves one ASGI application, over TLS where a context is given.

    Call `bind()` first, so that a taken port is an error before anything starts.
    """

    def __init__(self, app: ASGIApp, listen: str, tls: ssl.SSLContext | None = None) -> None:
        self.listen = listen
        self._app = app
        self._tls = tls
        self._socket: socket.socket | None = None
        self._connections: Collection[object] = ()

    @property
    def url(self) -> str:
        """The address it listens on, with the port that the system chose. Requires `bind()`."""
        if self._socket is None:
            raise RuntimeError("not bound")
        host, port = self._socket.getsockname()[:2]
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def bind(self) -> None:
        """Binds the port. Raises ServiceError, with a message of one line, when that fails."""
        try:
            self._socket = _listening(*parse_listen(self.listen))
        except ValueError as exc:
            raise ServiceError(f"http.listen: {exc}") from exc
        except OSError as exc:
            raise ServiceError(f"cannot listen on {self.listen}: {_why(exc)}") from exc

    async def run(self, stop: asyncio.Event) -> None:
        """Serves until `stop` is set, then ends the open connections and closes the port."""
        if self._socket is None:
            self.bind()
        config = uvicorn.Config(
            self._limited,
            interface="asgi3",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",  # warnings are about clients
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=MAX_CONNECTIONS + SPARE_CONNECTIONS,
            limit_concurrency=MAX_CONNECTIONS + SPARE_CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        )
        config.load()
        config.ssl = self._tls
        server = _Server(config)
        self._connections = server.server_state.connections
        assert self._socket is not None
        serving = asyncio.create_task(server.serve(sockets=[self._socket]), name="http")
        stopping = asyncio.create_task(stop.wait(), name="http stop")
        closing = asyncio.create_task(_close_slow(server), name="http heads")
        try:
            await asyncio.wait({serving, stopping, closing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            closing.cancel()
            server.should_exit = True
            await serving
            self.close()
            if not closing.cancelled() and closing.done():
                closing.result()  # its error

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application, but 503 beyond MAX_CONNECTIONS, as uvicorn does it; not for HEALTH."""
        if scope["path"] in HEALTH or len(self._connections) < MAX_CONNECTIONS:
            await self._app(scope, receive, send)
            return
        body = b"Service Unavailable"
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
        headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def close(self) -> None:
        """Closes the port; idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class _Server(uvicorn.Server):
    """Leaves SIGINT and SIGTERM to the daemon."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class _Connection(Protocol):
    """The part used here of uvicorn's connections."""

    transport: asyncio.Transport
    cycle: object | None  # the last request, with its answer
    timeout_keep_alive_task: asyncio.TimerHandle | None


async def _close_slow(server: uvicorn.Server) -> None:
    """Closes connections whose head takes longer than HEAD_SECONDS, and idle ones near MAX_CONNECTIONS.

    Also those that take nothing of their answer for TAKEN_SECONDS, or do not take all in ANSWER_SECONDS.

    Waits for ever after a WARNING where this version of uvicorn does not show its connections.
    """
    try:
        await _check(server)
    except AttributeError as exc:
        _log.warning("uvicorn %s: no time limit for requests and answers: %s", uvicorn.__version__, exc)
        await asyncio.Event().wait()


async def _check(server: uvicorn.Server) -> None:
    since: dict[tuple[_Connection, int], float] = {}
    answers: dict[_Connection, _Untaken] = {}
    while True:
        await asyncio.sleep(_CHECK_SECONDS)
        now = time.monotonic()
        connections: tuple[_Connection, ...] = tuple(server.server_state.connections)  # type: ignore[arg-type]
        idle = [(connection, id(connection.cycle)) for connection in connections if _is_idle(connection)]
        since = {idle_one: since.get(idle_one, now) for idle_one in idle}
        oldest = sorted(since, key=since.__getitem__)
        beyond = max(len(connections) - MAX_CONNECTIONS + MAX_CONNECTIONS // 4, 0)  # room for others
        for at, idle_one in enumerate(oldest):
            connection, _ = idle_one
            is_kept = connection.timeout_keep_alive_task is not None
            if at < beyond or (not is_kept and now - since[idle_one] >= HEAD_SECONDS):
                connection.transport.abort()
        sizes = {client: size for client in connections if (size := _untaken_bytes(client.transport))}
        answers = {client: _Untaken.after(answers.get(client), size, now) for client, size in sizes.items()}
        for connection, untaken in answers.items():
            if now - untaken.changed_at >= TAKEN_SECONDS or now - untaken.begun_at >= ANSWER_SECONDS:
                connection.transport.abort()


@dataclass(frozen=True, slots=True)
class _Untaken:
    """The part of an answer that its client has not taken, in bytes; times of the monotonic clock."""

    size: int
    begun_at: float
    changed_at: float

    @classmethod
    def after(cls, before: "_Untaken | None", size: int, now: float) -> "_Untaken":
        """That of `size` at `now`."""
        if before is None:
            return cls(size, now, now)
        return cls(size, before.begun_at, before.changed_at if size == before.size else now)


def _untaken_bytes(transport: asyncio.Transport) -> int:
    """Bytes that wait in this process or the kernel until the client takes them."""
    size = transport.get_write_buffer_size()
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed meanwhile
        queued = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
        size += int.from_bytes(queued, sys.byteorder)
    return size


def _is_idle(connection: _Connection) -> bool:
    """Whether no request is under way: it is kept, or has sent a part of a request's head, or nothing yet."""
    return connection.cycle is None or bool(getattr(connection.cycle, "response_complete", False))


def _listening(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and host != "::":
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(MAX_CONNECTIONS)
    except OSError:
        listening.close()
        raise
    listening.setblocking(False)
    return listening


def _why(exc: OSError) -> str:
    if exc.errno == errno.EADDRINUSE:
        return "the port is taken"
    return exc.strerror or str(exc)
