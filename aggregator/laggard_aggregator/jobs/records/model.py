"""Values of a job's metadata: its key, its revisions, and the nodes allocated to it.

Times are seconds since the epoch; None is unknown, or not yet. A forecast, such as the start that Slurm shows
of a pending job, counts as unknown.
"""

from collections import Counter
from dataclasses import dataclass, field

from laggard_common.errors import LaggardError

MAX_TEXT = 1024
"""Characters of a name that are kept; longer ones are cut."""


class JobDataError(LaggardError):
    """Job metadata that cannot be used; the message names the record and the reason."""


@dataclass(frozen=True, slots=True, order=True)
class JobKey:
    """Identity of one run of a job.

    Scheduler ids wrap, are recycled, and a requeue keeps them, so an id alone never identifies a run.
    `sluid` is Slurm's unique id, empty where the source has none. `restarts` is None where the source does
    not tell it.
    """

    cluster: str
    raw_id: int
    submit: int
    sluid: str = ""
    restarts: int | None = None

    def __str__(self) -> str:
        """`CLUSTER/SLUID`, else `CLUSTER/RAW_ID/SUBMIT`, followed by `/rN` where restarts are told."""
        own = self.sluid or f"{self.raw_id}/{self.submit}"
        return f"{self.cluster}/{own}" + ("" if self.restarts is None else f"/r{self.restarts}")


@dataclass(frozen=True, slots=True)
class JobRevision:
    """One state of a job's metadata; the last revision of a key wins.

    `job`: the id as the scheduler shows it (`42`, `17_3`, `20+1`). `state`: upper case, one word.
    `application`: the executable where the source tells it, else derived from the name.
    `exclusive`: None where unknown. `source`: `sacct`, `sacct_json`, `jsonl`, `pbs`, `lsf`, `flux`, `hook` or
    `cgroup`. `modified`: the scheduler's own time of the change.
    `revision_at`: the time at which the record was read. `node_list`: as the source writes it
    (`node[01,03-04]`). `doubtful`: as in `Allocation`.
    """

    key: JobKey
    job: str
    user: str
    account: str
    name: str
    application: str
    partition: str
    state: str
    source: str
    revision_at: float
    modified: float | None = None
    array_job: int | None = None
    array_task: int | None = None
    het_job: int | None = None
    het_offset: int | None = None
    uid: int | None = None
    exit_code: int | None = None
    eligible: float | None = None
    start: float | None = None
    end: float | None = None
    node_count: int | None = None
    tasks: int | None = None
    cpus: int | None = None
    exclusive: bool | None = None
    node_list: str = ""
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Allocation:
    """A node and the time for which a job had it.

    `end` is None while the job runs. `doubtful`: the source could not know the times exactly, as after the
    death of a node or an outage of the scheduler.
    """

    key: JobKey
    node: str
    start: float
    end: float | None
    source: str
    exclusive: bool | None = None
    doubtful: bool = False


MAX_NAMED = 20
"""Rows left out that are named one by one."""
_SHOWN_CHARS = 100


@dataclass(slots=True)
class ReadReport:
    """Counts of one input. `named`: the first broken rows, each `PLACE: reason: text`."""

    records: int = 0
    steps: int = 0
    """Rows of job steps, which are left out."""
    broken: Counter[str] = field(default_factory=Counter)
    """Rows left out, by reason."""
    bad_node_lists: int = 0
    """Records kept without their nodes, whose list cannot be used."""
    ambiguous: int = 0
    """Records with a local time that occurs twice, at the end of summer time."""
    doubts: Counter[str] = field(default_factory=Counter)
    """Records kept without one of their values, by reason; failures that the source itself tells."""
    named: list[str] = field(default_factory=list)

    def leave_out(self, place: str, reason: str, text: str) -> None:
        """Counts a broken row, and names it while there are few. `place`: such as `line 3`."""
        self.broken[reason] += 1
        self.name(place, reason, text)

    def name(self, place: str, reason: str, text: str) -> None:
        """Names a row while there are few."""
        if len(self.named) < MAX_NAMED:
            shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
            self.named.append(f"{place}: {reason}: {shown}")
