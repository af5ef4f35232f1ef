"""Mails: plain text, HTML with the plot inside, and headers that no name can add to."""

import time
from email import policy
from email.message import EmailMessage
from email.utils import formatdate
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from laggard_aggregator.notify.email.settings import MailSettings, bare
from laggard_aggregator.notify.report import Notification
from laggard_aggregator.status import formatting
from laggard_aggregator.status.formatting import minute, plain, slower, spaced

MAX_SUBJECT_CHARS = 180
NO_PLOT = "No plot: the timeline is too short yet, or matplotlib could not draw it."
_PLOT = "plot"
_RED, _GREEN = "#c8321e", "#2e8b4a"
# References of RFC 5322 may be folded, but some servers refuse a very long header.
_MAX_REFERENCES = 20
_POLICY = policy.SMTP.clone(max_line_length=250)  # folded at 78, a subject may begin with an empty line


def compose(notification: Notification, settings: MailSettings, plot: bytes | None) -> bytes:
    """The mail of a notification. `plot`: a PNG."""
    kind, site = notification.kind, notification.site
    message = EmailMessage(policy=_POLICY)
    message["Subject"] = plain(f"[Laggard {site}] {notification.subject}", MAX_SUBJECT_CHARS)
    message["From"] = settings.sender
    message["To"] = ", ".join(settings.recipients)
    message["Date"] = formatdate(time.time(), localtime=True)
    domain = bare(settings.sender).rpartition("@")[2]
    message["Message-ID"] = _message_id(notification.id, domain)
    if notification.resolves:
        known = [_message_id(each, domain) for each in notification.resolves[:_MAX_REFERENCES]]
        message["In-Reply-To"] = known[0]
        message["References"] = " ".join(known)
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no automatic reply
    message["X-Laggard-Site"] = site
    message["X-Laggard-Kind"] = kind
    values = {
        "n": notification,
        "subject": message["Subject"],
        "why": _why(notification, settings),
        "colour": _GREEN if kind == "resolved" else _RED,
        "cid": _PLOT if plot else "",
        "no_plot": NO_PLOT,
    }
    template = "straggler" if kind == "test" else kind
    message.set_content(spaced(_rendered(f"{template}.txt", values)), cte="quoted-printable")
    message.add_alternative(_rendered(f"{template}.html", values), subtype="html", cte="quoted-printable")
    if plot:
        html = message.get_payload()[1]  # type: ignore[index]
        assert isinstance(html, EmailMessage)
        html.add_related(plot, "image", "png", cid=f"<{_PLOT}>", filename="plot.png", disposition="inline")
    return message.as_bytes()


def _message_id(id_: str, domain: str) -> str:
    return f"<laggard.{id_}@{domain}>"


def _why(notification: Notification, settings: MailSettings) -> str:
    """The foot: why the recipient gets this mail."""
    if notification.kind == "resolved":
        return "This mail resolves an alarm that was reported earlier."
    if settings.resolved:
        return "One mail is sent when an alarm is raised, and one when it is cleared."
    return "One mail is sent when an alarm is raised."


def _rendered(template: str, values: dict[str, Any]) -> str:
    return _templates().get_template(template).render(values)


@cache
def _templates() -> Environment:
    """HTML is escaped, text is not."""
    environment = Environment(
        loader=PackageLoader("laggard_aggregator.notify.email"),
        autoescape=select_autoescape(("html",), default=False),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=False,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "factor": formatting.factor,
        "figure": formatting.figure,
        "lasting": formatting.lasting,
        "minute": minute,
        "slower": slower,
    }
    return environment
