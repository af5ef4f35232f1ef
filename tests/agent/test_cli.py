"""The command: its output, its errors, its exit codes, and its end."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from laggard_agent.cli import main
from laggard_agent.collectors import registry
from laggard_agent.collectors.diskstats.collector import FIELDS
from tests.support.builders.trees import disk_line, tree
from tests.support.processes import run_command, started
from tests.support.wait import LIMIT_SECONDS, wait_until


def config(folder: Path, text: str = "") -> str:
    path = folder / "agent.toml"
    spool = f'[spool]\ndirectory = "{folder}/spool"\n'
    path.write_text(f'node = "oss-1"\n{text}\n{spool}')
    return str(path)


def spooled(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "spool").glob("*.segment"))


def procfs(folder: Path) -> str:
    return str(
        tree(folder / "proc", {"diskstats": disk_line("sda", *range(17)) + disk_line("sdb", *range(11))})
    )


def test_once_prints_one_object_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--once", "--collectors", "diskstats", "--procfs", procfs(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    first, second = (json.loads(line) for line in out.splitlines())
    assert {"collector": "diskstats", "component": "sda"}.items() <= first.items()
    assert list(first["counters"]) == [field.name for field in FIELDS]
    assert list(first["counters"].values()) == list(range(17))
    assert len(second["counters"]) == 11
    assert first["time"] > 1_700_000_000
    assert len(out.split('"time": ')[1].split(",")[0].split(".")[1]) == 9


def test_once_with_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = config(tmp_path, 'collectors = ["diskstats"]\n[diskstats]\nexclude = ["sdb"]')
    assert main(["--once", "--config", path, "--procfs", procfs(tmp_path)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["node"] == "oss-1"


def test_once_on_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--once"]) == 0
    sources = {json.loads(line)["collector"] for line in capsys.readouterr().out.splitlines()}
    assert {"tcp", "host"} <= sources


def test_once_says_which_collector_failed_and_reads_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--once", "--collectors", "net,diskstats", "--procfs", procfs(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert err == f"laggard-agent: net: {tmp_path}/proc/net/dev: No such file or directory (and 2 more)\n"


def test_names_act_on_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = "   8 0 sd\x1b[2J\x9b\x7fa 1 2 3 4 5 6 7 8 9 10 11\n"
    tree(tmp_path / "p\x1b[2J", {"diskstats": row, "net/dev": "no table"})
    assert main(["--once", "--collectors", "net,diskstats", "--procfs", str(tmp_path / "p\x1b[2J")]) == 1
    out, err = capsys.readouterr()
    assert "diskstats" in out
    assert err.startswith("laggard-agent: net: ")
    assert out.replace("\n", "").isprintable()
    assert err.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("out", "code", "said"),
    [
        ("/dev/full", 1, "laggard-agent: standard output: No space left on device\n"),
        ("", 128 + signal.SIGPIPE, ""),
    ],
)
def test_once_into_what_takes_no_more(tmp_path: Path, out: str, code: int, said: str) -> None:
    """A full disk is one line; a reader who has had enough, as `head`, is none."""
    command = [sys.executable, "-m", "laggard_agent.cli", "--once", "--procfs", procfs(tmp_path)]
    command += ["--collectors", "diskstats"]
    if out:
        to = os.open(out, os.O_WRONLY)
    else:
        reader, to = os.pipe()
        os.close(reader)
    done = run_command(command, stdout=to, check=False)
    os.close(to)
    assert (done.returncode, done.stderr) == (code, said)


def test_a_proc_that_makes_no_sense_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nonsense = {
        "stat": "cpu  1e999 1 1 1 1 1 1 1 1 1\nctxt 1\nintr 1\nsoftirq 1\n",
        "loadavg": "1 1 1 1/1 1\n",
    }
    tree(tmp_path / "proc", nonsense | {"meminfo": Path("/proc/meminfo").read_text()})
    assert main(["--once", "--collectors", "host", "--procfs", str(tmp_path / "proc")]) == 1
    out, err = capsys.readouterr()
    assert "memory_total_bytes" in out
    assert "cpu_user_us" not in out
    assert err.startswith(f"laggard-agent: host: {tmp_path}/proc/stat: not as expected: ")
    assert err.count("\n") == 1


def test_check_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", config(tmp_path), "--check-config"]) == 0
    assert capsys.readouterr() == (f"{tmp_path}/agent.toml: good\n", "")


@pytest.mark.parametrize("more", [["--check-config"], [], ["--once"]])
def test_every_problem_of_the_configuration_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    path = config(tmp_path, "intervall_seconds = 1\nbatch_samples = 'x'\n[mqtt]\nport = 70000")
    assert main(["--config", path, *more]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f"laggard-agent: {path}: intervall_seconds: unknown key, did you mean interval_seconds?",
        f"laggard-agent: {path}: batch_samples: expected an integer, got 'x'",
        f"laggard-agent: {path}: mqtt.port: expected 1-65535, got 70000",
    ]


def test_files_that_the_configuration_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = config(tmp_path, f'[mqtt]\nca_file = "{tmp_path}/ca"\ncert_file = "{tmp_path}/cert"')
    assert main(["--config", path, "--check-config"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"laggard-agent: {path}: mqtt.ca_file: {tmp_path}/ca: No such file or directory",
        f"laggard-agent: {path}: mqtt.cert_file: {tmp_path}/cert: No such file or directory",
    ]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "--config FILE is required (or --once)"),
        (["--config", "/nowhere.toml"], "/nowhere.toml: no such file"),
        (["--config", "/"], "/: is a directory, expected a file"),
        (
            ["--once", "--collectors", "disk"],
            f"--collectors: expected some of {', '.join(registry.names())}, got 'disk'",
        ),
        (["--once", "--procfs", "/nowhere"], "--procfs: /nowhere: not a directory"),
        (["--once", "--sysfs", "/etc/passwd"], "--sysfs: /etc/passwd: not a directory"),
    ],
)
def test_bad_arguments(arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"laggard-agent: {problem}\n"


def test_collectors_without_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", config(tmp_path), "--collectors", "net"]) == 2
    assert capsys.readouterr().err == "laggard-agent: --collectors needs --once or --dump\n"


def test_unknown_options_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--nonsense"])
    assert caught.value.code == 2
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    assert "examples:" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.startswith("laggard-agent 0.")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order_without_a_broker(tmp_path: Path, number: signal.Signals) -> None:
    """No broker, so what was sampled must be in the spool at the end."""
    path = config(tmp_path, 'interval_seconds = 0.05\ncollectors = ["diskstats"]\n[mqtt]\nport = 1')
    command = [sys.executable, "-m", "laggard_agent.cli", "--config", path, "--procfs", procfs(tmp_path)]
    with started(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "no connection to the broker" in line:
                break
        wait_until(lambda: spooled(tmp_path) >= 300)
        process.send_signal(number)
        lines += process.stderr.readlines()
        assert process.wait(LIMIT_SECONDS) == 0
    assert [line.split(" ", 3)[2] for line in lines] == ["INFO", "WARNING", "INFO"]
    assert "stopped" in lines[-1]
    assert spooled(tmp_path) >= 300


def test_a_spool_in_use_is_one_line(tmp_path: Path) -> None:
    path = config(tmp_path, "collectors = []\n[mqtt]\nport = 1")
    command = [sys.executable, "-m", "laggard_agent.cli", "--config", path]
    environ = {**os.environ, "JOURNAL_STREAM": "1:1"}
    with started(command, stderr=subprocess.PIPE, text=True, env=environ) as first:
        assert first.stderr is not None
        assert first.stderr.readline().startswith("<6>laggard_agent.app: node oss-1")
        second = run_command(command, check=False)
    assert second.returncode == 1
    assert second.stderr == f"laggard-agent: {tmp_path}/spool: the spool is in use by another agent\n"
