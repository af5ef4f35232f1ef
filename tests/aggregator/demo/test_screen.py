import io

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
        episodes=[Episode("oss-1/wwn-2", 180, 270, 21.3)],
        remarks=("this machine: no verdict: too few members",),
    )


def shown(console: Console, *seconds: float) -> str:
    with Screen(console, live_status.site(), "luns") as screen:
        for second in seconds:
            screen.show(state(second))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_on_a_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=120)
    text = shown(console, 245.0)
    assert "second 245 of 660, replayed at 10x the speed" in text
    rows = {cells[0]: cells[1:] for line in text.splitlines() if (cells := line.replace("│", " ").split())}
    assert rows["oss-1/wwn-2"] == ["ALARM", "8.00", "ms", "2.00", "ms", "4.0", "30.00", "6"]
    assert rows["oss-2/wwn-4"][0] == "ok"
    assert rows["oss-3/wwn-5"] == ["-"]  # not judged
    assert rows["oss-4/new"] == ["-"]  # not known yet
    assert "laggard: alarm on oss-1/wwn-2: 21.3 times slower than peers, since second 180, " in text
    assert "raised at second 270, stands" in text
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


def test_what_is_said_without_a_verdict() -> None:
    assert summary(None) == "no window has closed yet"
    assert summary(live_status.unjudged("g", ("a", "b"), "too few members")) == "no verdict: too few members"
