import argparse
import json
import math
import os
import pty
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from laggard_aggregator.alarms.overrides import Decision
from laggard_aggregator.cli import top
from laggard_aggregator.cli.client import Client
from laggard_aggregator.cli.main import main
from laggard_aggregator.cli.status import _located
from laggard_aggregator.status.view import ChannelView, Counters
from laggard_aggregator.web.app import make_app
from laggard_aggregator.web.server import HttpServer
from laggard_common.errors import ConfigError, ServiceError
from tests.support.builders import live_status
from tests.support.loop_thread import beside
from tests.support.processes import run_command, started
from tests.support.wait import LIMIT_SECONDS


@contextmanager
def served(view: live_status.MadeView) -> Iterator[str]:
    """The URL of a real server over `view`, in a thread of its own."""
    server = HttpServer(make_app(view), "127.0.0.1:0")
    server.bind()
    url = server.url
    with beside(server.run):
        yield url


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    top.add_arguments(parser)
    return top.run(parser.parse_args(arguments))


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.mark.usefixtures("wide")
def test_status_shows_comments_and_tickets(capsys: pytest.CaptureFixture[str]) -> None:
    ticket = "https://tickets.example.org/4711"
    made = (
        Decision("comment", "oss-1", "alice", live_status.NOW, math.inf, "firm\x1b[1mware", ticket),
        Decision("drain", "oss-2", "bob", live_status.NOW, math.inf, "", ticket),
    )
    with served(replace(live_status.site(), decisions_=made)) as url:
        assert main(["status", "--url", url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == [
        f"oss-1 commented by alice on 2025-10-09 09:01:40 UTC: firm\\x1b[1mware {ticket}",
        f"oss-2 drained by bob on 2025-10-09 09:01:40 UTC, until ended: {ticket}",
    ]


@pytest.mark.usefixtures("wide")
def test_status_names_located_causes(capsys: pytest.CaptureFixture[str]) -> None:
    with served(live_status.site()) as url:
        assert main(["status", "--url", url]) == 0
    located = [line for line in capsys.readouterr().out.splitlines() if line.startswith("located: ")]
    assert located == [
        "located: lun oss-1/sdb: the disk (await 4.0×)",
        "located: lun oss-3/wwn-5: the disk (await)",
        'located: lun oss-9/"odd\\name: the disk (await 4.0×)',
    ]


def test_a_located_node_is_cut_from_its_own_signs_alone() -> None:
    evidence = "await of oss-1 4.0×, await of oss-1/sdb 9.0×, all its disks together: the server"
    row = {"located_level": "server", "located_name": "oss-1", "evidence": evidence}
    said = "await 4.0×, await of oss-1/sdb 9.0×, all its disks together"
    assert list(_located([row])) == [f"located: server oss-1: the server ({said})"]


@pytest.mark.usefixtures("wide")
def test_the_ranking_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    with served(live_status.site()) as url:
        assert run("--url", url, "--json") == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (records[0]["record"], records[0]["name"]) == ("straggler", "oss-1/sdb")
    assert len(records) == 3


def test_the_ranking_of_a_real_server(capsys: pytest.CaptureFixture[str]) -> None:
    with served(live_status.site()) as url:
        assert run("--url", url, "--once") == 0
    shown = capsys.readouterr().out
    rows = [line.split() for line in shown.splitlines() if "luns" in line]
    assert rows[0][:9] == ["luns", "oss-1/sdb", "await", "4", "8", "ms", "2", "ms", "6"]
    assert rows[0][9:12] == ["2025-10-09", "08:56:40", "UTC"]
    assert rows[0][-1] == "yes"
    assert rows[1][:7] == ["luns", "oss-3/wwn-5", "await", "-", "-", "-", "2"]
    assert rows[2][1] == 'oss-9/"odd\\name'
    assert "3 stragglers among 5 components in 1 group" in shown
    assert "no verdict on storage/net/10 Gb: too few members" in shown


def test_a_pipe_gets_plain_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    with served(live_status.site()) as url:
        assert run("--url", url, "--once") == 0
    shown = capsys.readouterr().out
    assert shown.isascii(), "no box, no colour"
    title, heading, *rows = shown.splitlines()
    assert title.startswith("laggard, ")
    assert title.endswith(" UTC")
    assert re.split("  +", heading) == [
        *(
            "group",
            "component",
            "metric",
            "times slower",
            "own",
            "peers",
            "persistence",
            "since",
            "for",
            "alarm",
        )
    ]
    assert re.split("  +", rows[0])[:3] == ["luns", "oss-1/sdb", "await"]


def test_a_ranking_without_stragglers_has_no_headings(capsys: pytest.CaptureFixture[str]) -> None:
    with served(live_status.MadeView()) as url:
        assert run("--url", url, "--once") == 0
    title, remark = capsys.readouterr().out.splitlines()
    assert title.startswith("laggard, ")
    assert remark == "no stragglers among 0 components in 0 groups"


def test_times_are_in_utc_unless_the_local_zone_is_wanted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        with served(live_status.site()) as url:
            run("--url", url, "--once")
            assert "2025-10-09 08:56:40 UTC" in capsys.readouterr().out
            run("--url", url, "--once", "--local")
            assert "2025-10-09 10:56:40 CEST" in capsys.readouterr().out
    finally:
        monkeypatch.undo()
        time.tzset()


def test_names_are_whole_at_80_columns() -> None:
    long = "oss-0001/wwn-0x5000c500a1b2c3d4"
    view = live_status.MadeView()
    view.alarms_ = {key: value for value in (live_status.alarm("luns", long),) for key in (value.key,)}
    with served(view) as url:
        screen = top.screen(Client(url), live_status.NOW, width=80)
    lines = [line.text for line in screen]
    assert [line.style for line in screen][:3] == ["bold", "", "bold red"]
    assert max(map(len, lines)) <= 80
    assert long in lines[2]
    assert {"component", "times slower", "alarm"} <= set(re.split("  +", lines[1]))
    assert lines[3] == "(on a wider terminal also: group, metric, own, peers, persistence, for)"
    with served(view) as url:
        narrow = [line.text for line in top.screen(Client(url), live_status.NOW, width=40)]
    assert max(len(line) for line in narrow if long not in line and "times slower" not in line) <= 40


@pytest.mark.usefixtures("wide")
def test_an_alarm_before_the_first_window_after_a_restart_has_no_persistence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view = live_status.MadeView()
    alarm = live_status.alarm("luns", "oss-1/sda")
    view.alarms_ = {alarm.key: alarm}
    with served(view) as url:
        assert run("--url", url, "--once") == 0
    row = dict(
        zip(*(re.split("  +", line) for line in capsys.readouterr().out.splitlines()[1:3]), strict=True)
    )
    assert (row["component"], row["persistence"]) == ("oss-1/sda", "-")


@pytest.mark.usefixtures("wide")
def test_nothing_in_a_name_acts_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    view = live_status.MadeView(groups_=(live_status.group("g\x1b[2J", 4),))
    view.judgements_ = (live_status.unjudged("g\x1b[2J", ["a"], "too few members"),)
    hostile = "oss/\x1b]0;x\x07\x9b31m\u202esda"
    view.alarms_ = {key: value for value in (live_status.alarm("g\x1b[2J", hostile),) for key in (value.key,)}
    with served(view) as url:
        run("--url", url, "--once")
        out = capsys.readouterr().out
        assert out.replace("\n", "").isprintable()
        assert "oss/\\x1b]0;x\\x07\\x9b31m\\u202esda" in out
        assert main(["status", "--url", url]) == 0
    assert capsys.readouterr().out.replace("\n", "").isprintable()


def in_trouble(part: str) -> live_status.MadeView:
    durability = live_status.site().durability_
    assert durability is not None
    waiting = {"mail": ChannelView({}, 3, "192.0.2.1: Connection refused")}
    troubles: dict[str, live_status.MadeView] = {
        "journal": live_status.MadeView(durability_=replace(durability, whole=False)),
        "archive": live_status.MadeView(counters_=Counters(archive_failure="/a: No space left on device")),
        "windows": live_status.MadeView(counters_=Counters(window_lag_seconds=300.0)),
        "mail": live_status.MadeView(counters_=Counters(notifications=waiting)),
    }
    return troubles[part]


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("journal", "journal cannot be written"),
        ("archive", "archive cannot be written: /a: No space left on device"),
        ("windows", "windows are judged 5 min late"),
        ("mail", "mail waits: 192.0.2.1: Connection refused"),
    ],
)
def test_status_names_what_is_in_trouble(part: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with served(in_trouble(part)) as url:
        assert main(["status", "--url", url, "--check"]) == 1
        assert capsys.readouterr().out.splitlines()[:2] == ["ready, but in trouble:", f"  {said}"]
        assert main(["status", "--url", url]) == 0
    with served(live_status.MadeView()) as url:
        assert main(["status", "--url", url, "--check"]) == 0


@pytest.mark.parametrize("command", [["top", "--once"], ["status"], ["status", "--json"]])
def test_a_full_disk_is_one_line(command: list[str]) -> None:
    with served(live_status.site()) as url, Path("/dev/full").open("w") as full:
        called = [sys.executable, "-m", "laggard_aggregator.cli.main", *command, "--url", url]
        ended = run_command(called, check=False, stdout=full)
    assert (ended.returncode, ended.stderr) == (
        1,
        f"laggard {command[0]}: standard output: No space left on device\n",
    )


@pytest.mark.usefixtures("wide")
def test_names_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    view = live_status.MadeView()
    hostile = "[red]oss[/]/[link=http://evil]x"
    view.alarms_ = {key: value for value in (live_status.alarm("g", hostile),) for key in (value.key,)}
    with served(view) as url:
        run("--url", url, "--once")
    assert hostile in capsys.readouterr().out


def test_no_server_is_one_clear_line() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(ServiceError, match=f"^{url}: no answer: Connection refused$") as caught:
            run("--url", url, "--once")
    assert caught.value.exit_code == 1


def test_another_kind_of_server_is_one_clear_line() -> None:
    with (
        served(live_status.MadeView()) as url,
        pytest.raises(ServiceError, match="answered 404 Not Found") as caught,
    ):
        run("--url", f"{url}/elsewhere", "--once")
    assert "\n" not in str(caught.value)


def test_an_answer_that_is_not_http() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"220 mail.example ESMTP\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(ServiceError, match="not a laggard aggregator's answer"):
            run("--url", url, "--once")
        thread.join()


@pytest.mark.parametrize("url", ["127.0.0.1:9464", "ftp://host", "http://", "http://host:port"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ConfigError, match="--url: ") as caught:
        run("--url", url, "--once")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-1.0, "0 s"), (59.9, "59 s"), (90.0, "1.5 min"), (5400, "1.5 h"), (129600, "1.5 d")],
)
def test_durations(seconds: float, shown: str) -> None:
    assert top._duration(seconds) == shown


def test_ctrl_c_ends_the_live_ranking_cleanly() -> None:
    """On a terminal of its own: the first screen comes, Ctrl-C ends it with 0 and no traceback."""
    program = (
        "import argparse, sys\n"
        "from laggard_aggregator.cli import top\n"
        "parser = argparse.ArgumentParser()\n"
        "top.add_arguments(parser)\n"
        "sys.exit(top.run(parser.parse_args(sys.argv[1:])))\n"
    )
    with served(live_status.site()) as url:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-c", program, "--url", url]
        seen = b""
        with started(command, stdin=theirs, stdout=theirs, stderr=theirs) as child:
            os.close(theirs)
            while b"too few members" not in seen:
                seen += os.read(ours, 65536)
            child.send_signal(signal.SIGINT)
            with suppress(OSError):  # the terminal's other end is closed
                while data := os.read(ours, 65536):
                    seen += data
            assert child.wait(LIMIT_SECONDS) == 0
        os.close(ours)
    assert b"Traceback" not in seen
