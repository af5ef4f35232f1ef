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
    try:
        raise ValueError("f\ng")
    except ValueError:
        log.debug("e", exc_info=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-2:] == ["<7>ValueError: f", "<7>g"]
    assert lines[:6] == [
        "<2>laggard_agent.app: a",
        "<3>laggard_agent.app: b",
        "<4>laggard_agent.app: c",
        "<6>laggard_agent.app: d",
        "<7>laggard_agent.app: e",
        "<7>Traceback (most recent call last):",
    ]


def test_timestamps_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(environ={})
    logging.getLogger("x").info("hello")
    logging.getLogger("x").debug("not shown")
    line = capsys.readouterr().err
    assert line.endswith(" INFO x: hello\n")
    assert line[:4].isdigit()


@pytest.mark.parametrize("environ", [{}, {"JOURNAL_STREAM": "8:1"}])
def test_names_act_on_no_terminal_and_begin_no_line(
    environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure(environ=environ)
    try:
        raise ValueError("\x1b[2Jb")
    except ValueError:
        logging.getLogger("x").exception("disk %s", "a\x1b]0;t\x07\n<2>x: forged\x9b")
    lines = capsys.readouterr().err.split("\n")
    assert lines[0].endswith(r"x: disk a\x1b]0;t\x07\n<2>x: forged\x9b")
    assert lines[-2].endswith(r"ValueError: \x1b[2Jb")
    assert "".join(lines).isprintable()
