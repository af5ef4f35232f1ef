"""Sums of rollups by component and minute, for several times at once."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from laggard_aggregator.archive.table import Table
from laggard_aggregator.jobs.rollups.series60 import KIND, sum_column
from laggard_aggregator.jobs.verdict.evidence.minute_sums import Named, NamedSpan, Rollups, Times
from tests.aggregator.jobs.test_job_verdict import archive_of
from tests.aggregator.jobs.test_slow_parts import add_clients

SOURCE, FIELDS = "lustre_osc", ("ost_write_samples", "write_bytes_sum")
NODES = ("cn-1", "cn-2")


@pytest.fixture(name="start")
def _start(tmp_path: Path) -> float:
    start = float(archive_of(tmp_path, [300.0])[0]["start"])
    for node in NODES:
        add_clients(tmp_path, start, 30, 3.0, node)
    add_clients(tmp_path, start + 86_400.0, 30, 1.0, NODES[0])  # another day
    return start


def ost_on(*nodes: str) -> Named:
    return lambda node, name: name.removesuffix("-osc") if node in nodes else None


def naive(folder: Path, times: Times, nodes: tuple[str, ...]) -> dict[tuple[str, int], list[float]]:
    """Sums by OST and minute, row by row."""
    found: dict[tuple[str, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for table in Table(folder, KIND, SOURCE).scan():
        for row in table.to_pylist():
            minute = round(row["minute"].timestamp())
            if row["node"] in nodes and times[0] // 60 * 60 <= minute < -(-times[1] // 60) * 60:
                cell = found[row["name"].removesuffix("-osc"), minute]
                for place, field in enumerate(FIELDS):
                    cell[place] += row[sum_column(field)] or 0.0
    return dict(found)


def test_times_read_together_have_their_own_rows_each(tmp_path: Path, start: float) -> None:
    asked = [
        ((start + 120.0, start + 410.0), NODES),
        ((start + 300.0, start + 900.0), (NODES[1],)),  # overlaps the first
        ((start + 600.0, start + 86_400.0 + 700.0), NODES),  # over two days
        ((start + 7_200.0, start + 7_500.0), NODES),  # without rows
    ]
    spans = [NamedSpan(times, ost_on(*nodes)) for times, nodes in asked]
    found = Rollups(SOURCE, FIELDS, frozenset(NODES)).read(tmp_path, spans)
    assert found[3] is None
    for (times, nodes), sums in zip(asked[:3], found, strict=False):
        assert sums is not None
        expected = naive(tmp_path, times, nodes)
        assert sums.names == tuple(sorted({ost for ost, _ in expected}))
        known = np.argwhere(~np.isnan(sums.values[0]))
        cells = {
            (sums.names[at], round(sums.start) + 60 * int(minute)): sums.values[:, at, minute].tolist()
            for at, minute in known
        }
        assert cells == expected


def test_a_time_has_the_same_sums_alone(tmp_path: Path, start: float) -> None:
    rollups = Rollups(SOURCE, FIELDS)
    spans = [NamedSpan((start + at, start + at + 400.0), ost_on(*NODES)) for at in (0.0, 90.0, 1000.0)]
    for span, together in zip(spans, rollups.read(tmp_path, spans), strict=True):
        (alone,) = rollups.read(tmp_path, [span])
        assert together is not None
        assert alone is not None
        assert (together.names, together.start) == (alone.names, alone.start)
        np.testing.assert_array_equal(together.values, alone.values)
