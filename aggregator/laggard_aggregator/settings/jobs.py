"""Settings of jobs: `[jobs]`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from laggard_common.config import between, checked

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
JOBID_CODE = re.compile(r"%(.)")
LEAST_GRACE_SECONDS = 720.0
"""Later than the readings that may end a job's last increment."""


@dataclass(frozen=True, slots=True)
class JobsTable:
    """`[jobs]`: jobs of the archive are joined with its counters when they are over.

    That is `grace_seconds` after their end. `jobid_format`: Lustre's `jobid_name` at this site, empty
    without job ids. `forwarders`: file with the forwarder of each node.
    """

    enabled: bool = True
    grace_seconds: float = field(default=900.0, metadata=checked(between(LEAST_GRACE_SECONDS, 86_400)))
    jobid_format: str = ""
    forwarders: Path | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        """A format without exactly one job id."""
        codes = JOBID_CODE.findall(self.jobid_format)
        unknown = [code for code in codes if code not in JOBID_CODES]
        if unknown:
            yield "jobid_format", f"expected the codes %{', %'.join(JOBID_CODES)}, got %{unknown[0]}"
        elif self.jobid_format and (
            codes.count("j") != 1 or codes.count("u") > 1 or codes.count("h") + codes.count("H") > 1
        ):
            yield "jobid_format", f"expected %j once, %u, %h and %H at most once, got {self.jobid_format!r}"
