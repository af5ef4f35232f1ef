"""Slurm and LMT inputs: own small files, and those of real systems beside the project."""

import gzip
import json
import lzma
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import zstandard

from laggard_aggregator.jobs.darshan import lmt_input
from laggard_aggregator.jobs.darshan.lmt_input import lmt_rows, ost_number
from laggard_aggregator.jobs.darshan.slurm_input import slurm_rows
from laggard_aggregator.jobs.darshan.text_input import Rows
from laggard_aggregator.jobs.records.sources import sacct_text
from laggard_common.errors import ConfigError, InputError
from tests.support.builders import mine_store
from tests.support.shared_data import shared

PACIFIC = "America/Los_Angeles"


def together(rows: Rows) -> dict[str, pa.Table]:
    parts: dict[str, list[pa.Table]] = defaultdict(list)
    for name, part in rows:
        parts[name].append(part)
    return {name: pa.concat_tables(several) for name, several in parts.items()}


def slurm_tables(path: Path, zone: str | None = None) -> dict[str, pa.Table]:
    return together(slurm_rows(path, zone, []))


def lmt_tables(path: Path, zone: str | None = None) -> dict[str, pa.Table]:
    return together(lmt_rows(path, zone, []))


@pytest.mark.parametrize("separator", ["|", "\x1f"])
def test_sacct_in_any_order_of_columns(tmp_path: Path, separator: str) -> None:
    lines = [
        ["End", "JobName", "JobIDRaw", "NodeList", "Start", "NNodes"],
        ["1750000100", "a", "5", "n[1-2]", "1750000000", "2"],
        ["Unknown", "b", "6", "n1", "2025-06-15T15:06:40+00:00", "1"],
        ["1750000090", "a", "5.batch", "n1", "1750000000", "1"],
        ["Unknown", "pending", "7", "None assigned", "Unknown", "0"],
        ["1750000100", f"sh{separator}ift", "8", "n1", "1750000000", "1"],
    ]
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join(separator.join(line) for line in lines) + "\n")
    found = slurm_tables(path)
    jobs = found["slurm_job"].to_pylist()
    assert [(row["job_id"], row["start_us"], row["node_count"]) for row in jobs] == [
        (5, 1_750_000_000_000_000, 2),
        (6, 1_750_000_000_000_000, 1),
    ]
    assert [(row["job_id"], row["step"]) for row in found["slurm_step"].to_pylist()] == [(5, "batch")]


def test_times_without_a_zone_are_refused_or_in_the_zone_said(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text("JobIDRaw|Start|End|NodeList\n1|2026-01-01T00:00:00|2026-07-01T00:00:00|n1\n")
    with pytest.raises(InputError, match="--timezone"):
        slurm_tables(path)
    (row,) = slurm_tables(path, PACIFIC)["slurm_job"].to_pylist()
    assert (row["start_us"], row["end_us"]) == (1_767_254_400_000_000, 1_782_889_200_000_000)
    with pytest.raises(ConfigError, match="no such time zone"):
        slurm_tables(path, "Mars/Olympus")


def test_counters_of_lmt_are_differenced_and_resets_left_out(tmp_path: Path) -> None:
    rows = lmt_tables(mine_store.lmt(tmp_path / "lmt.sqlite3"), "UTC")["lmt"].to_pylist()
    by_ost = defaultdict(list)
    for row in rows:
        by_ost[row["ost_index"]].append(row)
    assert {ost: len(each) for ost, each in by_ost.items()} == {0: 119, 0x3F: 119, 0x40: 117, 0xFF: 119}, (
        "the fall, and the rise from the 0 behind it"
    )
    assert {row["bytes_written"] for row in rows} == {64 << 20}
    assert {row["end_us"] - row["start_us"] for row in rows} == {5_000_000}
    with pytest.raises(InputError, match="--timezone"):
        lmt_tables(tmp_path / "lmt.sqlite3")


@pytest.mark.parametrize(
    ("form", "gap"),
    [("h5lmt", 0.0), ("tokio bytes", np.nan), ("tokio bytes", -0.0), ("tokio rates", -0.0)],
)
@pytest.mark.parametrize("cells", [4_000_000, 7])
def test_one_series_in_three_hdf5_formats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, gap: float, cells: int
) -> None:
    """Three OSTs, five intervals of 5 s; the second OST lost its third reading. `cells`: read at once."""
    pytest.importorskip("h5py")
    monkeypatch.setattr(lmt_input, "_CELLS_AT_ONCE", cells)
    written = np.arange(15).reshape(5, 3) * 5000
    path = mine_store.hdf5(tmp_path / "lmt.hdf5", form, written, lost=(2, 1), gap=gap)
    rows = lmt_tables(path)["lmt"].to_pylist()
    found = {(row["ost_index"], row["start_us"] // 1_000_000 - mine_store.START): row for row in rows}
    assert {(row["file_system"], row["end_us"] - row["start_us"]) for row in rows} == {("scratch", 5_000_000)}
    expected = {(14 + ost, 5 * at): written[at, ost] for at in range(5) for ost in range(3)}
    del expected[15, 10]
    assert {each: row["bytes_written"] for each, row in found.items()} == expected
    assert {each: row["bytes_read"] for each, row in found.items()} == {
        each: 2 * amount for each, amount in expected.items()
    }


@pytest.mark.parametrize(
    "content", [b"", b"SQLite format 3\0garbage", b"\x89HDF\r\n\x1a\ngarbage", b"a,b\n1,2\n"]
)
def test_other_files_are_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(InputError) as caught:
        lmt_tables(tmp_path / "x", "UTC")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "number"), [("snx11025-OST000e", 14), ("OST0010", 16), ("MDT0000", None), ("", None)]
)
def test_numbers_of_osts(name: str, number: int | None) -> None:
    assert ost_number(name) == number


@pytest.mark.shared_data
def test_a_job_with_its_steps() -> None:
    found = slurm_tables(shared("slurm/sample.slurm.json"), PACIFIC)
    (job,) = found["slurm_job"].to_pylist()
    assert (job["job_id"], job["node_count"]) == (4478544, 128)
    assert {row["step"] for row in found["slurm_step"].to_pylist()} == {
        *map(str, range(8)),
        "batch",
        "extern",
    }


@pytest.mark.shared_data
def test_recorded_sacct_is_the_same_in_text_and_json() -> None:
    text = slurm_tables(shared("slurm_recorded/sacct/D_P_all.txt"))
    json_ = slurm_tables(shared("slurm_recorded/sacct/D.json.gz"))
    names = {
        "slurm_job": ("job_id", "job", "user", "state", "start_us", "end_us", "node_count", "nodes"),
        "slurm_step": ("job_id", "step", "state", "start_us", "end_us", "node_count", "nodes"),
    }
    for table, columns in names.items():
        in_text, in_json = (
            {tuple(row[name] for name in columns) for row in found[table].to_pylist()}
            for found in (text, json_)
        )
        assert len(in_text) > 40
        assert in_text <= in_json, "rows that a name breaks are in JSON alone"
        assert len(in_json - in_text) <= 4


@pytest.mark.shared_data
def test_one_interval_in_three_formats() -> None:
    pytest.importorskip("h5py")
    sums = {}
    for name in ("sqlite3", "h5lmt", "hdf5"):
        rows = lmt_tables(shared(f"lmt/snx11025_2018-01-28.{name}"), PACIFIC)["lmt"].to_pylist()
        totals: dict[tuple[int, int], int] = {}
        for row in rows:
            totals[row["ost_index"], row["start_us"]] = row["bytes_written"]
        sums[name] = totals
    database = sums["sqlite3"]
    assert len({ost for ost, _ in database}) == 24
    for name in ("h5lmt", "hdf5"):
        both = database.keys() & sums[name].keys()
        assert len(both) > 1000, (name, min(database), min(sums[name]))
        assert sum(sums[name][each] for each in both) == pytest.approx(
            sum(database[each] for each in both), rel=0.02
        )
    both = sums["h5lmt"].keys() & sums["hdf5"].keys()
    assert len(both) == len(sums["hdf5"]) == 24 * 60
    alike = [sums["h5lmt"][each] == pytest.approx(sums["hdf5"][each], rel=1e-4, abs=1) for each in both]
    assert all(alike)


@pytest.mark.parametrize(
    "line",
    [
        "1|inf|6|n1",
        "1|nan|6|n1",
        "1|1e300|6|n1",
        "99999999999999999999|5|6|n1",
        "4711_[1-7]|5|6|n1",
        "\u00b2|5|6|n1",
    ],
)
def test_hostile_lines_of_sacct_are_left_out_and_told(tmp_path: Path, line: str) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(f"JobIDRaw|Start|End|NodeList\n{line}\n2|5|6|n1\n")
    skipped: list[str] = []
    found = together(slurm_rows(path, None, skipped))
    assert found["slurm_job"]["job_id"].to_pylist() == [2]
    told, named = skipped
    assert told.startswith(f"{path}: 1 rows left out: ")
    assert named.startswith(f"{path}: line 2: ")


def test_a_name_that_comes_last_may_have_separators(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text("JobIDRaw|Start|End|NodeList|JobName\n1|5|6|n1|a|b|c\n")
    assert slurm_tables(path)["slurm_job"]["name"].to_pylist() == ["a|b|c"]


def test_rows_that_are_left_out_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text("JobIDRaw|Start|End|NodeList\n1|5|6|n1\n2|5|a|name|n1\n3|5|6|n\0\n")
    skipped: list[str] = []
    found = together(slurm_rows(path, None, skipped))
    assert len(found["slurm_job"]) == 2
    assert skipped == [
        f"{path}: 1 rows left out: more columns than the header",
        f"{path}: line 3: more columns than the header: 2|5|a|name|n1",
    ]
    runs = tmp_path / "runs.csv"
    header = "darshan_jobid,darshan_start_time,darshan_end_time,fs_tot_bytes_read,fs_tot_bytes_written"
    impossible = "4,5,6,-7,8\n5,6,5,7,8\n6,5,6,7,-0.5\n7,5,6,nan,8\n"
    runs.write_text(f"{header}\n1,5,6,7,8\n2,,6,7,8\n3,1e300,6,7,8\n{impossible}")
    found = together(lmt_rows(runs, None, skipped := []))
    assert found["lmt_total"]["job_id"].to_pylist() == [1]
    assert skipped == [f"{runs}: 6 runs without times or bytes of the file system that can be right"]


@pytest.mark.parametrize("content", ["a" * (2 << 20), 'x,"' + "y" * 200_000])
def test_files_without_lines_are_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(content)
    for rows in (slurm_rows, lmt_rows):
        with pytest.raises(InputError) as caught:
            together(rows(path, None, []))
        assert "\n" not in str(caught.value)


def test_a_large_file_comes_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sacct_text, "BLOCK_BYTES", 1 << 20)
    path = tmp_path / "sacct.txt"
    lines = ["JobIDRaw|Start|End|NodeList", *(f"{job}|5|6|n1" for job in range(250_001))]
    path.write_text("\n".join([*lines, ""]))
    found = [len(part) for name, part in slurm_rows(path, None, []) if name == "slurm_job"]
    assert sum(found) == 250_001
    assert len(found) > 2


def test_a_resize_begins_with_its_submission_and_a_forecast_is_no_start(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(
        "JobIDRaw|State|Submit|Eligible|Start|End|NodeList\n"
        "30|RESIZING|100|100|110|150|n[1-4]\n"
        "30|COMPLETED|150|150|110|190|n1\n"
        "31|PENDING|100|100|900|Unknown|None assigned\n"
        "32|NODE_FAIL|100|100|Unknown|130|n2\n"
    )
    rows = slurm_tables(path)["slurm_job"].to_pylist()
    assert [(row["job_id"], row["start_us"], row["end_us"], row["node_count"]) for row in rows] == [
        (30, 110_000_000, 150_000_000, 4),
        (30, 150_000_000, 190_000_000, 1),
        (32, 125_000_000, 130_000_000, 1),
    ]


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}
STEP_IDS = (
    (0, "0"),
    ("batch", "batch"),
    ("4711.1", "1"),
    ("4711.extern", "extern"),
    (0xFFFFFFFB, "batch"),
    ({"job_id": 4711, "step_id": 7}, "7"),
    ({"sluid": "s0", "step_id": {"set": True, "infinite": False, "number": 8}}, "8"),
    ({"job_id": 4711, "step_id": "interactive"}, "interactive"),
)


@pytest.mark.parametrize(("told", "name"), STEP_IDS)
@pytest.mark.parametrize("packing", PACKED)
def test_json_of_sacct_with_steps(tmp_path: Path, told: object, name: str, packing: str) -> None:
    step = {
        "step": {"id": told, "name": "a|b", "het": {"component": None}},
        "state": ["COMPLETED"],
        "nodes": {"count": 2, "range": "n[1-2]", "list": ["n1", "n2"]},
        "time": {"start": {"set": True, "infinite": False, "number": 110}, "end": 150},
    }
    broken = {**step, "state": ["NO_STATE"]}
    job = {
        "job_id": 4711,
        "state": {"current": ["RUNNING"]},
        "time": {"submission": 100, "start": 105, "end": 0},
        "allocation_nodes": 2,
        "nodes": "n[1-2]",
        "steps": [step, broken],
    }
    path = tmp_path / "sacct.json"
    path.write_bytes(PACKED[packing](json.dumps({"jobs": [job], "errors": []}).encode()))
    skipped: list[str] = []
    found = together(slurm_rows(path, None, skipped))
    (row,) = found["slurm_job"].to_pylist()
    assert (row["job_id"], row["start_us"], row["end_us"], row["nodes"]) == (
        4711,
        105_000_000,
        None,
        "n[1-2]",
    )
    (row,) = found["slurm_step"].to_pylist()
    assert (row["step"], row["name"], row["start_us"], row["end_us"], row["node_count"]) == (
        *(name, "a|b", 110_000_000, 150_000_000, 2),
    )
    assert skipped == [
        f"{path}: 1 rows left out: no state of a job: \"['NO_STATE']\"",
        f"{path}: job 4711, element 2 of steps: no state of a job: \"['NO_STATE']\": a|b",
    ]


def test_slurms_text_that_is_cut_short_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    rows = (f"{n}|u|2026-01-01T00:00:01|2026-01-01T01:00:00|COMPLETED|1|n{n}\n" for n in range(1, 2001))
    packed = gzip.compress(("JobID|User|Start|End|State|NNodes|NodeList\n" + "".join(rows)).encode())
    path = tmp_path / "sacct.gz"
    path.write_bytes(packed[: len(packed) * 3 // 4])
    skipped: list[str] = []
    assert 1000 < together(slurm_rows(path, "UTC", skipped))["slurm_job"].num_rows < 1800
    assert skipped == [f"{path}: compressed data is cut short: read as far as it goes"]


def test_errors_of_sacct_are_said(tmp_path: Path) -> None:
    path = tmp_path / "sacct.json"
    path.write_text('{"errors": [{"description": "Unable to connect to slurmdbd"}], "jobs": []}')
    with pytest.raises(InputError, match="Unable to connect"):
        slurm_tables(path)


def test_pytokios_times_in_the_hour_that_occurs_twice(tmp_path: Path) -> None:
    """On 2 November 2025 in California 01:00 to 02:00 passes twice."""
    path = tmp_path / "steps.json"
    steps = {
        "1.0": {"start": "2025-11-02T01:50:00", "end": "2025-11-02T01:10:00", "nodelist": ["n1"]},
        "1.1": {"start": "2025-11-02T00:50:00", "end": "2025-11-02T02:10:00", "nodelist": ["n1"]},
        "1.2": {"start": "2025-11-02T01:10:00", "end": "2025-11-02T01:20:00", "nodelist": ["n1"]},
        "1.3": {"start": "2025-11-02T01:10:00", "end": "Unknown", "nodelist": ["n1"]},
    }
    path.write_text(json.dumps(steps))
    skipped: list[str] = []
    found = together(slurm_rows(path, PACIFIC, skipped))["slurm_step"].to_pylist()
    first = 1_762_070_400  # 00:00 PDT is 07:00 UTC, less an hour: 2 November, 01:00 PDT = 08:00 UTC
    assert [(row["start_us"], row["end_us"]) for row in found] == [
        (int((first + 50 * 60) * 1e6), int((first + 3600 + 10 * 60) * 1e6)),
        (int((first - 10 * 60) * 1e6), int((first + 2 * 3600 + 10 * 60) * 1e6)),
        (int((first + 10 * 60) * 1e6), int((first + 20 * 60) * 1e6)),
        (int((first + 10 * 60) * 1e6), None),
    ]
    assert skipped == [
        f"{path}: 2 rows with a local time that occurs twice, and no order or elapsed time that tells which: "
        "taken as the first"
    ]
