"""Verdicts on small logs in Darshan's own format, written by tests/support/builders/darshan_log.py."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from laggard_aggregator.mining.convert import convert, opened_job
from laggard_aggregator.mining.findings import IoFinding
from laggard_aggregator.mining.peers import compared
from laggard_aggregator.mining.records import verdict_records
from laggard_aggregator.mining.screen import verdict_lines
from laggard_aggregator.mining.single import judged_logs
from laggard_aggregator.mining.verdict import JobVerdict, judge
from laggard_common.errors import InputError
from tests.support.builders.darshan_log import POSIX, STDIO, LogWriter

pytest.importorskip("darshan")
MIB = 1 << 20


def judged(*logs: Path) -> JobVerdict:
    """As `judged_logs`, without child processes."""
    directories = []
    for number, log in enumerate(logs):
        directories.append(log.parent / f"converted{number}")
        directories[-1].mkdir()
        convert(log, number, directories[-1])
    return judge(opened_job(directories))


def findings(verdict: JobVerdict) -> list[tuple[str, str | None]]:
    return [(each.kind, each.component) for each in verdict.findings]


def io_records(verdict: JobVerdict) -> list[dict[str, Any]]:
    return [record for record in verdict_records(verdict) if record["record"] == "io"]


def private_files(log: LogWriter, seconds: dict[int, float], ranks: int, osts: int) -> None:
    """A file a rank, each on one OST; `seconds`: by OST, 10 s otherwise."""
    chance = np.random.default_rng(3)
    for rank in range(ranks):
        ost = 10 + rank % osts
        took = seconds.get(ost, 10.0) * float(chance.lognormal(0, 0.05))
        name = f"/scratch/run/out.{rank:04d}"
        log.posix(name, rank, "write", 1.0, 1.0 + took, requests=256, bytes=256 * MIB, CONSEC_WRITES=255)
        log.stripes(name, [ost], rank)


def test_figure_3_in_a_log(tmp_path: Path) -> None:
    log = LogWriter(processes=4)
    for at, (start, end) in enumerate([(1, 11), (7, 13), (5, 9), (17, 19)]):
        log.posix(f"/scratch/file{at + 1}", at, "write", start, end, requests=8, bytes=14 * MIB)
    found = judged(log.write(tmp_path / "fig3.darshan"))
    (io,) = io_records(found)
    assert (io["busy_seconds"], io["span_seconds"], io["critical_files"], io["files"]) == (14.0, 18.0, 3, 4)
    assert io["mib_per_second"] == pytest.approx(56 / 14)
    critical = [record for record in verdict_records(found) if record["record"] == "critical_file"]
    shown = [(each["file"][-5:], each["start"], each["end"], each["exclusive_seconds"]) for each in critical]
    assert shown == [("file1", 1.0, 11.0, 10.0), ("file2", 11.0, 13.0, 2.0), ("file4", 17.0, 19.0, 2.0)]


def test_a_slow_ost_and_no_other_is_named(tmp_path: Path) -> None:
    log = LogWriter(processes=96, seconds=700)
    private_files(log, {14: 500.0}, ranks=96, osts=12)
    found = judged(log.write(tmp_path / "a.darshan"))
    assert findings(found) == [("ost", "OST14")]
    finding = found.findings[0]
    assert finding.factor == pytest.approx(50, rel=0.1)
    assert finding.share > 0.9
    assert "OST 14 wrote at 0.5" in finding.text
    assert "8 files were on it" in finding.text


def test_alike_osts_and_ranks_are_not(tmp_path: Path) -> None:
    log = LogWriter(processes=96)
    private_files(log, {}, ranks=96, osts=12)
    found = judged(log.write(tmp_path / "a.darshan"))
    assert findings(found) == []
    assert any("Nothing to report" in line for line in verdict_lines(found))


def test_one_rank_three_times_slower_among_2048_is_named(tmp_path: Path) -> None:
    log = LogWriter(processes=2048)
    chance = np.random.default_rng(5)
    for rank in range(2048):
        took = 10.0 * float(chance.lognormal(0, 0.1)) * (3.0 if rank == 77 else 1.0)
        log.posix(f"/scratch/out.{rank}", rank, "write", 1.0, 1.0 + took, requests=64, bytes=64 * MIB)
    found = judged(log.write(tmp_path / "a.darshan"))
    assert findings(found) == [("rank", "rank 77")]
    assert found.findings[0].factor == pytest.approx(3, rel=0.3)


def test_the_slowest_rank_of_a_shared_file_is_named(tmp_path: Path) -> None:
    log = LogWriter(processes=512)
    mean = (511 * 10.0 + 40.0) / 512
    variance = (511 * 100.0 + 1600.0) / 512 - mean**2
    log.posix(
        *("/scratch/shared", -1, "write", 1.0, 41.0),
        requests=5120,
        bytes=5120 * MIB,
        seconds=mean * 512,
        CONSEC_WRITES=5000,
        SLOWEST_RANK=3,
        SLOWEST_RANK_BYTES=10 * MIB,
        SLOWEST_RANK_TIME=40.0,
        FASTEST_RANK_TIME=10.0,
        VARIANCE_RANK_TIME=variance,
    )
    found = judged(log.write(tmp_path / "a.darshan"))
    assert findings(found) == [("rank", "rank 3")]
    assert found.findings[0].factor == pytest.approx(4)


@pytest.mark.parametrize("spread", [0.02, 0.1, 0.3, 0.5])
def test_no_rank_of_1000_jobs_of_uniform_ranks_is_named(spread: float) -> None:
    chance = np.random.default_rng(7)
    for _ in range(1000):
        ranks = int(chance.integers(8, 1024))
        found = compared(chance.lognormal(2, spread, ranks), np.full(ranks, 1e6))
        assert found is not None
        assert not found.slow.any()


def test_scattered_reads_are_the_cause_and_not_their_size(tmp_path: Path) -> None:
    log = LogWriter(processes=256)
    shared = {"requests": 262_144, "bytes": 256 * MIB, "SIZE_READ_1K_10K": 262_144}
    log.posix("/scratch/shared", -1, "read", 1.0, 5.0, **shared, seconds=990.0, CONSEC_READS=3)
    log.stripes("/scratch/shared", [112])
    found = judged(log.write(tmp_path / "a.darshan"))
    assert findings(found) == [("nonconsecutive", None)]
    assert found.directions[0].factors.processes_per_ost == 256


def test_many_processes_on_one_ost(tmp_path: Path) -> None:
    log = LogWriter(processes=1024)
    name = "/scratch/one.h5"
    log.posix(
        name, -1, "write", 1.0, 740.0, requests=70_000, bytes=640 << 30, seconds=503.0, CONSEC_WRITES=69_000
    )
    log.stripes(name, [29])
    found = judged(log.write(tmp_path / "a.darshan"))
    assert findings(found) == [("striping", "OST29")]
    assert found.findings[0].factor == 1024
    assert "lfs setstripe" in found.findings[0].advice


def test_requests_of_one_mebibyte_are_not_small(tmp_path: Path) -> None:
    log = LogWriter()
    bins = {"SIZE_WRITE_100K_1M": 300, "ACCESS1_ACCESS": MIB, "ACCESS1_COUNT": 200}
    log.posix("/scratch/a", 0, "write", 1.0, 2.0, requests=300, CONSEC_WRITES=299, **bins)
    found = judged(log.write(tmp_path / "a.darshan"))
    assert found.directions[0].factors.small == pytest.approx(1 / 3)


def test_the_first_request_of_a_rank_cannot_be_consecutive(tmp_path: Path) -> None:
    log = LogWriter(processes=4)
    log.posix("/scratch/a", 0, "write", 1.0, 2.0, requests=11, CONSEC_WRITES=10)
    log.posix("/scratch/b", -1, "write", 2.0, 4.0, requests=44, CONSEC_WRITES=20)
    log.posix("/scratch/c", 1, "write", 4.0, 5.0, requests=1)
    log.posix("/scratch/d", 2, "read", 4.0, 5.0, requests=1)
    found = judged(log.write(tmp_path / "a.darshan"))
    by_direction = {each.accesses.direction: each for each in found.directions}
    assert by_direction["write"].factors.nonconsecutive == pytest.approx((0 * 1 + 0.5 * 2) / 3)
    assert by_direction["read"].factors.nonconsecutive is None


def test_logs_of_one_job_are_judged_together(tmp_path: Path) -> None:
    paths = []
    for number in range(4):
        log = LogWriter(job=9, processes=1, start=1_750_000_000 + 10 * number)
        log.posix(f"/scratch/{number}", 0, "write", 1.0, 6.0, META_TIME=95.0 if number == 3 else 0.0)
        paths.append(log.write(tmp_path / f"{number}.darshan"))
    found = judged(*paths)
    (io,) = io_records(found)
    assert (io["busy_seconds"], io["span_seconds"], io["files"], io["logs"]) == (20.0, 35.0, 4, 4)
    shares = [record["metadata"] for record in verdict_records(found) if record["record"] == "log"]
    assert shares == [0.0, 0.0, 0.0, 0.95]
    assert [each.kind for each in found.findings] == ["metadata"]


@pytest.mark.parametrize("kind", ["none", "stdio", "partial", "empty posix"])
def test_missing_parts_are_said(tmp_path: Path, kind: str) -> None:
    log = LogWriter()
    if kind == "stdio":
        log.record(
            STDIO,
            "<STDOUT>",
            0,
            WRITES=3,
            BYTES_WRITTEN=99,
            WRITE_START_TIMESTAMP=1.0,
            WRITE_END_TIMESTAMP=2.0,
        )
    if kind == "partial":
        log.posix("/scratch/a", 0, "write", 1.0, 2.0)
        log.partial.add(POSIX)
    if kind == "empty posix":
        log.record(POSIX, "/scratch/a", 0, OPENS=1)
    found = judged(log.write(tmp_path / "a.darshan"))
    reasons = {
        "none": "no module",
        "stdio": "no POSIX module",
        "partial": "partial",
        "empty posix": "no read or write",
    }
    assert any(reasons[kind] in each.reason for each in found.not_judged), found.not_judged
    assert not any(isinstance(each, IoFinding) for each in found.findings)
    assert list(verdict_lines(found, 80))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "an empty file"),
        (b"\x1f\x8b\x08 gzip", "Darshan 2.x"),
        (b"3.41 and no more", "not a Darshan log"),
        (b"GET / HTTP/1.1\r\n\r\n", "not a Darshan log"),
    ],
)
def test_other_files_are_one_line(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "x.darshan"
    path.write_bytes(content)
    (found,) = judged_logs([path])
    assert isinstance(found, InputError)
    assert reason in str(found)
    assert "\n" not in str(found)


def test_damaged_logs_are_one_line_and_the_next_is_read(tmp_path: Path) -> None:
    log = LogWriter(processes=2)
    private_files(log, {}, ranks=32, osts=4)
    whole = log.write(tmp_path / "whole.darshan").read_bytes()
    chance = np.random.default_rng(11)
    paths = []
    for number in range(10):
        damaged = bytearray(whole[: int(chance.integers(40, len(whole)))] if number % 2 else whole)
        for at in chance.integers(16, len(damaged), 8):
            damaged[at] = int(chance.integers(0, 256))
        path = tmp_path / f"damaged{number}.darshan"
        path.write_bytes(bytes(damaged))
        paths.append(path)
    found = list(judged_logs([*paths, tmp_path / "whole.darshan"], readers=2))
    assert any(isinstance(each, InputError) for each in found)
    assert any(isinstance(each, JobVerdict) for each in found)


def test_hostile_names_act_on_no_terminal(tmp_path: Path) -> None:
    log = LogWriter(command="/bin/\x1b[31mred\x07 <script>")
    log.posix("/scratch/\x1b]0;owned\x07\n<b>", 0, "write", 1.0, 2.0)
    found = judged(log.write(tmp_path / "a.darshan"))
    text = list(verdict_lines(found, 100))
    assert all(line.isprintable() for line in text), text
