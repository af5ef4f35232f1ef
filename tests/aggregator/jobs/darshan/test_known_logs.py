"""Known answers on logs of real systems beside the project (shared/data/darshan); skipped without them."""

import json
from collections import defaultdict
from typing import Any

import pytest

from laggard_aggregator.cli.main import main
from tests.support.darshan import skip_without_darshan
from tests.support.shared_data import shared

skip_without_darshan()
pytestmark = pytest.mark.shared_data
Records = dict[str, list[dict[str, Any]]]
AIIO = "darshan/aiio/dbin_"


def mined(capsys: pytest.CaptureFixture[str], *paths: str) -> Records:
    assert main(["mine", "--json", *(str(shared(path)) for path in paths)]) == 0
    found: Records = defaultdict(list)
    for line in capsys.readouterr().out.splitlines():
        record = json.loads(line)
        found[record["record"]].append(record)
    return found


def io_of(records: Records, direction: str) -> dict[str, Any]:
    (found,) = (each for each in records["io"] if (each["module"], each["direction"]) == ("POSIX", direction))
    return found


def kinds(records: Records) -> list[str]:
    return [each["kind"] for each in records["finding"]]


def test_one_slow_ost(capsys: pytest.CaptureFixture[str]) -> None:
    found = mined(capsys, "darshan/nersc/sample-badost.darshan")
    io = io_of(found, "write")
    assert io["busy_seconds"] == pytest.approx(727.18, abs=0.01)
    assert io["mib_per_second"] == pytest.approx(721.0, abs=0.1)
    assert (io["files"], io["critical_files"]) == (2048, 2)
    (finding,) = found["finding"]
    assert (finding["kind"], finding["component"]) == ("ost", "OST14")
    assert finding["factor"] == pytest.approx(49.8, abs=0.2)
    assert finding["share"] > 0.7
    assert "85 files" in finding["text"]
    assert "0.468 MiB/s" in finding["text"]
    assert "510 s" in finding["text"]
    critical = [each for each in found["critical_file"] if each["module"] == "POSIX"]
    assert max(critical, key=lambda each: each["exclusive_seconds"])["rank"] == 1507


def test_its_healthy_twin(capsys: pytest.CaptureFixture[str]) -> None:
    found = mined(capsys, "darshan/nersc/sample-goodost.darshan")
    io = io_of(found, "write")
    assert io["busy_seconds"] == pytest.approx(3.704, abs=0.001)
    assert io["mib_per_second"] == pytest.approx(13_271, abs=1)
    assert (io["files"], io["critical_files"]) == (48, 2)
    assert kinds(found) == []


@pytest.mark.parametrize(
    ("log", "rate", "expected"),
    [
        ("ior_id66186300-27658_1-22-79193-4107820774891092556_1.darshan", 643.7, []),
        ("ior_id66186433-53883_1-22-83574-491403461313257113_1.darshan", 64.3, ["nonconsecutive"]),
    ],
)
def test_reads_of_1_kib_in_order_and_scattered(
    capsys: pytest.CaptureFixture[str], log: str, rate: float, expected: list[str]
) -> None:
    found = mined(capsys, f"{AIIO}{log}")
    io = io_of(found, "read")
    assert (io["requests"], io["bytes"]) == (262_144, 256 << 20)
    assert io["mib_per_second"] == pytest.approx(rate, abs=0.1)
    assert kinds(found) == expected


def test_1024_processes_on_one_ost(capsys: pytest.CaptureFixture[str]) -> None:
    found = mined(
        capsys, f"{AIIO}h5bench_openpmd_write_id66089597-48460_1-17-53431-13341180472069181552_1.darshan"
    )
    io = io_of(found, "write")
    assert io["busy_seconds"] == pytest.approx(739.7, abs=0.1)
    assert io["mib_per_second"] == pytest.approx(886.0, abs=0.1)
    assert io["factors"]["processes_per_ost"] == 1024
    assert kinds(found) == ["striping"]


def test_busy_for_a_part_of_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    found = mined(capsys, f"{AIIO}tmatch_id66159987-64399_1-20-80251-13032481889582386138_4.darshan")
    io = io_of(found, "read")
    assert (io["busy_seconds"], io["span_seconds"]) == pytest.approx((23.286, 412.49), abs=0.01)
    assert io["mib_per_second"] == pytest.approx(390.7, abs=0.1)
    assert io["bytes"] / 2**20 / io["span_seconds"] == pytest.approx(22.1, abs=0.1)
    assert (io["files"], io["critical_files"]) == (25, 22)
    assert io["top_share"] == pytest.approx(0.52, abs=0.01)


def test_a_partial_module(capsys: pytest.CaptureFixture[str]) -> None:
    found = mined(capsys, "darshan/imbalanced_io/imbalanced-io.darshan")
    io = io_of(found, "write")
    assert (io["busy_seconds"], io["span_seconds"]) == pytest.approx((511.74, 1186.87), abs=0.01)
    assert (io["files"], io["critical_files"]) == (318, 5)
    assert io["top_share"] == pytest.approx(0.96, abs=0.005)
    assert any(each["what"] == "POSIX" and "partial" in each["reason"] for each in found["not_judged"])
    assert any("OST 29 alone" in each["text"] for each in found["finding"] if each["direction"] == "write")


def test_twelve_logs_of_one_job(capsys: pytest.CaptureFixture[str]) -> None:
    logs = sorted(shared("darshan/dlio").glob("*.darshan"))
    found = mined(capsys, *(f"darshan/dlio/{log.name}" for log in logs))
    assert {each["job"] for each in found["io"]} == {3116902}
    assert io_of(found, "read")["logs"] == 12
    shares = [each["metadata"] for each in found["log"]]
    assert len(shares) == 12
    assert sum(each >= 0.97 for each in shares if each is not None) == 4


@pytest.mark.parametrize(
    ("log", "what", "reason"),
    [
        ("nersc/noposix.darshan", "POSIX", "no POSIX module"),
        ("nersc/noposixopens.darshan", "POSIX", "no read or write"),
        ("empty_log/empty_log.darshan", "all", "no module"),
    ],
)
def test_logs_without_posix_are_not_judged(
    capsys: pytest.CaptureFixture[str], log: str, what: str, reason: str
) -> None:
    found = mined(capsys, f"darshan/{log}")
    assert any(each["what"] == what and reason in each["reason"] for each in found["not_judged"])
    assert not found["finding"]
    assert not any(each["module"] == "POSIX" for each in found["io"])


def test_logs_of_2_x_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs = [str(path) for path in shared("darshan/v2_unreadable").iterdir()]
    assert main(["mine", *logs]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(logs)
    assert all("2.x" in line for line in lines)


def test_bandwidth_by_interval_and_by_slowest_rank(capsys: pytest.CaptureFixture[str]) -> None:
    io = io_of(mined(capsys, "darshan/nersc/sample.darshan"), "write")
    assert io["mib_per_second"] == pytest.approx(18_869.8, abs=0.1)
    assert io["slowest_rank_mib_per_second"] == pytest.approx(24_535, abs=1)
