"""The figures that Lu & Shen print: Fig. 6, Fig. 7, Table 1."""

from pathlib import Path

import pytest

from tests.aggregator.layers.analysed import analysed
from tests.support.builders.layer_traces import TraceBuilder

FIGURE_6 = """\
Time: 2650212.242744	EVENT: AIO_ISSUE	OP: READ	FD: 15	OFFSET: 712114176	NBYTES: 65536
Time: 2650212.244758	EVENT: AIO_COMPLT	OP: READ	FD: 15	OFFSET: 712114176	NBYTES: 65536
Time: 2650212.244823	EVENT: AIO_ISSUE	OP: READ	FD: 15	OFFSET: 712179712	NBYTES: 65536
Time: 2650212.249684	EVENT: AIO_COMPLT	OP: READ	FD: 15	OFFSET: 712179712	NBYTES: 65536
Time: 2650212.249731	EVENT: AIO_ISSUE	OP: READ	FD: 15	OFFSET: 712310784	NBYTES: 65536
Time: 2650212.257953	EVENT: AIO_COMPLT	OP: READ	FD: 15	OFFSET: 712310784	NBYTES: 65536
Time: 2650212.258010	EVENT: AIO_ISSUE	OP: READ	FD: 15	OFFSET: 712900608	NBYTES: 65536
Time: 2650212.273527	EVENT: AIO_COMPLT	OP: READ	FD: 15	OFFSET: 712900608	NBYTES: 65536
"""
FIGURE_7 = (  # seconds behind the 2,653,111th, offset; the paper prints 2253111 for the middle five
    (0.280135, 192151552),
    (0.283790, 192020480),
    (0.360168, 192937984),
    (0.361018, 192806912),
    (0.362385, 192217088),
    (0.362916, 192086016),
    (0.363668, 193200128),
    (0.452228, 193003520),
    (0.452727, 192872448),
    (0.481709, 193265664),
)
TABLE_1 = ((64, 92.4), (128, 4.5), (256, 1.9), (320, 1.1), (384, 0.1))


def test_figure_6(tmp_path: Path) -> None:
    path = tmp_path / "figure6.txt"
    path.write_text(FIGURE_6)
    aio = analysed(path).layer("aio")
    assert aio["requests"] == 4
    assert aio["residence_seconds"] == pytest.approx((2014 + 4861 + 8222 + 15517) / 1e6)
    assert aio["mean_concurrency"] == pytest.approx(0.9945, abs=5e-5)
    assert aio["idle_seconds"] == pytest.approx((65 + 47 + 57) / 1e6)
    assert aio["max_concurrency"] == 1
    assert aio["mib_per_second_busy"] == pytest.approx(8.17, abs=0.005)
    assert aio["runs"] == 3
    assert sorted(aio["run_bytes"]) == [[65536, pytest.approx(2 / 3)], [131072, pytest.approx(1 / 3)]]


def test_figure_6_as_events(tmp_path: Path) -> None:
    built = TraceBuilder()
    lines = FIGURE_6.splitlines()
    for request, (first, last) in enumerate(zip(lines[::2], lines[1::2], strict=True)):
        times = [float(line.split()[1].removeprefix("2650")) * 1e6 for line in (first, last)]
        built.request(
            "aio", request, None, None, offset=int(first.split()[9]), issue=times[0], complt=times[1]
        )
    aio = analysed(built.write(tmp_path / "figure6.csv")).layer("aio")
    assert (aio["requests"], aio["runs"], aio["max_concurrency"]) == (4, 3, 1)
    assert aio["mean_concurrency"] == pytest.approx(0.9945, abs=5e-5)
    assert aio["issue_complt_us"] == pytest.approx((2014 + 4861 + 8222 + 15517) / 4)


@pytest.mark.parametrize("second", [2653111, 2253111], ids=["as meant", "as printed"])
def test_figure_7(tmp_path: Path, second: int) -> None:
    built = TraceBuilder()
    for request, (time, offset) in enumerate(FIGURE_7):
        whole = second if 2 <= request <= 6 else 2653111
        built.event(
            "server", "ISSUE", request, (whole + time) * 1e6, offset=offset, size=65536, op="READ", file="15"
        )
    found = analysed(built.write(tmp_path / "figure7.csv"))
    server = found.layer("server")
    assert (server["requests"], server["runs"], server["streams"]) == (10, 10, 3)
    assert server["run_bytes"] == [[65536, 1.0]]
    assert server["mean_stream_bytes"] == pytest.approx((256 + 256 + 128) * 1024 / 3)
    assert server["unfinished"] == 10
    if second == 2653111:
        assert found.findings == [("interleaving", "server")]


def test_table_1(tmp_path: Path) -> None:
    built = TraceBuilder()
    request, place = 0, 0
    for kib, percent in TABLE_1:
        for _ in range(round(percent * 10)):
            place += 1 << 24
            for part in range(kib // 64):
                built.request(
                    "server", request, request * 10.0, request * 10.0 + 5, offset=place + part * 65536
                )
                request += 1
    server = analysed(built.write(tmp_path / "table1.csv")).layer("server")
    assert server["runs"] == 1000
    assert {length // 1024: share for length, share in server["run_bytes"]} == pytest.approx(
        {kib: percent / 100 for kib, percent in TABLE_1}
    )
    assert server["mean_run_bytes"] / 1024 == pytest.approx(73.66, abs=0.005)
