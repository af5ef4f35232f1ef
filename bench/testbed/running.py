"""Processes that are to run for as long as what they belong to."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.testbed.luns import TestbedError


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
