import argparse
import os
import pty
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from laggard_aggregator.cli import top
from laggard_aggregator.web.app import make_app
from laggard_aggregator.web.server import HttpServer
from laggard_common.errors import ConfigError, ServiceError
from tests.support.builders import live_status
from tests.support.loop_thread import beside
from tests.support.processes import started
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
def test_the_ranking_of_a_real_server(capsys: pytest.CaptureFixture[str]) -> None:
    with served(live_status.site()) as url:
        assert run("--url", url, "--once") == 0
    shown = capsys.readouterr().out
    rows = [line.replace("│", " ").split() for line in shown.splitlines() if "luns" in line]
    assert rows[0][:9] == ["luns", "oss-1/sdb", "await", "4", "8", "ms", "2", "ms", "6"]
    assert rows[0][9:11] == ["2025-10-09", "08:56:40"]
    assert rows[0][-1] == "yes"
    assert rows[1][:7] == ["luns", "oss-3/wwn-5", "await", "-", "-", "-", "2"]
    assert rows[2][1] == 'oss-9/"odd\\name'
    assert "3 stragglers among 7 components in 2 groups" in shown
    assert "no verdict on storage/net/10 Gb: too few members" in shown


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
