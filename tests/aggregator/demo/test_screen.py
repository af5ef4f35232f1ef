import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from laggard_aggregator.demo.episodes import Episode
from laggard_aggregator.demo.screen import Screen, State, summary
from tests.support.builders import live_status

LUNS = ("oss-1/wwn-1", "oss-1/wwn-2", "oss-2/wwn-3", "oss-2/wwn-4", "oss-3/wwn-5", "oss-4/new")


def state(second: float) -> State:
    return State(
        second=second,
        seconds=660,
        speed=10,
        components=LUNS,
        episodes=[Episode("oss-1/wwn-2", 270, "has been 21 times slower than its peers since second 180")],
        remarks=("this machine: no verdict: too few members",),
    )


def shown(console: Console, *seconds: float) -> str:
    with Screen(console, live_status.site(), "luns") as screen:
        for second in seconds:
            screen.show(state(second))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_on_a_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=130)
    text = shown(console, 245.0)
    assert "second 245 of 660, replayed at 10x the speed" in text
    rows = {cells[0]: cells[1:] for line in text.splitlines() if (cells := line.replace("│", " ").split())}
    assert rows["oss-1/wwn-2"] == ["ALARM", "8.00", "ms", "2.00", "ms", "4.0", "30.00", "6"]
    assert rows["oss-2/wwn-4"][0] == "ok"
    assert rows["oss-3/wwn-5"] == ["-"]  # not judged
    assert rows["oss-4/new"] == ["-"]  # not known yet
    assert (
        "laggard: alarm on oss-1/wwn-2: it has been 21 times slower than its peers since second 180; " in text
    )
    assert "raised at second 270, not cleared yet" in text
    assert "this machine: no verdict: too few members" in text


def test_plain_lines_elsewhere() -> None:
    console = Console(file=io.StringIO(), width=80)
    text = shown(console, 0.0, 1.0, 59.0, 61.0, 62.0, 200.0)
    assert [line.split(":")[0] for line in text.splitlines()] == [
        "laggard",
        "second 0 of 660",
        "second 61 of 660",
        "second 200 of 660",
    ]
    assert "\x1b" not in text
    assert "slowest oss-1/wwn-2, await 8.00 ms, its peers 2.00 ms" in text


@pytest.mark.parametrize("terminal", [True, False])
def test_names_act_on_no_terminal(terminal: bool) -> None:
    hostile = "oss-1/\x1b]0;t\x07\x9b[red]x"
    shown_state = replace(
        state(61.0),
        components=(hostile,),
        episodes=[Episode(hostile, 270, "is slow")],
        remarks=(f"this machine: {hostile}",),
    )
    console = Console(file=io.StringIO(), force_terminal=terminal, color_system=None, width=150)
    with Screen(console, live_status.site(), "luns") as screen:
        screen.show(shown_state)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert r"oss-1/\x1b]0;t\x07\x9b[red]x" in text
    assert "\x1b]" not in text
    assert not {"\x07", "\x9b"} & set(text)


def test_what_is_said_without_a_verdict() -> None:
    assert summary(None) == "no window has closed yet"
    assert summary(live_status.unjudged("g", ("a", "b"), "too few members")) == "no verdict: too few members"


def test_names_are_whole_at_80_columns() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=80)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "\n", shown(console, 245.0))
    lines = [line.rstrip() for line in text.splitlines()]
    assert max(map(len, lines)) <= 80
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    heading = next(line for line in lines if "LUN" in line).split()
    assert heading == ["LUN", "state", "await", "peers", "times", "slower", "score", "persistence"]
    for name in LUNS:
        assert any(name in line for line in lines), name
    assert any("ALARM" in line and "oss-1/wwn-2" in line and line.endswith("6") for line in lines)


def test_on_a_narrow_terminal_the_names_and_states_stay() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=40)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "\n", shown(console, 245.0)).splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 40
    assert next(line.split() for line in lines if "LUN" in line) == ["LUN", "state", "await"]
    for name in LUNS:
        assert any(line.startswith(name) for line in lines), name


def test_after_the_recording_seconds_are_counted_from_its_end() -> None:
    assert state(739.0).where == "79 s after the end of the recording, whose last part is repeated"
    assert state(600.0).where == "second 600 of 660"
    found = Episode("oss-08/loop27", 270, "was slow", 739.0)
    assert found.described(660).endswith("raised at second 270, cleared 79 s after the end of the recording")
    assert found.described(800).endswith("raised at second 270, cleared at second 739")
