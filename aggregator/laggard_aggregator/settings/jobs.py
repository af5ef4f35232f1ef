"""Settings of jobs: `[jobs]`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from laggard_common.config import between, checked, topic_level

JOBID_CODES = {
    "j": r"(?P<j>[0-9]+)",
    "u": r"(?P<u>[0-9]+)",
    "g": r"[0-9]+",
    "p": r"[0-9]+",
    "e": r"[^/]*",
    "h": r"(?P<h>[A-Za-z0-9_-]+)",
    "H": r"(?P<h>[A-Za-z0-9._-]+)",
}
"""Codes of Lustre's `jobid_name` as regular expressions."""
USER_PLACE = "{user}"
"""Place of the job's user in `owner_mail`."""
JOBID_CODE = re.compile(r"%(.)")
_OWNER_MAIL = re.compile(r"[A-Za-z0-9._+-]*\{user\}[A-Za-z0-9._+-]*@[A-Za-z0-9.-]+")
LEAST_GRACE_SECONDS = 720.0
"""Later than the readings that may end a job's last increment."""


@dataclass(frozen=True, slots=True)
class JobsTable:
    """`[jobs]`: metadata of jobs for the archive, and the join with its counters when they are over.

    `sacct`: whether Slurm's database is polled. `overlap_days`: how far each poll reaches behind the last
    one, as records change after they look final. `cluster`: of records that name none. `enabled`: whether
    jobs are joined, `grace_seconds` after their end. `jobid_format`: Lustre's `jobid_name` at this site,
    empty without job ids. `forwarders`: file with the forwarder of each node. `owner_mail`: address of a
    job's user, `{user}` in it, who gets a mail when it was slow; empty for none. `darshan_logs`: folder into
    which Darshan writes its logs, whose findings belong to the jobs.
    """

    sacct: bool = False
    poll_seconds: float = field(default=300.0, metadata=checked(between(10, 86_400)))
    overlap_days: float = field(default=3.0, metadata=checked(between(0.01, 366)))
    cluster: str = field(default="cluster", metadata=checked(topic_level()))
    enabled: bool = True
    grace_seconds: float = field(default=900.0, metadata=checked(between(LEAST_GRACE_SECONDS, 86_400)))
    jobid_format: str = ""
    forwarders: Path | None = None
    owner_mail: str = ""
    darshan_logs: Path | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        """A format without exactly one job id; an address without the user."""
        if self.owner_mail and not _OWNER_MAIL.fullmatch(self.owner_mail):
            yield (
                "owner_mail",
                f"expected an address such as {USER_PLACE}@example.org, got {self.owner_mail[:100]!r}",
            )
        codes = JOBID_CODE.findall(self.jobid_format)
        unknown = [code for code in codes if code not in JOBID_CODES]
        if unknown:
            yield "jobid_format", f"expected the codes %{', %'.join(JOBID_CODES)}, got %{unknown[0]}"
        elif self.jobid_format and (
            codes.count("j") != 1 or codes.count("u") > 1 or codes.count("h") + codes.count("H") > 1
        ):
            yield "jobid_format", f"expected %j once, %u, %h and %H at most once, got {self.jobid_format!r}"
