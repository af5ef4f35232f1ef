"""`laggard diagnose` as it is called: what it finds, what it promises to print, how it fails."""

import io
import json
import lzma
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from laggard_aggregator.cli.main import main
from tests.aggregator.offline.test_replay import run_online
from tests.support.builders import csv_files
from tests.support.processes import run_command
from tests.support.shared_data import shared

OPTIONS = (
    "--load",
    "throughput",
    "--group-by",
    "file",
    "--interval",
    "15",
    "--window",
    "20",
    "--shift",
    "20",
)
NAMED = ("--time-column", "ts", "--component-column", "disk_id", "--metric", "latency", *OPTIONS)


@pytest.fixture(name="cluster")
def made_cluster(tmp_path: Path) -> list[Path]:
    """Two hosts, on the first of which one drive is slow."""
    return [
        csv_files.write(tmp_path / "host_1.csv", csv_files.rows(seed=1)),
        csv_files.write(tmp_path / "host_2.csv", csv_files.rows(seed=2, slow=None)),
    ]


def diagnose(inputs: Sequence[Path], *options: str) -> list[dict[str, Any]]:
    """The JSON records that it prints."""
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "stdout", out)
        assert main(["diagnose", *map(str, inputs), *options, "--format", "json"]) == 0
    return [json.loads(line) for line in out.getvalue().splitlines()]


def of(records: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [record for record in records if record["record"] == kind]


def test_the_slow_drive_and_no_other_is_found(cluster: list[Path]) -> None:
    records = diagnose(cluster, *NAMED)
    assert {record["record"] for record in records} == {"day", "component"}
    components = of(records, "component")
    assert len(components) == 16
    (slow,) = [record for record in components if record["straggler"]]
    assert (slow["group"], slow["component"]) == ("host_1", "disk3")
    assert slow["severity"] == pytest.approx(2.0, rel=0.1)
    assert csv_files.START < slow["first_alarm"] <= csv_files.START + 25 * 60
    assert slow["metrics"] == ["latency"]
    assert slow["anomalous_windows"] <= slow["windows"] == 36
    assert [(day["component"], day["day"]) for day in of(records, "day") if day["straggler"]] == [
        ("disk3", "2027-01-15")
    ]


def test_records_have_the_promised_keys(cluster: list[Path]) -> None:
    records = diagnose(cluster, *OPTIONS, "--windows")
    keys = {record["record"]: set(record) for record in records}
    assert keys["window"] == {
        *("record", "group", "component", "level", "metric", "start", "end", "anomalous", "score", "severity")
    }
    assert keys["day"] == {"record", "group", "component", "day", "straggler", "score", "severity"}
    assert keys["component"] == {
        *("record", "group", "component", "name", "level", "parent", "straggler", "score", "severity"),
        *("first_alarm", "anomalous_windows", "windows", "persistence", "metrics", "causes"),
    }
    windows = of(records, "window")
    assert all(record["end"] - record["start"] == 300 and record["start"] % 300 == 0 for record in windows)
    healthy = next(r for r in of(records, "component") if r["component"] == "disk1")
    assert healthy["first_alarm"] is None
    assert 0.8 < healthy["severity"] < 1.25


def test_drives_that_share_a_controller_are_blamed_as_one(tmp_path: Path) -> None:
    lines = csv_files.rows(slow="disk3")
    slow = csv_files.rows(slow="disk4")
    both = [s if ",disk4," in s else line for line, s in zip(lines, slow, strict=True)]
    topology = tmp_path / "topology.toml"
    topology.write_text(
        '[[topology]]\ncomponents = "disk[12]"\ncontroller = "ctl-a"\n'
        '[[topology]]\ncomponents = "disk[34]"\ncontroller = "ctl-b"\n'
        '[[topology]]\ncomponents = "disk([5-8])"\ncontroller = "ctl-c"\n'
    )
    found = diagnose([csv_files.write(tmp_path / "host.csv", both)], *NAMED, "--topology", str(topology))
    stragglers = {(r["component"], r["level"]) for r in of(found, "component") if r["straggler"]}
    assert stragglers == {("ctl-b", "controller")}
    assert {r["component"]: r["parent"] for r in of(found, "component")}["disk3"] == "ctl-b"


def test_neither_order_nor_repeats_nor_compression_matter(tmp_path: Path, cluster: list[Path]) -> None:
    lines = csv_files.rows(seed=1)
    other = tmp_path / "other"
    other.mkdir()
    text = csv_files.text([*reversed(lines), *lines[:100]])
    (other / "host_1.csv.xz").write_bytes(lzma.compress(text.encode()))
    shutil.copy(cluster[1], other)
    assert diagnose(sorted(other.iterdir()), *OPTIONS) == diagnose(cluster, *OPTIONS)


def test_an_output_file_is_whole_or_not_there(tmp_path: Path, cluster: list[Path]) -> None:
    found = tmp_path / "found.jsonl"
    arguments = ["diagnose", *map(str, cluster), *OPTIONS, "--format", "json", "-o", str(found)]
    assert main(arguments) == 0
    before = found.read_text()
    assert json.loads(before.splitlines()[-1])["record"] == "component"
    cluster[1].write_text("no,such,columns\n1,2,3\n")
    assert main(arguments) == 2
    assert found.read_text() == before
    assert [path.name for path in tmp_path.iterdir() if "tmp" in path.name] == []


def test_the_table_names_the_straggler_first(cluster: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", *map(str, cluster), *OPTIONS]) == 0
    out, err = capsys.readouterr()
    assert err == "", "progress is for terminals"
    lines = out.splitlines()
    assert lines[0].split()[:3] == ["group", "component", "straggler"]
    assert lines[1].split()[:3] == ["host_1", "disk3", "yes"]
    assert lines[-1].startswith("1 stragglers") or lines[-2].startswith("1 stragglers")


def test_windows_in_the_table(cluster: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(cluster[0]), *OPTIONS, "--windows"]) == 0
    out = capsys.readouterr().out
    assert "2027-01-15 08:00:00 - 2027-01-15 08:05:00  host_1 disk3 latency: score" in out


def test_an_archive_says_the_same_as_the_aggregator_that_wrote_it(tmp_path: Path) -> None:
    run_online(tmp_path, seed=1)
    records = diagnose([tmp_path])
    (slow,) = [record for record in of(records, "component") if record["straggler"]]
    assert (slow["group"], slow["component"], slow["name"]) == ("luns", "oss-3/id-sda", "oss-3/sda")
    assert slow["metrics"] == ["await"]


def test_an_archive_keeps_its_windows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_online(tmp_path, seed=1, seconds=60)
    assert main(["diagnose", str(tmp_path), "--interval", "5"]) == 2
    assert capsys.readouterr().err == (
        "laggard diagnose: --interval: the windows of an archive are as they were closed\n"
    )


@pytest.mark.skipif(shutil.which("sadf") is None, reason="sysstat is not installed")
def test_sysstat_files_of_new_and_old_versions(tmp_path: Path) -> None:
    recent, old = shared("sysstat_iostat/sa.bin"), shared("sysstat_iostat/data-11.6.5")
    records = diagnose([recent], "--interval", "1", "--window", "4", "--shift", "2", "--windows")
    loop3 = [r["severity"] for r in of(records, "window") if r["component"] == "vm/loop3"]
    assert len(loop3) > 3
    assert min(loop3) > 5, "loop3 was throttled while this was recorded"
    packed = tmp_path / "sa20.xz"
    packed.write_bytes(lzma.compress(recent.read_bytes()))
    assert diagnose([packed], "--interval", "1", "--window", "4", "--shift", "2", "--windows") == records
    assert [r["component"] for r in of(diagnose([old]), "component")] == ["linux.home/sda"], "no partitions"


def test_without_sysstat_its_files_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sa20"
    path.write_bytes(b"\x96\xd5\x75\x21" + bytes(100))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["diagnose", str(path)]) == 2
    assert capsys.readouterr().err == (
        f"laggard diagnose: {path}: a sysstat activity file: reading it needs sadf (install sysstat)\n"
    )


@pytest.mark.skipif(shutil.which("sadf") is None, reason="sysstat is not installed")
def test_a_damaged_sysstat_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sa20"
    path.write_bytes(b"\x96\xd5\x75\x21" + bytes(100))
    assert main(["diagnose", str(path)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"laggard diagnose: {path}: sadf cannot read it: ")
    assert len(err.splitlines()) == 1


def truncated(tmp_path: Path) -> list[str]:
    path = tmp_path / "cut.csv.xz"
    path.write_bytes(lzma.compress(csv_files.text(csv_files.rows()).encode())[:20_000])
    return [str(path)]


def without_column(tmp_path: Path) -> list[str]:
    return [str(csv_files.write(tmp_path / "a.csv", csv_files.rows(hours=0.1))), "--metric", "await"]


def directory(tmp_path: Path) -> list[str]:
    return [str(tmp_path)]


def text_for_number(tmp_path: Path) -> list[str]:
    return [str(csv_files.write(tmp_path / "a.csv", csv_files.rows(hours=0.1))), "--metric", "disk_id"]


def binary(tmp_path: Path) -> list[str]:
    (tmp_path / "a").write_bytes(bytes(range(256)) * 10)
    return [str(tmp_path / "a")]


def missing(tmp_path: Path) -> list[str]:
    return [str(tmp_path / "nothing")]


def unwritable(tmp_path: Path) -> list[str]:
    csv_files.write(tmp_path / "a.csv", csv_files.rows(hours=0.1))
    return [str(tmp_path / "a.csv"), "-o", str(tmp_path / "no" / "folder")]


def bad_option(tmp_path: Path) -> list[str]:
    return [str(tmp_path), "--window", "many"]


def gaps(tmp_path: Path) -> list[str]:
    return [str(tmp_path), "--window", "10", "--shift", "20"]


def untrained(tmp_path: Path) -> list[str]:
    return [str(tmp_path), "--detector", "cdf"]


def no_profiles(tmp_path: Path) -> list[str]:
    return [str(tmp_path), "--detector", "manhattan", "--thresholds", str(tmp_path / "t.toml")]


def thresholds_for_nobody(tmp_path: Path) -> list[str]:
    return [str(tmp_path), "--thresholds", str(tmp_path / "t.toml")]


def no_topology(tmp_path: Path) -> list[str]:
    return [str(csv_files.write(tmp_path / "a.csv", csv_files.rows(hours=0.1))), "--topology", str(tmp_path)]


def empty_archive(tmp_path: Path) -> list[str]:
    (tmp_path / "kind=counters").mkdir()
    return [str(tmp_path)]


def header_alone(tmp_path: Path) -> list[str]:
    (tmp_path / "a.csv").write_text("ts,disk_id,latency\n")
    return [str(tmp_path / "a.csv")]


def no_input(_: Path) -> list[str]:
    return []


@pytest.mark.parametrize(
    "case",
    [
        *(truncated, without_column, directory, text_for_number, binary, missing, unwritable, bad_option),
        *(gaps, untrained, no_profiles, thresholds_for_nobody, no_topology, no_input),
        *(empty_archive, header_alone),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: Path, case: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(["diagnose", *case(tmp_path)])
    except SystemExit as ended:
        code = ended.code
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert err.startswith("laggard diagnose: ")
    assert len(err.splitlines()) == 1


def test_the_same_of_the_installed_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "laggard_aggregator.cli.main", "diagnose", *truncated(tmp_path)]
    run = run_command(command, check=False)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == f"laggard diagnose: {tmp_path}/cut.csv.xz: compressed data is cut short\n"


def test_a_reader_that_has_enough_is_no_error(cluster: list[Path]) -> None:
    command = f"{sys.executable} -m laggard_aggregator.cli.main diagnose {cluster[0]} --windows | head -1"
    run = run_command(["sh", "-c", command], check=False)
    assert run.stderr == ""
    assert len(run.stdout.splitlines()) == 1
