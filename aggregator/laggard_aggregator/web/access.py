"""Lets nobody in who is not named in the credentials file. `/healthz` and `/readyz` answer everyone."""

import asyncio

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from laggard_aggregator.web.credentials import Credentials

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
_CHALLENGE = 'Basic realm="Laggard", charset="UTF-8"'


def guarded(app: ASGIApp, credentials: Credentials | None) -> ASGIApp:
    """`app` for those whom `credentials` name; for everyone where there are none."""
    return app if credentials is None else _Access(app, credentials)


class _Access:
    """Answers with 401 whoever brings no right `Authorization`."""

    def __init__(self, app: ASGIApp, credentials: Credentials) -> None:
        self._app = app
        self._credentials = credentials
        self._one_at_a_time = asyncio.Semaphore(1)  # guesses cost one core at most, and wait for each other

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or await self._may(scope):
            await self._app(scope, receive, send)
        else:
            what = {"error": "name and password, or a token, are needed", "status": 401}
            refusal = JSONResponse(what, 401, headers={"www-authenticate": _CHALLENGE})
            await refusal(scope, receive, send)

    async def _may(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) != 1:
            return False
        right = self._credentials.knows(given[0])
        if right is None:
            async with self._one_at_a_time:
                right = await asyncio.to_thread(self._credentials.proves, given[0])
        return right
