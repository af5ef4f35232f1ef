"""Joins Lustre's `job_stats`, whose rows name the job.

An entry counts from zero when the job first touches a target, stays while the job uses it, and is removed ten
minutes later; after a removal it counts from zero once more. So its first reading is an increment too, and
an increment over a gap is the job's all the same.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.jobs.join.accounts import JobAccount
from laggard_aggregator.jobs.join.active_times import Active
from laggard_aggregator.jobs.join.volumes import VolumeFields
from laggard_aggregator.jobs.rollups.counter_slices import MOST_GAP_NS, CounterSlices
from laggard_aggregator.jobs.rollups.readings import SECOND_NS, CounterReadings, joined_readings
from laggard_aggregator.jobs.rollups.series60 import PassStoppedError
from laggard_aggregator.settings.jobs import JOBID_CODE, JOBID_CODES

STEP_NS = 60 * SECOND_NS
AFTER_NS = MOST_GAP_NS
"""Time after a job's end in which its entries are read: dirty pages are written later."""


@dataclass(frozen=True, slots=True)
class ServerJob:
    """Identity within a component's name: target, scheduler's id, and the node where the format has it."""

    target: str
    raw_id: int
    node: str | None


@dataclass(slots=True)
class JobIdFormat:
    """Reads components `<target>:<job id>` by a format such as `%j:%u:%H`; others are not of a job."""

    text: str
    _pattern: "re.Pattern[str]" = field(init=False)

    def __post_init__(self) -> None:
        parts = JOBID_CODE.split(self.text)
        pattern = (JOBID_CODES[part] if at % 2 else re.escape(part) for at, part in enumerate(parts))
        self._pattern = re.compile("".join(pattern))

    def parse(self, component: str) -> ServerJob | None:
        """The job of a component, None where the id has another form."""
        target, _, text = component.partition(":")
        match = self._pattern.fullmatch(text)
        if match is None or len(match["j"]) > 18:
            return None
        return ServerJob(target, int(match["j"]), match.groupdict().get("h"))


@dataclass(slots=True)
class ServerJobs:
    """Adds the servers' rows of jobs to their accounts; a reading is of the last of its id's jobs that had
    begun."""

    slices: CounterSlices
    fields: VolumeFields
    format_: JobIdFormat
    accounts: Sequence[JobAccount]

    def run(self, go_on: Callable[[], bool]) -> None:
        """Scans the archive. Raises ArchiveError, and PassStoppedError once `go_on()` is false."""
        by_id: dict[int, list[JobAccount]] = {}
        for account in sorted(self.accounts, key=lambda account: (account.job.start_ns, account.job.key)):
            by_id.setdefault(account.job.raw_id, []).append(account)
        until_of = {
            raw_id: max(min(account.job.end_ns + AFTER_NS, account.job.next_start_ns) for account in accounts)
            for raw_id, accounts in by_id.items()
        }
        known: list[ServerJob | None] = []
        ends = np.zeros(0, dtype=np.int64)
        """By number of component: until when it counts, 0 where it is no job's of these."""
        last = joined_readings([])
        after = min(account.job.start_ns for account in self.accounts) - MOST_GAP_NS
        end = max(account.job.end_ns for account in self.accounts) + AFTER_NS
        for until in self.slices.ends(after, end, STEP_NS):
            if not go_on():
                raise PassStoppedError
            readings = self.slices.read(after, until)
            after = until
            new = [self.format_.parse(id_) for _, id_ in self.slices.components.keys[len(known) :]]
            known += new
            own = [until_of.get(server_job.raw_id, 0) if server_job is not None else 0 for server_job in new]
            ends = np.concatenate([ends, np.array(own, dtype=np.int64)])
            readings = readings.only(ends[readings.component] > 0)
            if not readings.component.size:
                continue
            held = np.isin(last.component, readings.component)
            carried = set(last.component[held].tolist())
            every = joined_readings([last.only(held), readings])
            every = every.only(np.lexsort((every.tick_ns, every.component)))
            bounds = [*np.flatnonzero(np.diff(every.component, prepend=-1)).tolist(), every.component.size]
            for begin, stop in pairwise(bounds):
                number = int(every.component[begin])
                self._add(known[number], number, by_id, every, slice(begin, stop), carried=number in carried)
            rest = last.only(~held & (ends[last.component] > last.read_ns))
            last = joined_readings([rest, every.only(np.array(bounds[1:]) - 1)])

    def _add(
        self,
        named: ServerJob | None,
        number: int,
        by_id: dict[int, list[JobAccount]],
        every: CounterReadings,
        rows: slice,
        *,
        carried: bool,
    ) -> None:
        """Adds the readings of one entry; the first was added before if it was `carried`."""
        assert named is not None
        server, _ = self.slices.components.keys[number]
        values = self._values(every, rows)
        tick, read, started = every.tick_ns[rows], every.read_ns[rows], every.started[rows]
        accounts = by_id[named.raw_id]
        last_begun = np.searchsorted([account.job.start_ns for account in accounts], read, side="right") - 1
        for place, account in enumerate(accounts):
            job = account.job
            until = min(job.end_ns + AFTER_NS, job.next_start_ns)
            own = np.flatnonzero((last_begun == place) & (read <= until))
            own = own[own >= int(carried)]
            before = np.maximum(own - 1, 0)
            follows = (own > 0) & (tick[before] > job.start_ns - MOST_GAP_NS)
            if job.is_last_part:  # a first reading may hold all that it did before
                own, before, follows = own[follows], before[follows], follows[follows]
            if not own.size:
                continue
            restarted = (started[own] != started[before]) & (started[own] != 0) & (started[before] != 0)
            rises = values[:, own] - values[:, before]
            grows = follows & ~restarted & (rises >= 0).all(axis=0)
            begins = np.where(follows, np.maximum(read[before], job.start_ns), job.start_ns)
            moved = np.where(grows, rises, values[:, own])
            account.read_until(self.fields.layer, int(read[own].max()))
            begins = np.minimum(begins, job.end_ns - 1)
            account.note_intervals(self.fields.layer, begins, read[own])
            account.add(self.fields.layer, Active.throughout(begins, read[own]), moved[:3])
            mine = account.components[self.fields.layer, named.node or server, named.target, False]
            mine.sums[:5] += moved.sum(axis=1)

    def _values(self, every: CounterReadings, rows: slice) -> FloatArray:
        """Bytes read, written, metadata operations, reads, writes: (5, N)."""
        fields = self.fields

        def of(name: str) -> FloatArray:
            column = every.values.get(name)
            n = rows.stop - rows.start
            return np.zeros(n) if column is None else column[rows].astype(np.float64)

        metadata = sum((of(name) for name in fields.metadata), np.zeros(rows.stop - rows.start))
        return np.stack([of(fields.read), of(fields.written), metadata, of(fields.reads), of(fields.writes)])
