import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from laggard_aggregator.demo.children import LEASH, Children
from tests.support.processes import run_command
from tests.support.wait import async_wait_until

SLEEPER = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)")
DEAF = (
    sys.executable,
    "-c",
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
)


def alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet waited for does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def wait_for(condition, seconds: float = 10.0) -> bool:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())


async def up(log: Path, lines: int) -> None:
    assert await asyncio.to_thread(wait_for, lambda: log.exists() and log.read_text().count("up") == lines)


def test_they_end_with_the_block(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def started() -> list[int]:
        async with Children() as children:
            pids = [await children.start(SLEEPER, log) for _ in range(2)]
            await up(log, 2)
            assert all(alive(pid) for pid in pids)
            assert children.ended() == {}
        return pids

    assert not any(alive(pid) for pid in asyncio.run(started()))


def test_one_that_does_not_listen_is_killed(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("laggard_aggregator.demo.children.TERM_SECONDS", 0.2)

    async def started() -> int:
        async with Children() as children:
            pid = await children.start(DEAF, tmp_path / "log")
            await up(tmp_path / "log", 1)
        return pid

    assert not alive(asyncio.run(started()))


def test_one_that_ends_by_itself_is_told(tmp_path: Path) -> None:
    async def started() -> dict[int, int]:
        async with Children() as children:
            await children.start((sys.executable, "-c", "raise SystemExit(3)"), tmp_path / "log")
            await async_wait_until(children.ended)
            return children.ended()

    assert list(asyncio.run(started()).values()) == [3]


def test_none_outlives_a_parent_that_was_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import asyncio, sys\n"
            "from pathlib import Path\n"
            "from laggard_aggregator.demo.children import Children\n"
            "async def main():\n"
            "    async with Children() as children:\n"
            "        print(await children.start(sys.argv[2:], Path(sys.argv[1])), flush=True)\n"
            "        await asyncio.sleep(60)\n"
            "asyncio.run(main())\n",
            str(log),
            *SLEEPER,
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert wait_for(lambda: log.exists() and "up" in log.read_text())
        parent.send_signal(signal.SIGKILL)
    assert wait_for(lambda: not alive(pid))


def test_a_parent_that_is_gone_before_the_start(tmp_path: Path) -> None:
    not_our_parent = str(os.getpid() + 1)
    ran = run_command([sys.executable, str(LEASH), not_our_parent, *SLEEPER], check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
