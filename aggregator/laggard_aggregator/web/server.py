"""The HTTP server: uvicorn inside the aggregator's own loop, which keeps its signals and its socket."""

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Generator

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from laggard_aggregator.settings.http import parse_listen
from laggard_common.errors import ServiceError

MAX_HEADER_BYTES = 16 * 1024  # request line and headers; a longer request is answered with 400
MAX_CONNECTIONS = 128  # open at once; beyond that a request is answered with 503
KEEP_ALIVE_SECONDS = 75  # longer than Prometheus' usual scrape interval of 15 to 60 s
HANDSHAKE_SECONDS = 5.0  # how long TLS may take to begin; asyncio alone would wait for a minute
REQUEST_SECONDS = 15.0  # how long a connection may take to bring a whole request
SHUTDOWN_SECONDS = 2  # how long answers under way may take at the end


class HttpServer:
    """Serves one ASGI application, by TLS where there is a context for it.

    `bind()` first: a taken port is then an error before anything starts.
    """

    def __init__(self, app: ASGIApp, listen: str, tls: ssl.SSLContext | None = None) -> None:
        self.listen = listen
        self._app = app
        self._tls = tls
        self._socket: socket.socket | None = None

    @property
    def url(self) -> str:
        """Where it listens, with the port that the system chose. Only after `bind()`."""
        if self._socket is None:
            raise RuntimeError("not bound")
        host, port = self._socket.getsockname()[:2]
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def bind(self) -> None:
        """Takes the port. Raises ServiceError with one clear line when it cannot be had."""
        try:
            self._socket = _listening(*parse_listen(self.listen))
        except ValueError as exc:
            raise ServiceError(f"http.listen: {exc}") from exc
        except OSError as exc:
            raise ServiceError(f"cannot listen on {self.listen}: {_why(exc)}") from exc

    async def run(self, stop: asyncio.Event) -> None:
        """Serves until `stop` is set; then ends what is under way and gives the port back."""
        if self._socket is None:
            self.bind()
        config = uvicorn.Config(
            self._app,
            http=_Hasty,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",  # warnings are about what clients do, and theirs to repeat
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        )
        config.load()
        config.ssl = self._tls
        server = _Server(config)
        assert self._socket is not None
        serving = asyncio.create_task(server.serve(sockets=[self._socket]), name="http")
        stopping = asyncio.create_task(stop.wait(), name="http stop")
        try:
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            server.should_exit = True
            await serving
            self.close()

    def close(self) -> None:
        """Gives the port back; closing twice is allowed."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class _Hasty(H11Protocol):
    """Ends connections that bring no whole request in REQUEST_SECONDS: idle ones must not keep others out."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline = self.loop.call_later(REQUEST_SECONDS, transport.close)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._met()
        elif self._deadline is None:  # the beginning of another request
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._met()
        super().connection_lost(exc)

    def _met(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class _Server(uvicorn.Server):
    """A server that leaves SIGINT and SIGTERM to the daemon around it, and bounds handshakes."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])  # of its own it knows no bound for handshakes
        loop = asyncio.get_running_loop()
        bound = None if self.config.ssl is None else HANDSHAKE_SECONDS
        for listening in sockets or ():
            server = await loop.create_server(
                self._protocol,
                sock=listening,
                ssl=self.config.ssl,
                backlog=MAX_CONNECTIONS,
                ssl_handshake_timeout=bound,
            )
            self.servers.append(server)

    def _protocol(self) -> asyncio.Protocol:
        return _Hasty(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


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
