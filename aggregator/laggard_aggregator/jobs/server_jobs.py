"""Joins Lustre's `job_stats`, whose rows name the job.

An entry counts from zero when the job first touches a target, stays while the job uses it, and is removed ten
minutes later; after a removal it counts from zero once more. So its first reading is an increment too, and
an increment over a gap is the job's all the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.jobs.accounts import JobAccount
from laggard_aggregator.jobs.jobid import JobIdFormat, ServerJob
from laggard_aggregator.jobs.readings import (
    MOST_GAP_NS,
    SECOND_NS,
    CounterReadings,
    CounterSlices,
    joined_readings,
)
from laggard_aggregator.jobs.series60 import PassStoppedError
from laggard_aggregator.jobs.volumes import VolumeFields

STEP_NS = 60 * SECOND_NS
AFTER_NS = MOST_GAP_NS
"""Time after a job's end in which its entries are read: dirty pages are written later."""


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
        for account in sorted(self.accounts, key=lambda each: (each.job.start_ns, each.job.key)):
            by_id.setdefault(account.job.raw_id, []).append(account)
        known: dict[int, ServerJob | None] = {}
        last = joined_readings([])
        after = min(each.job.start_ns for each in self.accounts) - MOST_GAP_NS
        end = max(each.job.end_ns for each in self.accounts) + AFTER_NS
        for until in self.slices.ends(after, end, STEP_NS):
            if not go_on():
                raise PassStoppedError
            found = self.slices.read(after, until)
            after = until
            for number, (_, component) in enumerate(self.slices.components.keys[len(known) :], len(known)):
                named = self.format_.parse(component)
                known[number] = named if named is not None and named.raw_id in by_id else None
            mine = np.array([known[number] is not None for number in range(len(known))], dtype=np.bool_)
            if not found.component.size or not mine[found.component].any():
                continue
            held = set(last.component.tolist())
            every = joined_readings([last, found.only(mine[found.component])])
            every = every.only(np.lexsort((every.tick_ns, every.component)))
            bounds = [*np.flatnonzero(np.diff(every.component, prepend=-1)).tolist(), every.component.size]
            for begin, stop in pairwise(bounds):
                number = int(every.component[begin])
                self._add(known[number], number, by_id, every, slice(begin, stop), carried=number in held)
            last = every.only(np.array(bounds[1:]) - 1)

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
        for at in range(int(carried), tick.size):
            account = next((a for a in reversed(by_id[named.raw_id]) if a.job.start_ns <= read[at]), None)
            if account is None or read[at] > min(account.job.end_ns + AFTER_NS, account.job.next_start_ns):
                continue
            start = account.job.start_ns
            rise = values[:, at]
            begins = start
            if at and tick[at - 1] > start - MOST_GAP_NS:
                restarted = started[at] != started[at - 1] and started[at] and started[at - 1]
                begins = max(int(read[at - 1]), start)
                if not restarted and (values[:, at] >= values[:, at - 1]).all():
                    rise = values[:, at] - values[:, at - 1]
            self._to_job(account, named, server, rise, (begins, int(read[at])))

    def _to_job(
        self, account: JobAccount, named: ServerJob, server: str, rise: FloatArray, times: tuple[int, int]
    ) -> None:
        layer, job = self.fields.layer, account.job
        begins, ends = times
        account.read_until(layer, ends)
        begin, end = np.array([min(begins, job.end_ns - 1)]), np.array([ends])
        account.add(layer, begin, end, rise[:3, None])
        mine = account.components[layer, named.node or server, named.target, False]
        mine.sums[:5] += rise

    def _values(self, every: CounterReadings, rows: slice) -> FloatArray:
        """Bytes read, written, metadata operations, reads, writes: (5, N)."""
        fields = self.fields

        def of(name: str) -> FloatArray:
            column = every.values.get(name)
            n = rows.stop - rows.start
            return np.zeros(n) if column is None else column[rows].astype(np.float64)

        metadata = sum((of(name) for name in fields.metadata), np.zeros(rows.stop - rows.start))
        return np.stack([of(fields.read), of(fields.written), metadata, of(fields.reads), of(fields.writes)])
