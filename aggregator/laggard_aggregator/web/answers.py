"""Sending of answers: large bodies in parts that take turns with ingest, and a bounded number of bytes.

Until a client has taken its answer, only the body stays in memory, which all who asked for it share
(`web.rendered`); `web.server` ends the connections of clients that take nothing.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

PART_BYTES = 65_536
MAX_BYTES = 256 * 1024**2
"""Limit of bodies larger than a part that are being sent; one that many are sent counts once."""


@dataclass(slots=True)
class _Body:
    size: int
    answers: int = 0


class Answers:
    """`app` whose bodies are sent in parts; 503 where a body exceeds what is left of `max_bytes`."""

    def __init__(self, app: ASGIApp, max_bytes: int = MAX_BYTES) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._bodies: dict[int, _Body] = {}
        self._turn = asyncio.Lock()

    @property
    def size_bytes(self) -> int:
        """Size of the bodies that are being sent."""
        return sum(body.size for body in self._bodies.values())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI interface."""
        head: Message | None = None
        is_refused = False

        async def send_in_parts(message: Message) -> None:
            nonlocal head, is_refused
            if is_refused:
                return
            if message["type"] == "http.response.start":
                head = message  # sent with the first body, whose size decides
                return
            body: bytes = message.get("body", b"")
            if not self._has_room(body):
                is_refused = True
                await _refuse(send, began=head is None)
                return
            if head is not None:
                begun, head = head, None
                await send(begun)
            with self._counted(body):
                await self._send(send, body, more=message.get("more_body", False))

        await self._app(scope, receive, send_in_parts)

    async def _send(self, send: Send, body: bytes, *, more: bool) -> None:
        for at in range(0, max(len(body), 1), PART_BYTES):
            part, is_last = body[at : at + PART_BYTES], at + PART_BYTES >= len(body)
            await send({"type": "http.response.body", "body": part, "more_body": more or not is_last})
            if not is_last:
                async with self._turn:  # one part in each round of the event loop
                    await asyncio.sleep(0)

    def _has_room(self, body: bytes) -> bool:
        return (
            len(body) <= PART_BYTES
            or id(body) in self._bodies
            or self.size_bytes + len(body) <= self._max_bytes
        )

    @contextmanager
    def _counted(self, body: bytes) -> Iterator[None]:
        if len(body) <= PART_BYTES:
            yield
            return
        counted = self._bodies.setdefault(id(body), _Body(len(body)))
        counted.answers += 1
        try:
            yield
        finally:
            counted.answers -= 1
            if not counted.answers:
                del self._bodies[id(body)]


async def _refuse(send: Send, *, began: bool) -> None:
    """Answers 503; where an answer has begun, ends it before its end, which its client notices."""
    if began:
        return
    body = json.dumps({"error": "too many large answers are being sent", "status": 503}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def accepts_gzip(header: str) -> bool:
    """Whether `Accept-Encoding` names gzip, or else everything, with a weight above 0 (RFC 9110, 12.5.3)."""
    weights: dict[str, float] = {}
    for part in header.split(","):
        coding, *parameters = (text.strip().lower() for text in part.split(";"))
        weights.setdefault(coding, _weight(parameters))
    return next((weights[name] > 0 for name in ("gzip", "x-gzip", "*") if name in weights), False)


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
