"""A site whose compute nodes reach Lustre through forwarders: counters of every layer, jobs, traces.

All values are per minute and chosen by the test. The archive goes the daemon's way: join, rollups, index,
verdicts.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.jobs.access.principals import Principal, Role
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.access.visible_job import VisibleJob
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.join.join_pass import JoinPass, JoinSettings
from laggard_aggregator.jobs.join.path_pass import PathPass
from laggard_aggregator.jobs.rollups.rollup_pass import RollupPass
from laggard_aggregator.jobs.verdict.findings_pass import FindingsPass
from laggard_common.wire.trace_document import TraceDocument, encode_document
from laggard_common.wire.trace_records import Folded
from tests.aggregator.jobs.job_archives import MS, job_batch, write_parts
from tests.naive_jobs import NaiveReading
from tests.support.builders.documents import document
from tests.support.builders.job_tables import EPOCH, job_row, node_rows, write_rows

MIB = 2**20
MINUTE_NS = 60 * 10**9
OSTS = tuple(f"scratch-OST{n:04x}" for n in range(6))
MDTS = ("scratch-MDT0000", "scratch-MDT0001")
FORWARDERS = tuple(f"fwd-{n}" for n in range(1, 5))
NODES = {
    forwarder: tuple(f"cn-{4 * at + n:02d}" for n in range(4)) for at, forwarder in enumerate(FORWARDERS)
}
MOUNT_US, RPC_US, OST_US, META_US = 12_000, 9_000, 8_000, 1_000
"""Usual times of a request at a forwarder's mount, of its RPC, at the OST, and of a metadata operation."""
ADMIN = Principal("", Role.ADMIN)
Key = tuple[str, str, str]
"""Source, node and component."""


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one node in a minute.

    `node_extra_us`: by which its requests take longer than at its forwarder's mount; `mount_extra_meta_us`:
    by which metadata operations do at node and forwarder than at the MDT. `queue`: the sum of ten lengths of
    the queue before its forwarder's threads.
    """

    writes: int = 60
    size: int = MIB
    operations: int = 60
    osts: Sequence[str] = OSTS[:2]
    mdt: str = MDTS[0]
    mount_us: int = MOUNT_US
    rpc_us: int = RPC_US
    ost_us: Mapping[str, int] = field(default_factory=dict)
    meta_us: int = META_US
    node_extra_us: int = 1_000
    mount_extra_meta_us: int = 0
    queue: int = 0


@dataclass(slots=True)
class ForwarderSite:
    """Work of jobs and nodes, until `judge` writes it. Minutes count from EPOCH, of `minutes` in all."""

    folder: Path
    minutes: int
    has_job_stats: bool = True
    has_servers: bool = True
    jobs: list[dict[str, Any]] = field(default_factory=list)
    documents: list[tuple[str, float, TraceDocument]] = field(default_factory=list)
    rises: dict[Key, dict[str, np.ndarray]] = field(default_factory=lambda: defaultdict(dict))

    def job(self, number: int, nodes: Sequence[str], first: int, last: int, **changes: Any) -> dict[str, Any]:
        """A job that has its nodes in [first, last)."""
        start = EPOCH + 60.0 * first
        row = job_row(
            number, submit=int(start), start=start, end=EPOCH + 60.0 * last, node_count=len(nodes), **changes
        )
        self.jobs.append(row | {"nodes": nodes})
        return row

    def works(self, nodes: Iterable[str], first: int, last: int, work: Work, job: int | None = None) -> None:
        """Nodes work in [first, last), through their forwarder where they have one, for a job or for none."""
        for node in nodes:
            forwarder = next((name for name, behind in NODES.items() if node in behind), None)
            mount_us = work.mount_us + (work.node_extra_us if forwarder else 0)
            self._add("lustre_llite", node, "scratch", first, last, _mount(work, mount_us))
            if forwarder:
                self._add("lustre_llite", forwarder, "scratch", first, last, _mount(work, work.mount_us))
                lengths = {"queue_samples": 10, "queue_length_sum": work.queue}
                self._add("lwfs", forwarder, "lwfs", first, last, lengths)
            client = forwarder or node
            part = work.writes // max(len(work.osts), 1)
            for ost in work.osts:
                server_us = work.ost_us.get(ost, OST_US)
                rpc_us = work.rpc_us + server_us - OST_US
                rpcs = _requests("ost_write", part, work.size, rpc_us) | {"req_waittime_samples": part}
                self._add("lustre_osc", client, f"{ost}-osc", first, last, rpcs)
                if self.has_servers:
                    writes = _requests("write", part, work.size, server_us)
                    self._add("lustre_ost", f"oss-{ost[-1]}", ost, first, last, writes)
                if job is not None and self.has_job_stats:
                    moved = {"write_bytes_samples": part, "write_bytes_sum": part * work.size}
                    self._add("lustre_job_ost", f"oss-{ost[-1]}", f"{ost}:{job}", first, last, moved)
            done, times = work.operations, work.operations * work.meta_us
            self._add(
                "lustre_mdc",
                client,
                f"{work.mdt}-mdc",
                first,
                last,
                {"req_waittime_samples": done, "req_waittime_sum": times},
            )
            if self.has_servers:
                opens = {"open_samples": done, "open_sum": times}
                self._add("lustre_mdt", "mds-1", work.mdt, first, last, opens)
            if job is not None and self.has_job_stats:
                self._add("lustre_job_mdt", "mds-1", f"{work.mdt}:{job}", first, last, {"open_samples": done})

    def traced(self, job: dict[str, Any], nodes: Sequence[str], minute: int, *, shared: bool) -> None:
        """Traces of a job: each node writes a file of its own, or all of them the same."""
        at = round((EPOCH + 60.0 * minute) * 1e9)
        for node in nodes:
            path = "/scratch/out" if shared else f"/scratch/out.{node}"
            record = Folded(node, "write", "1:3", 0, 2**30, 1, at, at, path)
            found = TraceDocument(str(job["raw_id"]), f"/log.{node}@1", 1, 0, 9, [record])
            self.documents.append((node, EPOCH + 60.0 * minute, found))

    def judge(self) -> "dict[str, VisibleJob]":
        """Writes the archive and has the daemon's passes over it; the jobs with their verdicts by number."""
        folder = self.folder
        for job in self.jobs:
            write_rows(folder, "job_nodes", node_rows(job, job["nodes"]), site="site")
            write_rows(folder, "jobs", [job], site="site")
        self._write_counters()
        self._write_documents()
        now_ns = round((EPOCH + 60.0 * self.minutes + 3 * 3600) * 1e9)
        served_by = {node: name for name, nodes in NODES.items() for node in nodes}
        RollupPass(folder).run(now_ns, 30)
        JoinPass(folder, "site", JoinSettings(900.0, "%j", served_by)).run(now_ns, 30)
        PathPass(folder, "site", served_by).run(now_ns + 86_400 * 10**9)
        index = JobIndex(folder)
        index.refresh()
        FindingsPass(folder, "site", index, served_by=served_by).run(now_ns)
        queries = JobQueries(index)
        try:
            return {job["job"]: found for job in self.jobs if (found := queries.job(ADMIN, job["job_key"]))}
        finally:
            queries.close()

    def _add(
        self, source: str, node: str, component: str, first: int, last: int, rises: Mapping[str, int]
    ) -> None:
        of = self.rises[source, node, component]
        for name, rise in rises.items():
            of.setdefault(name, np.zeros(self.minutes, np.int64))[first:last] += rise

    def _write_counters(self) -> None:
        ticks = [round(EPOCH * 1000) + 60_000 * minute for minute in range(self.minutes + 1)]
        batches: list[Batch] = []
        for (source, node, component), of in self.rises.items():
            sums = {name: [0, *np.cumsum(rises).tolist()] for name, rises in of.items()}
            readings = [
                NaiveReading(tick, tick, {name: values[at] for name, values in sums.items()})
                for at, tick in enumerate(ticks)
            ]
            if source.startswith(("lustre_job", "lwfs")):  # an entry is there once something was done
                used = next(at for at, value in enumerate(next(iter(sums.values()))) if value)
                readings = readings[used:]
            batches += [
                job_batch(
                    node,
                    component,
                    readings[at : at + 240],
                    lsn=len(batches) + at + 1,
                    received_ns=ticks[min(at + 239, len(ticks) - 1)] * MS + 10**9,
                    source=source,
                    interval_ns=MINUTE_NS,
                )
                for at in range(0, len(readings), 240)
            ]
        write_parts(self.folder, [batches], ticks[0] * MS)

    def _write_documents(self) -> None:
        writer = ArchiveWriter(self.folder, "site", round(EPOCH * 1e9) + 1)
        for lsn, (node, at, found) in enumerate(self.documents, 1):
            received_ns = round(at * 1e9)
            writer.document(document(lsn, received_ns, encode_document(found), node=node, source="traces"))
        writer.flush()


def _requests(name: str, count: int, size: int, time_us: int) -> dict[str, int]:
    return {
        f"{name}_samples": count,
        f"{name}_sum": count * time_us,
        "write_bytes_samples": count,
        "write_bytes_sum": count * size,
    }


def _mount(work: Work, mount_us: int) -> dict[str, int]:
    """Counters of a Lustre mount, which has its writes under a name of their own."""
    done = work.operations
    writes = _requests("write", work.writes, work.size, mount_us)
    del writes["write_samples"]
    return {**writes, "open_samples": done, "open_sum": done * (work.meta_us + work.mount_extra_meta_us)}
