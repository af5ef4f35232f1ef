"""Check of pytest that fails a module whose tests leave a process, and the run when one is left at its end.

A pytest plugin: tests/conftest.py loads it, `-p tests.support.no_process_left` loads it alone.
"""

import time
from collections.abc import Iterator

import pytest

from tests.support import processes
from tests.support.wait import PATIENCE

_GRACE_SECONDS = 10.0 * PATIENCE
"""A process whose parent has just ended may need this long to end, too."""


def pytest_configure() -> None:
    """Runs pytest below a reaper, which finds orphans."""
    processes.fork_reaper()


@pytest.fixture(scope="module", autouse=True)
def no_process_left() -> Iterator[None]:
    """Fails the last test of a module when a process is left."""
    yield
    found = _killed()
    assert not found, f"processes left: {found}"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails the run when a process is left."""
    found = _killed()
    if found:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"ERROR processes left: {found}", red=True)


def _killed() -> list[str]:
    deadline = time.monotonic() + _GRACE_SECONDS
    while processes.left() and time.monotonic() < deadline:
        time.sleep(0.05)
    return processes.kill_left()
