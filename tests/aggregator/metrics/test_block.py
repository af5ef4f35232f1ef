import json
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.metrics.block import BLOCK
from laggard_aggregator.metrics.definition import Differences
from tests.support.shared_data import shared

COUNTERS = (
    *("rd_ios", "rd_merges", "rd_sectors", "rd_ms", "wr_ios", "wr_merges", "wr_sectors", "wr_ms"),
    *("in_flight", "io_ms", "weighted_ms", "dc_ios", "dc_merges", "dc_sectors", "dc_ms"),
)


def derive(rises: Mapping[str, int], seconds: float) -> dict[str, float]:
    """All metrics and loads of one component, from how much its counters rose."""
    d = Differences(COUNTERS, np.array([[rises.get(c, 0) for c in COUNTERS]]), np.array([seconds]))
    metrics, load = BLOCK.kept(list(BLOCK.metrics))
    return {name: float(m.derive(d)[0]) for name, m in (*metrics.items(), *load.items())}


def test_the_definitions_of_sysstat_on_figures_worked_out_by_hand() -> None:
    got = derive(
        {
            "rd_ios": 60,
            "rd_sectors": 6_000,
            "rd_ms": 300,
            "wr_ios": 30,
            "wr_sectors": 1_500,
            "wr_ms": 600,
            "dc_ios": 10,
            "dc_sectors": 500,
            "dc_ms": 100,
            "io_ms": 500,
            "weighted_ms": 1_000,
        },
        seconds=2.0,
    )
    assert got == {
        "await": 10.0,  # (300 + 600 + 100) ms over 100 operations
        "r_await": 5.0,
        "w_await": 20.0,
        "tps": 50.0,
        "rd_sec": 3_000.0,
        "wr_sec": 750.0,
        "avgrq_sz": 80.0,
        "avgqu_sz": 0.5,
        "svctm": 5.0,
        "util": 25.0,
        "operations": 100.0,
        "throughput": 2_048_000.0,
        "request_bytes": 40_960.0,
        "read_share": 0.6,
        "busy_share": 0.25,
    }


def test_an_interval_without_operations_is_zero_throughout() -> None:
    assert set(derive({}, 1.0).values()) == {0.0}


@given(st.lists(st.integers(0, 2**40), min_size=15, max_size=15), st.floats(0.01, 1e5))
def test_metrics_are_finite_and_not_negative(rises: list[int], seconds: float) -> None:
    for value in derive(dict(zip(COUNTERS, rises, strict=True)), seconds).values():
        assert np.isfinite(value)
        assert value >= 0


def test_each_metric_reads_only_what_it_says_it_needs() -> None:
    metrics, load = BLOCK.kept(list(BLOCK.metrics))
    for metric in (*metrics.values(), *load.values()):
        d = Differences(metric.needs, np.ones((1, len(metric.needs)), dtype=np.int64), np.ones(1))
        assert metric.derive(d).shape == (1,)


def test_discards_are_optional_and_everything_else_is_not() -> None:
    required, optional = BLOCK.counters(["await", "util"])
    assert set(optional) == {"dc_ios", "dc_ms", "dc_sectors"}
    assert {"rd_ios", "wr_ms", "io_ms"} <= set(required)


def roots(number: int) -> dict[str, dict[str, int]]:
    """A snapshot of sysstat's own tests, whole rows only."""
    rows = shared(f"diskstats/sysstat/diskstats.root{number}").read_text().splitlines()
    split = [row.split() for row in rows]
    return {r[2]: dict(zip(COUNTERS, map(int, r[3:]), strict=False)) for r in split if len(r) >= 14}


def iostat() -> list[dict[str, dict[str, float]]]:
    """What iostat -x printed for the snapshots: a report each, by device and column."""
    reports: list[dict[str, dict[str, float]]] = []
    header: list[str] = []
    for line in shared("sysstat_iostat/expected.iostat-x").read_text().splitlines():
        if line.startswith("Device"):
            header = line.split()[1:]
            reports.append({})
        elif header and line.strip() and not line.startswith("avg-cpu") and len(line.split()) > len(header):
            name, *values = line.split()
            reports[-1][name] = dict(zip(header, map(float, values), strict=True))
    return reports


def about(shown: float) -> object:
    """What was printed to two decimals."""
    return pytest.approx(shown, rel=0.01, abs=0.011)


def test_the_figures_of_sysstats_own_iostat_tests() -> None:
    compared = 0
    for number, report in enumerate(iostat()[1:], 1):
        before, after = roots(number), roots(number + 1)
        for device, shown in report.items():
            if device not in before or device not in after or shown["r/s"] == 0:
                continue
            rises = {c: n - before[device][c] for c, n in after[device].items() if c in before[device]}
            if min(rises.values()) < 0:
                continue
            seconds = rises["rd_ios"] / shown["r/s"]  # the snapshots do not say how far apart they are
            got = derive(rises, seconds)
            assert got["r_await"] == about(shown["r_await"])
            assert got["w_await"] == about(shown["w_await"])
            assert got["avgqu_sz"] == about(shown["aqu-sz"])
            assert got["util"] == about(shown["%util"])
            assert got["rd_sec"] / 2 == about(shown["rkB/s"])
            assert got["wr_sec"] / 2 == about(shown["wkB/s"])
            assert got["tps"] == about(shown["r/s"] + shown["w/s"] + shown["d/s"])
            sizes = [
                shown[s] * shown[n]
                for s, n in (("rareq-sz", "r/s"), ("wareq-sz", "w/s"), ("dareq-sz", "d/s"))
            ]
            assert got["avgrq_sz"] / 2 == pytest.approx(sum(sizes) / got["tps"], rel=0.02)
            compared += 1
    assert compared >= 3


def test_the_figures_of_a_recorded_sar_agree_with_each_other_as_ours_do() -> None:
    found = json.loads(shared("sysstat_iostat/sadf_d.json").read_text())
    compared = 0
    for sample in found["sysstat"]["hosts"][0]["statistics"]:
        seconds = sample["timestamp"]["interval"]
        for disk in sample["disk"]:
            ios = round(disk["tps"] * seconds)
            got = derive(
                {
                    "rd_ios": ios,
                    "rd_sectors": round(disk["rd_sec"] * seconds),
                    "wr_sectors": round(disk["wr_sec"] * seconds),
                    "rd_ms": round(disk["await"] * ios),
                    "weighted_ms": round(disk["aqu-sz"] * 1000 * seconds),
                    "io_ms": round(disk["util-percent"] * 10 * seconds),
                },
                seconds,
            )
            assert got["avgrq_sz"] == pytest.approx(disk["avgrq-sz"], rel=0.02, abs=0.5)
            # Little's law holds between what sar prints for await, tps and the queue of a steady disk
            assert got["avgqu_sz"] == pytest.approx(got["await"] * got["tps"] / 1000, rel=0.05, abs=0.02)
            compared += 1
    assert compared > 50
