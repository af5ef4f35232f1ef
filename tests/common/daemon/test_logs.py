import logging
from collections.abc import Iterator

import pytest

from laggard_common.daemon import logs


@pytest.fixture(autouse=True)
def root_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_priorities_and_no_timestamps_under_the_journal(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(logging.DEBUG, {"JOURNAL_STREAM": "8:1"})
    log = logging.getLogger("laggard_agent.app")
    log.critical("a")
    log.error("b")
    log.warning("c")
    log.info("d")
    log.debug("e\nf")
    assert capsys.readouterr().err.splitlines() == [
        "<2>laggard_agent.app: a",
        "<3>laggard_agent.app: b",
        "<4>laggard_agent.app: c",
        "<6>laggard_agent.app: d",
        "<7>laggard_agent.app: e",
        "<7>f",
    ]


def test_timestamps_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(environ={})
    logging.getLogger("x").info("hello")
    logging.getLogger("x").debug("not shown")
    line = capsys.readouterr().err
    assert line.endswith(" INFO x: hello\n")
    assert line[:4].isdigit()
