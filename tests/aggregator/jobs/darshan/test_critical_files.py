"""Files that a job waits for: many of one process one after another, and a single slow one."""

from pathlib import Path

import pytest

from laggard_aggregator.jobs.darshan.judged_logs import judged_logs
from laggard_aggregator.jobs.darshan.verdict import JobVerdict
from tests.support.builders.darshan_log import LogWriter
from tests.support.darshan import skip_without_darshan

skip_without_darshan()
MIB = 1 << 20
PROCESSES = 16
KINDS = ("serial files", "single file")


def found(folder: Path, log: LogWriter) -> list[tuple[str, str | None, float]]:
    (verdict,) = judged_logs([log.write(folder / "job.darshan")])
    assert isinstance(verdict, JobVerdict)
    return [(each.kind, each.component, each.factor) for each in verdict.findings if each.kind in KINDS]


def reads(log: LogWriter, name: str, rank: int, start: float, seconds: float, mib: int = 64) -> None:
    counters = {"requests": mib, "bytes": mib * MIB, "CONSEC_READS": mib - 1, "SEQ_READS": mib - 1}
    log.posix(name, rank, "read", start, start + seconds, **counters)


def test_files_of_one_process_in_series(tmp_path: Path) -> None:
    log = LogWriter(job=1, processes=PROCESSES, seconds=300)
    for number in range(64):
        reads(log, f"/scratch/in.{number}", 0, 1.0 + 2 * number, 1.9)
    assert found(tmp_path, log) == [("serial files", "rank 0", float(PROCESSES))]


def test_files_that_all_processes_read_in_series_are_none(tmp_path: Path) -> None:
    log = LogWriter(job=1, processes=PROCESSES, seconds=300)
    for rank in range(PROCESSES):
        for number in range(16):
            reads(log, f"/scratch/in.{rank}.{number}", rank, 1.0 + 2 * number, 1.9)
    assert found(tmp_path, log) == []


def test_a_few_files_of_one_process_are_no_series(tmp_path: Path) -> None:
    log = LogWriter(job=1, processes=PROCESSES, seconds=300)
    for number in range(4):
        reads(log, f"/scratch/in.{number}", 0, 1.0 + 2 * number, 1.9)
    for rank in range(PROCESSES):
        reads(log, f"/scratch/restart.{rank}", rank, 20.0, 30.0)
    assert found(tmp_path, log) == []


def test_one_file_that_took_the_time(tmp_path: Path) -> None:
    """All processes read their own files, and then one together, at a fortieth of the others' rate."""
    log = LogWriter(job=1, processes=PROCESSES, seconds=300)
    for rank in range(PROCESSES):
        reads(log, f"/scratch/{rank}.a", rank, 1.0, 2.0)
        reads(log, f"/scratch/{rank}.b", rank, 3.0, 2.0)
    reads(log, "/scratch/index", -1, 6.0, 160.0, mib=128)
    ((kind, name, factor),) = found(tmp_path, log)
    assert (kind, name) == ("single file", "index")
    assert factor == pytest.approx(40.0, rel=0.01)


def test_one_file_with_most_of_the_bytes_is_not_slow(tmp_path: Path) -> None:
    log = LogWriter(job=1, processes=PROCESSES, seconds=300)
    for rank in range(PROCESSES):
        reads(log, f"/scratch/{rank}.a", rank, 1.0, 2.0)
    reads(log, "/scratch/index", -1, 6.0, 160.0, mib=64 * 80)
    assert found(tmp_path, log) == []


def test_a_slow_process_explains_its_file(tmp_path: Path) -> None:
    log = LogWriter(job=1, processes=PROCESSES, seconds=300)
    for rank in range(PROCESSES):
        reads(log, f"/scratch/{rank}.a", rank, 1.0, 160.0 if rank == 5 else 2.0)
    assert found(tmp_path, log) == []
