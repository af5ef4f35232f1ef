"""`laggard-agent --fold`: output, summary, errors, exit codes."""

import gzip
import io
import json
import lzma
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from laggard_agent.cli import main
from laggard_agent.tools.iotrace import FORMAT_NAMES
from laggard_agent.tools.iotrace.command import FORMATS, detect
from tests.support.builders.iotrace import FIXTURES, SAMPLES, sample
from tests.support.processes import run_command, started
from tests.support.wait import LIMIT_SECONDS


def test_the_option_offers_the_formats_that_there_are() -> None:
    assert tuple(FORMATS) == FORMAT_NAMES


@pytest.mark.parametrize("name", FORMATS)
def test_the_format_shows_in_the_first_line(name: str) -> None:
    assert detect(io.BufferedReader(io.BytesIO(sample(name)))) == name
    assert detect(io.BufferedReader(io.BytesIO(b""))) == "laggard"


def test_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--fold", str(FIXTURES / SAMPLES["laggard"])]) == 0
    out, err = capsys.readouterr()
    objects = [json.loads(line, parse_float=str) for line in out.splitlines()]
    assert objects[1] == {
        "node": "cn-17",
        "operation": "write",
        "descriptor": "4121:17",
        "path": "/scratch/out.dat",
        "offset": 0,
        "size": 65536,
        "count": 3,
        "first": "1763650000.100000000",
        "last": "1763650000.300000000",
    }
    assert err == (
        f"laggard-agent: {FIXTURES / SAMPLES['laggard']}: "
        "format laggard: 8 lines, 6 records, folded into 4 (1.5 to 1)\n"
    )


def test_a_configuration_names_the_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "agent.toml"
    config.write_text('node = "cn-99"\n')
    assert main(["--fold", str(FIXTURES / SAMPLES["strace"]), "--config", str(config)]) == 0
    assert {json.loads(line)["node"] for line in capsys.readouterr().out.splitlines()} == {"cn-99"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"root:x:0:0\nbin:x:1:1\n", "2 lines, none of them a record in format laggard"),
        (None, "No such file or directory"),
    ],
)
def test_what_is_no_trace_is_one_line(
    content: bytes | None, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log"
    if content is not None:
        path.write_bytes(content)
    assert main(["--fold", str(path)]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"laggard-agent: {path}: {says}\n")


def test_a_folder_is_no_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--fold", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"laggard-agent: {tmp_path}: Is a directory\n"


def test_what_is_left_out_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log"
    path.write_bytes(sample("laggard") + b"something else\n1763650003 cn-17 read 4122:3 46")
    assert main(["--fold", str(path), "--format", "laggard"]) == 0
    _, err = capsys.readouterr()
    assert err.endswith("; 1 lines not understood; the last line has no end and was left out\n")


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (gzip.compress(b"x\n"), "zcat"),
        (lzma.compress(b"x\n"), "xzcat"),
        (b"\x28\xb5\x2f\xfd\n", "zstdcat"),
        ("\ufeffx\n".encode("utf-16-le"), "iconv"),
    ],
)
def test_a_file_that_is_no_plain_text_is_told_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], packed: bytes, said: str
) -> None:
    path = tmp_path / "log"
    path.write_bytes(packed)
    assert main(["--fold", str(path)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "77 {t}.1 io_uring_enter(4, 1, 1, 0, NULL, 8) = 1",
            "1 of io_uring_enter: strace does not show the data",
        ),
        ("77 {t}.1 <... read resumed>) = 1", "1 entries or returns of system calls are missing"),
        (
            "# *ERROR*: The DXT_POSIX module contains incomplete data!",
            "Darshan ran out of memory for DXT_POSIX",
        ),
    ],
)
def test_data_that_the_log_lacks_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    strace = '77 1700000000.0 openat(AT_FDCWD, "/a", 0) = 3'
    head = "# darshan log version: 3.41" if line.startswith("#") else strace
    path = tmp_path / "log"
    path.write_text(f"{head}\n{line.format(t=1_700_000_000)}\n")
    assert main(["--fold", str(path)]) == 0
    assert said in capsys.readouterr().err


def test_standard_input() -> None:
    command = [sys.executable, "-m", "laggard_agent", "--fold", "-"]
    assert run_command(command).stderr == "laggard-agent: -: format laggard: 0 lines, 0 records\n"
    done = run_command(command, stdin_text=sample("dxt").decode())
    assert len(done.stdout.splitlines()) == 6


def test_a_reader_that_goes_away(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(sample("strace") * 50)
    command = [sys.executable, "-m", "laggard_agent", "--fold", str(log)]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait(LIMIT_SECONDS) == 128 + signal.SIGPIPE
