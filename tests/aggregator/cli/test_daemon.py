import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from laggard_aggregator.cli.daemon import main
from tests.support.processes import run_command, started
from tests.support.wait import LIMIT_SECONDS


def config(folder: Path, text: str = "") -> str:
    path = folder / "aggregator.toml"
    path.write_text(text)
    return str(path)


def test_a_good_file_is_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", config(tmp_path), "--check-config"]) == 0
    assert capsys.readouterr() == (f"{tmp_path}/aggregator.toml: good\n", "")


@pytest.mark.parametrize("credential", ["", 'proxy_credential = "proxy"\n'])
def test_a_header_of_users_without_a_credential_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], credential: str
) -> None:
    assert main(["--credential", "proxy", "--token"]) == 0
    (tmp_path / "credentials").write_text(capsys.readouterr().out)
    (tmp_path / "credentials").chmod(0o600)
    identity = '[identity]\nuser_header = "X-Remote-User"\ntrusted_proxies = ["127.0.0.1"]\n'
    path = config(tmp_path, f'[http]\ncredentials_file = "{tmp_path}/credentials"\n{identity}{credential}')
    assert main(["--config", path, "--check-config"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{path}: good\n"
    assert ("warning: identity.user_header: without proxy_credential" in err) == (not credential)


def test_a_port_out_of_range_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = config(tmp_path, '[http]\nlisten = "127.0.0.1:99999"\n')
    assert main(["--config", path, "--check-config"]) == 2
    assert "http.listen: expected a port of 0-65535, got 99999\n" in capsys.readouterr().err


def test_everything_wrong_is_told_a_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = config(tmp_path, 'sitee = "x"\n[mqtt]\nport = 70000\n[detect]\nshift_samples = 70\n')
    assert main(["--config", path]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"laggard-aggregator: {path}: sitee: unknown key, did you mean site?",
        f"laggard-aggregator: {path}: mqtt.port: expected 1-65535, got 70000",
        f"laggard-aggregator: {path}: detect.shift_samples: expected at most window_samples (60), got 70",
    ]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda folder: folder / "none.toml", "no such file"),
        (lambda folder: folder, "is a directory, expected a file"),
        (lambda folder: config(folder, "[mqtt"), "not TOML: "),
        (
            lambda folder: config(folder, '[mqtt]\nusername = "x"\npassword_file = "/nonexistent"\n'),
            "mqtt.password_file: /nonexistent: No such file or directory",
        ),
    ],
)
def test_files_that_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Callable[[Path], object], problem: str
) -> None:
    path = str(make(tmp_path))
    assert main(["--config", path, "--check-config"]) == 2
    assert capsys.readouterr().err.startswith(f"laggard-aggregator: {path}: {problem}")


def test_missing_thresholds_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = config(tmp_path, '[detect]\ndetector = "cdf"\nthresholds = "/nonexistent"\n')
    assert main(["--config", path, "--check-config"]) == 2
    assert "laggard-aggregator: /nonexistent: no such file" in capsys.readouterr().err


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert (
        "laggard-aggregator --config /etc/laggard/aggregator.toml --check-config" in capsys.readouterr().out
    )


@pytest.mark.parametrize("arguments", [[], ["--conf", "x"], ["--config"], ["--what"]])
def test_wrong_options_are_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith("laggard-aggregator: ")


def daemon_command(path: str) -> list[str]:
    return [sys.executable, "-m", "laggard_aggregator.cli.daemon", "--config", path]


def environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != "JOURNAL_STREAM"}


def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        path = config(tmp_path, f'[http]\nlisten = "127.0.0.1:{port}"\n')
        done = run_command(daemon_command(path), env=environment(), check=False)
    assert done.returncode == 1
    assert done.stderr == f"laggard-aggregator: cannot listen on 127.0.0.1:{port}: the port is taken\n"


def test_without_a_broker_it_serves_and_waits_and_ends_in_order(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    text = f'[mqtt]\nport = {port}\n[http]\nlisten = "127.0.0.1:0"\n[archive]\ndirectory = "{tmp_path}"\n'
    command = daemon_command(config(tmp_path, text))
    told: list[str] = []
    url = ""
    with started(command, stderr=subprocess.PIPE, text=True, env=environment()) as daemon:
        assert daemon.stderr is not None
        for line in daemon.stderr:
            told.append(line)
            if found := re.search(r"metrics at (http://\S+)/metrics", line):
                url = found[1]
            if "no connection to the broker" in line:
                break
        with urllib.request.urlopen(url + "/healthz", timeout=LIMIT_SECONDS) as answer:
            assert answer.status == 200
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(url + "/readyz", timeout=LIMIT_SECONDS)
        daemon.send_signal(signal.SIGTERM)
        rest = daemon.stderr.read()
        assert daemon.wait(LIMIT_SECONDS) == 0
    assert "Traceback" not in "".join(told) + rest
    assert rest.splitlines()[-1].endswith("INFO laggard_aggregator.app: stopped")
    assert sum("WARNING" in line for line in (*told, *rest.splitlines())) == 1


def test_pyarrow_uses_the_allocator_of_the_c_library(tmp_path: Path) -> None:
    (tmp_path / "aggregator.toml").write_text("")
    program = (
        "import sys; from laggard_aggregator.cli.daemon import main; code = main(sys.argv[1:]);"
        "import pyarrow; print(code, pyarrow.default_memory_pool().backend_name)"
    )
    arguments = ("--config", str(tmp_path / "aggregator.toml"), "--check-config")
    environment = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    done = run_command((sys.executable, "-c", program, *arguments), env=environment)
    assert done.stdout.endswith(": good\n0 system\n"), done.stderr


def test_parts_of_scipy_that_few_sites_need_are_imported_when_they_are_needed() -> None:
    program = "import sys, laggard_aggregator.app; print(*(n for n in sys.modules if n.startswith('scipy.')))"
    imported = run_command((sys.executable, "-c", program)).stdout.split()
    assert "scipy.special" in imported
    assert {"scipy.ndimage", "scipy.optimize", "scipy.stats"}.isdisjoint(imported)
