"""One connection to the mail server, and what becomes of each mail that is tried on it."""

import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiosmtplib

from laggard_aggregator.notify.email.settings import IMPLICIT_TLS, STARTTLS, Access, MailSettings, spec
from laggard_aggregator.notify.text import plain
from laggard_common.errors import ServiceError

STEP_SECONDS = 30.0
"""How long the server may take for each of its answers, until it has let us in."""
DELIVER_SECONDS = 600.0
"""How long it may take for each answer to a mail: one that was given up too soon may have been taken, and is
repeated. RFC 5321 (4.5.3.2) asks for five minutes, and ten after the mail's end."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a mail: who may get it another time, and who never, with what the server said of each.

    All others have it.
    """

    later: Mapping[str, str] = field(default_factory=dict)
    never: Mapping[str, str] = field(default_factory=dict)


class Connection:
    """A server that has let us in."""

    def __init__(self, smtp: aiosmtplib.SMTP, settings: MailSettings) -> None:
        self._smtp = smtp
        self._sender = spec(settings.sender)

    async def deliver(self, message: bytes, recipients: tuple[str, ...]) -> Result:
        """Gives a mail to the server. Raises ServiceError when the server does not take any mail now.

        A refused sender is our configuration's matter, not this mail's.
        """
        try:
            refused, _ = await self._smtp.sendmail(self._sender, recipients, message, timeout=DELIVER_SECONDS)
        except aiosmtplib.SMTPRecipientsRefused as exc:
            return _sorted({each.recipient: (each.code, each.message) for each in exc.recipients})
        except aiosmtplib.SMTPSenderRefused as exc:
            raise ServiceError(f"the sender is refused: {_said(exc.code, exc.message)}") from exc
        except aiosmtplib.SMTPDataError as exc:
            return _sorted(dict.fromkeys(recipients, (exc.code, exc.message)))
        except (aiosmtplib.SMTPException, OSError) as exc:
            raise ServiceError(_why(exc)) from exc
        return _sorted({who: (answer.code, answer.message) for who, answer in refused.items()})


@asynccontextmanager
async def connected(settings: MailSettings, access: Access) -> AsyncIterator[Connection]:
    """A connection, encrypted and authenticated as `settings` ask. Raises ServiceError, without a secret."""
    encryption = settings.encryption
    smtp = aiosmtplib.SMTP(
        hostname=settings.server,
        port=settings.at_port,
        username=settings.username or None,
        password=access.password,
        timeout=STEP_SECONDS,
        use_tls=encryption == IMPLICIT_TLS,
        start_tls=encryption == STARTTLS,
        tls_context=access.tls,
    )
    try:
        await smtp.connect()
    except aiosmtplib.SMTPAuthenticationError as exc:
        raise ServiceError(f"{settings.username} is not let in: {_said(exc.code, exc.message)}") from exc
    except (aiosmtplib.SMTPException, OSError, ValueError) as exc:
        raise ServiceError(_why(exc)) from exc
    try:
        yield Connection(smtp, settings)
    finally:
        await _leave(smtp)


async def _leave(smtp: aiosmtplib.SMTP) -> None:
    """Says good-bye where somebody still listens."""
    try:
        await smtp.quit(timeout=2.0)
    except (aiosmtplib.SMTPException, OSError):
        smtp.close()


def _sorted(refused: Mapping[str, tuple[int, str]]) -> Result:
    """Refusals by whether they are for now (4yz) or for good (5yz)."""
    return Result(
        later={who: _said(code, said) for who, (code, said) in refused.items() if code < 500},
        never={who: _said(code, said) for who, (code, said) in refused.items() if code >= 500},
    )


def _said(code: int, message: str) -> str:
    return plain(f"{code} {' '.join(message.split())}")


def _why(exc: BaseException) -> str:
    """What is wrong in a few words: what the system or TLS says, where that is behind it."""
    if isinstance(exc, aiosmtplib.SMTPResponseException):
        return _said(exc.code, exc.message)
    behind: BaseException | None = exc
    while behind is not None:
        if isinstance(behind, ssl.SSLCertVerificationError):
            return plain(f"its certificate is not trusted: {behind.verify_message}")
        if isinstance(behind, ssl.SSLError):
            return plain(f"no TLS: {behind.reason or behind}")
        if isinstance(behind, OSError) and behind.errno is not None and behind.errno > 0:
            return plain(os.strerror(behind.errno))
        if isinstance(behind, OSError) and behind.strerror:
            return plain(behind.strerror)
        behind = behind.__cause__
    return plain(" ".join(str(exc).split()) or type(exc).__name__)
