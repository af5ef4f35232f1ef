"""Orders of the list of jobs by its columns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.exceptions import HTTPException

Job = Mapping[str, Any]
_LONGEST_NUMBER: Final = 19


def _number(job: Job) -> tuple[int, str]:
    text = str(job["job"] or "")
    return (int(text) if text.isdecimal() and len(text) <= _LONGEST_NUMBER else 0, text)


def _lasted(job: Job) -> float | None:
    return None if job["start"] is None or job["end"] is None else job["end"] - job["start"]


@dataclass(frozen=True, slots=True)
class JobColumn:
    """A column: its heading and the value of a job, None where unknown. `numbers`: the largest come first."""

    heading: str
    value: Callable[[Job], Any]
    numbers: bool = False
    right: bool = False


COLUMNS: Final[Mapping[str, JobColumn]] = {
    "job": JobColumn("Job", _number),
    "user": JobColumn("User", lambda job: job["user"] or None),
    "project": JobColumn("Project", lambda job: job["account"] or None),
    "application": JobColumn("Application", lambda job: job["application"] or None),
    "state": JobColumn("State", lambda job: job["state"] or None),
    "nodes": JobColumn("Nodes", lambda job: job["node_count"], numbers=True, right=True),
    "start": JobColumn("Start", lambda job: job["start"], numbers=True),
    "lasted": JobColumn("Lasted", _lasted, numbers=True),
    "read": JobColumn("Read", lambda job: job["summary"]["read_bytes"], numbers=True, right=True),
    "written": JobColumn("Written", lambda job: job["summary"]["written_bytes"], numbers=True, right=True),
    "verdict": JobColumn("Verdict", lambda job: job["verdict"]),
}
"""The columns by the names of their orders."""


@dataclass(frozen=True, slots=True)
class JobOrder:
    """The order by the column `name`, falling if `falls`; without a name the list's own, newest first."""

    name: str = ""
    falls: bool = False

    @classmethod
    def of(cls, text: str) -> "JobOrder":
        """The order that the parameter `sort` names, such as `-written`. Raises HTTPException."""
        name = text.removeprefix("-")
        if text and name not in COLUMNS:
            raise HTTPException(400, f"sort: expected one of {', '.join(COLUMNS)}, falling with - before it")
        return cls(name, text.startswith("-"))

    def sorted(self, jobs: Sequence[Job]) -> list[Job]:
        """The jobs in this order, those without a value last."""
        if not self.name:
            return list(jobs)
        value = COLUMNS[self.name].value
        known = [job for job in jobs if value(job) is not None]
        return sorted(known, key=value, reverse=self.falls) + [job for job in jobs if value(job) is None]

    def after_click(self, name: str) -> str:
        """The parameter `sort` of a heading: its own order, the other way round where it has that now."""
        falls = not self.falls if name == self.name else COLUMNS[name].numbers
        return f"-{name}" if falls else name

    def sign(self, name: str) -> str:
        """The present order of a column for `aria-sort`, empty for the others."""
        return "" if name != self.name else "descending" if self.falls else "ascending"

    def caption(self, count: str) -> str:
        """The order in words; `count`: the jobs that were sorted, in words."""
        if not self.name:
            return "Newest first"
        return f"By {COLUMNS[self.name].heading.lower()}{', falling' * self.falls}, of the {count}"
