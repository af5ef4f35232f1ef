"""A real HTTP server on loopback that keeps requests and gives the answers that a test wants."""

import asyncio
import json
import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.support.wait import async_wait_until


@dataclass(frozen=True)
class Request:
    """A request as it arrived."""

    line: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """`answers`: to the next requests, as they are sent; then 204. `hang`: never closes a connection."""

    answers: deque[bytes] = field(default_factory=deque)
    hang: bool = False
    requests: list[Request] = field(default_factory=list)
    port: int = 0
    _open: set[asyncio.Task[None]] = field(default_factory=set)

    async def until(self, requests: int) -> None:
        await async_wait_until(lambda: len(self.requests) >= requests, f"{requests} requests")

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._answer(reader, writer))
        self._open.add(connection)
        await connection

    async def run(self, stop: asyncio.Event) -> None:
        """Serves at `port` until `stop` is set."""
        async with receiving(self, port=self.port):
            await stop.wait()

    async def closed(self) -> None:
        """Waits for the end of all connections."""
        await asyncio.gather(*self._open)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *rest = head.rstrip("\r\n").split("\r\n")
            headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in rest)}
            body = await reader.readexactly(int(headers["content-length"]))
            self.requests.append(Request(line, headers, body))
            writer.write(self.answers.popleft() if self.answers else answer(204))
            await writer.drain()
            if self.hang:
                await reader.read()
        with suppress(OSError):
            writer.close()
            await writer.wait_closed()


def answer(status: int, headers: str = "", body: bytes = b"") -> bytes:
    """`headers`: whole lines with CRLF."""
    return f"HTTP/1.1 {status} Said\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


@asynccontextmanager
async def receiving(
    receiver: Receiver, *, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Receiver]:
    """The server while the block lasts."""
    server = await asyncio.start_server(receiver.handle, "127.0.0.1", port, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        await server.wait_closed()
        await receiver.closed()
