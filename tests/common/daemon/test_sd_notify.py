import os
import secrets
from pathlib import Path

import pytest

from laggard_common.daemon.sd_notify import Notifier
from tests.support.service_manager import manager, told


@pytest.mark.parametrize("abstract", [False, True])
def test_a_service_s_life_is_told(tmp_path: Path, abstract: bool) -> None:
    address = f"@laggard-{secrets.token_hex(8)}" if abstract else str(tmp_path / "notify")
    with manager(address) as listening:
        notifier = Notifier.of_environment({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "30000000"})
        assert notifier.watchdog_seconds == 30
        notifier.ready("sampling")
        notifier.ready("sampling")
        notifier.alive()
        notifier.status("sampling")
        notifier.status("2 alarms")
        notifier.reloading()
        notifier.ready("new")
        notifier.stopping()
        ready, alive, status, reloading, again, stopping = told(listening)
        assert ready == ["READY=1", "STATUS=sampling"]
        assert alive == ["WATCHDOG=1"]
        assert status == ["STATUS=2 alarms"]
        assert reloading[0] == "RELOADING=1"
        assert reloading[1].startswith("MONOTONIC_USEC=")
        assert int(reloading[1].partition("=")[2]) > 0
        assert again == ["READY=1", "STATUS=new"]
        assert stopping[0] == "STOPPING=1"


def test_without_a_watchdog_there_are_no_pings(tmp_path: Path) -> None:
    with manager(address := str(tmp_path / "notify")) as listening:
        Notifier(address).alive()
        assert told(listening) == []


def test_a_status_says_nothing_but_itself(tmp_path: Path) -> None:
    with manager(address := str(tmp_path / "notify")) as listening:
        Notifier(address).status("x\nWATCHDOG=trigger\r" + "y" * 10_000)
        ((line,),) = told(listening)
        assert line.startswith("STATUS=x WATCHDOG=trigger y")
        assert len(line) < 600


@pytest.mark.parametrize("address", ["", "vsock:2:1234", "relative"])
def test_who_was_not_started_by_a_manager_tells_nobody(address: str) -> None:
    notifier = Notifier.of_environment({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000000"})
    assert notifier.watchdog_seconds is None
    notifier.ready()
    notifier.stopping()


def test_a_manager_that_is_gone_is_no_error(tmp_path: Path) -> None:
    Notifier(str(tmp_path / "gone"), 1.0).alive()
    Notifier("/" + "x" * 200).ready()


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({"WATCHDOG_USEC": "500000"}, 0.5),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": str(os.getpid())}, 0.5),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": str(os.getpid() + 1)}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_the_one_of_this_process(environ: dict[str, str], seconds: float | None) -> None:
    assert Notifier.of_environment({"NOTIFY_SOCKET": "@x", **environ}).watchdog_seconds == seconds
