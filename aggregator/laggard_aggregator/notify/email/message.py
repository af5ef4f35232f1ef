"""Reports and endings as mails: plain text, HTML with its plot inside, and headers that nobody can add to."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email import policy
from email.message import EmailMessage
from email.parser import BytesHeaderParser
from email.utils import formatdate
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from laggard_aggregator.notify.email.settings import MailSettings, spec
from laggard_aggregator.notify.report import Ending, Report
from laggard_aggregator.notify.text import plain
from laggard_aggregator.status import formatting

MAX_SUBJECT_CHARS = 180
MAX_LISTED = 50
"""Components in a digest; the page has all."""
NO_PLOT = "There is no plot: too little is known of its course yet, or matplotlib could not draw it."
_PLOT = "plot"
_ID_BEGINS = "<laggard."
_RED, _GREEN = "#c8321e", "#2e8b4a"
# References of RFC 5322 may be folded, but some servers refuse what is very long.
_MAX_REFERENCES = 20
_POLICY = policy.SMTP.clone(max_line_length=250)  # folded at 78, a subject may begin with an empty line


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes the mails of one site. `page`: where its pages are reached."""

    settings: MailSettings
    site: str
    page: str

    def straggler(self, id_: str, report: Report, plot: bytes | None) -> bytes:
        """One component is slow."""
        lasted = f"for {report.lasted} ({report.metric})"
        subject = f"{report.name} {report.claim} {lasted}"
        return self._mail(id_, "straggler", subject, plot, r=report)

    def digest(self, id_: str, reports: Sequence[Report], count: int, plot: bytes | None) -> bytes:
        """Many are slow at once: `count`, of which `reports` are the worst, with a plot of the first."""
        first = reports[0]
        subject = f"{count} components are slower than their peers, {first.name} the most"
        if math.isfinite(first.severity):
            subject += f" ({formatting.factor(first.severity)})"
        listed = reports[:MAX_LISTED]
        return self._mail(id_, "digest", subject, plot, reports=listed, count=count, url=self.page + "/")

    def resolved(self, id_: str, endings: Sequence[Ending], count: int, told_by: Sequence[str]) -> bytes:
        """`count` are slow no more; `endings` are listed. `told_by`: ids of the mails that told of them."""
        first = endings[0]
        if count > 1:
            subject = f"{count} components are no longer slow, {first.name} among them"
        else:
            subject = f"{first.name} {first.claim}, after {first.lasted}"
        url = first.url if count == 1 else self.page + "/"
        values: dict[str, Any] = {"endings": endings, "count": count, "url": url}
        return self._mail(id_, "resolved", subject, None, told_by=told_by, **values)

    def trial(self, id_: str, report: Report, plot: bytes | None) -> bytes:
        """A mail that tries the way, and says so."""
        subject = f"TEST, nothing is wrong: {report.name} {report.claim}"
        return self._mail(id_, "test", subject, plot, template="straggler", r=report)

    def message_id(self, id_: str) -> str:
        """The Message-ID of the mail with that id, the same whenever it is asked."""
        return f"{_ID_BEGINS}{id_}{_id_ends(self.settings)}"

    def _mail(
        self,
        id_: str,
        kind: str,
        subject: str,
        plot: bytes | None,
        *,
        template: str = "",
        told_by: Sequence[str] = (),
        **values: Any,
    ) -> bytes:
        message = EmailMessage(policy=_POLICY)
        message["Subject"] = plain(_spaced(f"[Laggard {self.site}] {subject}"), MAX_SUBJECT_CHARS)
        message["From"] = self.settings.sender
        message["To"] = ", ".join(self.settings.recipients)
        message["Date"] = formatdate(time.time(), localtime=True)
        message["Message-ID"] = self.message_id(id_)
        for header in ("In-Reply-To", "References") if told_by else ():
            known = [self.message_id(each) for each in told_by[:_MAX_REFERENCES]]
            message[header] = " ".join(known[:1] if header == "In-Reply-To" else known)
        message["Auto-Submitted"] = "auto-generated"  # RFC 3834: nobody's holiday answers it
        message["X-Laggard-Site"] = self.site
        message["X-Laggard-Kind"] = kind
        values |= {
            "site": self.site,
            "subject": message["Subject"],
            "kind": kind,
            "why": self._why(kind),
            "colour": _GREEN if kind == "resolved" else _RED,
            "cid": _PLOT if plot else "",
            "no_plot": NO_PLOT,
        }
        name = template or kind
        message.set_content(_spaced(_filled(f"{name}.txt", values)), cte="quoted-printable")
        message.add_alternative(_filled(f"{name}.html", values), subtype="html", cte="quoted-printable")
        if plot:
            html = message.get_payload()[1]  # type: ignore[index]
            assert isinstance(html, EmailMessage)
            html.add_related(
                plot, "image", "png", cid=f"<{_PLOT}>", filename="plot.png", disposition="inline"
            )
        return message.as_bytes()

    def _why(self, kind: str) -> str:
        """Why one gets the mail, at its foot."""
        if kind == "resolved":
            return "This ends what you were told of earlier."
        once = "You are told once of an episode"
        return f"{once}, and again when it is over." if self.settings.resolved else f"{once}."


def answered(message: bytes, settings: MailSettings) -> tuple[str, ...]:
    """The ids of the mails that a mail refers to: what it says is over, they told of."""
    named = BytesHeaderParser(policy=policy.compat32).parsebytes(message).get("References", "").split()
    return tuple(each.removeprefix(_ID_BEGINS).removesuffix(_id_ends(settings)) for each in named)


def _id_ends(settings: MailSettings) -> str:
    return f"@{spec(settings.sender).rpartition('@')[2]}>"


def _spaced(text: str) -> str:
    """Pages keep figures and units together; who reads or searches plain text wants spaces."""
    return text.replace("\N{NO-BREAK SPACE}", " ")


def _filled(template: str, values: Mapping[str, Any]) -> str:
    return _templates().get_template(template).render(values)


@cache
def _templates() -> Environment:
    """HTML is escaped, whatever is put into it; text is not."""
    return Environment(
        loader=PackageLoader("laggard_aggregator.notify.email"),
        autoescape=select_autoescape(("html",), default=False),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=False,
        keep_trailing_newline=True,
    )
