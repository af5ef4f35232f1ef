"""Habits that all commands share: JSON, help, suggestions, and one line for input that is none of theirs."""

import argparse
import gzip
import json
import random
import sys
from pathlib import Path

import pytest

from laggard_aggregator.cli.main import COMMANDS, Entry, main
from laggard_aggregator.cli.user_times import epoch_seconds
from laggard_common.errors import ConfigError
from tests.support.processes import run_command

ENTRIES = [(entry.name, entry) for entry in COMMANDS]
ENTRIES += [(f"{entry.name} {verb.name}", verb) for entry in COMMANDS for verb in entry.verbs]
WITHOUT_JSON = {
    "demo": "a story for a reader",
    "init": "its result is a TOML file",
    "train": "its result is a TOML file",
    "layers record": "its result is a folder",
    "layers send": "its result is a folder in the outbox",
}


@pytest.mark.parametrize(("name", "entry"), [e for e in ENTRIES if e[0] not in WITHOUT_JSON])
def test_every_command_prints_json_by_one_option(name: str, entry: Entry) -> None:
    parser = argparse.ArgumentParser(prog=name)
    entry.add_arguments(parser)
    assert "--json" in parser.format_usage()
    assert "--format" not in parser.format_help()


def test_the_old_spelling_of_json_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{t},d{d},{1 + (t * 7 + d * 3) % 5 / 10}" for t in range(0, 2700, 15) for d in range(6)]
    series = tmp_path / "series.csv"
    series.write_text("\n".join(["ts,disk_id,latency", *rows]) + "\n")
    assert main(["diagnose", str(series), "--json"]) == 0
    new = capsys.readouterr()
    assert main(["diagnose", str(series), "--format", "json"]) == 0
    old = capsys.readouterr()
    assert old.out == new.out
    assert {json.loads(line)["record"] for line in new.out.splitlines()} >= {"component"}
    assert old.err == "laggard diagnose: --format is deprecated: --json prints JSON\n" + new.err


def test_without_a_command_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    printed = capsys.readouterr()
    assert printed.out.startswith("usage: laggard ")
    assert all(f"    {entry.name} " in printed.out for entry in COMMANDS)
    assert printed.err == ""


@pytest.mark.parametrize(
    ("words", "meant"),
    [("diagnos", "diagnose"), ("tpo", "top"), ("mine jbs", "jobs"), ("layers recrod", "record")],
)
def test_the_command_that_was_meant(words: str, meant: str, capfd: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(words.split())
    except SystemExit as ended:
        code = int(ended.code or 0)
    assert code == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert f", did you mean {meant}?" in line


def test_a_file_may_have_a_name_like_a_verb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("jobz").write_text("nothing of Darshan's")
    main(["mine", "jobz"])
    assert "did you mean" not in capsys.readouterr().err


@pytest.mark.parametrize("text", ["-12h", "-90min", "-30s", "2026-01-31", "1767225600"])
def test_times_have_one_parser(text: str) -> None:
    assert epoch_seconds("--from", text) is not None


def test_a_time_that_is_none_names_its_option() -> None:
    with pytest.raises(ConfigError, match="--from: expected a time such as"):
        epoch_seconds("--from", "yesterday")


_CHANCE = random.Random(4711)
INPUTS = {
    "program": b"\x7fELF\x02\x01\r\x00\x03,\xff" + _CHANCE.randbytes(4000),
    "carriage-returns": b'a\rb,c\rd\n"x\r\n',
    "packed.gz": gzip.compress(b"\x7fELF\r," + _CHANCE.randbytes(4000)),
    "torn.gz": b"\x1f\x8b" + _CHANCE.randbytes(300),
    "zeros": bytes(5000),
    "empty": b"",
    "quote.csv": b'"' * 200_000,
    "nested.json": b"[" * 100_000,
    "torn.parquet": b"PAR1" + _CHANCE.randbytes(100) + b"PAR1",
}
READERS = (
    "diagnose FILE",
    "train FILE -o thresholds.toml",
    "diagnose FILE --topology FILE",
    "layers FILE",
    "layers send FILE --outbox .",
    "mine FILE",
    "mine init --store store --slurm FILE",
    "mine init --store store --lmt FILE",
    "jobs phases FILE",
    "jobs compare FILE",
    "jobs import --archive archive --sacct FILE",
    "jobs import --archive archive --jsonl FILE",
    "jobs import --archive archive --pbs FILE",
    "jobs import --archive archive --flux FILE",
    "archive verify FILE",
)


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("name", INPUTS)
def test_no_input_makes_a_traceback(
    name: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(INPUTS[name])
    code = main([name if word == "FILE" else word for word in command.split()])
    printed = capsys.readouterr()
    assert code in (0, 1, 2)
    assert code == 0 or (printed.err.startswith("laggard ") and "Traceback" not in printed.err)


ABSENT = {
    *("numpy", "scipy", "pyarrow", "rich", "starlette", "uvicorn", "uvloop", "jinja2", "prometheus_client"),
    *("matplotlib", "duckdb", "darshan", "h5py", "aiosmtplib", "amqtt"),
}
"""Packages of the extras."""
OF_EXTRAS = (
    *("demo", "diagnose x", "train x -o y", "archive verify x", "layers x", "layers send x", "mine x"),
    *("layers received --archive x", "jobs --archive x", "job 1 --archive x", "jobs phases x"),
    *("jobs compare x", "jobs top --archive x", "jobs import --sacct x --archive y", "mine init --store x"),
)
_WITHOUT_EXTRAS = f"""\
import importlib.abc, sys
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {ABSENT}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from laggard_aggregator.cli import daemon
from laggard_aggregator.cli.main import main
assert daemon.main(["--config", "x"]) == 1
for command in {OF_EXTRAS}:
    assert main(command.split()) == 1, command
"""


def test_a_missing_extra_is_one_line_and_no_advice_to_ask_an_index(tmp_path: Path) -> None:
    run = run_command([sys.executable, "-c", _WITHOUT_EXTRAS], check=False, cwd=tmp_path)
    lines = run.stderr.splitlines()
    assert (run.returncode, len(lines)) == (0, 1 + len(OF_EXTRAS)), run.stderr
    for line, name in zip(lines, ["laggard-aggregator", *map("laggard {}".format, OF_EXTRAS)], strict=True):
        program, _, problem = line.partition(": ")
        assert name.startswith(program)
        assert " is not installed: it comes with the extra 'aggregator'" in problem
