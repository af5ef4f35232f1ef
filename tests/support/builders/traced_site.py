"""An archive with jobs and with documents of their traces."""

from collections.abc import Sequence
from pathlib import Path

from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.jobs.access.principals import Principal, Role
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.traces.job_traces import JobTraces
from laggard_common.wire.trace_document import TraceDocument, encode_document
from laggard_common.wire.trace_records import Folded
from tests.support.builders.documents import document
from tests.support.builders.job_tables import DAY, EPOCH, job_row, node_rows, summary_row, write_rows

ADMIN = Principal("", Role.ADMIN)
GIB = 2**30
NODES = ("cn-1", "cn-2")


def record(at: float, path: str = "/out", size: int = GIB, process: int = 1, host: str = "cn-1") -> Folded:
    return Folded(host, "write", f"{process}:3", 0, size, 1, round(at * 1e9), round(at * 1e9), path)


class TracedSite:
    """An archive with jobs, and documents of agents."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lsn = 0

    def job(
        self, raw_id: int = 77, nodes: Sequence[str] = NODES, volume: float = 0.0, **changes: object
    ) -> str:
        row = job_row(raw_id, node_count=len(nodes), **changes)
        write_rows(self.folder, "jobs", [row])
        write_rows(self.folder, "job_nodes", node_rows(row, nodes))
        write_rows(self.folder, "job_summaries", [summary_row(row, read_bytes=0.0, written_bytes=volume)])
        return str(row["job_key"])

    def sent(self, *found: TraceDocument, node: str = "cn-1", day: int = 0) -> None:
        received_ns = round((EPOCH + 7200 + day * DAY) * 1e9)
        writer = ArchiveWriter(self.folder, "s", round(EPOCH * 1e9))
        for each in found:
            self.lsn += 1
            writer.document(
                document(self.lsn, received_ns, encode_document(each), node=node, source="traces")
            )
        writer.flush()
        assert writer.refused_documents == 0

    def queries(self) -> JobQueries:
        index = JobIndex(self.folder)
        index.refresh()
        return JobQueries(index)

    def records(self, key: str, principal: Principal = ADMIN) -> list[Folded]:
        queries = self.queries()
        try:
            row = queries.job(principal, key)
            return [] if row is None else JobTraces(self.folder, queries).records(row)
        finally:
            queries.close()


def part(
    start: int, end: int, at: float = EPOCH + 600, job: str = "77", log: str = "/l@1", session: int = 1
) -> TraceDocument:
    """A document with a record for each byte."""
    records = [record(at, f"/{place}", size=place) for place in range(start, end)]
    return TraceDocument(job, log, session, start, end, records)
