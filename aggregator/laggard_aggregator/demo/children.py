"""Agent processes of the demo; none outlives it."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Sequence
from pathlib import Path
from typing import Self

LEASH = Path(__file__).with_name("leash.py")
TERM_SECONDS = 6.0  # an agent ends within 5 s of SIGTERM


class Children:
    """Processes that end with the `async with` block: SIGTERM first, SIGKILL for one that does not end.

    If this process is killed, the kernel kills them. They have a session of their own, so Ctrl-C in the
    terminal does not reach them directly.
    """

    def __init__(self) -> None:
        self._running: list[Process] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    async def start(self, command: Sequence[str], log: Path) -> int:
        """Starts `command` (absolute program path, arguments) with its output in `log`; returns its pid."""
        with log.open("ab") as said:
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), *command),
                stdin=DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        self._running.append(child)
        return child.pid

    def ended(self) -> dict[int, int]:
        """Exit status by pid of processes that ended by themselves."""
        return {child.pid: child.returncode for child in self._running if child.returncode is not None}

    async def end(self) -> None:
        """Ends all processes and waits for them."""
        running = [child for child in self._running if child.returncode is None]
        waits = [asyncio.create_task(child.wait()) for child in running]
        for child in running:
            child.terminate()
        if waits:
            await asyncio.wait(waits, timeout=TERM_SECONDS)
            for child in running:
                if child.returncode is None:
                    child.kill()
            await asyncio.wait(waits)
        self._running.clear()
