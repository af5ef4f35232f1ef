"""Answers of an SMTP server: whose fault a refusal is, and the name by which this host introduces itself."""

import re
import socket
from collections.abc import Mapping

from laggard_aggregator.notify.channel import Delivery, UnavailableError
from laggard_aggregator.status.formatting import plain

Answers = Mapping[str, tuple[int, str]]
"""Code and text by recipient."""

_OF_CONNECTION = frozenset({500, 501, 502, 503, 504, 521, 530, 534, 535, 538})
"""Codes of RFC 5321 and 4954 for commands, their parameters, and authentication: nothing of a mail."""
_ABOUT_CONNECTION = re.compile(
    r"helo\b|ehlo\b|fully.qualified|client host|relay|not permitted to relay|authenticat|starttls|\btls\b"
    r"|block ?list|black ?list|reverse dns|\bptr\b|connection rate|too many (?:connections|messages)",
    re.IGNORECASE,
)


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
