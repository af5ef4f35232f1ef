"""Requests of one layer as numpy columns, and a recording as its layers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

ABSENT = np.iinfo(np.int64).min
"""A time, thread or offset that the trace does not have."""
READ, WRITE, OTHER = 0, 1, 2
OPERATIONS = {"read": READ, "write": WRITE}

Ints = NDArray[np.int64]

_RANKS = {
    "application": 0,
    "mpiio": 10,
    "library": 10,
    "message": 10,
    "client": 15,
    "server": 20,
    "pvfs2": 20,
    "aio": 22,
    "posix": 25,
    "stdio": 24,
    "syscall": 30,
    "fs": 40,
    "block": 50,
    "device": 60,
}
UNKNOWN_RANK = 12
STACK_STEP = 20
"""Added to the rank of block and device for every device that lies on another one."""


@dataclass(slots=True)
class RequestColumns:
    """Requests of a layer, each array with one value a request. Times are ns; `ABSENT` where unknown.

    `start` and `size`: byte range asked for, in the address space `space` (index of a file or device, -1
    unknown). `done`: bytes that the layer below returned, -1 unknown. `issues`: ISSUE events of the request.
    `is_lost`: the recorder lost its end, so until when it was outstanding is unknown.
    """

    admit: Ints
    issue: Ints
    complt: Ints
    callback: Ints
    space: NDArray[np.int32]
    start: Ints
    size: Ints
    done: Ints
    operation: NDArray[np.int8]
    thread: Ints
    process: Ints
    fd: NDArray[np.int32]
    issues: NDArray[np.int32]
    is_lost: NDArray[np.bool_]

    @classmethod
    def of(cls, count: int, **given: NDArray[np.generic]) -> Self:
        """Columns of `count` requests from the arrays given; the others hold "unknown"."""
        known: dict[str, NDArray[np.generic]] = {}
        for name, (dtype, unknown) in _DEFAULTS.items():
            if name in given:
                known[name] = np.ascontiguousarray(given[name]).astype(dtype, copy=False)
            else:
                known[name] = np.full(count, unknown, dtype)
            if len(known[name]) != count:
                raise ValueError(f"{name}: {len(known[name])} values, expected {count}")
        return cls(**known)  # type: ignore[arg-type]

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The requests of all parts, in their order."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls.of(0)
        names = [column.name for column in fields(cls)]
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})

    def where(self, chosen: NDArray[np.bool_] | Ints) -> Self:
        """The requests at a mask or at indexes."""
        return type(self)(**{column.name: getattr(self, column.name)[chosen] for column in fields(self)})

    def __len__(self) -> int:
        return len(self.admit)

    @property
    def begin_ns(self) -> Ints:
        """Admission; where it was not traced, the first event that was."""
        times = self.admit
        for other in (self.issue, self.complt, self.callback):
            missing = times == ABSENT
            if not missing.any():
                break
            times = np.where(missing, other, times)
        return times

    @property
    def end(self) -> Ints:
        """Callback, else completion; `ABSENT` for an unfinished request."""
        return np.where(self.callback == ABSENT, self.complt, self.callback)

    def shifted(self, by_ns: int) -> Self:
        """The same requests on a clock that is `by_ns` ahead."""
        moved = {
            name: np.where(getattr(self, name) == ABSENT, ABSENT, getattr(self, name) + by_ns)
            for name in ("admit", "issue", "complt", "callback")
        }
        kept = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in moved}
        return type(self)(**moved, **kept)


_DEFAULTS: dict[str, tuple[type[np.generic], int]] = {
    "admit": (np.int64, ABSENT),
    "issue": (np.int64, ABSENT),
    "complt": (np.int64, ABSENT),
    "callback": (np.int64, ABSENT),
    "space": (np.int32, -1),
    "start": (np.int64, -1),
    "size": (np.int64, 0),
    "done": (np.int64, -1),
    "operation": (np.int8, OTHER),
    "thread": (np.int64, -1),
    "process": (np.int64, -1),
    "fd": (np.int32, -1),
    "issues": (np.int32, 0),
    "is_lost": (np.bool_, 0),
}


class NameTable:
    """Names of files and devices, each with a small index."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._index: dict[str, int] = {}

    def index(self, name: str) -> int:
        """The index of `name`, added if it is new."""
        number = self._index.get(name)
        if number is None:
            number = self._index[name] = len(self.names)
            self.names.append(name)
        return number

    def indexes(self, names: Iterable[str]) -> NDArray[np.int32]:
        """The indexes of several names."""
        return np.fromiter((self.index(name) for name in names), np.int32)


@dataclass(slots=True)
class TracedLayer:
    """One layer of a recording. `device`: number (`7,0`) of block and device layers.

    `clock`: name of the clock that stamped it; layers of one clock need no offset. `stamped`: its ISSUE and
    COMPLT events are its own, not derived from the layer below. `resolution_ns`: step of its times.
    `durations`: it has begins and durations, each rounded, so an end may be a step late. `openings`: of
    system calls, descriptors (process * 2^32 + fd) and the times at which they were opened or closed.
    `folder`: of the file that has the layer.
    """

    name: str
    requests: RequestColumns
    rank: int
    device: str = ""
    clock: str = ""
    stamped: bool = False
    resolution_ns: int = 1
    durations: bool = False
    left_out: dict[str, int] = field(default_factory=dict)
    openings: tuple[Ints, Ints] | None = None
    folder: str = ""

    @property
    def label(self) -> str:
        """Name for people: `block 7,0`."""
        shown = "system call" if self.name == "syscall" else self.name
        return f"{shown} {self.device}" if self.device else shown


@dataclass(frozen=True, slots=True)
class ToldLayers:
    """What events of one kind tell: layers, remarks, and how many of the events are missing."""

    layers: Sequence[TracedLayer] = ()
    remarks: Sequence[str] = ()
    lost: int = 0


def rank_of(name: str) -> int:
    """Place of a layer in the stack: higher is closer to the device."""
    return _RANKS.get(name.lower(), UNKNOWN_RANK)


@dataclass(frozen=True, slots=True)
class ExtentMap:
    """Blocks of one file on a device, as `filefrag -v` prints them: arrays of bytes, ordered by `logical`.

    `device`: number (`7,0`), empty where the recording does not tell it.
    """

    file: str
    logical: Ints
    physical: Ints
    length: Ints
    size: int
    device: str = ""


@dataclass(frozen=True, slots=True)
class DescriptorPath:
    """A path that a descriptor stood for, first and last seen at these times; None: at any time.

    `position`: where the file was read or written next at `first_ns`, if the recording has it. `looks`:
    further times and positions. A position may already be that after a call that has yet to return.
    """

    path: str
    first_ns: int | None = None
    last_ns: int | None = None
    position: int | None = None
    looks: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class LayerRecording:
    """All that was read: layers (top first), extent maps, what was lost or left out.

    `descriptors`: (process, descriptor) of the data files, and when each was open for which path, where the
    recording has them. `lies_on`: the device below each stacked device; None where the recording does not
    tell. `devices_of`: device of each file. `backing`: file behind a loop device. `partitions`: disk and
    first byte of each. `inodes`: of the files. `one_clock`: folders whose traces all have the machine's
    monotonic clock.
    """

    names: NameTable = field(default_factory=NameTable)
    layers: list[TracedLayer] = field(default_factory=list)
    extents: list[ExtentMap] = field(default_factory=list)
    descriptors: dict[tuple[int, int], list[DescriptorPath]] = field(default_factory=dict)
    lies_on: dict[str, str] | None = None
    devices_of: dict[str, str] = field(default_factory=dict)
    backing: dict[str, str] = field(default_factory=dict)
    one_clock: set[str] = field(default_factory=set)
    partitions: dict[str, tuple[str, int]] = field(default_factory=dict)
    inodes: dict[str, int] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    node: str = ""
    lost_events: int = 0
    bounds_ns: tuple[int, int] | None = None
    """First and last time of the recording."""

    def remark(self, path: Path, text: str) -> None:
        """Adds a sentence about a file."""
        self.remarks.append(f"{path.name}: {text}")

    @property
    def span_ns(self) -> int:
        """Length of the recording."""
        return self.bounds_ns[1] - self.bounds_ns[0] if self.bounds_ns else 0
