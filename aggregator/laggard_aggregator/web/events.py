"""Server-sent events: tells open pages that something changed, so that they ask for themselves again."""

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from laggard_aggregator.view import View

MAX_STREAMS = 32
"""Pages that are told at once; further ones show what they got, until they are loaded again."""
BEAT_SECONDS = 30.0
"""How often a page is told to look again when no window was judged: nodes come and go in between."""
GAP_SECONDS = 2.0
"""From one event to the next, at least: groups are judged one after the other."""


class Events:
    """The streams of open pages."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._streams = 0

    async def answer(self, _: Request) -> Response:
        """A stream of events `change` until the page is closed, or the aggregator ends."""
        if self._streams >= MAX_STREAMS:
            return JSONResponse({"error": "too many pages are live", "status": 503}, 503)
        return StreamingResponse(self._stream(), media_type="text/event-stream")

    async def _stream(self) -> AsyncIterator[str]:
        self._streams += 1
        try:
            revision = self._view.revision
            yield f"retry: 5000\n{_event(revision)}"
            while True:
                try:
                    async with asyncio.timeout(BEAT_SECONDS):
                        changed = await self._view.changed(revision)
                except TimeoutError:
                    changed = revision
                if changed is None:
                    return
                revision = changed
                yield _event(revision)
                await asyncio.sleep(GAP_SECONDS)
        finally:
            self._streams -= 1


def _event(revision: int) -> str:
    return f"event: change\ndata: {revision}\n\n"
