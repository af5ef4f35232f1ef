"""Verdicts on small logs in Darshan's own format, written by tests/support/builders/darshan_log.py."""

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from laggard_aggregator.cli.main import main
from laggard_aggregator.jobs.darshan.convert import convert, opened_job
from laggard_aggregator.jobs.darshan.findings import IoFinding
from laggard_aggregator.jobs.darshan.job_tables import JobTables
from laggard_aggregator.jobs.darshan.judged_logs import judged_logs
from laggard_aggregator.jobs.darshan.peers import compared
from laggard_aggregator.jobs.darshan.records import verdict_records
from laggard_aggregator.jobs.darshan.screen import verdict_lines
from laggard_aggregator.jobs.darshan.tables import DARSHAN_FILE, DARSHAN_JOB, DXT, JOB_OST
from laggard_aggregator.jobs.darshan.verdict import JobVerdict, judge
from laggard_common.errors import InputError
from tests.support.builders.darshan_log import DXT_POSIX, POSIX, STDIO, LogWriter
from tests.support.darshan import skip_without_darshan

skip_without_darshan()
MIB = 1 << 20


def judged(*logs: Path) -> JobVerdict:
    """As `judged_logs`, without child processes."""
    directories = []
    for number, log in enumerate(logs):
        directories.append(Path(tempfile.mkdtemp(dir=log.parent)))
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


@pytest.mark.parametrize(
    ("metadata", "amount", "advice"),
    [(1.0, 10 * MIB, "Look at the node"), (35.0, 10 * MIB, "Its opens"), (1.0, 4096, None)],
)
def test_the_slowest_rank_of_a_shared_file_is_named(
    tmp_path: Path, metadata: float, amount: int, advice: str | None
) -> None:
    log = LogWriter(processes=512)
    mean = (511 * 10.0 + 40.0) / 512
    variance = (511 * 100.0 + 1600.0) / 512 - mean**2
    log.posix(
        *("/scratch/shared", -1, "write", 1.0, 41.0),
        requests=5120,
        bytes=5120 * MIB,
        seconds=mean * 512 - metadata,
        CONSEC_WRITES=5000,
        META_TIME=metadata,
        SLOWEST_RANK=3,
        SLOWEST_RANK_BYTES=amount,
        SLOWEST_RANK_TIME=40.0,
        FASTEST_RANK_TIME=10.0,
        VARIANCE_RANK_TIME=variance,
    )
    found = judged(log.write(tmp_path / "a.darshan"))
    assert findings(found) == ([("rank", "rank 3")] if advice else [])
    if advice is not None:
        assert found.findings[0].factor == pytest.approx(4)
        assert found.findings[0].advice.startswith(advice)


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
    log = LogWriter(processes=1024, seconds=800)
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
        (b"", "not a Darshan log: it is empty"),
        (b"\x1f\x8b\x08 gzip", "Darshan 2.x"),
        (b"3.41 and no more", "not a Darshan log"),
        (b"GET / HTTP/1.1\r\n\r\n", "not a Darshan log: it begins with 'GET / HTTP/1.1'"),
        (b"# darshan log version: 3.41\n", "the text of darshan-parser, not a Darshan log"),
    ],
)
def test_other_files_are_one_line(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "x.darshan"
    path.write_bytes(content)
    (found,) = judged_logs([path])
    assert isinstance(found, InputError)
    assert reason in str(found)
    assert "\n" not in str(found)


def test_damaged_logs_are_one_line_each_and_the_whole_one_is_judged(tmp_path: Path) -> None:
    chance = np.random.default_rng(11)
    paths = []
    for number in range(10):
        log = LogWriter(job=100 + number, processes=2)
        private_files(log, {}, ranks=32, osts=4)
        path = log.write(tmp_path / f"damaged{number}.darshan")
        whole = path.read_bytes()
        damaged = bytearray(whole[: int(chance.integers(40, len(whole)))] if number % 2 else whole)
        for at in chance.integers(16, len(damaged), 8):
            damaged[at] = int(chance.integers(0, 256))
        path.write_bytes(bytes(damaged))
        paths.append(path)
    log = LogWriter(job=7, processes=96, seconds=700)
    private_files(log, {14: 500.0}, ranks=96, osts=12)
    missing = tmp_path / "missing.darshan"
    found = list(judged_logs([*paths, missing, log.write(tmp_path / "whole.darshan")], readers=2))
    errors = [each for each in found if isinstance(each, InputError)]
    verdicts = [each for each in found if isinstance(each, JobVerdict)]
    assert len(found) == 12  # one for each log: they are of different jobs
    assert all("\n" not in str(each) for each in errors)
    assert {each.path for each in errors} >= {str(missing)}
    assert len(errors) > 3
    (whole_one,) = (each for each in verdicts if each.tables.job_id == 7)
    assert findings(whole_one) == [("ost", "OST14")]


@pytest.mark.parametrize("counter", ["VARIANCE_RANK_TIME", "READ_TIME", ""])
@pytest.mark.parametrize("value", [math.nan, -1.0])
def test_no_rank_is_named_where_the_others_times_are_unknown(
    tmp_path: Path, counter: str, value: float
) -> None:
    mean = (511 * 10.0 + 40.0) / 512
    log = LogWriter(processes=512)
    counters: dict[str, Any] = {
        "VARIANCE_RANK_TIME": (511 * 100.0 + 1600.0) / 512 - mean**2,
        "READ_TIME": 0.0,
        "SLOWEST_RANK": 3,
        "SLOWEST_RANK_BYTES": 10 * MIB,
        "SLOWEST_RANK_TIME": 40.0,
    }
    if counter:
        counters[counter] = value
    log.posix(
        *("/scratch/shared", -1, "write", 1.0, 41.0),
        requests=5120,
        bytes=5120 * MIB,
        seconds=mean * 512,
        **counters,
    )
    found = judged(log.write(tmp_path / "a.darshan"))
    assert ("rank" in {finding.kind for finding in found.findings}) == (not counter)


def test_no_rank_of_100_jobs_of_uniform_ranks_is_named(tmp_path: Path) -> None:
    """Whole jobs: unequal amounts, a header and a log file by rank 0, ranks that are equally fast."""
    chance = np.random.default_rng(19)
    for number in range(100):
        log = LogWriter(job=number, processes=64, seconds=700)
        spread = float(chance.choice([0.02, 0.1, 0.3]))
        for rank in range(64):
            amount = int(chance.integers(32, 128))
            took = amount / 64 * float(chance.lognormal(1, spread))
            name = f"/scratch/out.{rank}"
            log.posix(
                name,
                rank,
                "write",
                1.0,
                1.0 + took,
                requests=amount,
                bytes=amount * MIB,
                CONSEC_WRITES=amount,
            )
            log.stripes(name, [rank % 8], rank)
        log.posix("/scratch/header", 0, "write", 0.5, 0.6, requests=3, bytes=4096, seconds=0.05)
        log.posix("/scratch/log", 0, "write", 0.5, 650.0, requests=90, bytes=9000, seconds=0.5)
        found = judged(log.write(tmp_path / "a.darshan"))
        assert not {"ost", "rank", "node"} & {each.kind for each in found.findings}, (number, found.findings)


def test_hostile_names_act_on_no_terminal(tmp_path: Path) -> None:
    log = LogWriter(command="/bin/\x1b[31mred\x07 <script>")
    log.posix("/scratch/\x1b]0;owned\x07\n<b>", 0, "write", 1.0, 2.0)
    found = judged(log.write(tmp_path / "a.darshan"))
    text = list(verdict_lines(found, 100))
    assert all(line.isprintable() for line in text), text


def alike_ranks(log: LogWriter, ranks: int, osts: int = 0) -> None:
    """Each rank writes 1 GiB in about 5 s, to a file of its own."""
    chance = np.random.default_rng(13)
    for rank in range(ranks):
        took = 5.0 * float(chance.lognormal(0, 0.05))
        name = f"/scratch/run/out.{rank:04d}"
        log.posix(name, rank, "write", 1.0, 1.0 + took, requests=1024, bytes=1024 * MIB, CONSEC_WRITES=1023)
        if osts:
            log.stripes(name, [10 + rank % osts], rank)


def test_the_rank_of_a_small_log_file_is_not_accused(tmp_path: Path) -> None:
    log = LogWriter(processes=256, seconds=700)
    alike_ranks(log, 256)
    log.regions[POSIX] = log.regions[POSIX][len(log.regions[POSIX]) // 256 :]  # rank 0 writes no other file
    log.posix("/scratch/run/log", 0, "write", 1.0, 700.0, requests=50, bytes=100_000, seconds=1.0)
    found = judged(log.write(tmp_path / "a.darshan"))
    assert findings(found) == []
    assert any(each.rule == "ranks (write)" and "less than 10%" in each.reason for each in found.not_judged)


def test_a_rank_that_calls_for_a_second_of_700_is_not_accused(tmp_path: Path) -> None:
    log = LogWriter(processes=256, seconds=700)
    alike_ranks(log, 256)
    log.posix("/scratch/run/log", 0, "write", 1.0, 700.0, requests=50, bytes=100_000, seconds=20.0)
    found = judged(log.write(tmp_path / "a.darshan"))
    assert findings(found) == []


def test_the_ost_of_a_small_log_file_is_not_accused(tmp_path: Path) -> None:
    log = LogWriter(processes=96, seconds=700)
    alike_ranks(log, 96, osts=12)
    log.posix("/scratch/run/log", 0, "write", 1.0, 700.0, requests=50, bytes=100_000, seconds=1.0)
    log.stripes("/scratch/run/log", [7], 0)
    found = judged(log.write(tmp_path / "a.darshan"))
    assert findings(found) == []


@pytest.mark.parametrize("osts", [0, 12])
def test_the_ost_and_the_rank_of_a_synced_log_file_are_not_accused(tmp_path: Path, osts: int) -> None:
    """Beside its share of the work the member has 100 kB, synced at each line: 200 s in calls."""
    log = LogWriter(processes=96, seconds=700)
    alike_ranks(log, 96, osts)
    log.posix("/scratch/run/log", 0, "write", 1.0, 700.0, requests=50, bytes=100_000, seconds=200.0)
    if osts:
        log.stripes("/scratch/run/log", [10], 0)
    found = judged(log.write(tmp_path / "a.darshan"))
    assert findings(found) == []
    rules = {each.rule: each.reason for each in found.not_judged if "less than 10%" in each.reason}
    assert rules["ranks (write)"].startswith("1 of the records")
    assert ("OSTs (write)" in rules) == bool(osts)


def test_a_log_file_that_is_open_throughout_hides_no_slow_ost(tmp_path: Path) -> None:
    log = LogWriter(processes=96, seconds=700)
    private_files(log, {14: 500.0}, ranks=96, osts=12)
    log.posix("/scratch/run/log", 0, "write", 1.0, 700.0, requests=50, bytes=100_000, seconds=1.0)
    log.stripes("/scratch/run/log", [17], 0)
    found = judged(log.write(tmp_path / "a.darshan"))
    assert findings(found) == [("ost", "OST14")]
    assert found.findings[0].share == pytest.approx(0.7, abs=0.1)


def test_ranks_that_write_one_after_another_to_a_slow_ost(tmp_path: Path) -> None:
    log = LogWriter(processes=96, seconds=900)
    for rank in range(96):
        ost, turn = 10 + rank % 12, rank // 12
        took = 100.0 if ost == 14 else 5.0
        name = f"/scratch/run/out.{rank:04d}"
        begin = 1.0 + 100.0 * turn
        log.posix(name, rank, "write", begin, begin + took, requests=256, bytes=256 * MIB, CONSEC_WRITES=255)
        log.stripes(name, [ost], rank)
    found = judged(log.write(tmp_path / "a.darshan"))
    assert findings(found) == [("ost", "OST14")]
    assert found.findings[0].share == pytest.approx(0.95, abs=0.01)


def test_rules_without_a_verdict_say_why(tmp_path: Path) -> None:
    few = LogWriter(processes=3)
    for rank in range(3):
        few.posix(f"/scratch/{rank}", rank, "write", 1.0, 2.0)
    many = LogWriter(processes=96)
    private_files(many, {10: 80.0, 11: 80.0, 12: 80.0, 13: 80.0, 14: 80.0}, ranks=96, osts=12)
    reasons = {
        name: {each.rule: each.reason for each in judged(log.write(tmp_path / f"{name}.darshan")).not_judged}
        for name, log in (("few", few), ("many", many))
    }
    assert "4 are needed" in reasons["few"]["ranks (write)"]
    assert "DXT" in reasons["few"]["nodes (write)"]
    assert "more than a third" in reasons["many"]["OSTs (write)"]
    logs = []
    for number in range(2):
        log = LogWriter(job=8, processes=4, start=1_750_000_000 + 10 * number)
        log.posix(f"/scratch/{number}", 0, "write", 1.0, 2.0)
        logs.append(log.write(tmp_path / f"{number}.darshan"))
    assert any("ranks count from 0" in each.reason for each in judged(*logs).not_judged)


def test_metadata_of_a_job_that_only_writes(tmp_path: Path) -> None:
    log = LogWriter(processes=1)
    log.posix("/scratch/a", 0, "write", 1.0, 11.0, META_TIME=30.0)
    found = judged(log.write(tmp_path / "a.darshan"))
    (finding,) = found.findings
    assert (finding.kind, finding.direction) == ("metadata", "write")
    assert (finding.factor, finding.share) == (0.75, 0.75)


def test_the_slowest_process_of_a_job_with_a_log_each(tmp_path: Path) -> None:
    paths = []
    for number in range(4):
        log = LogWriter(job=9, processes=1, start=1_750_000_000)
        log.posix(f"/scratch/{number}", 0, "write", 1.0, 6.0, bytes=10 * MIB)
        paths.append(log.write(tmp_path / f"{number}.darshan"))
    (io,) = io_records(judged(*paths))
    assert io["slowest_rank_mib_per_second"] == 8.0  # 40 MiB in 5 s, not in 4 times 5 s


def test_a_partial_trace_is_not_exact(tmp_path: Path) -> None:
    log = LogWriter(processes=2)
    log.posix("/scratch/a", 0, "write", 1.0, 11.0, seconds=6.0)
    log.trace("/scratch/a", 0, "n1", [(0, 10, 1.0, 2.0), (10, 10, 4.0, 6.0)])
    (whole,) = io_records(judged(log.write(tmp_path / "a.darshan")))
    assert (whole["traced"], whole["busy_lower_seconds"]) == (True, 3.0)
    log.partial.add(DXT_POSIX)
    (cut,) = io_records(judged(log.write(tmp_path / "a.darshan")))
    assert (cut["traced"], cut["busy_lower_seconds"]) == (False, 6.0)


def test_hostile_names_of_nodes_are_no_command(tmp_path: Path) -> None:
    log = LogWriter(processes=16, seconds=100)
    for rank in range(16):
        node = "n4;rm -rf /\x1b[2J" if rank // 4 == 3 else f"n{rank // 4}"
        took = 60.0 if rank // 4 == 3 else 5.0
        name = f"/scratch/{rank}"
        log.posix(name, rank, "write", 1.0, 1.0 + took, requests=256, bytes=256 * MIB, CONSEC_WRITES=255)
        log.trace(name, rank, node, [(0, 256 * MIB, 1.0, 1.0 + took)])
    found = judged(log.write(tmp_path / "a.darshan"))
    (finding,) = found.findings
    assert finding.kind == "node"
    assert "sbatch" not in finding.advice
    assert (finding.text + finding.advice + str(finding.component)).isprintable()


def test_the_verdict_on_2_000_files_is_one_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Several causes at once, and rules that were not judged."""
    log = LogWriter(processes=2000, seconds=700)
    private_files(log, {14: 500.0}, ranks=2000, osts=12)
    for rank in range(0, 2000, 7):
        log.posix(f"/scratch/run/in.{rank}", rank, "read", 1.0, 90.0, requests=5000, bytes=5000 * 4096)
        log.record(STDIO, f"/scratch/run/log.{rank}", rank, WRITES=3, BYTES_WRITTEN=99)
    log.partial.add(POSIX)
    assert main(["mine", str(log.write(tmp_path / "x.darshan"))]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("OST 14 wrote at" in line for line in lines)
    assert len(lines) <= 40


def file_table(count: int, osts: int, slow: int) -> JobTables:
    """A job with files on two OSTs each, made without a log; those on OST `slow` take 100 times as long."""
    chance = np.random.default_rng(17)
    ids, ranks = np.arange(count), np.arange(count) % 100_000
    first = ids % osts
    took = np.where((first == slow) | ((first + 1) % osts == slow), 100.0, 1.0) * chance.lognormal(
        0, 0.05, count
    )
    start = 1_750_000_000_000_000
    columns = {
        "log": np.ones(count, np.int64),
        "job_id": np.ones(count, np.int64),
        "module": pa.array(["POSIX"]).take(pa.array(np.zeros(count, np.int64))),
        "file_id": ids,
        "rank": ranks,
        "processes": np.ones(count, np.int64),
        "writes": np.full(count, 64),
        "bytes_written": np.full(count, 64 * MIB),
        "write_start_us": np.full(count, start),
        "write_end_us": start + (took * 1e6).astype(np.int64),
        "write_time_us": (took * 1e6).astype(np.int64),
        "meta_time_us": np.zeros(count, np.int64),
        "read_time_us": np.zeros(count, np.int64),
        "reads": np.zeros(count, np.int64),
        "stripe_count": np.full(count, 2),
    }
    arrays = [
        pa.nulls(count, each.type) if each.name not in columns else pa.array(columns[each.name], each.type)
        for each in DARSHAN_FILE
    ]
    rows = {
        "log": np.ones(2 * count, np.int64),
        "job_id": np.ones(2 * count, np.int64),
        "file_id": np.repeat(ids, 2),
        "mount": pa.array(["/scratch"]).take(pa.array(np.zeros(2 * count, np.int64))),
        "ost": np.stack([first, (first + 1) % osts], axis=1).ravel(),
        "stripes": np.full(2 * count, 2),
    }
    job: dict[str, Any] = {each.name: None for each in DARSHAN_JOB}
    job |= {"log": 1, "job_id": 1, "uid": 1, "start_us": start, "end_us": start + 200_000_000}
    job |= {"processes": 100_000, "path": "a", "application": "a", "modules": "POSIX,LUSTRE", "partial": ""}
    return JobTables(
        pa.Table.from_pylist([job], schema=DARSHAN_JOB),
        pa.table(arrays, schema=DARSHAN_FILE),
        pa.table(rows, schema=JOB_OST),
        DXT.empty_table(),
    )


def test_a_job_of_200_000_files_is_judged() -> None:
    """Work that grew with the square of the files would exceed the limit of time."""
    found = judge(file_table(200_000, 24, 14))
    assert {each.component for each in found.findings if each.kind == "ost"} <= {"OST13", "OST14", "OST15"}
    assert "OST14" in {each.component for each in found.findings}
