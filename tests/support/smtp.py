"""A real SMTP server on loopback, which keeps what arrives and answers as a test wants."""

import asyncio
import email
import ssl
import threading
import warnings
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from email import policy
from email.message import EmailMessage

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from laggard_aggregator.notify.email.channel import MailSettings
from tests.support.loop_thread import beside
from tests.support.wait import LIMIT_SECONDS, time_limit


@dataclass(frozen=True)
class Arrived:
    """A mail as the server took it."""

    recipients: tuple[str, ...]
    raw: bytes
    authenticated: bool
    encrypted: bool

    @property
    def message(self) -> EmailMessage:
        parsed = email.message_from_bytes(self.raw, policy=policy.default)
        assert isinstance(parsed, EmailMessage)
        return parsed

    @property
    def subject(self) -> str:
        return str(self.message["Subject"])


@dataclass
class Box:
    """The server's side. `replies`: answers to the next mails' data, then 250; `recipients`: by address.

    The reply `gone` takes the mail, and ends the connection before it says so.
    """

    replies: deque[str] = field(default_factory=deque)
    recipients: dict[str, deque[str]] = field(default_factory=dict)
    sender: str = ""
    passwords: dict[str, str] = field(default_factory=dict)
    mails: list[Arrived] = field(default_factory=list)
    hello_names: list[str] = field(default_factory=list)
    tried: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    port: int = 0

    async def handle_EHLO(
        self, _: SMTP, session: Session, __: Envelope, name: str, responses: list[str]
    ) -> list[str]:
        self.hello_names.append(name)
        session.host_name = name
        return responses

    async def handle_MAIL(
        self, _: SMTP, __: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.sender:
            return self.sender
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return "250 OK"

    async def handle_RCPT(
        self, _: SMTP, __: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        answers = self.recipients.get(address)
        if answers:
            answer = answers.popleft()
            if not answer.startswith("250"):
                await self._note()
                return answer
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        reply = self.replies.popleft() if self.replies else "250 OK"
        if reply == "gone":
            assert isinstance(server.transport, asyncio.Transport)
            server.transport.abort()
        if reply.startswith("250") or reply == "gone":
            raw = envelope.original_content
            assert isinstance(raw, bytes)
            secure = session.ssl is not None
            self.mails.append(Arrived(tuple(envelope.rcpt_tos), raw, session.authenticated is True, secure))
        await self._note()
        return reply

    def authenticate(
        self, _: SMTP, __: Session, ___: Envelope, ____: str, given: LoginPassword
    ) -> AuthResult:
        known = self.passwords.get(given.login.decode())
        return AuthResult(success=known is not None and known == given.password.decode(), handled=False)

    async def until(self, mails: int = 0, tried: int = 0) -> None:
        """Waits until so many mails arrived and so many tries were made."""
        async with time_limit(), self.changed:
            await self.changed.wait_for(lambda: len(self.mails) >= mails and self.tried >= tried)

    async def _note(self) -> None:
        async with self.changed:
            self.tried += 1
            self.changed.notify_all()


@asynccontextmanager
async def served(
    box: Box,
    *,
    starttls: ssl.SSLContext | None = None,
    implicit: ssl.SSLContext | None = None,
    port: int = 0,
) -> AsyncIterator[Box]:
    """The server while the block lasts; it may come back on the `port` that it had."""

    def protocol() -> SMTP:
        with warnings.catch_warnings():  # it knows no TLS but STARTTLS
            warnings.simplefilter("ignore")
            return SMTP(
                box,
                hostname="mail.example.org",
                tls_context=starttls,
                require_starttls=starttls is not None,
                auth_required=bool(box.passwords),
                auth_require_tls=starttls is not None,
                authenticator=box.authenticate if box.passwords else None,
            )

    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", port, ssl=implicit)
    box.port = server.sockets[0].getsockname()[1]
    try:
        yield box
    finally:
        server.close()
        await server.wait_closed()


@contextmanager
def mail_server(port: int) -> Iterator[Box]:
    """The server in a thread of its own while the block lasts, for tests without an event loop."""
    box, listening = Box(), threading.Event()

    async def serve(stop: asyncio.Event) -> None:
        async with served(box, port=port):
            listening.set()
            await stop.wait()

    with beside(serve):
        assert listening.wait(LIMIT_SECONDS)
        yield box


def settings(port: int, **others: object) -> MailSettings:
    """`[mail]` that tells of everything at once, through the server at `port`."""
    values: dict[str, object] = {
        "server": "127.0.0.1",
        "sender": "Laggard <laggard@example.org>",
        "recipients": ("ops@example.org",),
        "port": port,
        "after_seconds": 0.0,
        "learning_seconds": 0.0,
        "gather_seconds": 0.0,
    }
    return MailSettings(**{**values, **others})  # type: ignore[arg-type]
