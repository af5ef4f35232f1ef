"""Operators' decisions over HTTP: forms of the pages, and JSON for programs. Off without operators.

Browsers send the credentials of a site with requests that other sites' pages cause, and a proxy with single
sign-on adds them. So a form carries a token of its user, JSON needs a content type that other sites' pages
cannot send, and both are refused when the browser names another origin. Nothing is decided by GET.
"""

import asyncio
import hmac
import json
import secrets
import time
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from laggard_aggregator.alarms.overrides import KINDS
from laggard_aggregator.control.socket import Answer
from laggard_common.errors import StateError

FORM_PATH = "/decide"
API_PATH = "/api/v1/decisions"
FORM_TYPE = "application/x-www-form-urlencoded"
JSON_TYPE = "application/json"
DOES = (*KINDS, "replaced", "end")
"""Decisions over HTTP; `forget` is for the command line."""
MAX_BODY_BYTES = 8192
BODY_SECONDS = 5.0
MOST_PER_MINUTE = 60
"""Requests of one operator."""

_FIELDS = frozenset({"do", "target", "kind", "seconds", "comment", "ticket"})
_OF_FORM = frozenset({"token", "back"})
_MINUTE_SECONDS = 60.0


class Actions:
    """Checks requests of `operators`, names of the credentials file, and hands them to `answer`.

    `answer` is None while the state is not loaded. `page`: address of the pages for others, such as a
    proxy's. `state`: the state directory, empty without one.
    """

    def __init__(self, operators: Collection[str] = (), page: str = "", state: str = "") -> None:
        self.operators = frozenset(operators)
        self.state = state
        self.answer: Answer | None = None
        self._own = urlsplit(page).netloc.lower()
        self._key = secrets.token_bytes(32)
        self._recent: dict[str, deque[float]] = {}
        self._serving: set[asyncio.Task[dict[str, Any]]] = set()

    def token(self, user: str) -> str:
        """The token of forms of `user`, valid until the aggregator restarts."""
        return hmac.new(self._key, user.encode(), "sha256").hexdigest()

    async def form(self, request: Request) -> dict[str, str]:
        """The fields of a form that its user sent. Raises HTTPException otherwise."""
        user = self._operator(request, FORM_TYPE)
        try:
            pairs = parse_qsl(
                (await _body(request)).decode(), keep_blank_values=True, max_num_fields=20, errors="strict"
            )
        except ValueError as exc:
            raise HTTPException(400, "not a form in UTF-8") from exc
        fields = dict(pairs)
        if len(fields) < len(pairs) or not fields.keys() <= _FIELDS | _OF_FORM:
            raise HTTPException(400, "unknown or repeated fields")
        if not hmac.compare_digest(fields.pop("token", "").encode(), self.token(user).encode()):
            raise HTTPException(
                403, "the page was loaded before a restart, or by somebody else: load it again"
            )
        return fields

    async def json(self, request: Request) -> dict[str, Any]:
        """The object that an operator sent. Raises HTTPException."""
        self._operator(request, JSON_TYPE)
        try:
            fields = json.loads(await _body(request))
        except (ValueError, RecursionError) as exc:
            raise HTTPException(400, "not JSON") from exc
        if not isinstance(fields, dict) or not fields.keys() <= _FIELDS:
            raise HTTPException(400, f"expected an object with some of {', '.join(sorted(_FIELDS))}")
        return fields

    async def decide(self, request: Request, fields: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Executes `fields` of an operator's `request`; the answer names the components.

        Raises HTTPException when it is refused, comes too soon after others, or could not be saved. A request
        that began is executed, also when its connection ends.
        """
        if self.answer is None:
            raise HTTPException(503, "the state is not loaded yet, or is being saved")
        if fields.get("do") not in DOES or ("kind" in fields and fields["kind"] not in KINDS):
            raise HTTPException(
                400, f"do: expected one of {', '.join(DOES)}; kind: one of {', '.join(KINDS)}"
            )
        user: str = request.scope["user"]
        self._count(user)
        origin = f"{where} {request.client.host}" if request.client is not None else where
        task = asyncio.create_task(_execute(self.answer(fields, user, origin)))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        try:
            return await asyncio.shield(task)
        except ValueError as exc:
            raise HTTPException(400, str(exc)) from exc
        except StateError as exc:
            raise HTTPException(500, f"done, but not saved, so a restart will forget it: {exc}") from exc

    async def close(self) -> None:
        """Executes no further request, and waits for those under way."""
        self.answer = None
        await asyncio.gather(*self._serving, return_exceptions=True)

    def _operator(self, request: Request, content_type: str) -> str:
        """Name of the operator who sent the request, from a page of this origin or from no page."""
        user: str = request.scope.get("user", "")
        if user not in self.operators:
            raise HTTPException(403, "decisions are for operators ([http] operators in aggregator.toml)")
        own = {self._own, request.headers.get("host", "").lower()} - {""}
        if not all(_authority(origin) in own for origin in request.headers.getlist("origin")) or any(
            site != "same-origin" for site in request.headers.getlist("sec-fetch-site")
        ):
            raise HTTPException(403, "decisions are not accepted from pages of another origin")
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != content_type:
            raise HTTPException(415, f"expected {content_type}")
        return user

    def _count(self, user: str) -> None:
        recent, now = self._recent.setdefault(user, deque(maxlen=MOST_PER_MINUTE)), time.monotonic()
        if len(recent) == MOST_PER_MINUTE and now - recent[0] < _MINUTE_SECONDS:
            raise HTTPException(429, "too many decisions in one minute", {"retry-after": "60"})
        recent.append(now)


async def _execute(answer: Any) -> dict[str, Any]:
    answered: dict[str, Any] = await answer
    return answered


def _authority(origin: str) -> str:
    """Host and port of an origin, empty for `null` and malformed ones."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


async def _body(request: Request) -> bytes:
    """The body of a request, which is bounded in size and time. Raises HTTPException."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise HTTPException(413, f"expected at most {MAX_BODY_BYTES} bytes")
    except TimeoutError as exc:
        raise HTTPException(408, f"no body within {BODY_SECONDS:g} s") from exc
    except ClientDisconnect as exc:
        raise HTTPException(400, "no body") from exc
    return bytes(body)
