import asyncio
from pathlib import Path

from laggard_aggregator.app import App
from laggard_aggregator.runtime.loops import Watchdog
from laggard_common.daemon.sd_notify import Notifier
from tests.support.aggregator import running, settings
from tests.support.service_manager import manager, told
from tests.support.wait import time_limit


def test_a_sign_of_life_needs_every_loop_to_have_moved_or_to_be_idle(tmp_path: Path) -> None:
    ingest = 0
    windows = 0
    ingest_idle = False
    with manager(address := str(tmp_path / "notify")) as listening:
        liveness = Watchdog(
            Notifier(address, 60.0),
            progress=lambda: (None if ingest_idle else ingest, windows),
            status=lambda: "",
        )
        assert not liveness.check()
        windows += 1
        assert not liveness.check()
        ingest += 1
        assert told(listening) == []
        assert liveness.check()
        assert told(listening) == [["WATCHDOG=1"]]
        assert not liveness.check()
        ingest_idle = True
        assert not liveness.check()
        windows += 1
        assert liveness.check()


def test_an_aggregator_tells_that_it_serves_and_that_it_lives(tmp_path: Path) -> None:
    async def story() -> list[list[str]]:
        heard: list[list[str]] = []
        async with running(App(settings(), notifier=Notifier(address, watchdog_seconds=2.0))), time_limit():
            while sum(lines == ["WATCHDOG=1"] for lines in heard) < 2:
                heard += told(listening)
                await asyncio.sleep(0.01)
        return heard + told(listening)

    with manager(address := str(tmp_path / "notify")) as listening:
        heard = asyncio.run(story())
    assert heard[0][0] == "READY=1"
    assert heard[0][1].startswith("STATUS=0 alarms, 0 of 0 nodes up, ")
    assert any(lines[0].startswith("STATUS=") and " connected to " in lines[0] for lines in heard[1:])
