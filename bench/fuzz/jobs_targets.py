# ruff: noqa: E501 - examples are whole lines of their formats
"""Readers of jobs' sources, of the store of logs, and of documents that nodes send."""

import contextlib
import io
import struct
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from laggard_agent.collectors.ceph import perf_dump
from laggard_aggregator.archive.documents import LAYERS as LAYER_PARTS
from laggard_aggregator.archive.documents import NUMBERS, TEXTS, RecordingPart, document_table, encode_part
from laggard_aggregator.ingest.batches import Document
from laggard_aggregator.jobs.darshan.convert import convert, opened_job
from laggard_aggregator.jobs.darshan.lmt_input import lmt_rows
from laggard_aggregator.jobs.darshan.slurm_input import slurm_rows
from laggard_aggregator.jobs.darshan.verdict import judge
from laggard_aggregator.jobs.records.hostlist import expand
from laggard_aggregator.jobs.records.local_times import LocalTimes
from laggard_aggregator.jobs.records.model import JobDataError, ReadReport
from laggard_aggregator.jobs.records.sources.inputs import stream_tables
from laggard_aggregator.layers.received import report_of
from laggard_aggregator.layers.send import REPORTS
from laggard_common.errors import InputError, WireError
from laggard_common.wire.trace_document import TRACES, TraceDocument, encode_document
from laggard_common.wire.trace_records import Folded
from tests.support.builders import darshan_log, mine_store

ZONE = "America/Los_Angeles"


def job_records(form: str, data: bytes) -> None:
    """Records of one format, settled."""
    file: Any = io.BufferedReader(io.BytesIO(data))
    with contextlib.suppress(InputError):
        for _ in stream_tables(file, form, "c1", LocalTimes(ZONE), ReadReport()):
            pass
    with contextlib.suppress(JobDataError):
        expand(data.decode(errors="replace"))


def store_inputs(data: bytes) -> None:
    """Files of Slurm and LMT for the store, whatever their content says that they are."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.write(data)
        file.flush()
        for read in (slurm_rows, lmt_rows):
            with contextlib.suppress(InputError):
                for _ in read(Path(file.name), ZONE, []):
                    pass


def darshan_records(data: bytes) -> None:
    """Counters and times of any value in a log that is whole otherwise, converted and judged.

    The container is read by libdarshan-util in a process of its own, and is not fuzzed here.
    """
    log = darshan_log.LogWriter(job=0, start=1_700_000_000)
    log.file("/scratch/a")
    for number, module in enumerate((darshan_log.POSIX, darshan_log.STDIO, darshan_log.MPIIO)):
        width = 8 * (2 + len(darshan_log.COUNTERS[module]) + len(darshan_log.TIMES[module]))
        part = data[number::3]
        log.region(module).extend(part[: len(part) // width * width])
    log.stripes("/scratch/a", [int(at) for at in data[:4]])
    log.trace("/scratch/a", 0, "n", [struct.unpack("<qqdd", data[:32])] if len(data) >= 32 else [])
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        with contextlib.suppress(InputError):
            convert(log.write(folder / "a.darshan"), 0, folder)
            judge(opened_job([folder]))


def documents(data: bytes) -> None:
    """Documents of traces, of layers, of their reports and of hooks, as the archive takes them."""
    packed = zstandard.ZstdCompressor(write_content_size=True).compress(data)
    for source in (TRACES, LAYER_PARTS, REPORTS, "jobs"):
        for payload in (data, packed):
            with contextlib.suppress(WireError):
                document_table(Document(1, "s", "r", "n", source, 1, payload, len(data)), 1)
    report_of(data)


def ceph_dumps(data: bytes) -> None:
    """Answers of an OSD's admin socket."""
    for parse in (perf_dump.parse, perf_dump.parse_latency_bins):
        with contextlib.suppress(perf_dump.NotPerfDumpError):
            parse(data)


_SACCT = (
    b"JobIDRaw|JobID|State|Submit|Eligible|Start|End|ElapsedRaw|NNodes|NodeList|JobName\n"
    b"7|7|COMPLETED|2025-11-02T01:10:00|2025-11-02T01:10:00|2025-11-02T01:50:00|2025-11-02T01:10:00|1200|2K|n[1-2,4]|a|b\n"
    b"7.batch|7.batch|CANCELLED by 0|Unknown|1|1|2|1|1|n1|batch\n9_[1-3%2]|9_1|PENDING|1|1|0|0||0|None assigned|x\n",
    b'{"jobs": [{"job_id": 7, "state": {"current": ["COMPLETED"]}, "time": {"submission": 1, "start": 2, "end": 3}, '
    b'"nodes": "n[1-2]", "allocation_nodes": 2, "array": {"job_id": 7, "task_id": {"set": true, "infinite": false, "number": 1}}, '
    b'"steps": [{"step": {"id": "7.0", "name": "a"}, "state": "FAILED", "nodes": {"count": 1, "range": "n1"}, "time": {"start": 2, "end": 3}}]}], '
    b'"errors": [{"description": "no"}]}{"jobs": []}',
    b'{"jobs": [{"job_id": 8, "submit_time": {"number": 5}, "job_state": ["RUNNING"], "start_time": 6, "end_time": 0, "nodes": "a1", "cluster": "c"}]}',
)
_PBS = (
    b'01/02/2026 10:00:00;S;12[3].pbs01;user=a account="b" jobname=c d queue=q ctime=5 qtime=5 etime=5 start=6 exec_host=n1/0*4+n2/1 exec_vnode=(n1:ncpus=4)+(n2:ncpus=1)\n'
    b"01/02/2026 10:00:00;E;13.pbs01;user=a ctime=5 start=6 end=9 Exit_status=-11 exec_host=n1/0-3,8+n2/0 owner=a total_execution_slots=5 resources_used.ncpus=4\n",
)
_FLUX = (
    b'{"jobs": [{"id": 77, "t_submit": 5.5, "t_run": 6, "t_cleanup": 9, "state": "INACTIVE", "result": "COMPLETED", "nodelist": "n[0-3]", "nnodes": 4, "ncores": 8}, '
    b'{"id": "\xc6\x92abc", "t_submit": 1, "state": "RUN"}]}',
)
_JSONL = (
    b'{"job": "a.7", "submit": 5, "start": 6, "end": 9, "state": "DONE", "nodes": ["n1", "n2"], "restarts": 1, "cpus": 4}\n',
)
_CEPH = (
    b'{"osd": {"op_w": 7, "op_w_latency": {"avgcount": 7, "sum": 0.5, "avgtime": 0.07}}, "bluestore": {"kv_sync_lat": {"avgcount": 1, "sum": 1e300}}}',
)


def _lmt() -> bytes:
    """A small database of LMT."""
    with tempfile.TemporaryDirectory() as folder:
        return mine_store.lmt(Path(folder) / "lmt.db", readings=4, page_bytes=512).read_bytes()


def _documents() -> tuple[bytes, ...]:
    records = [
        Folded("n", "read", "3", at, 4096, 2, 1_700_000_000_000_000_000, 1_700_000_000_000_000_000 + at, "/a")
        for at in range(3)
    ]
    columns = {name: np.zeros(2, np.int64) for name in (*TEXTS, *NUMBERS)}
    return (
        encode_document(TraceDocument("7", "log", 0, 0, 9, records)),
        encode_part(RecordingPart("r", ["a"], columns)),
        b'{"recording": "r", "requests": 3, "records": [{"record": "finding", "candidate": "c", "kind": "k", "text": "t", "advice": "a"}]}',
    )


_STORE = (
    *(_SACCT[0], _SACCT[1], _lmt()),
    b'{"7.0": {"start": "2025-11-02T01:50:00", "end": "2025-11-02T01:10:00", "nodelist": ["n1"]}}',
    b",darshan_jobid,darshan_start_time,darshan_end_time,fs_tot_bytes_read,fs_tot_bytes_written,_file_system\n0,7,5,6,7.5,8,scratch\n",
)

JOBS: dict[str, tuple[Callable[[bytes], object], tuple[bytes, ...]]] = {
    "jobs of Slurm": (partial(job_records, "sacct"), _SACCT),
    "jobs of PBS": (partial(job_records, "pbs"), _PBS),
    "jobs of Flux": (partial(job_records, "flux"), _FLUX),
    "jobs in JSON Lines": (partial(job_records, "jsonl"), _JSONL),
    "inputs of the store": (store_inputs, _STORE),
    "records of Darshan": (darshan_records, (bytes(range(256)) * 16, bytes(4096))),
    "documents": (documents, _documents()),
    "Ceph's dumps": (ceph_dumps, _CEPH),
}
"""What is run, and good examples."""
