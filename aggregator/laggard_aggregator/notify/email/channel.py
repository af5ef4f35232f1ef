"""The e-mail channel: `[mail]` settings, messages with their plot, and delivery over SMTP."""

import asyncio
import re
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email import policy
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import formatdate, parseaddr
from functools import cache
from pathlib import Path

import aiosmtplib
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from laggard_aggregator.notify.channel import (
    Channel,
    ChannelSettings,
    Delivery,
    UnavailableError,
    read_secret,
    tls_client,
)
from laggard_aggregator.notify.email import NAME
from laggard_aggregator.notify.email.plot import drawn
from laggard_aggregator.notify.report import Notification
from laggard_aggregator.settings.channels import register
from laggard_aggregator.status.formatting import factor, figure, lasting, minute, plain, spaced
from laggard_common.config import checked, distinct, each, host_name, is_loopback, non_empty, tcp_port
from laggard_common.errors import ConfigError

NO_TLS, STARTTLS, IMPLICIT_TLS = "none", "starttls", "implicit"
_PORTS = {NO_TLS: 25, STARTTLS: 587, IMPLICIT_TLS: 465}
_OF_BOOL = {False: NO_TLS, True: IMPLICIT_TLS}
MAX_RECIPIENTS = 100
MAX_SUBJECT_CHARS = 180
NO_PLOT = "No plot: the timeline is too short yet, or matplotlib could not draw it."
_PLOT = "plot"
_RED, _GREEN = "#c8321e", "#2e8b4a"
# References of RFC 5322 may be folded, but some servers refuse a very long header.
_MAX_REFERENCES = 20
POLICY = policy.SMTP.clone(max_line_length=250)  # folded at 78, a subject may begin with an empty line
CONNECT_SECONDS = 30.0
"""Limit for each answer of the server until authentication is done."""
DELIVER_SECONDS = 600.0
"""Limit for each answer to a mail. A mail given up too soon may have been accepted and is repeated; RFC 5321
(4.5.3.2) asks for five minutes, and ten after the end of the mail."""
Answers = Mapping[str, tuple[int, str]]
"""Code and text by recipient."""

_OF_CONNECTION = frozenset({500, 501, 502, 503, 504, 521, 530, 534, 535, 538})
"""Codes of RFC 5321 and 4954 for commands, their parameters, and authentication: nothing of a mail."""
_ABOUT_CONNECTION = re.compile(
    r"helo\b|ehlo\b|fully.qualified|client host|relay|not permitted to relay|authenticat|starttls|\btls\b"
    r"|block ?list|black ?list|reverse dns|\bptr\b|connection rate|too many (?:connections|messages)",
    re.IGNORECASE,
)


def _tls(value: bool | str) -> str | None:
    known = value in _PORTS or isinstance(value, bool)
    return None if known else f"expected none, starttls or implicit, got {value!r}"


def _address(value: str) -> str | None:
    try:
        bare(value)
    except ValueError:
        return f"expected an address such as laggard@example.org, got {value[:100]!r}"
    return None


def _hello_name(value: str) -> str | None:
    return None if not value or value.startswith("[") else host_name()(value)


def _not_too_many(values: tuple[str, ...]) -> str | None:
    expected = f"expected at most {MAX_RECIPIENTS}, got {len(values)}"
    return None if len(values) <= MAX_RECIPIENTS else expected


def bare(address: str) -> str:
    """`local@domain` of an address with or without a name. Raises ValueError when it is not an address."""
    if not (address.isascii() and address.isprintable()) or len(address) > 320 or {*address} & {*",;"}:
        raise ValueError("not one address in printable ASCII")
    spec = parseaddr(address)[1] or address  # the strict parseaddr of some versions knows no a@[192.0.2.1]
    try:
        parsed = Address(addr_spec=spec)
    except (MessageError, IndexError) as exc:
        raise ValueError("not an address") from exc
    whole = address == spec or address.endswith(f"<{spec}>")
    if not (whole and parsed.username and parsed.domain) or " " in spec:
        raise ValueError("not an address")
    return spec


@dataclass(frozen=True, slots=True)
class MailSettings(ChannelSettings):
    """`[mail]`. `port` None: 25, 587 or 465, depending on `tls` (none, starttls or implicit).

    `ca_file`: authority of the server's certificate, None for the system's. `password_file` holds the
    password of `username`. `hello_name`: the name for EHLO, by default a full name of this host or else the
    domain of `sender`.
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
    hello_name: str = field(default="", metadata=checked(_hello_name))

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
            yield "tls", "a password is only sent encrypted: expected starttls or implicit"


def compose(notification: Notification, settings: MailSettings, plot: bytes | None) -> bytes:
    """The mail of a notification. `plot`: a PNG."""
    kind, site = notification.kind, notification.site
    message = EmailMessage(policy=POLICY)
    message["Subject"] = plain(f"[Laggard {site}] {notification.subject}", MAX_SUBJECT_CHARS)
    message["From"] = settings.sender
    message["To"] = ", ".join(settings.recipients)
    message["Date"] = formatdate(time.time(), localtime=True)
    domain = bare(settings.sender).rpartition("@")[2]
    message["Message-ID"] = message_id(notification.id, domain)
    if notification.resolves:
        known = [message_id(resolved, domain) for resolved in notification.resolves[:_MAX_REFERENCES]]
        message["In-Reply-To"] = known[0]
        message["References"] = " ".join(known)
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no automatic reply
    message["X-Laggard-Site"] = site
    message["X-Laggard-Kind"] = kind
    values = {
        "n": notification,
        "subject": message["Subject"],
        "why": _why(kind, settings.resolved),
        "colour": _GREEN if kind == "resolved" else _RED,
        "cid": _PLOT if plot else "",
        "no_plot": NO_PLOT,
    }
    template = "straggler" if kind == "test" else kind
    text, html = (templates().get_template(f"{template}.{end}").render(values) for end in ("txt", "html"))
    message.set_content(spaced(text), cte="quoted-printable")
    message.add_alternative(html, subtype="html", cte="quoted-printable")
    if plot:
        part = message.get_payload()[1]  # type: ignore[index]
        assert isinstance(part, EmailMessage)
        part.add_related(plot, "image", "png", cid=f"<{_PLOT}>", filename="plot.png", disposition="inline")
    return message.as_bytes()


def message_id(id_: str, domain: str) -> str:
    """Message-ID of a message of the outbox."""
    return f"<laggard.{id_}@{domain}>"


def _why(kind: str, resolved: bool) -> str:
    """The foot: why the recipient gets this mail."""
    if kind == "resolved":
        return "This mail resolves an alarm that was reported earlier."
    return f"One mail is sent when an alarm is raised{', and one when it is cleared' if resolved else ''}."


@cache
def templates() -> Environment:
    """HTML is escaped, text is not."""
    environment = Environment(
        loader=PackageLoader("laggard_aggregator.notify.email"),
        autoescape=select_autoescape(("html",), default=False),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {word.__name__: word for word in (factor, figure, lasting, minute, plain)}
    return environment


@register
class MailChannel(Channel):
    """Mails with a plot of the worst component, by SMTP."""

    name = NAME
    settings_class = MailSettings
    settings: MailSettings

    def __init__(self, settings: MailSettings) -> None:
        self.settings = settings
        self.destination = settings.address
        self.recipients = tuple(bare(recipient) for recipient in settings.recipients)
        problems: list[str] = []
        self._password = next(iter(read_secret("password_file", settings.password_file, problems)), None)
        encrypted = settings.encryption != NO_TLS
        self._tls = tls_client("ca_file", settings.ca_file, problems) if encrypted else None
        if problems:
            raise ConfigError("", problems)

    async def render(self, notification: Notification) -> bytes:
        """Draws the plot and composes the mail."""
        raised = notification.kind != "resolved"
        plot = await drawn(notification.reports[0]) if raised else None
        return await asyncio.to_thread(compose, notification, self.settings, plot)

    async def send(self, message: bytes, recipients: tuple[str, ...]) -> Delivery:
        """Sends a mail once. Raises UnavailableError, without a secret, when the server accepts none now.

        A refused sender, or name of this host, is a problem of the configuration and not of this mail: mails
        wait.
        """
        settings = self.settings
        sender_domain = bare(settings.sender).rpartition("@")[2]
        smtp = aiosmtplib.SMTP(
            hostname=settings.server,
            port=settings.effective_port,
            username=settings.username or None,
            password=self._password,
            timeout=CONNECT_SECONDS,
            use_tls=settings.encryption == IMPLICIT_TLS,
            start_tls=settings.encryption == STARTTLS,
            tls_context=self._tls,
            local_hostname=await asyncio.to_thread(hello_name, settings.hello_name, sender_domain),
        )
        try:
            await smtp.connect()
            sender = bare(settings.sender)
            refused, _ = await smtp.sendmail(sender, recipients, message, timeout=DELIVER_SECONDS)
        except aiosmtplib.SMTPRecipientsRefused as exc:
            answers = {refusal.recipient: (refusal.code, refusal.message) for refusal in exc.recipients}
            return delivery(answers, len(recipients))
        except aiosmtplib.SMTPDataError as exc:
            return delivery(dict.fromkeys(recipients, (exc.code, exc.message)), len(recipients))
        except aiosmtplib.SMTPResponseException as exc:
            reason = said(exc.code, exc.message)
            if isinstance(exc, aiosmtplib.SMTPAuthenticationError):
                reason = f"{settings.username} was refused: {reason}"
            elif isinstance(exc, aiosmtplib.SMTPSenderRefused):
                reason = f"the sender is refused: {reason}"
            raise UnavailableError(reason) from exc
        except (aiosmtplib.SMTPException, OSError, ValueError) as exc:
            raise UnavailableError.caused_by(exc) from exc
        finally:
            try:
                await smtp.quit(timeout=2.0)
            except (aiosmtplib.SMTPException, OSError):
                smtp.close()
        answers = {who: (answer.code, answer.message) for who, answer in refused.items()}
        return delivery(answers, len(recipients))


def delivery(answers: Answers, recipients: int) -> Delivery:
    """Refusals for now (4yz) and for good (5yz), of a mail to `recipients`.

    Raises UnavailableError when all are refused for the sake of the connection: another mail would be, too.
    """
    if len(answers) == recipients and all(_is_of_connection(*answer) for answer in answers.values()):
        code, text = next(iter(answers.values()))
        raise UnavailableError(f"the server refuses mail from this host: {said(code, text)}")
    return Delivery(
        retry={who: said(code, text) for who, (code, text) in answers.items() if code < 500},
        refused={who: said(code, text) for who, (code, text) in answers.items() if code >= 500},
    )


def said(code: int, text: str) -> str:
    """An answer of the server in one line."""
    return plain(f"{code} {' '.join(text.split())}")


def hello_name(configured: str, sender_domain: str) -> str:
    """The name for EHLO: the configured one, else this host's if it is a full one, else the sender's domain.

    Servers refuse names such as `localhost`, or without a domain.
    """
    if configured:
        return configured
    own = socket.getfqdn()
    is_full = "." in own.strip(".") and not own.startswith("localhost") and not own.endswith(".localdomain")
    if is_full and own.isascii():
        return own
    return sender_domain


def _is_of_connection(code: int, text: str) -> bool:
    return code >= 500 and (code in _OF_CONNECTION or _ABOUT_CONNECTION.search(text) is not None)
