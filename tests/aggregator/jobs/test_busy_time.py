"""Rates of jobs: amounts over the seconds in which they moved, whatever the readings' intervals are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from laggard_aggregator.jobs.join.accounts import JobAccount, JoinedJob
from laggard_aggregator.jobs.join.active_times import ActiveTimes, Moves, TimedMoves
from laggard_aggregator.jobs.join.busy_time import BusyTime, busy_shares
from laggard_aggregator.jobs.join.scan import Join
from laggard_aggregator.jobs.join.summary import series_rows, summary_row
from laggard_aggregator.jobs.verdict.analysis.phases import find_phases
from laggard_aggregator.jobs.verdict.analysis.rate_series import rate_series
from tests.aggregator.jobs.job_archives import MS, job_batch, write_parts
from tests.naive_jobs import NaiveReading
from tests.support.builders.archives import START_NS

SECOND = 10**9
START = START_NS // MS
NodeWork = dict[str, list[tuple[float, float, int]]]
READ, WRITE = 763 * 2**20, 250 * 2**20
OPEN = 80
OFFSETS = {"n1": 0, "n2": 370, "n3": 640}
"""Nodes, with the ms by which their readings are later."""


def done(at_ms: int, spans: list[tuple[float, float]], rate: int) -> int:
    """Amount until `at_ms` after START of a node that moves `rate` a second in `spans`, in seconds."""
    inside = sum(max(min(at_ms, end * 1000) - start * 1000, 0) for start, end in spans)
    return round(inside * rate / 1000)


@pytest.mark.parametrize("interval_ms", [1_000, 5_000, 10_000])
def test_a_rate_is_the_amount_by_the_time_in_which_it_moved(tmp_path: Path, interval_ms: int) -> None:
    reads, writes = [(63.3, 113.3), (303.7, 353.7)], [(163.3, 213.3), (403.2, 453.2)]
    opens = [(130.4, 150.4)]
    for number, (node, offset) in enumerate(OFFSETS.items()):
        every = range(-20_000 + offset, 520_000, interval_ms)
        readings = [
            NaiveReading(
                START + at,
                START + at,
                {
                    "read_bytes_sum": done(at, reads, READ // 3),
                    "write_bytes_sum": done(at, writes, WRITE // 3),
                    "read_bytes_samples": done(at, reads, 100),
                    "write_bytes_samples": done(at, writes, 100),
                    "open_samples": done(at, opens, OPEN) // 3,
                },
            )
            for at in every
        ]
        parts = [
            [job_batch(node, "scratch", readings[at : at + 60], lsn=1 + at, received_ns=START_NS)]
            for at in range(0, len(readings), 60)
        ]
        write_parts(tmp_path, parts, START_NS + number)
    end_ns = START_NS + 500 * SECOND
    held = tuple((node, START_NS, end_ns) for node in OFFSETS)
    (account,) = Join(tmp_path, "site", [JoinedJob("j", 1, START_NS, end_ns, held, 4)]).run()
    row = summary_row(account, 1)
    assert row["mean_read_mib_per_second"] == pytest.approx(763, rel=0.01)
    assert row["mean_written_mib_per_second"] == pytest.approx(250, rel=0.01)
    assert row["mdops"] == pytest.approx(OPEN, rel=0.03)
    together = (2 * 50 * 763 + 2 * 50 * 250) / 200
    assert row["mib_per_second"] == pytest.approx(together, rel=0.01), "they never overlap"
    assert row["active_seconds"] == pytest.approx(220, rel=0.01)
    assert row["iops"] == pytest.approx(300, rel=0.02)
    assert row["peak_read_mib_per_second"] == pytest.approx(763, rel=0.01)
    (series,) = series_rows(account, 1)
    assert (series["resolution_seconds"], len(series["read_bytes"])) == (1.0, 500)


def join(
    folder: Path, work: dict[str, list[tuple[float, float, int]]], interval: int, end: int
) -> JobAccount:
    """A job whose nodes read from, to (s) at a rate each, by readings every `interval` seconds."""
    for number, (node, spans) in enumerate(work.items()):
        readings = []
        for at in range(-20_000, 1000 * end + 20_000, 1000 * interval):
            moved = sum(done(at, [(first, last)], rate) for first, last, rate in spans)
            readings.append(NaiveReading(START + at, START + at, {"read_bytes_sum": moved}))
        parts = [
            [job_batch(node, "scratch", readings[at : at + 40], lsn=1 + at, received_ns=START_NS)]
            for at in range(0, len(readings), 40)
        ]
        write_parts(folder, parts, START_NS + number)
    end_ns = START_NS + end * SECOND
    held = tuple((node, START_NS, end_ns) for node in work)
    (account,) = Join(folder, "site", [JoinedJob("j", 1, START_NS, end_ns, held, 4)]).run()
    return account


@pytest.mark.parametrize("interval", [1, 5, 10])
def test_a_phase_ends_with_its_last_node(tmp_path: Path, interval: int) -> None:
    """Nodes that move as much at different rates: the rate is over the time of the slowest one."""
    rates = {f"n{n}": READ * (10 - n) // 10 for n in range(4)}
    work = {node: [(63.3, 63.3 + 130 * READ / rate, rate)] for node, rate in rates.items()}
    row = summary_row(join(tmp_path, work, interval, 400), 1)
    true = 4 * 130 * 763 / (130 / 0.7)
    assert row["mean_read_mib_per_second"] == pytest.approx(true, rel=0.005)
    assert abs(row["mean_read_mib_per_second"] - true) <= row["mean_read_mib_per_second_error"] < 0.03 * true


PROCESS = 100 * 2**20


def test_the_error_covers_a_process_that_ends_after_the_others(tmp_path: Path) -> None:
    """Of three processes that begin at 60 s two end at 116 and one at 118.5: 17,050 MiB in 58.5 s.

    From 115 s to 120 they move 550 MiB, which at their common rate of 300 take 1.83 s.
    """
    work = {"n0": [(60.0, 116.0, PROCESS), (60.0, 116.0, PROCESS), (60.0, 118.5, PROCESS)]}
    account = join(tmp_path, work, 5, 400)
    row = summary_row(account, 1)
    assert row["mean_read_mib_per_second"] == pytest.approx(300.0, rel=0.002)
    for name in ("mib_per_second", "mean_read_mib_per_second"):
        assert 17_050 / 58.5 >= row[name] - row[f"{name}_error"] > 285.0, name
    (series,) = series_rows(account, 1)
    seconds = np.arange(400.0)
    (phase,) = find_phases(
        rate_series(seconds, series["read_bytes"], series["read_busy_seconds"]),
        "read",
        reading_seconds=series["reading_seconds"],
    )
    assert phase.rate_error is not None
    assert 17_050 / 58.5 >= (phase.rate - phase.rate_error) / 2**20 > 285.0


def test_late_ends_of_reads_and_writes_add_up() -> None:
    """Each of two directions may last a quarter of an interval of 4 s more than its 40 s, and 0.57 s by its
    edges."""
    amounts, busy = np.zeros((2, 200)), np.zeros((2, 2, 200))
    amounts[0, 20:60], amounts[1, 100:140] = 5.0, 5.0
    busy[:, 1] = amounts > 0
    directions = [BusyTime.of(amounts[at], busy[at], 4.0, 1.0, 0.0) for at in (0, 1)]
    edge = 2.5 * 0.04 * 4.0 * 2**0.5
    assert [direction.most for direction in directions] == pytest.approx([40 + edge + 1] * 2)
    together = BusyTime.together(directions)
    assert together.most == pytest.approx(80 + 2 * (edge + 1))
    assert together.mean_error == pytest.approx(5.0 * (1 - 80 / together.most))


def test_a_short_pause_is_within_the_error(tmp_path: Path) -> None:
    """Readings of 10 s do not show a pause of 8 s as one; the stated error has both answers."""
    work = {"n0": [(40.0, 126.0, READ), (134.0, 220.0, READ), (228.0, 330.0, READ)]}
    row = summary_row(join(tmp_path, work, 10, 400), 1)
    assert row["mean_read_mib_per_second"] < 763.0
    assert row["mean_read_mib_per_second"] + row["mean_read_mib_per_second_error"] >= 763.0


def test_the_rate_of_bursts_within_a_reading_is_a_least(tmp_path: Path) -> None:
    work = {"n0": [(41.0 + 50 * n, 44.0 + 50 * n, READ) for n in range(6)]}
    account = join(tmp_path, work, 5, 400)
    row = summary_row(account, 1)
    assert row["mean_read_mib_per_second"] <= 763.0
    assert row["mean_read_mib_per_second_error"] is None
    (series,) = series_rows(account, 1)
    assert sum(series["read_busy_seconds"]) == pytest.approx(30.0)


def test_slices_of_time_do_not_matter() -> None:
    drawn = np.random.default_rng(7)
    component = np.repeat(np.arange(3), 40)
    at = np.tile(np.arange(40) * 5 * SECOND, 3)
    amounts = drawn.integers(0, 3, (8, 120)) * drawn.integers(1, 1000, (8, 120))
    every = Moves(component, at, at + 5 * SECOND, amounts.astype(np.float64)).only(drawn.random(120) > 0.05)
    whole = ActiveTimes()
    expected = rows_of([whole.add(every), whole.rest()])
    for bounds in ([50], [5, 90, 91, 92, 160], list(range(10, 200, 10))):
        times, found = ActiveTimes(), []
        for first, last in zip([0, *bounds], [*bounds, 1000], strict=True):
            is_within = (every.before_ns >= first * SECOND) & (every.before_ns < last * SECOND)
            found.append(times.add(every.only(is_within)))
        assert rows_of([*found, times.rest()]) == expected


def rows_of(found: list[TimedMoves | None]) -> list[tuple[Any, ...]]:
    rows = []
    for timed in found:
        assert timed is not None
        moves, active = timed.moves, timed.active
        for at in range(moves.component.size):
            of = (moves.component[at], moves.before_ns[at])
            rows.append((*of, *active.begin_ns[:, at], *active.end_ns[:, at], *active.quiet[:, at]))
    return sorted(rows)


def test_a_stretch_without_doubt_counts_whole() -> None:
    amounts = np.zeros(100)
    amounts[20:60] = 7.0
    assert busy_shares(amounts, 1.0).sum() == 40


def test_a_trickle_is_not_busy() -> None:
    amounts = np.full(1000, 1e3)
    amounts[100:150] = 7e8
    assert busy_shares(amounts, 1.0).sum() == pytest.approx(50, rel=1e-3)


def test_a_slow_half_of_a_phase_counts_whole() -> None:
    amounts = np.zeros(300)
    amounts[100:150], amounts[150:200] = 700.0, 70.0
    assert busy_shares(amounts, 1.0).sum() == pytest.approx(100)


def test_few_operations_between_readings_are_one_stretch() -> None:
    amounts = np.zeros(200)
    amounts[50:150:4] = 1.0
    shares = busy_shares(amounts, 10.0)
    assert 80 <= shares.sum() <= 100
    assert busy_shares(amounts, 1.0).sum() == 25


def test_the_last_value_holds_what_was_read_after_the_end() -> None:
    amounts = np.zeros(60)
    amounts[10:59], amounts[59] = 100.0, 350.0
    assert busy_shares(amounts, 1.0).sum() == pytest.approx(52.5)


def test_nothing_moved() -> None:
    assert not busy_shares(np.zeros(10), 1.0).any()
