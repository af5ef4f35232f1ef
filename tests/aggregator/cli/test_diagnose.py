"""`laggard diagnose` as it is called: what it finds, what it promises to print, how it fails."""

import gzip
import io
import json
import lzma
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from laggard_aggregator.cli.main import main
from laggard_aggregator.offline.console_table import findings_lines
from laggard_aggregator.offline.findings import Finding, Findings
from tests.aggregator.offline.test_replay import run_online
from tests.support.builders import csv_files
from tests.support.processes import run_command, started
from tests.support.shared_data import shared
from tests.support.wait import LIMIT_SECONDS, wait_until

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
FIXTURES = Path(__file__).parents[2] / "fixtures"
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
        assert main(["diagnose", *map(str, inputs), *options, "--json"]) == 0
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


def test_a_slow_server_of_two_is_named_and_none_of_its_drives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(3)
    lines = []
    for sample in range(4 * 240):
        for server, factor in (("oss-1", 1.0), ("oss-2", 3.0)):
            for disk in "abcdef":
                value = 4.0 * factor * np.exp(0.2 * rng.standard_normal())
                lines.append(f"{csv_files.START + 15 * sample},{server}/sd{disk},1e6,{value:.4f}")
    file = csv_files.write(tmp_path / "site.csv", lines)
    records = diagnose([file], *NAMED)
    stragglers = [(r["component"], r["level"]) for r in of(records, "component") if r["straggler"]]
    assert stragglers == [("all of oss-2", "split")]
    (split,) = of(records, "split")
    assert (split["attribute"], split["value"], split["other"]) == ("node", "oss-2", "oss-1")
    assert (split["members"], split["others"]) == (6, 6)
    assert split["factor"] == pytest.approx(3.0, rel=0.1)
    assert csv_files.START <= split["since"] <= csv_files.START + 3600
    assert main(["diagnose", str(file), *NAMED]) == 0
    said = capsys.readouterr().out
    assert "all 6 members of node oss-2 are" in said
    assert "peers alone cannot tell which side is normal" in said


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
    arguments = ["diagnose", *map(str, cluster), *OPTIONS, "--json", "-o", str(found)]
    assert main(arguments) == 0
    before = found.read_text()
    assert json.loads(before.splitlines()[-1])["record"] == "component"
    cluster[1].write_text("no,such,columns\n1,2,3\n")
    assert main(arguments) == 2
    assert found.read_text() == before
    assert [path.name for path in tmp_path.iterdir() if "tmp" in path.name] == []


def the_input(folder: Path, path: Path) -> Path:
    return path


def a_link(folder: Path, path: Path) -> Path:
    (folder / "link").symlink_to(path)
    return folder / "link"


def a_hard_link(folder: Path, path: Path) -> Path:
    (folder / "hard").hardlink_to(path)
    return folder / "hard"


def another_way(folder: Path, path: Path) -> Path:
    return folder / ".." / folder.name / path.name


@pytest.mark.parametrize("command", ["diagnose", "train"])
@pytest.mark.parametrize("named", [the_input, a_link, a_hard_link, another_way])
def test_an_input_is_never_replaced(
    tmp_path: Path, cluster: list[Path], named: Any, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = cluster[1].read_bytes()
    output = named(tmp_path, cluster[1])
    assert main([command, *map(str, cluster), *OPTIONS, "-o", str(output)]) == 2
    assert cluster[1].read_bytes() == before
    assert capsys.readouterr().err == (
        f"laggard {command}: -o: {output} is also an input or output of this run\n"
    )


@pytest.mark.parametrize("option", ["--thresholds", "--topology"])
def test_nor_another_file_that_is_read(tmp_path: Path, cluster: list[Path], option: str) -> None:
    other = tmp_path / "other.toml"
    other.write_text("")
    assert main(["diagnose", str(cluster[0]), option, str(other), "-o", str(other)]) == 2
    assert other.read_text() == ""


def test_nor_a_file_of_an_archive(tmp_path: Path) -> None:
    run_online(tmp_path, seed=1, seconds=60)
    part = next(tmp_path.rglob("*.parquet"))
    before = part.read_bytes()
    assert main(["diagnose", str(tmp_path), "-o", str(part)]) == 2
    assert part.read_bytes() == before


def test_a_device_is_written_in_place(cluster: list[Path]) -> None:
    assert main(["diagnose", *map(str, cluster), *OPTIONS, "-o", "/dev/null"]) == 0
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_no_temporary_file(tmp_path: Path, number: signal.Signals) -> None:
    csv_files.write(tmp_path / "a.csv", csv_files.rows())
    os.mkfifo(tmp_path / "topology.toml")  # nobody writes to it: the command waits there, its output begun
    # The tests themselves may run under nohup, which a child inherits.
    python = ["env", "--default-signal=HUP,INT", sys.executable, "-m", "laggard_aggregator.cli.main"]
    command = [*python, "diagnose", str(tmp_path / "a.csv"), "--topology", str(tmp_path / "topology.toml")]
    with started([*command, "-o", str(tmp_path / "out")]) as child:
        wait_until(lambda: list(tmp_path.glob(".out.*")))
        child.send_signal(number)
        assert child.wait(LIMIT_SECONDS) == (130 if number is signal.SIGINT else -number)
    assert {path.name for path in tmp_path.iterdir()} == {"a.csv", "topology.toml"}


@pytest.mark.parametrize(
    ("unbuffered", "options"), [("", ()), ("1", ()), ("", ("--windows",)), ("", ("--json",))]
)
def test_a_full_disk_is_one_line(tmp_path: Path, unbuffered: str, options: tuple[str, ...]) -> None:
    path = csv_files.write(tmp_path / "a.csv", csv_files.rows(hours=0.5))
    command = [sys.executable, "-m", "laggard_aggregator.cli.main", "diagnose", str(path), *OPTIONS]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        run = run_command([*command, *options], check=False, stdout=full, env=environment)
    line = "laggard diagnose: standard output: No space left on device\n"
    assert (run.returncode, run.stderr) == (1, line)


def test_the_table_names_the_straggler_first(cluster: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", *map(str, cluster), *OPTIONS]) == 0
    out, err = capsys.readouterr()
    assert err == "", "progress is for terminals"
    lines = out.splitlines()
    assert lines[0].split()[:3] == ["group", "component", "straggler"]
    assert lines[1].split()[:3] == ["host_1", "disk3", "yes"]
    assert lines[2].startswith("1 straggler, 1 component with an alarm, ")


def test_a_pipe_gets_whole_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    long = "drive-" + "0" * 120
    lines = [line.replace("disk3", long) for line in csv_files.rows()]
    assert main(["diagnose", str(csv_files.write(tmp_path / "a.csv", lines)), *OPTIONS]) == 0
    heading, row, *_ = capsys.readouterr().out.splitlines()
    assert "first alarm" in heading
    assert row.split()[:3] == ["a", long, "yes"]
    assert row.endswith(" UTC")


def test_names_are_whole_on_a_terminal_of_80_columns() -> None:
    finding = Finding("group-of-luns", "oss-0001/wwn-0x5000c500a1b2c3d4", True, 9, 2.5, 36, 30, 20)
    lines = list(findings_lines(Findings(lambda _: 3), [finding], {}, width=80))
    assert finding.component in lines[1]
    assert max(map(len, lines[:3])) <= 80
    assert lines[2] == "(on a wider terminal also: group, score, anomalous, persistence)"
    short = replace(finding, component="oss-0001/sdb")
    narrow = list(findings_lines(Findings(lambda _: 3), [short], {}, width=40))
    assert max(map(len, narrow)) <= 40
    assert narrow[0].split() == ["component", "straggler", "x", "its", "peers"]


def test_control_characters_of_names_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "di\x1b[2Jsk\x9b\x7f3"
    lines = [line.replace("disk3", hostile) for line in csv_files.rows()]
    path = csv_files.write(tmp_path / "a.csv", lines)
    for options in ((), ("--windows",), ("--json",)):
        assert main(["diagnose", str(path), *OPTIONS, *options]) == 0
        out = capsys.readouterr().out
        assert out.replace("\n", "").isprintable()
        assert "di\\x1b[2Jsk" in out or "di\\u001b[2Jsk" in out
    assert hostile in {json.loads(line)["component"] for line in out.splitlines()}
    assert main(["diagnose", str(tmp_path / "no\x1b[2J.csv")]) == 2
    assert "no\\x1b[2J.csv: no such file" in capsys.readouterr().err


def test_local_times(
    cluster: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert main(["diagnose", str(cluster[0]), *OPTIONS, "--windows", "--local"]) == 0
        assert "2027-01-15 09:00:00 CET - " in capsys.readouterr().out
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_too_few_components_are_said(tmp_path: Path, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for line in csv_files.rows() if line.split(",")[1] in ("disk1", "disk2", "disk3")[:count]]
    path = csv_files.write(tmp_path / "a.csv", lines)
    assert main(["diagnose", str(path)]) == 0
    components = "1 active component" if count == 1 else f"{count} active components"
    said = f"all: not compared, it has {components}: at least 4 peers are needed\n"
    assert said in capsys.readouterr().out
    assert main(["diagnose", str(path), "--json"]) == 0
    assert said in capsys.readouterr().err


def test_idle_components_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        line if line.split(",")[1] == "disk1" else ",".join([*line.split(",")[:2], "0", "0"])
        for line in csv_files.rows()
    ]
    assert main(["diagnose", str(csv_files.write(tmp_path / "a.csv", lines))]) == 0
    out = capsys.readouterr().out
    assert "all: 7 of 8 components idle in all windows\n" in out
    assert "all: not compared, it has 1 active component: at least 4 peers are needed\n" in out


def test_what_was_ever_anomalous_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = csv_files.rows()
    usual = csv_files.rows(slow=None)
    until = csv_files.START + 5400
    mixed = [s if int(s.split(",")[0]) < until - 4500 else u for s, u in zip(slow, usual, strict=True)]
    path = csv_files.write(tmp_path / "a.csv", mixed)
    assert main(["diagnose", str(path), *OPTIONS, "--confirm", "9"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("0 stragglers, 0 components with an alarm, 1 ever anomalous, of 8 in 1 group;")
    assert re.fullmatch(r"anomalous in some windows, without an alarm: a disk3 \([1-9] of 36\)", lines[1])


def test_windows_in_the_table(cluster: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(cluster[0]), *OPTIONS, "--windows"]) == 0
    out = capsys.readouterr().out
    assert "2027-01-15 08:00:00 UTC - 2027-01-15 08:05:00 UTC  host_1 disk3 latency: score" in out


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
    printed = tmp_path / "sa20.json.xz"
    output = run_command(["sadf", "-j", recent, "--", "-d"], env={**os.environ, "LC_ALL": "C"}).stdout
    printed.write_bytes(lzma.compress(output.encode()))
    assert diagnose([printed], "--interval", "1", "--window", "4", "--shift", "2", "--windows") == records
    printed.write_text(output[:-40])  # the last interval is cut
    cut = diagnose([printed], "--interval", "1", "--window", "4", "--shift", "2", "--windows")
    assert 0 < len(of(cut, "window")) < len(of(records, "window"))
    assert [record for record in of(cut, "window") if record not in records] == []
    assert [r["component"] for r in of(diagnose([old]), "component")] == ["linux.home/sda"], "no partitions"


def test_what_sadf_printed_needs_no_sysstat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    path = FIXTURES / "sysstat" / "luns.sadf.json.xz"
    found = of(diagnose([path], "--interval", "1", "--window", "10", "--shift", "5"), "component")
    assert len(found) == 8
    assert [each["component"] for each in found if each["straggler"]] == ["oss-1/loop27"]


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


def peak_bytes(path: Path) -> int:
    """The most memory that `laggard diagnose` of a CSV had, in a process of its own."""
    code = (
        "import resource, sys\n"
        "from laggard_aggregator.cli.main import main\n"
        "code = main(sys.argv[1:])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, file=sys.stderr)\n"
        "sys.exit(code)\n"
    )
    command = [sys.executable, "-c", code, "diagnose", path, "--load", "throughput"]
    return int(run_command(command, seconds=10 * LIMIT_SECONDS).stderr.split()[-1])


def test_memory_is_that_of_the_rows(tmp_path: Path) -> None:
    few, many = (
        csv_files.large(tmp_path / "few.csv", 100_000),
        csv_files.large(tmp_path / "many.csv", 400_000),
    )
    assert (peak_bytes(many) - peak_bytes(few)) / 300_000 < 80


def damaged(tmp_path: Path) -> list[str]:
    path = tmp_path / "bad.csv.gz"
    packed = bytearray(gzip.compress(csv_files.text(csv_files.rows(hours=0.1)).encode()))
    packed[-6] ^= 1
    path.write_bytes(packed)
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
        *(damaged, without_column, directory, text_for_number, binary, missing, unwritable, bad_option),
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
    command = [sys.executable, "-m", "laggard_aggregator.cli.main", "diagnose", *damaged(tmp_path)]
    run = run_command(command, check=False)
    assert (run.returncode, run.stdout) == (2, "")
    problem = "compressed data is damaged: Error -3 while decompressing data: incorrect data check"
    assert run.stderr == f"laggard diagnose: {tmp_path}/bad.csv.gz: {problem}\n"


def test_a_file_that_is_cut_short_is_judged_as_far_as_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cut.csv.xz"
    path.write_bytes(lzma.compress(csv_files.text(csv_files.rows()).encode())[:20_000])
    assert main(["diagnose", str(path)]) == 0
    assert f"{path}: compressed data is cut short: read as far as it goes" in capsys.readouterr().out


def test_a_reader_that_has_enough_is_no_error(cluster: list[Path]) -> None:
    command = f"{sys.executable} -m laggard_aggregator.cli.main diagnose {cluster[0]} --windows | head -1"
    run = run_command(["sh", "-c", command], check=False)
    assert run.stderr == ""
    assert len(run.stdout.splitlines()) == 1


def test_a_group_that_slows_as_a_whole_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "whole.csv"
    random = np.random.default_rng(3)
    times = range(0, 60 * 3600, 300)
    with path.open("w") as out:
        out.write("ts,disk_id,latency,throughput\n")
        for at in times:
            slower = 3.0 if at >= 52 * 3600 else 1.0
            for disk in range(6):
                latency = 8.0 * slower * np.exp(random.normal(0, 0.1))
                out.write(f"{1_780_012_800 + at},d{disk},{latency:.4f},1e8\n")
    windows = ["--component-column", "disk_id", "--interval", "300", "--window", "6", "--shift", "6"]
    assert main(["diagnose", str(path), *windows, "--load", "throughput", "--check"]) == 1
    told = capsys.readouterr().out
    assert re.search(
        r"^all: the whole group was (2\.9|3\.0|3\.1) times slower than in its own past by latency", told, re.M
    )
    assert "of 6 in 1 group" in told
    assert main(["diagnose", str(path), *windows, "--check"]) == 0
    assert "without the load (operations or throughput), a group that slows down" in capsys.readouterr().out


def test_missing_values_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = csv_files.write(tmp_path / "gaps.csv", csv_files.rows(seed=1, slow=None))
    lines = path.read_text().splitlines()
    place = lines[0].split(",").index("latency")
    for at, text in ((5, ""), (9, "nan")):
        cells = lines[at].split(",")
        cells[place] = text
        lines[at] = ",".join(cells)
    path.write_text("\n".join(lines) + "\n")
    assert main(["diagnose", str(path), *NAMED]) == 0
    assert f"{path}: latency: 2 values missing, the first in data row 5" in capsys.readouterr().out
