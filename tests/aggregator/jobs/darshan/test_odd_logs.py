"""Darshan logs as they are found: killed jobs, times outside of the run, empty reads, numbers used again."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard_aggregator.jobs.darshan.convert import convert
from laggard_aggregator.jobs.darshan.log_runs import MAX_PAUSE_US, LogRun, jobs_of_logs
from tests.aggregator.jobs.darshan.test_verdict import MIB, findings, io_records, judged
from tests.support.builders.darshan_log import LogWriter
from tests.support.darshan import skip_without_darshan

skip_without_darshan()
FEW = settings(max_examples=25)


def kinds(log: LogWriter) -> list[tuple[str, str | None]]:
    with TemporaryDirectory() as folder:
        return findings(judged(log.write(Path(folder) / "a.darshan")))


def writers(log: LogWriter) -> LogWriter:
    for rank in range(4):
        log.posix(f"/scratch/out.{rank}", rank, "write", 1.0, 11.0, requests=64, bytes=64 * MIB)
    return log


def test_a_log_without_an_end_is_whole_but_for_its_length(tmp_path: Path) -> None:
    log = writers(LogWriter(start=1_700_000_000, seconds=-1_700_000_000))
    found = judged(log.write(tmp_path / "a.darshan"))
    (record,) = io_records(found)
    assert (record["bytes"], record["busy_seconds"]) == (256 * MIB, 10.0)
    assert found.tables.end_us - found.tables.start_us == 11_000_000
    assert found.tables.logs["run_us"].to_pylist() == [None]
    assert any(each.rule == "length of the run" for each in found.not_judged)


TIMES = (
    st.floats(-1e7, 1e9) | st.floats(0, 100) | st.sampled_from([float("nan"), float("inf"), float("-inf")])
)


@FEW
@given(TIMES, TIMES)
def test_busy_time_is_never_beyond_the_run(begin: float, end: float) -> None:
    log = writers(LogWriter(seconds=100))
    log.posix("/scratch/odd", 3, "write", begin, end, requests=64, bytes=64 * MIB, seconds=5.0)
    with TemporaryDirectory() as folder:
        found = judged(log.write(Path(folder) / "a.darshan"))
    (record,) = io_records(found)
    assert 10.0 <= record["busy_seconds"] <= 102.0
    assert record["bytes"] == 320 * MIB
    is_odd = not (0 <= begin <= 102 and 0 <= end <= 102) or (begin <= 0 and end <= 0)
    told = [each for each in found.not_judged if "outside of the run" in each.reason]
    assert bool(told) is is_odd


@pytest.mark.parametrize("seconds", [-5.0, 1e6, float("nan")])
def test_a_sum_of_times_beyond_the_run_is_unknown(tmp_path: Path, seconds: float) -> None:
    log = LogWriter(seconds=100)
    log.posix("/scratch/odd", 0, "write", 1.0, 2.0, seconds=seconds)
    rows = judged(log.write(tmp_path / "a.darshan")).tables.files.to_pylist()
    assert [row["write_time_us"] for row in rows] == [None]


def test_traced_requests_outside_of_the_run_do_not_count(tmp_path: Path) -> None:
    log = LogWriter(seconds=100)
    log.posix("/scratch/a", 0, "write", 1.0, 3.0, requests=2, bytes=2 * MIB)
    log.trace("/scratch/a", 0, "n1", [(0, MIB, -500.0, 1.0), (MIB, MIB, 2.0, 3.0)])
    (record,) = io_records(judged(log.write(tmp_path / "a.darshan")))
    assert not record["traced"]
    assert record["busy_lower_seconds"] <= record["busy_seconds"] == 2.0


def readers(count: int, *, size: int, requests: int, empty: int, **counters: float) -> LogWriter:
    """A file each, read by `requests` of `size` bytes and `empty` ones, one after the other."""
    name = "SIZE_READ_0_100" if size <= 100 else "SIZE_READ_1K_10K" if size < MIB else "SIZE_READ_1M_4M"
    log = LogWriter(processes=1, seconds=1000)
    for at in range(count):
        sizes = {name: requests}
        sizes["SIZE_READ_0_100"] = sizes.get("SIZE_READ_0_100", 0) + empty
        log.posix(
            f"/scratch/in.{at}",
            0,
            "read",
            1.0 + at,
            1.9 + at,
            requests=requests + empty,
            bytes=size * requests,
            CONSEC_READS=requests + empty - 1,
            **{**sizes, "ACCESS1_ACCESS": size, "ACCESS1_COUNT": requests, **counters},
        )
    return log


@FEW
@given(st.integers(1, 4), st.integers(0, 6), st.booleans())
def test_reads_that_return_nothing_are_not_small(requests: int, empty: int, is_listed: bool) -> None:
    listed = {"ACCESS2_COUNT": empty} if is_listed else {"OPENS": max(empty, 1)}
    assert ("small", None) not in kinds(readers(200, size=2 * MIB, requests=requests, empty=empty, **listed))


@pytest.mark.parametrize("size", [50, 100, 4096])
@pytest.mark.parametrize("opens", [1, 8])
def test_small_reads_are_small_beside_empty_ones(size: int, opens: int) -> None:
    log = readers(200, size=size, requests=8, empty=1, ACCESS2_COUNT=1, OPENS=opens)
    assert ("small", None) in kinds(log)


def test_one_byte_reads_are_no_empty_ones(tmp_path: Path) -> None:
    log = readers(1, size=1, requests=1000, empty=1, OPENS=1)
    (row,) = judged(log.write(tmp_path / "a.darshan")).tables.files.to_pylist()
    assert row["small_reads"] == 1000


def slow_osts(log: LogWriter) -> list[str]:
    return sorted(str(component) for kind, component in kinds(log) if kind == "ost")


def striped(slow: dict[int, float], layout: list[list[int]], late: int = -1) -> LogWriter:
    """A file a rank, as slow as the slowest of its OSTs; 5 s where none is slow. Rank `late` begins late."""
    log = LogWriter(processes=len(layout), seconds=1000)
    for rank, osts in enumerate(layout):
        took = max(slow.get(ost, 5.0) for ost in osts) + 0.01 * (rank % 7)
        name = f"/scratch/out.{rank}"
        begin = 1.0 if rank != late else 100.0
        log.posix(
            name, rank, "write", begin, begin + took, requests=1024, bytes=1024 * MIB, CONSEC_WRITES=1023
        )
        log.stripes(name, osts, rank)
    return log


@FEW
@given(st.integers(0, 23), st.integers(2, 4), st.floats(20.0, 200.0))
def test_an_ost_beside_a_slow_one_is_not_named(slow: int, shared: int, took: float) -> None:
    layout = [[rank, 40 + rank % shared] for rank in range(24)]
    assert [each for each in kinds(striped({slow: took}, layout)) if each[0] == "ost"] == [
        ("ost", f"OST{slow}")
    ]


def test_two_slow_osts_are_both_named() -> None:
    layout = [[rank, 40 + rank % 2] for rank in range(24)]
    assert slow_osts(striped({3: 80.0, 8: 50.0}, layout, late=8)) == ["OST3", "OST8"]


RUNS = st.builds(
    LogRun,
    job_id=st.integers(0, 2),
    uid=st.integers(1, 2),
    start_us=st.integers(0, 6).map(lambda week: week * (MAX_PAUSE_US + 10)),
    end_us=st.just(0),
).map(lambda run: LogRun(run.job_id, run.uid, run.start_us, run.start_us + 5))


@given(st.lists(RUNS, max_size=12))
def test_logs_of_one_job_have_one_number_user_and_time(logs: list[LogRun]) -> None:
    jobs = jobs_of_logs(logs)
    assert sorted(at for job in jobs for at in job) == list(range(len(logs)))
    expected = {
        (log.job_id, log.uid, log.start_us, at if log.job_id == 0 else -1) for at, log in enumerate(logs)
    }
    assert len(jobs) == len(expected)


@given(st.lists(st.integers(0, MAX_PAUSE_US), max_size=8), st.randoms())
def test_logs_that_follow_each_other_are_of_one_job(pauses: list[int], chance: object) -> None:
    logs, at = [], 0
    for pause in [0, *pauses]:
        logs.append(LogRun(7, 1, at + pause, at + pause + 10))
        at += pause + 10
    chance.shuffle(logs)  # type: ignore[attr-defined]
    assert jobs_of_logs(logs) == [list(range(len(logs)))]


@FEW
@given(
    st.sampled_from(["BYTES_WRITTEN", "WRITES", "OPENS", "CONSEC_WRITES", "SIZE_WRITE_0_100"]),
    st.integers((1 << 53) + 1, (1 << 63) - 1) | st.integers(-(1 << 63), -1),
)
def test_a_record_with_an_impossible_counter_is_left_out_and_told(counter: str, value: int) -> None:
    log = writers(LogWriter(seconds=100))
    log.posix("/scratch/odd", 3, "write", 1.0, 90.0, **{counter: value})
    with TemporaryDirectory() as folder:
        found = judged(log.write(Path(folder) / "a.darshan"))
    (record,) = io_records(found)
    assert (record["bytes"], record["busy_seconds"], record["files"]) == (256 * MIB, 10.0, 4)
    assert found.tables.logs["bytes_written"].to_pylist() == [256 * MIB]
    told = [each.reason for each in found.not_judged if each.rule == "POSIX"]
    assert told == ["1 record with counters that cannot be right: left out"]


def test_a_reader_of_many_logs_keeps_nothing_of_them(tmp_path: Path) -> None:
    """The library allocates lists of modules and mounts for each log; a store's worker reads thousands."""
    path = writers(LogWriter()).write(tmp_path / "a.darshan")

    def read(logs: int) -> int:
        for _ in range(logs):
            convert(path, 0, tmp_path)
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = read(50)
    assert read(300) - before < 300 * 5_000  # 22 KB a log where the lists are kept


RECORDS = st.lists(
    st.tuples(
        st.integers(0, 7),
        st.sampled_from(["read", "write"]),
        st.integers(0, 1 << 40) | st.sampled_from([-1, -(1 << 62), 1 << 60]),
        st.integers(0, 90),
        st.integers(1, 9),
    ),
    min_size=1,
    max_size=8,
)


@FEW
@given(RECORDS)
def test_any_records_add_up_by_direction(records: list[tuple[int, str, int, int, int]]) -> None:
    """Beside sums and unions of whole seconds that are made here."""
    log = LogWriter(seconds=100)
    for number, (rank, direction, size, begin, length) in enumerate(records):
        counters = {"BYTES_READ" if direction == "read" else "BYTES_WRITTEN": size}
        log.posix(
            f"/scratch/f.{number}", rank, direction, begin + 1, begin + 1 + length, seconds=1, **counters
        )
    with TemporaryDirectory() as folder:
        found = judged(log.write(Path(folder) / "a.darshan"))
    for direction in ("read", "write"):
        own = [r for r in records if r[1] == direction]
        good = [r for r in own if 0 <= r[2] <= 1 << 53]
        seconds = {second for r in good for second in range(r[3], r[3] + r[4])}
        recorded = [record for record in io_records(found) if record["direction"] == direction]
        moved = sum(r[2] for r in good)
        assert [record["bytes"] for record in recorded] == ([moved] if good else [])
        assert [record["busy_seconds"] for record in recorded] == ([len(seconds)] if good else [])
    is_unknown = all(not 0 <= r[2] <= 1 << 53 for r in records)
    written = sum(r[2] for r in records if r[1] == "write" and 0 <= r[2] <= 1 << 53)
    assert found.tables.logs["bytes_written"].to_pylist() == [None if is_unknown else written]
    told = [each.reason for each in found.not_judged if each.rule == "POSIX"]
    odd = sum(not 0 <= r[2] <= 1 << 53 for r in records)
    assert bool(told) is bool(odd)
