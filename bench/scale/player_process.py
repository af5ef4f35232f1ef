"""The agents' process as whoever started it sees it."""

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any


class Playing:
    """A running `bench.scale.player`. `said`: the latest line of it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: dict[str, Any] = {"what": "coming up"}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def over(self) -> bool:
        """Whether everything was sent and acknowledged, or given up, or the process has failed."""
        return self.said["what"] == "over" or self.process.poll() is not None

    def begin(self) -> None:
        """Lets the agents sample."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said = json.loads(line)


@contextlib.contextmanager
def playing(port: int, nodes: int, own: int, seconds: float) -> Iterator[Playing]:
    """The agents while the body runs."""
    arguments = map(str, (port, nodes, own, seconds))
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.scale.player", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    agents = Playing(process)
    try:
        yield agents
    finally:
        assert process.stdin is not None
        if agents.over:
            process.stdin.close()
        else:
            process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
