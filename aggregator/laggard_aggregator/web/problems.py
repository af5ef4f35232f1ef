"""Errors as answers: a page with a way on for browsers, JSON for programs."""

import http
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

_FOR_PROGRAMS = ("/api/", "/metrics", "/events", "/static/", "/healthz", "/readyz")
_LOGGER = logging.getLogger(__name__)

Handler = Callable[[Request, Exception], Awaitable[Response]]


class Show(Protocol):
    """Renders a template that is not cached."""

    async def __call__(self, request: Request, name: str, page: Any, status: int = 200) -> Response:
        """The page, for this request alone."""


def problem(status: int, text: str) -> JSONResponse:
    """The answer to a program."""
    return JSONResponse({"error": text or http.HTTPStatus(status).phrase, "status": status}, status)


def handlers(show: Show) -> dict[Any, Handler]:
    """Exception handlers of the application; `show` renders the page `problem`."""

    async def http_error(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, HTTPException)
        return await answer(request, exc.status_code, exc.detail, dict(exc.headers or {}))

    async def server_error(request: Request, exc: Exception) -> Response:
        del exc  # logged; the client gets no detail
        return await answer(request, 500, "internal error", {})

    async def answer(request: Request, status: int, text: str, headers: dict[str, str]) -> Response:
        response: Response = problem(status, text)
        if _is_for_reader(request):
            page = {"status": status, "text": text, "phrase": http.HTTPStatus(status).phrase}
            try:
                response = await show(request, "problem", page | {"path": request.url.path}, status)
            except Exception:
                _LOGGER.exception("the page of an error cannot be made")
        response.headers.update(headers)
        return response

    return {HTTPException: http_error, Exception: server_error}


def _is_for_reader(request: Request) -> bool:
    """True for a page that a browser asks for: not for files, data and what scripts fetch."""
    return (
        not request.url.path.startswith(_FOR_PROGRAMS)
        and "format" not in request.query_params
        and "text/html" in request.headers.get("accept", "")
    )
