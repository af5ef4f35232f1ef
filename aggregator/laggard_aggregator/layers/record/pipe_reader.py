"""Reader of an instance's events: a thread that copies `trace_pipe` into a file, up to a limit."""

import os
import threading
import time
from typing import BinaryIO

from laggard_aggregator.layers.record.tracefs import TraceInstance
from laggard_common.errors import ServiceError

POLL_SECONDS = 0.01
END_SECONDS = 5.0
"""How long a reader empties its pipe after the end; events may come faster than it copies them."""


class PipeReader(threading.Thread):
    """Copies the events of an instance into `out`. Raises ServiceError if the pipe cannot be opened.

    `full`: the limit of bytes is reached. `problem`: why the thread ended early, or empty.
    """

    def __init__(self, instance: TraceInstance, out: BinaryIO, limit: int) -> None:
        super().__init__(name=f"trace of {instance.path.name}", daemon=True)
        try:
            self._pipe = os.open(instance.path / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as exc:
            raise ServiceError(f"{instance.path}: {exc.strerror}") from exc
        self._out = out
        self._left = limit
        self.full = threading.Event()
        self.problem = ""
        self._ending = threading.Event()
        self._until = 0.0

    def run(self) -> None:
        """Reads until `end` and until the pipe is empty, or `END_SECONDS` later."""
        try:
            while self._copied():
                pass
            self._out.flush()
        except OSError as exc:
            self.problem = f"the trace cannot be written: {exc.strerror or exc}"

    def _copied(self) -> bool:
        """Copies a block, or waits for one; False at the end."""
        if self._ending.is_set() and time.monotonic() >= self._until:
            return False
        try:
            block = os.read(self._pipe, 1 << 20)
        except BlockingIOError:
            block = b""
        if not block:
            if self._ending.is_set():
                return False
            time.sleep(POLL_SECONDS)
        elif self._left > 0:
            self._out.write(block)
            self._left -= len(block)
        else:
            self.full.set()
        return True

    def end(self) -> None:
        """Reads the rest and closes the pipe; an instance with an open pipe cannot be removed."""
        self._until = time.monotonic() + END_SECONDS
        self._ending.set()
        if self.is_alive():
            self.join()
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
