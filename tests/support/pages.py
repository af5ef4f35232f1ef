"""The pages over a made-up site, served by the aggregator's own server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp

from laggard_aggregator.status.view import Status
from laggard_aggregator.web.app import make_app
from laggard_aggregator.web.server import HttpServer


@asynccontextmanager
async def served(view: Status, app: ASGIApp | None = None, listen: str = "127.0.0.1:0") -> AsyncIterator[str]:
    """The address at which the pages over `view`, or `app` around them, are served; closes the view."""
    server, stop = HttpServer(app or make_app(view), listen), asyncio.Event()
    server.bind()
    serving = asyncio.create_task(server.run(stop))
    try:
        yield server.url
    finally:
        view.close()
        stop.set()
        await serving
