"""Option `--leave-out-passed` of pytest: what passed in the last run of the same tests and `-m` is left out.

For a second run on a machine that has got more programs since: those that skipped without them are left.
"""

import hashlib
import re
from typing import Final

import pytest

OPTION = "--leave-out-passed"
_MAX_NAME: Final = 150


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option."""
    parser.addoption(OPTION, action="store_true", help="leave out tests that passed in the last run")


def pytest_configure(config: pytest.Config) -> None:
    """Notes in every run which tests pass."""
    if hasattr(config, "cache"):  # not with -p no:cacheprovider
        config.pluginmanager.register(_Passed(config))


class _Passed:
    """The tests that passed, kept by pytest's cache for each part of the tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        chosen = " ".join([config.option.markexpr, *config.args])
        name = re.sub(r"\W+", "-", chosen)
        if len(name) > _MAX_NAME:  # of a file
            name = f"{name[:_MAX_NAME]}-{hashlib.sha256(chosen.encode()).hexdigest()[:16]}"
        self._key = f"laggard/passed-{name}"
        self._before: set[str] = (
            set(config.cache.get(self._key, [])) if config.option.leave_out_passed else set()
        )
        self._passed: set[str] = set()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        left_out = [item for item in items if item.nodeid in self._before]
        if left_out:
            self._config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item.nodeid not in self._before]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._passed.add(report.nodeid)
        elif report.failed:
            self._passed.discard(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._config.cache.set(self._key, sorted(self._before | self._passed))
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self._before:
            session.exitstatus = pytest.ExitCode.OK
