"""The log of Beacon's release, where it lies beside the project, is understood to the last line."""

from collections import defaultdict
from pathlib import Path

import pytest

from laggard_agent.collectors.lwfs.trace import parse_trace
from tests.support.builders.lwfs import Log
from tests.support.shared_data import shared

RELEASED = "beacon/lwfs_server_trace_2018-02-25.txt"


@pytest.mark.shared_data
def test_no_line_is_left_over_and_no_counter_falls() -> None:
    highest: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * 8)
    for line in shared(RELEASED).read_bytes().splitlines():
        trace = parse_trace(line)
        assert trace is not None
        assert trace.time_ms is not None
        if trace.kind != "queue":
            before = highest[trace.server, trace.kind]
            assert all(map(int.__ge__, trace.counts, before)), line
            highest[trace.server, trace.kind] = list(trace.counts)
    assert len(highest) == 5 * 6


@pytest.mark.shared_data
@pytest.mark.parametrize("piece", [1_000, 37_001, 10_000_000])
def test_the_release_written_piece_by_piece(tmp_path: Path, piece: int) -> None:
    data = shared(RELEASED).read_bytes()
    log = Log(tmp_path / "log").sample()
    for start in range(0, len(data), piece):
        log.append(data[start : start + piece]).sample()
    assert sorted(log.sampled.ids("lwfs")) == [f"20.0.2.{n}" for n in (110, 113, 26, 29, 35)]
    assert (log.count("traces"), log.count("lines_not_understood")) == (1820, 0)
    queues = [line for line in data.splitlines() if b"queue length" in line]
    lengths = sum(int(line.split()[-2]) for line in queues)
    rows = [log.row(server) for server in log.sampled.ids("lwfs")]
    assert sum(row["queue_samples"] or 0 for row in rows) == len(queues) == 260
    assert sum(row["queue_length_sum"] or 0 for row in rows) == lengths
    assert log.row("20.0.2.110")["meta_exe_0"] == 772069
