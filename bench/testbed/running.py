"""Processes that are to run for as long as what they belong to."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from bench.testbed.luns import TestbedError

WAIT_SECONDS = 120.0


class Running:
    """The processes of something, with the file that each of them speaks into."""

    def __init__(self) -> None:
        self._processes: dict[Path, subprocess.Popen[bytes]] = {}

    def add(self, started: subprocess.Popen[bytes], log: Path) -> None:
        """Take in a process of it; `log` is named after the process."""
        self._processes[log] = started

    def check(self) -> None:
        """Raise TestbedError, with its last words, when one of its processes has ended."""
        for log, started in self._processes.items():
            if started.poll() is not None:
                said = log.read_text(errors="replace").strip().splitlines()[-1:]
                raise TestbedError(f"{log.stem} ended with {started.returncode}: {''.join(said)}")


def until(what: str, condition: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
    """Return once `condition` holds, asked five times a second. Raises TestbedError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TestbedError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.2)
