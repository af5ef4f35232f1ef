"""A real SMTP server beside real processes: what arrives is kept."""

import contextlib
import email
from collections.abc import Iterator
from email import policy
from email.message import EmailMessage

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session


class _Kept:
    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []

    async def handle_DATA(self, _: SMTP, __: Session, envelope: Envelope) -> str:
        assert isinstance(envelope.original_content, bytes)
        parsed = email.message_from_bytes(envelope.original_content, policy=policy.default)
        assert isinstance(parsed, EmailMessage)
        self.mails.append(parsed)
        return "250 OK"


@contextlib.contextmanager
def mail_server(port: int) -> Iterator[list[EmailMessage]]:
    """The mails that arrive at `port` of loopback while the block lasts."""
    kept = _Kept()
    controller = Controller(kept, hostname="127.0.0.1", port=port)
    controller.start()
    try:
        yield kept.mails
    finally:
        controller.stop()
