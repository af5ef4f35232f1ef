"""Mails to the owners of slow jobs: one a job, for those with a known cause (`[jobs] owner_mail`).

The background task's thread notes verdicts, the dispatcher queues their mails in its outbox. A job's mail has
an id of its key, so that a later verdict on a revised join is not mailed.
"""

import re
import time
from collections import deque
from collections.abc import Mapping
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any, Final
from urllib.parse import quote

from laggard_aggregator.jobs.verdict.judge import RunReport
from laggard_aggregator.notify.email.channel import (
    MAX_SUBJECT_CHARS,
    POLICY,
    MailSettings,
    bare,
    message_id,
    templates,
)
from laggard_aggregator.notify.incidents import digest
from laggard_aggregator.notify.outbox import QueuedMessage
from laggard_aggregator.settings.jobs import USER_PLACE
from laggard_aggregator.status.formatting import plain, spaced
from laggard_common.clock import Clock

MOST_WAITING: Final = 1000
"""Mails that wait for the dispatcher; further ones are left out."""
LATEST_SECONDS: Final = 2 * 86_400.0
"""After the end of a job no mail is written any more; the outbox keeps ids for longer."""
_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


class OwnerMails:
    """Writes mails to addresses made of `pattern` and the job's user; `waiting` for the dispatcher.

    `page`: address of the site's pages.
    """

    def __init__(self, pattern: str, settings: MailSettings, site: str, page: str, clock: Clock) -> None:
        self._pattern, self._settings = pattern, settings
        self._site, self._page, self._clock = site, page, clock
        self.waiting: deque[QueuedMessage] = deque()

    def judged(self, job: Mapping[str, Any], report: RunReport) -> None:
        """Notes the mail of a slow job with a cause; for any thread."""
        now = self._clock.wall_ns() / 1e9
        is_recent = job["end"] is not None and now - job["end"] < LATEST_SECONDS
        if not (report.has_cause and is_recent and _USER.fullmatch(job["user"] or "")):
            return
        if len(self.waiting) >= MOST_WAITING:
            return
        try:
            to = bare(self._pattern.replace(USER_PLACE, job["user"]))
        except ValueError:
            return
        id_ = f"j.{digest(job['job_key'])}"
        self.waiting.append(QueuedMessage(id_, now, (to,), self._composed(id_, to, job, report)))

    def _composed(self, id_: str, to: str, job: Mapping[str, Any], report: RunReport) -> bytes:
        message = EmailMessage(policy=POLICY)
        subject = f"[Laggard {self._site}] Your job {job['job']} ({job['application']}) was slow"
        message["Subject"] = plain(subject, MAX_SUBJECT_CHARS)
        message["From"] = self._settings.sender
        message["To"] = to
        message["Date"] = formatdate(time.time(), localtime=True)
        message["Message-ID"] = message_id(id_, bare(self._settings.sender).rpartition("@")[2])
        message["Auto-Submitted"] = "auto-generated"
        message["X-Laggard-Site"] = self._site
        message["X-Laggard-Kind"] = "job"
        values = {
            "n": {"kind": "job", "site": self._site},
            "job": {name: plain(str(job[name] or "")) for name in ("job", "name", "application")},
            "report": report,
            "url": f"{self._page}/jobs/{quote(job['job_key'], safe='')}" if self._page else "",
            "subject": message["Subject"],
            "why": "You get one mail for each job that was slow for a known reason.",
            "colour": "#c8321e",
        }
        text, html = (templates().get_template(f"job.{end}").render(values) for end in ("txt", "html"))
        message.set_content(spaced(text), cte="quoted-printable")
        message.add_alternative(html, subtype="html", cte="quoted-printable")
        return message.as_bytes()
