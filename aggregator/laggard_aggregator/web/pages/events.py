"""Server-sent events: notifies open pages of changes, so that they reload their contents."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from laggard_aggregator.status.view import Status
from laggard_aggregator.web.pages.page_state import token

_TYPE = "text/event-stream"

MAX_STREAMS = 32
"""Limit of notified pages; further ones keep their contents until they are reloaded."""
BEAT_SECONDS = 30.0
"""Interval of notifications without a judged window, as node states change in between."""
GAP_SECONDS = 1.0
"""Least interval between events: groups are judged one after another."""
SHARE = 20.0
"""Pause after rendering a page, as a multiple of its duration: ingest has priority."""


class EventStreams:
    """The streams of open pages. `took`: rendering time of a page, seconds."""

    def __init__(self, view: Status, took: Callable[[], float] = lambda: 0.0) -> None:
        self._view = view
        self._took = took
        self._streams = 0

    async def answer(self, request: Request) -> Response:
        """Streams events `change` and `beat` until the page is closed or the aggregator ends.

        Their data is the token of the state; a page with the same token does not reload.
        """
        if request.method == "HEAD":
            return Response(media_type=_TYPE)
        if self._streams >= MAX_STREAMS:
            return JSONResponse({"error": "too many pages are live", "status": 503}, 503)
        self._streams += 1
        return _EventStream(self._events(), self._ended)

    def _ended(self) -> None:
        self._streams -= 1

    async def _events(self) -> AsyncIterator[str]:
        loop, revision, resume = asyncio.get_running_loop(), self._view.revision, 0.0
        yield f"retry: 5000\n{self._event('change', revision)}"
        while True:
            try:
                async with asyncio.timeout(max(BEAT_SECONDS, SHARE * self._took())):
                    changed = await self._view.changed(revision)
            except TimeoutError:
                yield self._event("beat", revision)
                continue
            latest = None if changed is None else await self._latest(changed, resume)
            if latest is None:
                return
            revision = latest
            yield self._event("change", revision)
            resume = loop.time() + max(GAP_SECONDS, SHARE * self._took())

    async def _latest(self, revision: int, until: float) -> int | None:
        """The current revision, None once there will be no further one."""
        if until > asyncio.get_running_loop().time():
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    while (changed := await self._view.changed(revision)) is not None:
                        revision = changed
                    return None
        return revision

    def _event(self, kind: str, revision: int) -> str:
        return f"event: {kind}\ndata: {token(self._view.started_at, revision)}\n\n"


class _EventStream(StreamingResponse):
    """Reports its end in every case."""

    def __init__(self, events: AsyncIterator[str], ended: Callable[[], None]) -> None:
        super().__init__(events, media_type=_TYPE)
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()
