"""`[mail]`: who is told by e-mail, through which server, after how long."""

import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.errors import MessageError
from email.headerregistry import Address
from email.utils import parseaddr
from pathlib import Path

from laggard_common.config import (
    Check,
    between,
    checked,
    distinct,
    each,
    host_name,
    is_loopback,
    non_empty,
    tcp_port,
)
from laggard_common.errors import ConfigError
from laggard_common.secret_files import unfit

NO_TLS, STARTTLS, IMPLICIT_TLS = "none", "starttls", "implicit"
_PORTS = {NO_TLS: 25, STARTTLS: 587, IMPLICIT_TLS: 465}
_SAID = {False: NO_TLS, True: IMPLICIT_TLS}
MAX_PASSWORD_BYTES = 4096
MAX_RECIPIENTS = 100


def _tls() -> Check:
    def check(value: bool | str) -> str | None:
        if value in _PORTS or isinstance(value, bool):
            return None
        return f"expected none, starttls or implicit, got {value!r}"

    return check


def _address() -> Check:
    def check(value: str) -> str | None:
        try:
            spec(value)
        except ValueError:
            return f"expected an address such as laggard@example.org, got {value[:100]!r}"
        return None

    return check


def _at_most(most: int) -> Check:
    return lambda values: None if len(values) <= most else f"expected at most {most}, got {len(values)}"


def spec(address: str) -> str:
    """The bare `local@domain` of `Name <local@domain>` or of itself. Raises ValueError for anything else."""
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
class MailSettings:
    """`[mail]`. `port` None: 25, 587 or 465, as `tls` goes. `tls`: none, starttls or implicit.

    `ca_file`: who signed the server's certificate, None for the system's authorities. The password is in
    `password_file`. An alarm is mailed when its component has straggled for `after_seconds` and is at least
    `least_severity` times slower, not in the site's first `learning_seconds`, and with what else falls due in
    `gather_seconds`. Of more than `digest_over` components at once there is one digest. At most
    `most_per_hour` mails are written; `resolved`: also one when it is over.
    """

    server: str = field(metadata=checked(non_empty(), host_name()))
    sender: str = field(metadata=checked(_address()))
    recipients: tuple[str, ...] = field(
        metadata=checked(non_empty(), distinct(), each(_address()), _at_most(MAX_RECIPIENTS))
    )
    port: int | None = field(default=None, metadata=checked(tcp_port()))
    tls: bool | str = field(default=NO_TLS, metadata=checked(_tls()))
    ca_file: Path | None = None
    username: str = ""
    password_file: Path | None = None
    after_seconds: float = field(default=345_600.0, metadata=checked(between(0)))
    least_severity: float = field(default=1.0, metadata=checked(between(0)))
    learning_seconds: float = field(default=86_400.0, metadata=checked(between(0)))
    gather_seconds: float = field(default=30.0, metadata=checked(between(0, 3600)))
    digest_over: int = field(default=3, metadata=checked(between(0, 1000)))
    most_per_hour: int = field(default=12, metadata=checked(between(1, 10_000)))
    resolved: bool = True

    @property
    def encryption(self) -> str:
        """NO_TLS, STARTTLS or IMPLICIT_TLS."""
        return _SAID[self.tls] if isinstance(self.tls, bool) else self.tls

    @property
    def at_port(self) -> int:
        """The port to connect to."""
        return self.port or _PORTS[self.encryption]

    @property
    def address(self) -> str:
        """`host:port` as it is shown in logs; IPv6 in brackets."""
        return f"[{self.server}]:{self.at_port}" if ":" in self.server else f"{self.server}:{self.at_port}"

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
    """What the server wants to see of us. `password` is not shown by `repr`."""

    password: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None


def access(settings: MailSettings) -> Access:
    """Reads the files that `settings` name. Raises ConfigError with all that is wrong with them."""
    problems: list[str] = []
    found = Access(_password(settings.password_file, problems), _context(settings, problems))
    if problems:
        raise ConfigError("", problems)
    return found


def _password(path: Path | None, problems: list[str]) -> str | None:
    """The file's first line; what is wrong never shows it."""
    if path is None:
        return None
    reason = unfit(path)
    if reason is None:
        try:
            with path.open("rb") as file:
                line = file.read(MAX_PASSWORD_BYTES).decode().partition("\n")[0].rstrip("\r")
        except UnicodeDecodeError:
            reason = "not UTF-8"
        except OSError as exc:
            reason = exc.strerror or str(exc)
        else:
            if line:
                return line
            reason = "is empty"
    problems.append(f"mail.password_file: {path}: {reason}")
    return None


def _context(settings: MailSettings, problems: list[str]) -> ssl.SSLContext | None:
    if settings.encryption == NO_TLS:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
    except OSError as exc:
        reason = f"not usable: {exc.reason}" if isinstance(exc, ssl.SSLError) else exc.strerror
        problems.append(f"mail.ca_file: {settings.ca_file}: {reason}")
        return None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
