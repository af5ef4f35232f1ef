"""Rates of jobs: amounts over the seconds in which they moved, whatever the readings' intervals are."""

from pathlib import Path

import numpy as np
import pytest

from laggard_aggregator.jobs.join.accounts import JoinedJob
from laggard_aggregator.jobs.join.busy_time import busy_shares
from laggard_aggregator.jobs.join.scan import Join
from laggard_aggregator.jobs.join.summary import series_rows, summary_row
from tests.aggregator.jobs.job_archives import MS, job_batch, write_parts
from tests.naive_jobs import NaiveReading
from tests.support.builders.archives import START_NS

SECOND = 10**9
START = START_NS // MS
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
