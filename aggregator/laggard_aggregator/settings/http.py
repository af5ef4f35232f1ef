"""`[http]`: address and access of the HTTP server."""

import errno
import os
import re
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from laggard_common.config import checked, distinct, each, is_loopback, topic_level
from laggard_common.errors import ConfigError
from laggard_common.secret_files import problem, unfit

_URL = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+(?:/[A-Za-z0-9._~/-]*)?", re.ASCII)


def _listen(value: str) -> str | None:
    try:
        parse_listen(value)
    except ValueError as exc:
        return str(exc)
    return None


def _url(value: str) -> str | None:
    right = not value or _URL.fullmatch(value)
    return None if right else f"expected http://HOST[:PORT] or https://..., got {value[:100]!r}"


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """`[http]`.

    With `cert_file` it is HTTPS; with `credentials_file` only users named there have access, of whom
    `operators` may decide by page and API. `nodes`: nodes
    that have series in `/metrics` even while healthy. `external_url`: its address for others, for links in
    mails; empty for the listening address.
    """

    listen: str = field(default="127.0.0.1:9464", metadata=checked(_listen))
    cert_file: Path | None = None
    key_file: Path | None = None
    credentials_file: Path | None = None
    operators: tuple[str, ...] = field(default=(), metadata=checked(distinct()))
    nodes: tuple[str, ...] = field(default=(), metadata=checked(distinct(), each(topic_level())))
    external_url: str = field(default="", metadata=checked(_url))

    @property
    def page(self) -> str:
        """The address for others, without a trailing slash."""
        if self.external_url:
            return self.external_url.rstrip("/")
        host, port = parse_listen(self.listen)
        if host in ("0.0.0.0", "::"):  # noqa: S104 - that is every address of this host
            host = socket.gethostname()
        scheme = "http" if self.cert_file is None else "https"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    @property
    def exposed(self) -> bool:
        """Whether requests from other hosts come without TLS, or through a proxy on another host."""
        return self.cert_file is None and not is_loopback(parse_listen(self.listen)[0])

    def problems(self) -> Iterator[tuple[str, str]]:
        """Settings that do not go together."""
        if self.key_file and not self.cert_file:
            yield "key_file", "needs a cert_file"
        if self.operators and not self.credentials_file:
            yield "operators", "needs a credentials_file, which has their names"


def tls_context(settings: HttpSettings) -> ssl.SSLContext | None:
    """TLS 1.2 or newer with the certificate of `settings`; None without one.

    Raises ConfigError for unusable files.
    """
    if settings.cert_file is None:
        return None
    key, name = (settings.key_file, "key") if settings.key_file else (settings.cert_file, "cert")
    if key.exists() and (reason := unfit(key)):
        raise ConfigError("", [problem(f"http.{name}_file", key, reason)])
    try:
        return serving(settings.cert_file, settings.key_file)
    except OSError as exc:
        raise ConfigError("", [problem("http.cert_file", settings.cert_file, unusable(exc))]) from exc


_LISTEN = re.compile(r"(?:\[(?P<v6>[^\[\]]+)\]|(?P<host>[^\[\]:]+)):(?P<port>[0-9]{1,5})", re.ASCII)


def parse_listen(listen: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[IPv6]:port`; the system chooses for port 0. Raises ValueError."""
    match = _LISTEN.fullmatch(listen)
    if match is None:
        raise ValueError(f"expected HOST:PORT or [IPv6]:PORT, got {listen}")
    if int(match["port"]) > 65535:
        raise ValueError(f"expected a port of 0-65535, got {match['port']}")
    return match["v6"] or match["host"], int(match["port"])


def serving(cert_file: Path, key_file: Path | None) -> ssl.SSLContext:
    """TLS 1.2 or newer with that certificate; the key may be in `cert_file`. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(cert_file, key_file, password=lambda: "")  # no prompt for a passphrase
    return context


def unusable(exc: OSError) -> str:
    """The reason why a certificate, key or list is unusable."""
    if isinstance(exc, FileNotFoundError):
        return f"not usable: {os.strerror(errno.ENOENT)}"
    return f"not usable: {exc.reason if isinstance(exc, ssl.SSLError) else exc.strerror}"
