"""`[http]`: where the HTTP interface listens, and for whom."""

import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from laggard_aggregator.export.server import parse_listen
from laggard_aggregator.tls import serving, unusable
from laggard_common.config import Check, checked, distinct, each, topic_level
from laggard_common.errors import ConfigError


def _listen() -> Check:
    def check(value: object) -> str | None:
        try:
            parse_listen(str(value))
        except ValueError as exc:
            return str(exc)
        return None

    return check


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """`[http]`. With `cert_file` it is HTTPS; with `credentials_file` only who is named there is let in.

    `nodes`: of which `/metrics` tells though they are well.
    """

    listen: str = field(default="127.0.0.1:9464", metadata=checked(_listen()))
    cert_file: Path | None = None
    key_file: Path | None = None
    credentials_file: Path | None = None
    nodes: tuple[str, ...] = field(default=(), metadata=checked(distinct(), each(topic_level())))

    def problems(self) -> Iterator[tuple[str, str]]:
        """Settings that do not go together."""
        if self.key_file and not self.cert_file:
            yield "key_file", "needs a cert_file"


def tls_context(settings: HttpSettings) -> ssl.SSLContext | None:
    """TLS 1.2 or newer with the certificate of `settings`; None where there is none.

    Raises ConfigError for files that cannot be used.
    """
    if settings.cert_file is None:
        return None
    try:
        return serving(settings.cert_file, settings.key_file)
    except OSError as exc:
        raise ConfigError("", [f"http.cert_file: {settings.cert_file}: {unusable(exc)}"]) from exc
