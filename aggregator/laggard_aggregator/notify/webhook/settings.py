"""`[webhook]`: address, template and credentials."""

import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from laggard_aggregator.notify.channel import ChannelSettings, read_secret, tls_client
from laggard_aggregator.notify.webhook.templates import TEMPLATES
from laggard_common.config import between, checked, is_loopback, one_of
from laggard_common.errors import ConfigError

MAX_HEADERS = 20
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x20-\x7e]*)")  # RFC 9110, 5.1 and 5.5
_OWN_HEADERS = {"host", "content-type", "content-length", "transfer-encoding", "connection", "user-agent"}


@dataclass(frozen=True, slots=True)
class WebhookSettings(ChannelSettings):
    """`[webhook]`. The address, a secret of chat systems, is `url` or the first line of `url_file`.

    `headers_file`: lines `Name: value`. `timeout_seconds`: limit for one whole attempt. `ca_file`: authority
    of the server's certificate, None for the system's.
    """

    url: str = field(
        default="", repr=False, metadata=checked(lambda value: _wrong_url(value) if value else None)
    )
    url_file: Path | None = None
    template: str = field(default="json", metadata=checked(one_of(tuple(TEMPLATES))))
    bearer_token_file: Path | None = None
    headers_file: Path | None = None
    ca_file: Path | None = None
    timeout_seconds: float = field(default=10.0, metadata=checked(between(0.1, 300)))

    def problems(self) -> Iterator[tuple[str, str]]:
        """Settings that do not go together."""
        if bool(self.url) == (self.url_file is not None):
            yield "url", "expected either url or url_file"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address and credentials of the receiver. `repr` shows neither."""

    url: SplitResult = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    tls: ssl.SSLContext | None = None


def endpoint(settings: WebhookSettings) -> Endpoint:
    """Reads the files that `settings` name. Raises ConfigError with all problems, without their content."""
    problems: list[str] = []
    url = next(iter(read_secret("url_file", settings.url_file, problems)), settings.url)
    wrong = _wrong_url(url) if url else None
    if wrong:
        problems.append(f"url_file: {settings.url_file}: {wrong}")
        url = ""
    headers = _headers(settings, problems)
    address = urlsplit(url)
    encrypted = address.scheme == "https"
    tls = tls_client("ca_file", settings.ca_file, problems) if encrypted else None
    if url and not encrypted:
        if headers and not is_loopback(address.hostname or ""):
            problems.append("url: a token or header is only sent encrypted: expected https")
        if settings.ca_file:
            problems.append("ca_file: is for https")
    if problems:
        raise ConfigError("", problems)
    return Endpoint(address, tuple(headers), tls)


def _headers(settings: WebhookSettings, problems: list[str]) -> list[tuple[str, str]]:
    headers: list[tuple[str, str]] = []
    for number, line in enumerate(read_secret("headers_file", settings.headers_file, problems), 1):
        header = _HEADER.fullmatch(line.strip())
        if header is None or header[1].lower() in _OWN_HEADERS or number > MAX_HEADERS:
            own = ", ".join(sorted(_OWN_HEADERS))
            expected = f"expected at most {MAX_HEADERS} lines `Name: value`, none of {own}"
            problems.append(f"headers_file: {settings.headers_file}: line {number}: {expected}")
            break
        headers.append((header[1], header[2]))
    token = read_secret("bearer_token_file", settings.bearer_token_file, problems)
    if token and _HEADER.fullmatch(f"a:{token[0]}") is None:
        problems.append(f"bearer_token_file: {settings.bearer_token_file}: not printable ASCII")
    elif token:
        headers.append(("Authorization", f"Bearer {token[0]}"))
    return headers


def _wrong_url(value: str) -> str | None:
    """The problem of an address, without the address."""
    try:
        url = urlsplit(value)
        good = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        good = False
    plain = value.isascii() and value.isprintable() and not set(value) & set(' #"<>\\')
    if not good or not plain or len(value) > 2000:
        return "expected an address such as https://example.org/hook"
    return "expected an address without user and password" if "@" in url.netloc else None
