"""Volumes of jobs by the traces of their clients (Beacon, NSDI '19, section 3.2).

Where a node has no counters of a client, its folded trace records give its volumes; where it has both, the
counters do, and the bytes of both are held against each other. A job with records of any of its nodes was
traced on all of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laggard_aggregator.archive.table import LAST_DAY, Table, day_of, integers
from laggard_aggregator.detect.interface import FloatArray, IntArray
from laggard_aggregator.jobs.join.accounts import SECOND_NS, JobAccount
from laggard_aggregator.jobs.join.active_times import Active
from laggard_aggregator.jobs.join.trace_documents import own_records, span_of_records, trace_tables
from laggard_aggregator.jobs.join.volumes import CLIENT, OPERATIONS, READ, WRITTEN
from laggard_aggregator.jobs.records.hostlist import short_name
from laggard_aggregator.jobs.rollups.series60 import PassStoppedError
from laggard_common.wire.trace_document import TRACES
from laggard_common.wire.trace_records import direction_of

COMPONENT: Final = "I/O trace"
"""Component of a client whose volumes are by its traces."""
_PLACES: Final = {"read": READ, "write": WRITTEN, "": OPERATIONS}
_SECOND_LAYER: Final = "mpiio:"
"""Descriptors of Darshan's MPI-IO segments, whose bytes the POSIX ones below them move."""


@dataclass(slots=True)
class ClientTraces:
    """Adds traces to the accounts of jobs, whose counters were added before. `directory`: of the archive."""

    directory: Path
    site: str
    accounts: Sequence[JobAccount]

    def run(self, go_on: Callable[[], bool]) -> None:
        """Reads the traces. Raises ArchiveError, and PassStoppedError once `go_on()` is false."""
        if not Table(self.directory, "events", TRACES, site=self.site).days():
            return
        by_number: dict[str, list[_Traced]] = {}
        for account in self.accounts:
            by_number.setdefault(str(account.job.raw_id), []).append(_Traced.of(account))
        first_day = day_of(min(account.job.start_ns for account in self.accounts) / 1e9)
        for table in trace_tables(self.directory, list(by_number), first_day, LAST_DAY):
            if not go_on():
                raise PassStoppedError
            for number in table["job"].unique().to_pylist():
                of_number = table.filter(pc.equal(table["job"].cast(pa.string()), number))
                for traced in by_number[number]:
                    traced.add(of_number)
        for of_number in by_number.values():
            for traced in of_number:
                traced.close()


@dataclass(slots=True)
class _Traced:
    """One job. `names`: of its nodes by their short names; `counted`: those with counters of clients, and
    their bytes, where no other job had the node meanwhile."""

    account: JobAccount
    names: dict[str, str]
    span_ns: tuple[int, int]
    counted: dict[str, float]
    shared: frozenset[str]
    busy: dict[tuple[str, int], IntArray] = field(default_factory=dict)
    traced_bytes: float = 0.0
    has_records: bool = False

    @classmethod
    def of(cls, account: JobAccount) -> "_Traced":
        job, counted, shared = account.job, dict[str, float](), set[str]()
        for (layer, node, _, is_shared), mine in account.components.items():
            if layer == CLIENT:
                counted[node] = counted.get(node, 0.0) + float(mine.sums[:2].sum())
                shared |= {node} if is_shared else set()
        runs = [(job.last_end_ns / SECOND_NS, job.last_end_ns / SECOND_NS)] if job.last_end_ns else []
        later = [(job.next_start_ns / SECOND_NS, None)] if job.next_start_ns < 2**63 - 1 else []
        span = span_of_records(job.start_ns / SECOND_NS, job.end_ns / SECOND_NS, [*runs, *later])
        names = {short_name(node): node for node, _, _ in job.held}
        return cls(account, names, span, counted, frozenset(shared))

    def add(self, table: pa.Table) -> None:
        """Adds records of the job's number."""
        table = own_records(table, self.names.keys(), self.span_ns)
        table = table.filter(pc.invert(pc.starts_with(table["descriptor"].cast(pa.string()), _SECOND_LAYER)))
        if not table.num_rows:
            return
        self.has_records = True
        host = pc.dictionary_encode(table["host"].cast(pa.string()).combine_chunks())
        hosts = [self.names[short_name(name)] for name in host.dictionary.to_pylist()]
        number = host.indices.to_numpy(zero_copy_only=False)
        operation = pc.dictionary_encode(table["operation"].cast(pa.string()).combine_chunks())
        places = np.array([_PLACES[direction_of(name)] for name in operation.dictionary.to_pylist()])
        place = places[operation.indices.to_numpy(zero_copy_only=False)]
        count = integers(table, "count").astype(np.float64)
        moved = np.where(place == OPERATIONS, count, integers(table, "size") * count)
        first = integers(table, "first_ns")
        times = first, np.maximum(integers(table, "last_ns"), first)
        for at, node in enumerate(hosts):
            rows = number == at
            if node in self.counted:
                is_own = node not in self.shared
                self.traced_bytes += float(moved[rows & (place != OPERATIONS)].sum()) if is_own else 0.0
            else:
                self._add(node, place[rows], moved[rows], count[rows], (times[0][rows], times[1][rows]))

    def _add(
        self,
        node: str,
        place: IntArray,
        moved: FloatArray,
        count: FloatArray,
        times: tuple[IntArray, IntArray],
    ) -> None:
        amounts = np.where(place == np.arange(3)[:, None], moved, 0.0)
        self.account.add(CLIENT, Active.throughout(*times), amounts)
        sums = self.account.components[CLIENT, node, COMPONENT, False].sums
        sums[:3] += amounts.sum(axis=1)
        for direction in (READ, WRITTEN):
            sums[3 + direction] += count[place == direction].sum()
        for direction in (READ, WRITTEN, OPERATIONS):
            known = self.busy.get((node, direction), np.zeros((2, 0), np.int64))
            own = np.stack([span[place == direction] for span in times])
            self.busy[node, direction] = _united(np.concatenate([known, own], axis=1))

    def close(self) -> None:
        """Notes the time for which nodes are known by traces, and the bytes of those that have both."""
        if not self.has_records:
            return
        account = self.account
        traced = [held for held in account.job.held if held[0] not in self.counted]
        if traced:
            account.add(CLIENT, Active.throughout(*(np.zeros(0, np.int64),) * 2), np.zeros((3, 0)))
        for node, start_ns, end_ns in traced:
            known_ns = np.array([float(end_ns - start_ns)])
            account.observe(np.array([start_ns]), np.array([end_ns]), known_ns)
            mine = account.components[CLIENT, node, COMPONENT, False]
            mine.sums[-1] += end_ns - start_ns
            read, written, metadata = (
                int(np.diff(self.busy[node, place], axis=0).sum()) if (node, place) in self.busy else 0
                for place in (READ, WRITTEN, OPERATIONS)
            )
            mine.busy_ns = read, written, metadata
        own = [moved for node, moved in self.counted.items() if node not in self.shared]
        account.by_traces_and_counters = (self.traced_bytes, sum(own)) if own else None


def _united(spans: IntArray) -> IntArray:
    """Spans (2, N) as their union, in order of time."""
    if not spans.size:
        return spans
    start, end = spans[:, np.argsort(spans[0], kind="stable")]
    until = np.maximum.accumulate(end)
    first = np.append(True, start[1:] > until[:-1])
    last = np.append(first[1:], True)
    return np.stack([start[first], until[last]])
