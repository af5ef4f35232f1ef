"""The mail channel: table `[mail]`. One SMTP connection for each attempt, and the outcome by recipient."""

import asyncio
from collections.abc import Mapping

import aiosmtplib

from laggard_aggregator.notify.channel import Channel, Delivery, UnavailableError
from laggard_aggregator.notify.email.message import compose
from laggard_aggregator.notify.email.plot import drawn
from laggard_aggregator.notify.email.settings import (
    IMPLICIT_TLS,
    STARTTLS,
    Access,
    MailSettings,
    access,
    bare,
)
from laggard_aggregator.notify.report import Notification
from laggard_aggregator.settings.channels import register
from laggard_aggregator.status.formatting import plain

CONNECT_SECONDS = 30.0
"""Limit for each answer of the server until authentication is done."""
DELIVER_SECONDS = 600.0
"""Limit for each answer to a mail. A mail given up too soon may have been accepted and is repeated; RFC 5321
(4.5.3.2) asks for five minutes, and ten after the end of the mail."""


@register
class MailChannel(Channel):
    """Mails with a plot of the worst component, by SMTP."""

    name = "mail"
    settings_class = MailSettings
    settings: MailSettings

    def __init__(self, settings: MailSettings) -> None:
        self.settings = settings
        self.destination = settings.address
        self.recipients = tuple(bare(each) for each in settings.recipients)
        self._access = access(settings)

    async def render(self, notification: Notification) -> bytes:
        """Draws the plot and composes the mail."""
        plot = await drawn(notification.reports[0]) if notification.reports else None
        return await asyncio.to_thread(compose, notification, self.settings, plot)

    async def send(self, message: bytes, recipients: tuple[str, ...]) -> Delivery:
        """Sends a mail once."""
        return await _deliver(self.settings, self._access, message, recipients)


async def _deliver(
    settings: MailSettings, access: Access, message: bytes, recipients: tuple[str, ...]
) -> Delivery:
    """Sends one mail. Raises UnavailableError, without a secret, when the server accepts no mail now.

    A refused sender is a problem of the configuration and not of this mail, so that mails wait.
    """
    smtp = await _connected(settings, access)
    try:
        sender = bare(settings.sender)
        refused, _ = await smtp.sendmail(sender, recipients, message, timeout=DELIVER_SECONDS)
    except aiosmtplib.SMTPRecipientsRefused as exc:
        return _by_code({each.recipient: (each.code, each.message) for each in exc.recipients})
    except aiosmtplib.SMTPSenderRefused as exc:
        raise UnavailableError(f"the sender is refused: {_answer(exc.code, exc.message)}") from exc
    except aiosmtplib.SMTPDataError as exc:
        return _by_code(dict.fromkeys(recipients, (exc.code, exc.message)))
    except (aiosmtplib.SMTPException, OSError) as exc:
        raise _unavailable(exc) from exc
    finally:
        await _quit(smtp)
    return _by_code({who: (answer.code, answer.message) for who, answer in refused.items()})


async def _connected(settings: MailSettings, access: Access) -> aiosmtplib.SMTP:
    smtp = aiosmtplib.SMTP(
        hostname=settings.server,
        port=settings.effective_port,
        username=settings.username or None,
        password=access.password,
        timeout=CONNECT_SECONDS,
        use_tls=settings.encryption == IMPLICIT_TLS,
        start_tls=settings.encryption == STARTTLS,
        tls_context=access.tls,
    )
    try:
        await smtp.connect()
    except aiosmtplib.SMTPAuthenticationError as exc:
        answer = _answer(exc.code, exc.message)
        raise UnavailableError(f"{settings.username} is not let in: {answer}") from exc
    except (aiosmtplib.SMTPException, OSError, ValueError) as exc:
        raise _unavailable(exc) from exc
    return smtp


async def _quit(smtp: aiosmtplib.SMTP) -> None:
    try:
        await smtp.quit(timeout=2.0)
    except (aiosmtplib.SMTPException, OSError):
        smtp.close()


def _by_code(refused: Mapping[str, tuple[int, str]]) -> Delivery:
    """Refusals for now (4yz) and for good (5yz)."""
    return Delivery(
        retry={who: _answer(code, text) for who, (code, text) in refused.items() if code < 500},
        refused={who: _answer(code, text) for who, (code, text) in refused.items() if code >= 500},
    )


def _answer(code: int, text: str) -> str:
    return plain(f"{code} {' '.join(text.split())}")


def _unavailable(exc: BaseException) -> UnavailableError:
    if isinstance(exc, aiosmtplib.SMTPResponseException):
        return UnavailableError(_answer(exc.code, exc.message))
    return UnavailableError.caused_by(exc)
