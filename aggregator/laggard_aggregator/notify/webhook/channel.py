"""The webhook channel: table `[webhook]`, and one POST by HTTP/1.1 with a limit for the whole attempt.

http.client limits single reads and blocks a thread; urllib follows redirects. Only the headers of the answer
are read. Its body is neither needed nor logged, as servers repeat the secret address in it.
"""

import asyncio
import http.client
import io
import re
from email.utils import mktime_tz, parsedate_tz
from http import HTTPStatus

from laggard_aggregator.notify.channel import Channel, Delivery, UnavailableError
from laggard_aggregator.notify.report import Notification
from laggard_aggregator.notify.webhook import NAME
from laggard_aggregator.notify.webhook.settings import Endpoint, WebhookSettings, endpoint
from laggard_aggregator.notify.webhook.templates import rendered
from laggard_aggregator.settings.channels import register
from laggard_common import __version__

MAX_HEADER_BYTES = 65_536

_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: [^\r\n]*)?")
_PORTS = {"http": 80, "https": 443}
_RETRIED = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY}
_UNAVAILABLE = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}


@register
class WebhookChannel(Channel):
    """POST of each notification to one address."""

    name = NAME
    settings_class = WebhookSettings
    settings: WebhookSettings

    def __init__(self, settings: WebhookSettings) -> None:
        self.settings = settings
        self._endpoint = endpoint(settings)
        self.destination = f"{self._endpoint.url.scheme}://{self._endpoint.url.netloc}"
        self.recipients = (self.name,)

    async def render(self, notification: Notification) -> bytes:
        """Renders the template."""
        return rendered(self.settings.template, notification)

    async def send(self, message: bytes, recipients: tuple[str, ...]) -> Delivery:
        """Posts a message once. 429 and 503 hold up all messages, other refusals this one.

        408, 425 and 5xx are refusals for now; any other status but 2xx, redirects among them, is for good.
        """
        status, retry_after_seconds = await post(self._endpoint, message, self.settings.timeout_seconds)
        if 200 <= status < 300:
            return Delivery()
        reason = f"HTTP {status} {_PHRASES.get(status, '')}".rstrip()
        if status < 400:
            reason += ", redirects are not followed"
        if status in _UNAVAILABLE:
            raise UnavailableError(reason, retry_after_seconds)
        refused = dict.fromkeys(recipients, reason)
        if status in _RETRIED or status >= 500:
            return Delivery(retry=refused, retry_after_seconds=retry_after_seconds)
        return Delivery(refused=refused)


async def post(endpoint: Endpoint, body: bytes, timeout_seconds: float) -> tuple[int, float]:
    """Sends `body` as JSON; returns the status, and the seconds of `Retry-After`, 0 without it.

    Raises UnavailableError when there is no answer of HTTP in time.
    """
    url, writer = endpoint.url, None
    try:
        async with asyncio.timeout(timeout_seconds):
            reader, writer = await asyncio.open_connection(
                url.hostname, url.port or _PORTS[url.scheme], ssl=endpoint.tls, limit=MAX_HEADER_BYTES
            )
            writer.write(_request(endpoint, body))
            return await _answer(reader)
    except TimeoutError as exc:
        raise UnavailableError(f"no answer within {timeout_seconds:g} s") from exc
    except EOFError as exc:
        raise UnavailableError("it closed the connection without an answer") from exc
    except OSError as exc:
        raise UnavailableError.caused_by(exc) from exc
    except (ValueError, asyncio.LimitOverrunError, http.client.HTTPException) as exc:
        raise UnavailableError("its answer is not HTTP/1.1") from exc
    finally:
        if writer is not None:
            writer.transport.abort()


def _request(endpoint: Endpoint, body: bytes) -> bytes:
    headers = [
        ("Host", endpoint.url.netloc),
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
        ("User-Agent", f"laggard/{__version__}"),
        ("Connection", "close"),
        *endpoint.headers,
    ]
    url = endpoint.url
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("ascii") + body


async def _answer(reader: asyncio.StreamReader) -> tuple[int, float]:
    status = 100
    while status < 200:  # interim responses
        head = await reader.readuntil(b"\r\n\r\n")
        line, _, rest = head.partition(b"\r\n")
        match = _STATUS_LINE.fullmatch(line)
        if match is None:
            raise ValueError("no status line")
        status = int(match[1])
    return status, _retry_after(http.client.parse_headers(io.BytesIO(rest)))


def _retry_after(headers: http.client.HTTPMessage) -> float:
    """Seconds, or a date against the server's own (RFC 9110, 10.2.3); 0 for anything else."""
    value = headers.get("Retry-After", "")
    if value.isascii() and value.isdigit():
        return float(value[:9])
    at, now = parsedate_tz(value), parsedate_tz(headers.get("Date", ""))
    return max(mktime_tz(at) - mktime_tz(now), 0.0) if at is not None and now is not None else 0.0
