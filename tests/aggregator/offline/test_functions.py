"""Function profiles offline: replay to the bit, training over fault-free runs, and what diagnose prints."""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.cli.main import main
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.groups.membership import ConfiguredMembership
from laggard_aggregator.groups.topology import Topology
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.offline.archive_replay import ArchiveReplay
from laggard_aggregator.settings import thresholds_file
from laggard_aggregator.settings.aggregator import AggregatorSettings
from laggard_aggregator.settings.from_settings import membership
from laggard_common.config import parse
from tests.aggregator.engine.test_machine import steady
from tests.aggregator.offline.test_replay import plain
from tests.support.builders.batches import SECOND, batch_of, next_lsn, schema_of, stored
from tests.support.builders.functions import in_order, servers

START = 1_800_000_000 * SECOND
HOG = {"dd/dd/main": 150.0, "dd/kernel/copy_user": 100.0}


def archived(
    directory: Path, offered: Sequence[Batch], rules: ConfiguredMembership | None = None
) -> list[Judgement]:
    """The judgements of an aggregator that archives what it takes."""
    known = rules or ConfiguredMembership(())
    pipeline = Machine(known, lateness_seconds=2.0)
    writer = ArchiveWriter(directory, "site", START)
    writer.groups(known, Topology(), 2.0, 0.0)
    judged = list[Judgement]()
    for batch in offered:
        now = batch.received_ns
        for close in pipeline.closes(pipeline.windows.due(now), now):
            writer.window_close(close)
            for judgement in pipeline.close(close):
                writer.judgement(judgement)
                judged.append(judgement)
        writer.batch(stored(pipeline, replace(batch, lsn=next_lsn(pipeline.sequence))))
    writer.flush()
    return judged


def both(seed: int, seconds: int, **faults: Any) -> list[Batch]:
    """Profiles and traces of eight servers, and a disk of one of them."""
    profiled, traced = servers(seed, **faults), servers(seed + 1, **faults)
    disk = [
        batch_of(schema_of("oss-1"), steady(range(at, at + 5), 1), START + at * SECOND, seq=at)
        for at in range(1, seconds, 5)
    ]
    return in_order(
        *(s.profile(START, seconds) for s in profiled), *(s.trace(START, seconds) for s in traced), iter(disk)
    )


def diagnosed(*arguments: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert main(["diagnose", *arguments, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("healthy")
    archived(directory, both(10, 500))
    return directory


def test_a_replay_gives_the_verdicts_and_causes_to_the_bit(tmp_path: Path) -> None:
    online = archived(tmp_path, both(1, 600, extra=HOG, slow={"gfsd/gfsd/pwrite": 5.0}, fault_from=200))
    raised = {
        (t.alarm.component, t.alarm.metric) for j in online for t in j.transitions if t.kind == "raised"
    }
    assert raised == {("oss-3", "samples"), ("oss-3", "time")}
    again = list(ArchiveReplay(ArchiveReader(tmp_path)).judgements())
    assert plain(again) == plain(online)
    assert [j.verdicts.causes for j in again] == [j.verdicts.causes for j in online]
    alarms = ArchiveReader(tmp_path).table("alarms").to_pylist()
    (hogged,) = [row for row in alarms if row["metric"] == "samples"]
    assert [cause["name"] for cause in hogged["causes"]][:2] == ["dd/dd/main", "dd/kernel/copy_user"]
    assert (hogged["level"], hogged["transition"]) == ("node", "raised")
    verdicts = ArchiveReader(tmp_path).table("verdicts").to_pylist()
    assert all(row["causes"] for row in verdicts if row["anomalous"])


def test_what_healthy_runs_taught_finds_the_fault(
    healthy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "functions.toml"
    assert main(["train", str(healthy), "--detector", "manhattan", "-o", str(file)]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (f"24 thresholds written to {file}\n", "")
    table = tomllib.loads(file.read_text())
    assert (table["detector"], table["interval_seconds"], table["window_samples"]) == ("manhattan", 10.0, 6)
    assert set(table["thresholds"]) == {"storage/fnprofile", "storage/fntrace"}
    trained = table["thresholds"]["storage/fnprofile"]["samples"]
    assert set(trained) == {f"oss-{n}" for n in range(8)}
    assert all(value % 2 == 0 for value in trained.values()), "integers, doubled"
    assert set(table["functions"]["storage/fntrace"]["time"].values()) == {1.0}

    judging = ("--detector", "manhattan", "--thresholds", str(file))
    found = diagnosed(str(healthy), *judging, capsys=capsys)
    assert not any(record.get("anomalous_windows") for record in found)
    archived(tmp_path / "faulty", both(2, 500, extra=HOG, slow={"gfsd/gfsd/pwrite": 5.0}, fault_from=200))
    found = diagnosed(str(tmp_path / "faulty"), *judging, capsys=capsys)
    assert {record["group"] for record in found} == {"storage/fnprofile", "storage/fntrace"}
    straggling = [r for r in found if r["record"] == "component" and r["straggler"]]
    assert [(r["group"], r["component"], r["metrics"]) for r in straggling] == [
        ("storage/fnprofile", "oss-3", ["samples"]),
        ("storage/fntrace", "oss-3", ["time"]),
    ]
    assert straggling[0]["causes"]["samples"][0]["name"] == "dd/dd/main"
    assert (straggling[0]["level"], straggling[0]["severity"]) == ("node", None)
    assert main(["diagnose", str(tmp_path / "faulty"), *judging]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("storage/fnprofile oss-3: what differs most in samples")
    assert lines[at + 1].endswith("  dd/dd/main")


def test_divided_sums_hold_only_with_their_divisors(healthy: Path, tmp_path: Path) -> None:
    file = tmp_path / "divided.toml"
    assert main(["train", str(healthy), "--detector", "manhattan", "--divided", "-o", str(file)]) == 0
    found = thresholds_file.load(file)
    units = found.tables["functions"]["storage/fnprofile"]["samples"]
    assert len(set(units.values())) > 1
    applied = found.applied(DetectSettings(detector="manhattan"), "storage/fnprofile")
    assert applied.options == {"functions": {"samples": units}}


@pytest.mark.parametrize(
    ("line", "instead", "problem"),
    [
        (
            '"gfsd/gfsd/readv" = 1.0',
            '"gfsd/gfsd/readv" = 0',
            "readv: expected a number of more than 0, got 0",
        ),
        ('"gfsd/gfsd/readv" = 1.0', '"gfsd/gfsd/readv" = "1"', "readv: expected a number of more than 0"),
        ('detector = "manhattan"', 'detector = "cdf"', "functions: unknown key"),
        ("version = ", "version = 1#", "version: trained with 1, to be used with "),
        ("window_samples = 6", "window_samples = 60", "window_samples: trained with 60, to be used with 6"),
    ],
)
def test_thresholds_that_are_not_for_this_are_refused(
    healthy: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    line: str,
    instead: str,
    problem: str,
) -> None:
    file = tmp_path / "functions.toml"
    if not (healthy / "functions.toml").exists():
        main(["train", str(healthy), "--detector", "manhattan", "-o", str(healthy / "functions.toml")])
    text = (healthy / "functions.toml").read_text()
    assert line in text
    file.write_text(text.replace(line, instead, 1))
    capsys.readouterr()
    judging = ("--detector", "manhattan", "--thresholds", str(file))
    assert main(["diagnose", str(healthy), *judging]) == 2
    err = capsys.readouterr().err
    assert problem in err
    assert "Traceback" not in err


def test_a_configuration_takes_the_trained_thresholds(healthy: Path, tmp_path: Path) -> None:
    file = tmp_path / "functions.toml"
    main(["train", str(healthy), "--detector", "manhattan", "-o", str(file)])
    group = {"name": "profiled", "source": "fnprofile", "metrics": ["samples"], "thresholds": str(file)}
    table = {
        "detect": {"interval_seconds": 1.0, "function_thresholds": str(file)},
        "group": [group | {"components": "oss-[0-3]/.*"}],
    }
    made = membership(parse(AggregatorSettings, table))
    assert (made.default.interval_seconds, made.default.thresholds) == (1.0, {})
    assert (made.functions.detector, made.functions.interval_seconds) == ("manhattan", 10.0)
    assert set(made.functions.thresholds) == {"samples", "count", "time"}
    (rule,) = made.rules
    assert rule.group.detect.thresholds == made.functions.thresholds
    judged = archived(tmp_path / "a", both(3, 200), made)
    by_group = {judgement.group: judgement.components for judgement in judged}
    assert set(by_group["profiled"]) == {f"oss-{n}" for n in range(4)}
    assert set(by_group["storage/fnprofile"]) == {f"oss-{n}" for n in range(4, 8)}
    assert plain(list(ArchiveReplay(ArchiveReader(tmp_path / "a")).judgements())) == plain(judged)


def test_training_names_who_stands_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archived(tmp_path / "a", in_order(*(s.profile(START, 300) for s in servers(5, extra=HOG))))
    file = str(tmp_path / "t.toml")
    assert main(["train", str(tmp_path / "a"), "--detector", "manhattan", "-o", file]) == 0
    err = capsys.readouterr().err
    assert err == (
        "laggard train: storage/fnprofile oss-3 stands out in samples: does this data contain a fault?\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train", "{csv}", "--detector", "manhattan", "-o", "{t}"], "INPUT must be an archive"),
        (["train", "{a}", "--detector", "manhattan", "--plot", "p.png", "-o", "{t}"], "--plot goes with"),
        (["train", "{a}", "--detector", "manhattan", "--bin-limit", "5", "-o", "{t}"], "--bin-limit goes"),
        (["train", "{a}", "--divided", "-o", "{t}"], "--divided goes with --detector manhattan"),
        (["diagnose", "{csv}", "--detector", "manhattan"], "INPUT must be an archive"),
        (["diagnose", "{a}", "--thresholds", "{t}"], "--thresholds goes with --detector cdf or manhattan"),
        (["diagnose", "{a}", "--detector", "manhattan", "--interval", "5"], "--interval: the windows of an"),
    ],
)
def test_options_that_do_not_go_together_are_said_in_a_line(
    healthy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    csv = tmp_path / "a.csv"
    csv.write_text("ts,disk_id,latency\n1,a,1\n")
    named = {"a": str(healthy), "csv": str(csv), "t": str(tmp_path / "t.toml")}
    assert main([argument.format(**named) for argument in arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1


def test_an_archive_without_functions_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    disks = [
        batch_of(schema_of(), steady(range(at, at + 5), 1), START + at * SECOND) for at in range(1, 60, 5)
    ]
    archived(tmp_path / "a", disks)
    file = str(tmp_path / "t.toml")
    assert main(["train", str(tmp_path / "a"), "--detector", "manhattan", "-o", file]) == 2
    assert "no window has enough samples" in capsys.readouterr().err
    assert main(["diagnose", str(tmp_path / "a"), "--detector", "manhattan"]) == 2
    assert "nothing to judge" in capsys.readouterr().err
