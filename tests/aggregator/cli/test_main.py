"""`laggard` itself: help, version, and what is not there."""

import os
import signal
import sys
from pathlib import Path

import pytest

from laggard_aggregator.cli.main import COMMANDS, main
from laggard_common import __version__
from tests.support.processes import run_command


def test_help_names_every_command_without_loading_it(tmp_path: Path) -> None:
    code = (
        "import sys; from laggard_aggregator.cli.main import main\n"
        "try: main(['--help'])\n"
        "finally: assert not {'numpy', 'pyarrow', 'rich', 'amqtt'} & set(sys.modules)\n"
    )
    run = run_command([sys.executable, "-c", code], check=False)
    assert (run.returncode, run.stderr) == (0, "")
    for command in COMMANDS:
        assert f"    {command.name}" in run.stdout


@pytest.mark.parametrize("command", [entry.name for entry in COMMANDS])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: laggard {command}")


PROGRAMS = {
    "laggard": "laggard_aggregator.cli.main",
    "laggard-agent": "laggard_agent",
    "laggard-aggregator": "laggard_aggregator.cli.daemon",
}
HEAVY = {
    *("numpy", "scipy", "pyarrow", "matplotlib", "rich", "jinja2", "starlette", "uvicorn", "uvloop"),
    *("prometheus_client", "aiosmtplib", "aiomqtt", "amqtt"),
}


@pytest.mark.parametrize(
    "called",
    [("laggard-agent",), ("laggard-aggregator",), *(("laggard", e.name) for e in COMMANDS)],
    ids=" ".join,
)
def test_help_imports_nothing_heavy(called: tuple[str, ...]) -> None:
    program, *words = called
    module = {"laggard-agent": "laggard_agent.__main__"}.get(program, PROGRAMS[program])
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        f"from {module} import main\n"
        "sys.exit(main())\n"
    )
    run = run_command([sys.executable, "-c", code, *words, "--help"])
    assert run.stdout.startswith(f"usage: {' '.join(called)} ")
    assert "argparse" in run.stderr.split()
    assert HEAVY & set(run.stderr.split()) == set()


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"laggard {__version__}\n"


@pytest.mark.parametrize("arguments", [["nonsense"], ["train"], ["top", "--what"]])
def test_wrong_options_are_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["diagnose", "--foo", "x"], ["top", "--what"], ["silence", "--bar"]])
def test_wrong_options_name_the_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert capsys.readouterr().err.startswith(f"laggard {arguments[0]}: ")


HELP = (
    *(("laggard", command, "--help") for command in ("", *(entry.name for entry in COMMANDS))),
    *((program, option) for program in PROGRAMS for option in ("--help", "--version")),
)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("called", HELP, ids=" ".join)
def test_a_full_disk_is_one_line(called: tuple[str, ...], unbuffered: str) -> None:
    program, *arguments = filter(None, called)
    command = [sys.executable, "-m", PROGRAMS[program], *arguments]
    with Path("/dev/full").open("w") as full:
        run = run_command(
            command, check=False, stdout=full, env={**os.environ, "PYTHONUNBUFFERED": unbuffered}
        )
    name = " ".join([program, *(word for word in arguments if not word.startswith("-"))])
    assert (run.returncode, run.stderr) == (1, f"{name}: standard output: No space left on device\n")


def test_a_closed_standard_output_is_one_line() -> None:
    command = f"{sys.executable} -m laggard_aggregator.cli.main --version >&-"
    run = run_command(["sh", "-c", command], check=False)
    assert (run.returncode, run.stderr) == (1, "laggard: standard output: Bad file descriptor\n")


def test_a_reader_who_has_enough_is_no_message() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    run = run_command(
        [sys.executable, "-m", "laggard_aggregator.cli.main", "--help"], check=False, stdout=writer
    )
    os.close(writer)
    assert (run.returncode, run.stderr) == (128 + signal.SIGPIPE, "")


def test_a_missing_extra_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.import_module", _without("rich"))
    assert main(["train"]) == 1
    assert (
        capsys.readouterr().err
        == "laggard train: rich is not installed: it comes with the extra 'aggregator' (docs/install.md)\n"
    )


def _without(package: str) -> object:
    def import_module(_: str) -> None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    return import_module
