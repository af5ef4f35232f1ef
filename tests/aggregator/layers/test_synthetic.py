"""Traces with known counts: split, merged, cache hits, write-back, unfinished, short, lost; two clocks."""

from pathlib import Path

import pytest

from tests.aggregator.layers.analysed import Analysed, analysed
from tests.support.builders.layer_traces import TraceBuilder, in_turns

KIB = 1024
COUNT = 40


def report(built: TraceBuilder, folder: Path, *options: str) -> Analysed:
    return analysed(built.write(folder / "events.csv"), *options)


def test_split_requests(tmp_path: Path) -> None:
    built = TraceBuilder()
    for at in range(COUNT):
        begin = at * 1000.0
        built.request("application", at, begin, begin + 900, offset=at << 20, size=1 << 20)
        for part in range(4):
            offset = (at << 20) + part * 256 * KIB
            start = begin + 10 + part * 200
            built.request("block", at * 4 + part, start, start + 190, offset=offset, size=256 * KIB)
    found = report(built, tmp_path)
    boundary = found.boundary("application", "block")
    assert (boundary["nested"], boundary["explained"], boundary["unexplained"]) == (1.0, 4 * COUNT, 0)
    application = found.layer("application")
    assert (application["requests"], found.layer("block")["requests"]) == (COUNT, 4 * COUNT)
    assert application["unmatched_ratio"] == 0.0
    times = [application[f"{name}_us"] for name in ("admit_issue", "issue_complt", "complt_callback")]
    assert times == pytest.approx([10, 790, 100])


def test_a_held_share_is_at_most_all(tmp_path: Path) -> None:
    built = TraceBuilder()
    for at in range(COUNT):
        begin = at * 1000.0
        built.request("application", at, begin, begin + 900, offset=at << 20, size=1 << 20)
        for part in range(4):  # at a time: each is held for 850 of the 900 us
            offset, size = (at << 20) + part * 256 * KIB, 256 * KIB
            built.request("library", at * 4 + part, begin + 10, begin + 890, offset=offset, size=size)
            built.request("block", at * 4 + part, begin + 860, begin + 880, offset=offset, size=size)
    boundary = report(built, tmp_path).boundary("library", "block")
    assert boundary["held_before_us"] == pytest.approx(850)
    assert boundary["held_share"] == 1.0


def test_a_request_with_several_issues(tmp_path: Path) -> None:
    built = TraceBuilder()
    for at in range(COUNT):
        begin = at * 100.0
        built.request("library", at, begin, begin + 90, offset=at << 20, size=1 << 20)
        for part in range(3):
            built.event("library", "ISSUE", at, begin + 5 + part, offset=0, size=4096, op="READ", file="data")
            built.event(
                "library", "COMPLT", at, begin + 50 + part, offset=0, size=4096, op="READ", file="data"
            )
    library = report(built, tmp_path).layer("library")
    assert (library["requests"], library["issues"], library["bytes"]) == (COUNT, 3 * COUNT, COUNT << 20)
    times = [library[f"{name}_us"] for name in ("admit_issue", "issue_complt", "complt_callback")]
    assert times == pytest.approx([5, 47, 38])


def test_merged_requests(tmp_path: Path) -> None:
    built = TraceBuilder()
    for at in range(COUNT):
        begin = at * 1000.0
        for part in range(4):
            offset = (at * 4 + part) * 16 * KIB
            built.request(
                "application", at * 4 + part, begin + part, begin + 900 + part, offset=offset, size=16 * KIB
            )
        built.request("block", at, begin + 50, begin + 800, offset=at * 64 * KIB, size=64 * KIB)
    found = report(built, tmp_path)
    boundary = found.boundary("application", "block")
    assert (boundary["nested"], boundary["explained"], boundary["unexplained"]) == (1.0, COUNT, 0)
    assert found.layer("application")["unmatched_ratio"] == 0.0


def test_cache_hits(tmp_path: Path) -> None:
    built = TraceBuilder()
    request = 0
    for repeat in range(4):  # the first reads miss, all later ones hit
        for at in range(COUNT):
            begin = request * 1000.0
            built.request(
                "application", request, begin, begin + (500 if repeat == 0 else 5), offset=at * 65536
            )
            if repeat == 0:
                built.request("device", at, begin + 10, begin + 490, offset=at * 65536)
            request += 1
    for at in range(COUNT):  # in the cache since before the trace: no lower event at all
        begin = request * 1000.0
        built.request("application", request, begin, begin + 5, offset=(1000 + at) * 65536)
        request += 1
    boundary = report(built, tmp_path).boundary("application", "device")
    assert [boundary[kind] for kind in ("nested", "hit", "none")] == pytest.approx([0.2, 0.6, 0.2])
    assert boundary["unexplained"] == 0


def test_read_ahead(tmp_path: Path) -> None:
    built = TraceBuilder()
    for at in range(COUNT):
        begin = 10_000 + at * 1000.0
        built.request("application", at, begin, begin + 100, offset=at * 65536)
        early = at % 2  # in flight, or complete
        built.request("device", at, begin - 300, begin + (50 if early else -10), offset=at * 65536)
    boundary = report(built, tmp_path).boundary("application", "device")
    assert [boundary[kind] for kind in ("earlier", "hit", "none")] == [0.5, 0.5, 0.0]
    assert (boundary["held_before_us"], boundary["held_after_us"]) == (0.0, 50.0)


def test_write_back(tmp_path: Path) -> None:
    built = TraceBuilder()
    for at in range(COUNT):
        begin = at * 100.0
        built.request("application", at, begin, begin + 5, offset=at * 65536, op="WRITE")
        later = 500_000 + at * 37.0 + (at % 5) * 1000
        built.request("device", at, later, later + 200, offset=at * 65536, op="WRITE")
        if at % 4 == 0:  # written twice before it reached the device
            built.request("application", 1000 + at, begin + 20, begin + 25, offset=at * 65536, op="WRITE")
    for at in range(10):  # the journal
        built.request("device", 5000 + at, 600_000 + at, 600_100 + at, offset=(9000 + at) << 20, op="WRITE")
    found = report(built, tmp_path)
    boundary = found.boundary("application", "device")
    assert boundary["later"] == 1.0
    assert (boundary["explained"], boundary["unexplained"]) == (COUNT, 10)
    assert found.layer("device")["unexplained_ratio"] == pytest.approx(10 / (COUNT + 10))


def test_write_back_after_a_constant_time_is_no_offset(tmp_path: Path) -> None:
    built = TraceBuilder()
    for at in range(COUNT):
        begin = at * 100.0
        built.request("application", at, begin, begin + 50, offset=at * 65536, op="WRITE")
        built.request("device", at, begin + 500_000, begin + 500_020, offset=at * 65536, op="WRITE")
    found = report(built, tmp_path)
    assert found.boundary("application", "device")["later"] == 1.0
    assert found.boundary("application", "device")["clock_offset_seconds"] == 0.0
    assert "write-back, or a clock" in found.remarks


def test_unfinished_and_short_requests(tmp_path: Path) -> None:
    built = TraceBuilder()
    for at in range(COUNT):
        begin = at * 100.0
        unfinished, short = at % 10 == 0, at % 4 == 1
        end = None if unfinished else begin + 90
        built.request("application", at, begin, end, offset=at * 65536, done=1000 if short else None)
    application = report(built, tmp_path).layer("application")
    assert (application["requests"], application["unfinished"], application["short"]) == (COUNT, 4, 10)
    assert application["bytes"] == COUNT * 65536
    assert application["completed_bytes"] == (COUNT - 4 - 10) * 65536 + 10 * 1000
    assert application["max_concurrency"] == 4 + 1


def test_lost_events(tmp_path: Path) -> None:
    built = TraceBuilder()
    for at in range(COUNT):
        begin = at * 100.0
        built.request("syscall", at, begin, begin + 90, offset=at * 65536)
        if at % 5:  # the lower request of every fifth was lost
            built.request("device", at, begin + 10, None if at % 5 == 1 else begin + 80, offset=at * 65536)
    found = report(built, tmp_path)
    assert found.layer("syscall")["unmatched_ratio"] == pytest.approx(0.2)
    assert found.boundary("system call", "device")["none"] == pytest.approx(0.2)
    assert found.layer("device")["unfinished"] == COUNT // 5
    assert found.layer("syscall")["admit_issue_us"] == pytest.approx(10)


@pytest.mark.parametrize("offset_seconds", [1.0, -1.0, 0.25, 1.7e9])
@pytest.mark.parametrize("op", ["READ", "WRITE"])
def test_a_clock_offset_is_estimated_and_stated(tmp_path: Path, offset_seconds: float, op: str) -> None:
    built = TraceBuilder()
    for at in range(COUNT):
        begin = 2e6 + at * 1000.0
        built.request("application", at, begin, begin + 500 + at % 7, offset=at * 65536, op=op)
        lower = begin + 100 + at % 11 + offset_seconds * 1e6
        built.request("device", at, lower, lower + 300, offset=at * 65536, op=op)
    found = report(built, tmp_path)
    boundary = found.boundary("application", "device")
    if op == "WRITE" and offset_seconds > 0:  # possible as it is: write-back
        assert boundary["later"] == 1.0
        assert "write-back, or a clock" in found.remarks
        return
    assert boundary["nested"] == 1.0
    assert boundary["clock_offset_seconds"] == pytest.approx(-offset_seconds, abs=0.0002)
    assert (
        abs(boundary["clock_offset_seconds"] + offset_seconds) <= boundary["clock_uncertainty_seconds"] + 1e-6
    )
    assert f"clock of device: {boundary['clock_offset_seconds']:+.6f} s were added" in found.remarks
    application = found.layer("application")
    times = [application[f"{name}_us"] for name in ("admit_issue", "issue_complt", "complt_callback")]
    assert min(times) >= 0
    assert sum(times) == pytest.approx(application["mean_residence_us"])


def test_a_drifting_clock_is_refused(tmp_path: Path) -> None:
    built = TraceBuilder()
    for at in range(COUNT):
        begin = 1e6 + at * 1000.0
        built.request("application", at, begin, begin + 500, offset=at * 65536)
        lower = begin + 1e6 + at * 20_000.0
        built.request("device", at, lower, lower + 300, offset=at * 65536)
    found = report(built, tmp_path)
    boundary = found.boundary("application", "device")
    assert boundary["refused"]
    assert boundary["none"] == 1.0
    assert found.layer("application")["admit_issue_us"] is None
    assert "not matched" in found.remarks


@pytest.mark.parametrize(("sequences", "kind"), [(8, "interleaving"), (1, None)])
def test_interleaved_readers_and_their_twin(tmp_path: Path, sequences: int, kind: str | None) -> None:
    built = TraceBuilder()
    for request, offset in enumerate(in_turns(sequences, 100, 65536)):
        built.request("application", request, request * 10.0, request * 10.0 + 9, offset=offset)
        built.request("device", request, request * 10.0 + 1, request * 10.0 + 8, offset=offset)
    found = report(built, tmp_path)
    assert found.findings == ([(kind, "application")] if kind else [])
    assert found.layer("device")["chains"] == sequences


def test_a_random_order_of_all_blocks_is_no_interleaving(tmp_path: Path) -> None:
    built = TraceBuilder()
    for request in range(2003):
        built.request(
            "device", request, request * 10.0, request * 10.0 + 9, offset=request * 787 % 2003 * 65536
        )
    assert report(built, tmp_path).findings == []


@pytest.mark.parametrize(("lower_at_once", "kind"), [(1, "serialisation"), (8, None)])
def test_serialisation_and_its_twin(tmp_path: Path, lower_at_once: int, kind: str | None) -> None:
    built = TraceBuilder()
    service = 100.0
    for at in range(200):
        begin = at // 8 * 8 * service / lower_at_once
        lower = begin + (at % 8 if lower_at_once == 1 else 0) * service
        built.request("library", at, begin, lower + service, offset=at * 7919 % 200 * 65536)
        built.request("syscall", at, lower, lower + service, offset=at * 7919 % 200 * 65536)
    found = report(built, tmp_path)
    assert found.findings == ([(kind, "between library and system call")] if kind else [])
    assert found.layer("syscall")["mean_concurrency_busy"] == pytest.approx(lower_at_once)


@pytest.mark.parametrize(
    ("held", "findings"), [(15_000.0, [("slow", "between system call and block")]), (5.0, [])]
)
def test_requests_held_before_the_block_layer(
    tmp_path: Path, held: float, findings: list[tuple[str, str]]
) -> None:
    built = TraceBuilder()
    for at in range(100):
        begin = at * 20_000.0
        built.request("syscall", at, begin, begin + held + 300, offset=at * 7919 % 100 * 65536)
        built.request("block", at, begin + held, begin + held + 295, offset=at * 7919 % 100 * 65536)
        built.request("device", at, begin + held + 5, begin + held + 290, offset=at * 7919 % 100 * 65536)
    assert report(built, tmp_path).findings == findings


def test_a_device_that_is_slow_by_itself(tmp_path: Path) -> None:
    for milliseconds, findings in ((60.0, [("slow", "device")]), (8.0, [])):
        built = TraceBuilder()
        for at in range(50):
            begin = at * 100_000.0
            offset = at * 7919 % 50 * 65536
            built.request("syscall", at, begin, begin + milliseconds * 1000 + 10, offset=offset)
            built.request("device", at, begin + 5, begin + milliseconds * 1000, offset=offset)
        assert report(built, tmp_path).findings == findings


def test_a_healthy_recording_sets_the_labels(tmp_path: Path) -> None:
    folders = {}
    for name, service in (("good", 200.0), ("bad", 900.0)):
        built = TraceBuilder()
        for at in range(50):
            begin, offset = at * 2000.0, at * 7919 % 50 * 65536
            built.request("syscall", at, begin, begin + service + 10, offset=offset)
            built.request("device", at, begin + 5, begin + service, offset=offset)
        folders[name] = tmp_path / name
        folders[name].mkdir()
        built.write(folders[name] / "events.csv")
    assert analysed(folders["bad"]).findings == []
    assert analysed(folders["bad"], "--healthy", folders["good"]).findings == [("slow", "device")]
    assert analysed(folders["good"], "--healthy", folders["good"]).findings == []


def test_unknown_layers_and_their_order(tmp_path: Path) -> None:
    built = TraceBuilder()
    for at in range(COUNT):
        begin = at * 100.0
        built.request("inner", at, begin + 10, begin + 80, offset=at * 65536)
        built.request("outer", at, begin, begin + 90, offset=at * 65536)
    found = report(built, tmp_path, "--order", "outer,inner")
    assert found.boundary("outer", "inner")["nested"] == 1.0


def test_parquet_is_read_like_csv(tmp_path: Path) -> None:
    import pyarrow.csv  # noqa: PLC0415
    import pyarrow.parquet  # noqa: PLC0415

    built = TraceBuilder()
    for at in range(COUNT):
        begin = at * 100.5
        built.request("application", at, begin, begin + 90, offset=at * 65536)
        built.request("device", at, begin + 10, begin + 80, offset=at * 65536)
    path = built.write(tmp_path / "events.csv")
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(path), tmp_path / "events.parquet")
    assert analysed(path).records[1:] == analysed(tmp_path / "events.parquet").records[1:]


def test_events_out_of_order_are_left_out_and_said(tmp_path: Path) -> None:
    built = TraceBuilder()
    for at in range(COUNT):
        begin = at * 100.0
        backwards = at % 8 == 0
        end = begin - 50 if backwards else begin + 90
        built.request("application", at, begin, end, offset=at * 65536)
        built.request(
            "device", at, begin + 10, begin + 80, offset=at * 65536, issue=begin + 20, complt=begin + 70
        )
    built.request("device", 1000, 5000.0, 5100.0, offset=0, issue=4000.0)
    found = report(built, tmp_path)
    application = found.layer("application")
    assert application["requests"] == COUNT - COUNT // 8
    assert application["left_out"]["events out of order"] == COUNT // 8
    assert found.layer("device")["left_out"]["events out of order"] == 1
    assert f"{COUNT // 8} requests with events out of order were left out" in found.remarks
    for layer in (application, found.layer("device")):
        assert layer["mean_residence_us"] >= 0
        assert all((layer[f"{name}_us"] or 0) >= 0 for name in ("admit_issue", "issue_complt"))


def test_a_layer_that_answers_before_it_issues_has_no_negative_time(tmp_path: Path) -> None:
    built = TraceBuilder()
    for at in range(COUNT):
        begin = at * 100.0
        built.request(
            "library",
            at,
            begin,
            begin + 5,
            offset=at * 65536,
            op="WRITE",
            issue=begin + 50,
            complt=begin + 90,
        )
    library = report(built, tmp_path).layer("library")
    assert (library["requests"], library["admit_issue_us"]) == (COUNT, pytest.approx(50))
    assert library["complt_callback_us"] is None
    assert library["mean_residence_us"] == pytest.approx(5)
