import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from laggard_aggregator.demo.children import LEASH, Children
from tests.support.processes import is_running, run_command, started
from tests.support.wait import async_wait_until, wait_until

SLEEPER = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)")
DEAF = (
    sys.executable,
    "-c",
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)",
)


async def up(log: Path, lines: int) -> None:
    await async_wait_until(lambda: log.exists() and log.read_text().count("up") == lines)


def test_they_end_with_the_block(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def started() -> list[int]:
        async with Children() as children:
            pids = [await children.start(SLEEPER, log) for _ in range(2)]
            await up(log, 2)
            assert all(is_running(pid) for pid in pids)
            assert children.ended() == {}
        return pids

    assert not any(is_running(pid) for pid in asyncio.run(started()))


def test_one_that_does_not_listen_is_killed(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("laggard_aggregator.demo.children.TERM_SECONDS", 0.2)

    async def started() -> int:
        async with Children() as children:
            pid = await children.start(DEAF, tmp_path / "log")
            await up(tmp_path / "log", 1)
        return pid

    assert not is_running(asyncio.run(started()))


def test_one_that_ends_by_itself_is_told(tmp_path: Path) -> None:
    async def started() -> dict[int, int]:
        async with Children() as children:
            await children.start((sys.executable, "-c", "raise SystemExit(3)"), tmp_path / "log")
            await async_wait_until(children.ended)
            return children.ended()

    assert list(asyncio.run(started()).values()) == [3]


def test_none_outlives_a_parent_that_was_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from laggard_aggregator.demo.children import Children\n"
        "async def main():\n"
        "    async with Children() as children:\n"
        "        print(await children.start(sys.argv[2:], Path(sys.argv[1])), flush=True)\n"
        "        await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    with started([sys.executable, "-c", program, log, *SLEEPER], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        wait_until(lambda: log.exists() and "up" in log.read_text())
        parent.send_signal(signal.SIGKILL)
        wait_until(lambda: not is_running(pid))


def test_a_parent_that_is_gone_before_the_start(tmp_path: Path) -> None:
    not_our_parent = str(os.getpid() + 1)
    ran = run_command([sys.executable, str(LEASH), not_our_parent, *SLEEPER], check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
