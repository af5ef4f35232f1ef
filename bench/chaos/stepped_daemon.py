"""An agent or an aggregator whose wall clock can be stepped.

    python -P stepped_daemon.py agent CLOCK CONFIG PROCFS
    python -P stepped_daemon.py aggregator CLOCK CONFIG

CLOCK is a file of 8 bytes, nanoseconds (little-endian, signed) that its wall clock is ahead of the host's.
Apart from that it is the daemon that `laggard-agent` or `laggard-aggregator` runs.
"""

import asyncio
import logging
import mmap
import signal
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from laggard_common.clock import SystemClock
from laggard_common.config import load
from laggard_common.daemon import logs, memory

_OFFSET = struct.Struct("<q")


class SteppedClock(SystemClock):
    """The host's clocks, the wall clock ahead by what the file at `path` says now."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._offset = mmap.mmap(file.fileno(), _OFFSET.size, prot=mmap.PROT_READ)

    def wall_ns(self) -> int:
        """Nanoseconds since the epoch."""
        return super().wall_ns() + int(_OFFSET.unpack_from(self._offset)[0])


def step(path: Path, offset_ns: int) -> None:
    """Sets the clock of the daemon that reads `path`, made if need be."""
    path.touch()
    with path.open("r+b", buffering=0) as file:
        file.write(_OFFSET.pack(offset_ns))


def _run_agent(clock: SteppedClock, config: Path, procfs: Path) -> None:
    from laggard_agent.app import App
    from laggard_agent.cli import MOST_KEPT_BYTES
    from laggard_agent.collectors.interface import Roots
    from laggard_agent.settings import AgentSettings

    async def serve() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        roots = Roots(procfs=procfs, sysfs=None, debugfs=None)
        await App(load(AgentSettings, config), roots, clock=clock).run(stop)

    logs.configure(logging.INFO)
    memory.settle(MOST_KEPT_BYTES)
    asyncio.run(serve())


def _run_aggregator(clock: SteppedClock, config: Path) -> None:
    from laggard_aggregator import app
    from laggard_aggregator.cli import daemon

    setattr(app, "SystemClock", lambda: clock)  # noqa: B010 - replaced in this process alone
    sys.exit(daemon.main(["--config", str(config)]))


if __name__ == "__main__":
    _kind, _clock, *_paths = sys.argv[1:]
    _run: Callable[..., None] = _run_agent if _kind == "agent" else _run_aggregator
    _run(SteppedClock(Path(_clock)), *map(Path, _paths))
