"""Ticks and readings by liblaggardcapture.so (native/capture.c), which wakes the interpreter once a batch.

Waking once a second costs an interpreter several times what it reads for. The library waits for the ticks,
reads the files at each into memory that both see, and comes back when the batch ends or when a tick is not
an ordinary one: a clock was set, ticks were missed, a file could not be read, there is no room. That tick it
leaves to `Timeline.take` and `Captures.take`, whose twin it is.
"""

import ctypes
import logging
import mmap
import struct
import threading
from collections import deque
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import NamedTuple

from laggard_agent.collectors.capture import Capture, Captured, Captures
from laggard_agent.sampling.timeline import TimelineState

_log = logging.getLogger(__name__)

LIBRARY = Path(__file__).with_name("liblaggardcapture.so")
BUFFER_BYTES = 1024 * 1024  # of which only what is used is ever in memory
_LAYOUT = 2
_TICK = struct.Struct("=qqqq")
_CAPTURED = struct.Struct("=qq")


class File(ctypes.Structure):
    """`struct laggard_file`."""

    path: bytes
    fd: int
    lines: int
    _fields_ = (("path", ctypes.c_char_p), ("fd", ctypes.c_int64), ("lines", ctypes.c_int64))


class System(ctypes.Structure):
    """`struct laggard_system`: clocks and waiting, for tests."""

    MONOTONIC_NS = WALL_NS = ctypes.CFUNCTYPE(ctypes.c_int64)
    WAIT = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
    _fields_ = (("monotonic_ns", MONOTONIC_NS), ("wall_ns", WALL_NS), ("wait", WAIT))


class CapturingState(ctypes.Structure):
    """`struct laggard_capturing`."""

    last_ns: int
    used_bytes: int
    reading_since_ns: int
    _fields_ = (
        ("timeline", ctypes.POINTER(TimelineState)),
        ("files", ctypes.POINTER(File)),
        ("buffer", ctypes.c_void_p),
        ("system", ctypes.POINTER(System)),
        ("file_count", ctypes.c_int64),
        ("buffer_bytes", ctypes.c_int64),
        ("last_ns", ctypes.c_int64),
        ("measures_cpu", ctypes.c_int64),
        ("used_bytes", ctypes.c_int64),
        ("reading_since_ns", ctypes.c_int64),
        ("stop", ctypes.c_uint32),
    )


class Came(IntEnum):
    """Why the library came back."""

    STOPPED = 0
    ENDED = 1
    LEFT = 2


class Taken(NamedTuple):
    """What was read at the tick at `tick_ns`, and how long that took."""

    tick_ns: int
    took_ns: int
    capture: Capture


@cache
def library(path: Path = LIBRARY) -> ctypes.CDLL | None:
    """The library, None where it is not installed or cannot be used here, which is said once."""
    try:
        found = ctypes.CDLL(str(path))
        layout = found.laggard_capture_layout
        layout.restype = ctypes.c_int64
        if layout() != _LAYOUT:
            raise OSError(f"of another version ({layout()}, not {_LAYOUT})")
    except (OSError, AttributeError) as exc:
        why = "not installed" if not path.exists() else str(exc)
        _log.info("%s: %s; the interpreter does its work, at more CPU", path.name, why)
        return None
    found.laggard_capture.restype = found.laggard_captured_bytes.restype = ctypes.c_int64
    found.laggard_stop.restype = None
    return found


class Compiled:
    """Takes ticks of a timeline and reads the files of `captures` at each.

    `take` belongs to the thread whose timeline it is, everything else to any.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        captures: Captures,
        timeline: TimelineState,
        *,
        buffer_bytes: int = BUFFER_BYTES,
        system: System | None = None,
    ) -> None:
        self._captures = captures
        self._buffer = mmap.mmap(-1, buffer_bytes)
        self._files = (File * len(captures.files))()
        self._system = system
        self._state = CapturingState(
            timeline=ctypes.pointer(timeline),
            files=self._files,
            buffer=ctypes.addressof(ctypes.c_char.from_buffer(self._buffer)),
            system=None if system is None else ctypes.pointer(system),
            file_count=len(captures.files),
            buffer_bytes=buffer_bytes,
            measures_cpu=captures.measures_cpu,
        )
        self._at = ctypes.byref(self._state)
        self._run = library.laggard_capture
        self._stop = library.laggard_stop
        self._used = library.laggard_captured_bytes
        self._fetched_bytes = 0
        self._fetching = threading.Lock()

    @property
    def reading_since_ns(self) -> int | None:
        """Since when it reads, on the monotonic clock; None while it does not."""
        return self._state.reading_since_ns or None

    def can_take(self) -> bool:
        """Whether the files could all be read the last time."""
        return self._captures.lines is not None

    def take(self, last_ns: int) -> Came:
        """Takes ticks up to the one at `last_ns`, or up to one at which lines come or go."""
        captures, state = self._captures, self._state
        with self._fetching:
            if self._fetched_bytes == state.used_bytes:
                self._fetched_bytes = state.used_bytes = 0
        state.last_ns = last_ns
        for to, file, lines in zip(self._files, captures.files, captures.lines or (), strict=True):
            to.path, to.fd, to.lines = file.path_bytes, file.fd, lines
        came = Came(self._run(self._at))
        captures.lines = [file.lines for file in self._files]
        return came

    def stop(self) -> None:
        """Lets `take` return."""
        self._stop(self._at)

    def fetch(self, to: deque[Taken]) -> None:
        """Appends what was read since the last time, oldest first; also while a reading does not return."""
        with self._fetching:
            end = self._used(self._at)
            while self._fetched_bytes < end:
                to.append(self._next())

    def _next(self) -> Taken:
        buffer, at = self._buffer, self._fetched_bytes
        time_ns, took_ns, cpu_ns, is_last = _TICK.unpack_from(buffer, at)
        at += _TICK.size
        text_at = at + len(self._files) * _CAPTURED.size
        begin = text_at
        files = []
        for at_ns, size in _CAPTURED.iter_unpack(buffer[at:text_at]):
            files.append(Captured(at_ns, buffer[begin : begin + size], None))
            begin += size
        self._fetched_bytes = (begin + 7) & ~7
        return Taken(time_ns, took_ns, Capture(files, begin - text_at, not is_last, cpu_ns))
