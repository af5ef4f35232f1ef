"""`[mail]`: server, encryption, sender and recipients."""

import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.errors import MessageError
from email.headerregistry import Address
from email.utils import parseaddr
from pathlib import Path

from laggard_aggregator.notify.access import read_secret, tls_client
from laggard_aggregator.notify.channel import ChannelSettings
from laggard_common.config import checked, distinct, each, host_name, is_loopback, non_empty, tcp_port
from laggard_common.errors import ConfigError

NO_TLS, STARTTLS, IMPLICIT_TLS = "none", "starttls", "implicit"
_PORTS = {NO_TLS: 25, STARTTLS: 587, IMPLICIT_TLS: 465}
_OF_BOOL = {False: NO_TLS, True: IMPLICIT_TLS}
MAX_RECIPIENTS = 100


def _tls(value: bool | str) -> str | None:
    known = value in _PORTS or isinstance(value, bool)
    return None if known else f"expected none, starttls or implicit, got {value!r}"


def _address(value: str) -> str | None:
    try:
        bare(value)
    except ValueError:
        return f"expected an address such as laggard@example.org, got {value[:100]!r}"
    return None


def _not_too_many(values: tuple[str, ...]) -> str | None:
    expected = f"expected at most {MAX_RECIPIENTS}, got {len(values)}"
    return None if len(values) <= MAX_RECIPIENTS else expected


def bare(address: str) -> str:
    """`local@domain` of an address with or without a name. Raises ValueError when it is no address."""
    if not (address.isascii() and address.isprintable()) or len(address) > 320 or {*address} & {*",;"}:
        raise ValueError("not one address in printable ASCII")
    found = parseaddr(address)[1]
    try:
        parsed = Address(addr_spec=found)
    except (MessageError, IndexError) as exc:
        raise ValueError("not an address") from exc
    whole = address == found or address.endswith(f"<{found}>")
    if not (whole and parsed.username and parsed.domain) or " " in found:
        raise ValueError("not an address")
    return found


@dataclass(frozen=True, slots=True)
class MailSettings(ChannelSettings):
    """`[mail]`. `port` None: 25, 587 or 465, depending on `tls` (none, starttls or implicit).

    `ca_file`: authority of the server's certificate, None for the system's. `password_file` holds the
    password of `username`.
    """

    server: str = field(metadata=checked(non_empty(), host_name()))
    sender: str = field(metadata=checked(_address))
    recipients: tuple[str, ...] = field(
        metadata=checked(non_empty(), distinct(), each(_address), _not_too_many)
    )
    port: int | None = field(default=None, metadata=checked(tcp_port()))
    tls: bool | str = field(default=NO_TLS, metadata=checked(_tls))
    ca_file: Path | None = None
    username: str = ""
    password_file: Path | None = None

    @property
    def encryption(self) -> str:
        """NO_TLS, STARTTLS or IMPLICIT_TLS."""
        return _OF_BOOL[self.tls] if isinstance(self.tls, bool) else self.tls

    @property
    def effective_port(self) -> int:
        """The port to connect to."""
        return self.port or _PORTS[self.encryption]

    @property
    def address(self) -> str:
        """`host:port` for logs; IPv6 in brackets."""
        host = f"[{self.server}]" if ":" in self.server else self.server
        return f"{host}:{self.effective_port}"

    def problems(self) -> Iterator[tuple[str, str]]:
        """Settings that do not go together."""
        if bool(self.username) != (self.password_file is not None):
            yield "username", "needs a password_file, and that a username"
        if self.ca_file and self.encryption == NO_TLS:
            yield "ca_file", "is for tls = starttls or implicit"
        if self.password_file and self.encryption == NO_TLS and not is_loopback(self.server):
            yield "tls", "a password travels only encrypted: expected starttls or implicit"


@dataclass(frozen=True, slots=True)
class Access:
    """Password and TLS of the connection. `repr` does not show the password."""

    password: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None


def access(settings: MailSettings) -> Access:
    """Reads the files that `settings` name. Raises ConfigError with all that is wrong with them."""
    problems: list[str] = []
    password = read_secret("password_file", settings.password_file, problems)
    encrypted = settings.encryption != NO_TLS
    tls = tls_client("ca_file", settings.ca_file, problems) if encrypted else None
    if problems:
        raise ConfigError("", problems)
    return Access(password[0] if password else None, tls)
