"""The site's processes: started again as a service manager would, and ended by pid."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from laggard_aggregator.demo.children import LEASH


@dataclass(slots=True)
class Life:
    """One run of a process; epoch nanoseconds. `killed`: it was not asked to end."""

    pid: int
    started_ns: int
    ended_ns: int | None = None
    killed: bool = False


@dataclass(slots=True)
class Process:
    """`command`, an absolute path first, which says all it has to say into `log`.

    None outlives this process.
    """

    name: str
    command: Sequence[str]
    log: Path
    lives: list[Life] = field(default_factory=list)
    _running: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the life that lasts, or of the last one."""
        return self.lives[-1].pid

    @property
    def runs(self) -> bool:
        """Whether it is there; one that ended without being asked to is not."""
        return self._running is not None and self._running.poll() is None

    def start(self) -> None:
        """Starts it, unless it runs."""
        if self.runs:
            return
        leash = (sys.executable, "-I", "-S", str(LEASH), str(os.getpid()))
        with self.log.open("ab") as said:
            self._running = subprocess.Popen(
                [*leash, *self.command], stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
        self.lives.append(Life(self._running.pid, time.time_ns()))

    def kill(self) -> None:
        """Ends it at once."""
        self._end(signal.SIGKILL, 30.0)

    def stop(self, seconds: float = 20.0) -> None:
        """Asks it to end, and insists after so long."""
        self.resume()
        self._end(signal.SIGTERM, seconds)

    def stall(self) -> None:
        """Lets it stand still until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on."""
        self._signal(signal.SIGCONT)

    def resident_bytes(self) -> int | None:
        """Its resident memory; None when it is not there."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return None
        return pages * os.sysconf("SC_PAGE_SIZE") if self.runs else None

    def descriptors(self) -> int:
        """Its open file descriptors; 0 when it is not there."""
        try:
            return len(os.listdir(f"/proc/{self.pid}/fd"))  # noqa: PTH208 - no objects
        except OSError:
            return 0

    def _signal(self, number: signal.Signals) -> None:
        if self._running is not None and self._running.poll() is None:
            self._running.send_signal(number)

    def _end(self, number: signal.Signals, seconds: float) -> None:
        if self._running is None:
            return
        life, asked = self.lives[-1], self._running.poll() is None
        self._signal(number)
        try:
            self._running.wait(seconds)
        except subprocess.TimeoutExpired:
            self._running.kill()
            self._running.wait()
            asked = False
        life.ended_ns, life.killed = time.time_ns(), number == signal.SIGKILL or not asked
        self._running = None
