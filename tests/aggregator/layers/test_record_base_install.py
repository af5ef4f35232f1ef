"""Recording on a node needs the base package alone: no extra is imported."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from tests.house.source import ROOT
from tests.support.kernel_tracing import can_trace
from tests.support.processes import run_command

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MODULES = {"prometheus-client": "prometheus_client", "pyjwt": "jwt"}
"""Names of modules where a package has another one."""


def extra_modules() -> list[str]:
    names = (
        re.split(r"[\\[><=;~ ]", each)[0]
        for extra in ("aggregator", "mining", "broker")
        for each in PROJECT["optional-dependencies"][extra]
    )
    return sorted({MODULES.get(name, name) for name in names} - {"laggard"})


def recorded(*arguments: str) -> tuple[int, str]:
    """Exit code and standard error of the recorder where no module of the extras can be imported."""
    code = (
        f"import sys\nfor name in {extra_modules()!r}: sys.modules[name] = None\n"
        "from laggard_aggregator.cli.main import main\n"
        f"sys.exit(main(['layers', 'record', *{arguments!r}]))"
    )
    run = run_command([sys.executable, "-c", code], check=False)
    return run.returncode, run.stderr


def test_help_and_wrong_options_need_no_extra(tmp_path: Path) -> None:
    assert {"numpy", "pyarrow", "duckdb", "amqtt", "jwt"} <= set(extra_modules())
    assert recorded("--help") == (0, "")
    code, error = recorded("-o", str(tmp_path / "run"))
    assert (code, "expected either --pid N or -- COMMAND" in error) == (2, True)


@pytest.mark.root
@pytest.mark.skipif(not can_trace(), reason="needs root, tracefs and the tracepoints of system calls")
def test_a_run_is_recorded_without_an_extra(tmp_path: Path) -> None:
    code, error = recorded(
        "-o", str(tmp_path / "run"), "--", sys.executable, "-c", "open('/etc/hosts').read()"
    )
    assert code == 0, error
    assert any((tmp_path / "run").iterdir())
