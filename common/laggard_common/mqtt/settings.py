"""The `[mqtt]` table of both daemons, and its conversion to arguments of aiomqtt."""

import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from laggard_common.config import checked, host_name, non_empty, tcp_port
from laggard_common.errors import ConfigError
from laggard_common.secret_files import problem, unfit


@dataclass(frozen=True, slots=True)
class MqttSettings:
    """Address of the broker and credentials. TLS is used when `ca_file` or `cert_file` is set.

    `host`: a name, an IPv4 or an IPv6 address, without brackets. With a client certificate the broker may
    take the user name from its CN.
    """

    host: str = field(default="127.0.0.1", metadata=checked(non_empty(), host_name()))
    port: int = field(default=1883, metadata=checked(tcp_port()))
    username: str = ""
    password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        """Conflicting settings."""
        if self.password_file and not self.username:
            yield "password_file", "needs a username"
        if self.key_file and not self.cert_file:
            yield "key_file", "needs a cert_file"

    @property
    def tls(self) -> bool:
        """True when TLS is used."""
        return self.ca_file is not None or self.cert_file is not None

    @property
    def address(self) -> str:
        """`host:port` for logs; IPv6 in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ClientArguments(TypedDict):
    """Keyword arguments of `aiomqtt.Client`."""

    hostname: str
    port: int
    username: str | None
    password: str | None
    tls_context: "ssl.SSLContext | None"  # quoted: without TLS the module is never loaded


def client_arguments(settings: MqttSettings) -> ClientArguments:
    """Address, credentials and TLS for `aiomqtt.Client(**...)`.

    Reads the files named in `settings`. Raises ConfigError, all problems together, for missing or invalid
    files, and for a world-readable password or key.
    """
    problems: list[str] = []
    password = _password(settings, problems)
    context = _tls_context(settings, problems)
    if problems:
        raise ConfigError("", problems)
    return {
        "hostname": settings.host,
        "port": settings.port,
        "username": settings.username or None,
        "password": password,
        "tls_context": context,
    }


def _password(settings: MqttSettings, problems: list[str]) -> str | None:
    path = settings.password_file
    if path is None or not _private(path, "mqtt.password_file", problems):
        return None
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as exc:
        problems.append(problem("mqtt.password_file", path, _reason(exc)))
        return None


def _tls_context(settings: MqttSettings, problems: list[str]) -> "ssl.SSLContext | None":
    if not settings.tls:
        return None
    try:
        context = ssl.create_default_context(
            cafile=None if settings.ca_file is None else str(settings.ca_file)
        )
    except OSError as exc:
        problems.append(problem("mqtt.ca_file", Path(str(settings.ca_file)), _reason(exc)))
        context = ssl.create_default_context()
    if settings.cert_file is not None:
        key = settings.key_file or settings.cert_file
        name = "mqtt.key_file" if settings.key_file else "mqtt.cert_file"
        if _private(key, name, problems):
            try:
                context.load_cert_chain(settings.cert_file, key, password=lambda: "")  # no prompt
            except OSError as exc:
                problems.append(problem("mqtt.cert_file", settings.cert_file, _reason(exc)))
    return context


def _private(path: Path, name: str, problems: list[str]) -> bool:
    reason = unfit(path)
    if reason is not None:
        problems.append(problem(name, path, reason))
    return reason is None


def _reason(exc: Exception) -> str:
    if isinstance(exc, ssl.SSLError):
        return f"not usable: {exc.reason or exc.args[-1]}"
    if isinstance(exc, OSError):
        return exc.strerror or str(exc)
    return "not UTF-8"
