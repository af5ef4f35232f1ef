"""What an agent's environment holds, and what importing the agent brings in."""

import importlib.util
import os
import sys

import pytest

from tests.support.processes import run_command

EXTRAS = ("numpy", "scipy", "pyarrow", "uvloop", "prometheus_client", "rich", "starlette", "uvicorn", "amqtt")


@pytest.mark.skipif(
    "LAGGARD_AGENT_ONLY" not in os.environ, reason="only in the environment that `make test-agent` makes"
)
@pytest.mark.parametrize("name", EXTRAS)
def test_the_agents_environment_lacks_the_extras(name: str) -> None:
    assert importlib.util.find_spec(name) is None


def test_the_agent_imports_nothing_of_the_extras() -> None:
    code = (
        "from laggard_agent import app, cli\nimport sys; print(*{m.partition('.')[0] for m in sys.modules})"
    )
    done = run_command([sys.executable, "-c", code])
    assert not set(EXTRAS) & set(done.stdout.split())
