"""Block events at the ends of a recording, and those that were lost."""

from pathlib import Path

from tests.aggregator.layers.analysed import analysed
from tests.support.builders.kernel_text import KernelTrace

SIZE = 65536
COUNT = 30


def test_requests_in_flight_at_the_ends_are_not_lost(tmp_path: Path) -> None:
    built = KernelTrace()
    for at in range(8):  # issued before the recording began
        built.completed(at + 1, "7,0", (500 + at) * SIZE)
    for at in range(COUNT):
        built.device(100 + at * 1000, 900 + at * 1000, "7,0", at * SIZE)
    for at in range(8):  # the recording ends before they complete
        built.issued(COUNT * 1000 + at, "7,0", (900 + at) * SIZE)
    found = analysed(built.write(tmp_path / "run"))
    assert found.records[0]["lost_events"] == 0
    assert found.layer("device")["unfinished"] == 8
    assert "8 requests were in flight at the end" in found.remarks
    assert "8 requests were in flight at the start" in found.remarks


def test_completions_lost_in_a_short_recording_are_lost(tmp_path: Path) -> None:
    built = KernelTrace()
    count = 800  # in 0.3 s; six of seven completions are missing
    for at in range(count):
        begin = at * 375
        built.issued(begin, "7,0", at * SIZE)
        if at % 7 == 0:
            built.completed(begin + 340, "7,0", at * SIZE)
    found = analysed(built.write(tmp_path / "run"))
    missing = count - len(range(0, count, 7))
    assert found.layer("device")["unfinished"] == missing
    assert missing - 40 <= found.records[0]["lost_events"] <= missing
    assert "events were lost" in found.remarks


def test_a_device_that_answers_no_more_has_lost_nothing(tmp_path: Path) -> None:
    built = KernelTrace()
    for at in range(COUNT):
        built.device(at * 1000, at * 1000 + 800, "7,0", at * SIZE)
    for at in range(8):
        built.issued(COUNT * 1000 + at, "7,0", (900 + at) * SIZE)
    for at in range(COUNT):  # another device goes on for half a minute
        built.device(1_000_000 * at, 1_000_000 * at + 800, "7,1", at * SIZE)
    built.meta = {"lies_on": {}}
    found = analysed(built.write(tmp_path / "run"))
    assert found.records[0]["lost_events"] == 0
    assert "device 7,0: 8 requests were in flight at the end" in found.remarks


def test_lost_completions_and_issues_are_counted(tmp_path: Path) -> None:
    built = KernelTrace()
    second = 1_000_000
    for at in range(COUNT):
        begin = at * second
        built.issued(begin, "7,0", at % 10 * SIZE)
        if at % 6 != 3:
            built.completed(begin + 300, "7,0", at % 10 * SIZE)
    built.completed(15 * second + 500_000, "7,0", 77 * SIZE)
    found = analysed(built.write(tmp_path / "run"))
    assert found.records[0]["lost_events"] == len(range(3, COUNT, 6)) + 1
    assert "events were lost" in found.remarks


def test_devices_beyond_the_limit_are_left_out_and_said(tmp_path: Path) -> None:
    built = KernelTrace()
    for number in range(70):
        for at in range(1 if number < 6 else 2):
            built.device(
                number * 100 + at * 10_000, number * 100 + at * 10_000 + 50, f"259,{number}", at * SIZE
            )
    built.meta = {"lies_on": {}}
    found = analysed(built.write(tmp_path / "run"))
    assert len({r["device"] for r in found.records if r["record"] == "layer"}) == 64
    assert "70 devices, 6 with the fewest events left out" in found.remarks
