"""Reads a Darshan log through libdarshan-util, in arrays: one module at a time, never an object per record.

Logs are input from anyone: run this in a child process (`readers`), which the C library may crash.
"""

import os
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.files.beginning import beginning
from laggard_aggregator.jobs.darshan.darshan_library import counter_names, library
from laggard_common.errors import InputError

_MAGIC: Final = 6567223
_GZIP: Final = b"\x1f\x8b"
_BZIP2: Final = b"BZh"
_MAX_RECORDS: Final = 50_000_000
_SEGMENTS_AT_ONCE: Final = 1 << 17
_SHOWN_BYTES = 160
_HEADER_BYTES: Final = 16
RECORDS_OF: Final = {
    "POSIX": "struct darshan_posix_file",
    "STDIO": "struct darshan_stdio_file",
    "MPI-IO": "struct darshan_mpiio_file",
}
"""Modules with one row of counters a file, and their C structures."""


@dataclass(frozen=True, slots=True)
class ModuleRecords:
    """Counters of one module. `counters`, `times`: columns by their names without the module's prefix."""

    ids: NDArray[np.int64]
    ranks: NDArray[np.int64]
    counters: dict[str, NDArray[np.int64]]
    times: dict[str, NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Layouts:
    """Layouts of files on Lustre.

    `ids` (R,) of the records; `first` (R + 1,) where each one's components begin in `sizes` of stripes,
    `begins` and `ends` (C,) in bytes of the file (an end of -1 is none); `stripes` (C + 1,) where each
    component's stripes begin in `osts`.
    """

    ids: NDArray[np.int64]
    first: NDArray[np.int64]
    sizes: NDArray[np.int64]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    stripes: NDArray[np.int64]
    osts: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TracedRequests:
    """Some requests of one rank on one file. Times in seconds since the start of the job."""

    file_id: int
    rank: int
    node: str
    is_write: bool
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    start: NDArray[np.float64]
    end: NDArray[np.float64]


@dataclass(slots=True)
class LogHead:
    """The job of a log. Times in nanoseconds since the epoch."""

    version: str
    job_id: int
    uid: int
    start_ns: int
    end_ns: int
    processes: int
    command: str
    run_seconds: float
    modules: list[str]
    partial: list[str]
    mounts: list[tuple[str, str]] = field(default_factory=list)


def check_header(path: Path) -> None:
    """Raises InputError for a file that is no log of Darshan 3."""
    if path.is_dir():
        raise InputError(
            str(path), "a folder: name its logs, or make a store of all with laggard mine init --darshan"
        )
    with InputError.from_os_errors(path), path.open("rb") as file:
        head = file.read(_HEADER_BYTES)
        first = head + file.read(_SHOWN_BYTES)
    if head.startswith((_GZIP, _BZIP2)):
        raise InputError(
            str(path), "a log of Darshan 2.x, or compressed: only logs of 3.0 and later are read"
        )
    magics = (
        ()
        if len(head) < _HEADER_BYTES
        else (struct.unpack("<q", head[8:])[0], struct.unpack(">q", head[8:])[0])
    )
    if not head[:1].isdigit() or _MAGIC not in magics:
        if first.startswith(b"# darshan log"):
            raise InputError(str(path), "the text of darshan-parser, not a Darshan log: give the log itself")
        raise InputError(str(path), f"not a Darshan log: {beginning(first)}")


class DarshanLog:
    """An open log. Raises InputError when it is none, and when a part of it cannot be read."""

    def __init__(self, path: Path) -> None:
        check_header(path)
        self._path = path
        self._ffi, self._lib = library()
        self._handle: Any = self._lib.darshan_log_open(os.fsencode(path))
        if self._handle == self._ffi.NULL:
            raise InputError(str(path), "damaged, or not a Darshan log")

    def close(self) -> None:
        """Frees the memory of the library."""
        self._lib.darshan_log_close(self._handle)

    def head(self) -> LogHead:
        """The job and the modules of the log."""
        job = self._ffi.new("struct darshan_job *")
        if self._lib.darshan_log_get_job(self._handle, job) != 0:
            raise self._damaged("the job's record")
        seconds = self._ffi.new("double *")
        self._lib.darshan_log_get_job_runtime(self._handle, job[0], seconds)
        modules = self._modules()
        return LogHead(
            version=self._version(),
            job_id=int(job.jobid),
            uid=int(job.uid),
            start_ns=int(job.start_time_sec) * 10**9 + int(job.start_time_nsec),
            end_ns=int(job.end_time_sec) * 10**9 + int(job.end_time_nsec),
            processes=int(job.nprocs),
            command=self._text(self._exe()),
            run_seconds=float(seconds[0]),
            modules=sorted(modules),
            partial=sorted(name for name, (_, is_partial) in modules.items() if is_partial),
            mounts=self._mounts(),
        )

    def names(self) -> dict[int, str]:
        """File names by their record id, as int64."""
        records, count = self._ffi.new("struct darshan_name_record **"), self._ffi.new("int *")
        self._lib.darshan_log_get_name_records(self._handle, records, count)
        names = {}
        for at in range(count[0]):
            record = records[0][at]
            names[_signed(int(record.id))] = self._text(self._ffi.string(record.name))
            self._lib.darshan_free(record.name)
        if count[0] > 0:
            self._lib.darshan_free(records[0])
        return names

    def records(self, module: str) -> ModuleRecords | None:
        """The counters of `module`, one of RECORDS_OF; None when the log has none."""
        place = self._modules().get(module)
        if place is None:
            return None
        kind = RECORDS_OF[module]
        size = self._ffi.sizeof(kind)
        record = self._ffi.new(f"{kind} *")
        holder = self._ffi.new("void **", record)  # the library fills this memory again and again
        raw = bytearray()
        while (result := self._lib.darshan_log_get_record(self._handle, place[0], holder)) > 0:
            raw += self._ffi.buffer(record, size)
            if len(raw) > _MAX_RECORDS * size:
                raise self._damaged(f"module {module}")
        if result < 0:
            raise self._damaged(f"module {module}")
        counters = counter_names(self._ffi, self._lib, module)
        times = counter_names(self._ffi, self._lib, module, times=True)
        layout = np.dtype(
            [
                ("id", "i8"),
                ("rank", "i8"),
                ("counters", "i8", (len(counters),)),
                ("times", "f8", (len(times),)),
            ]
        )
        if layout.itemsize != size:
            raise InputError(
                str(self._path), f"module {module}: unknown layout in this version of libdarshan-util"
            )
        rows = np.frombuffer(raw, layout)
        return ModuleRecords(
            ids=rows["id"],
            ranks=rows["rank"],
            counters={name: rows["counters"][:, at] for at, name in enumerate(counters)},
            times={name: rows["times"][:, at] for at, name in enumerate(times)},
        )

    def layouts(self) -> Layouts | None:
        """The stripes of files on Lustre; None when the log has no such module."""
        place = self._modules().get("LUSTRE")
        if place is None:
            return None
        ids, first = array("q"), array("q", [0])
        components, stripes, osts = array("q"), array("q", [0]), array("q")
        for record in self._variable(place[0], "struct darshan_lustre_record"):
            of_record = self._osts(record)
            count = int(record.num_comps) if of_record else 0
            left = iter(of_record)
            for at in range(count):
                size, several, _, _, begin, end, _ = record.comps[at].counters
                components.extend((size, begin, end))
                osts.extend(islice(left, len(of_record) if count == 1 else max(several, 0)))
                stripes.append(len(osts))
            ids.append(_signed(int(record.base_rec.id)))
            first.append(len(stripes) - 1)
        sizes, begins, ends = np.array(components, np.int64).reshape(-1, 3).T
        return Layouts(
            _integers(ids), _integers(first), sizes, begins, ends, _integers(stripes), _integers(osts)
        )

    def requests(self, module: str) -> Iterator[TracedRequests]:
        """Yields the requests of DXT_POSIX or DXT_MPIIO in portions, so that millions fit in memory."""
        place = self._modules().get(module)
        if place is None:
            return
        size, head = self._ffi.sizeof("struct segment_info"), self._ffi.sizeof("struct dxt_file_record")
        names = ("offset", "length", "start_time", "end_time")
        layout = np.dtype(
            {
                "names": names,
                "formats": ["i8", "i8", "f8", "f8"],
                "offsets": [self._ffi.offsetof("struct segment_info", name) for name in names],
                "itemsize": size,
            }
        )
        for record in self._variable(place[0], "struct dxt_file_record"):
            writes, reads = int(record.write_count), int(record.read_count)
            if writes < 0 or reads < 0 or writes + reads > _MAX_RECORDS * 10:
                raise self._damaged(f"module {module}")
            start = self._ffi.cast("char *", record) + head
            node = self._text(self._ffi.string(record.hostname))
            for is_write, first, count in ((True, 0, writes), (False, writes, reads)):
                for at in range(first, first + count, _SEGMENTS_AT_ONCE):
                    several = min(_SEGMENTS_AT_ONCE, first + count - at)
                    rows = np.frombuffer(self._ffi.buffer(start + at * size, several * size), layout)
                    yield TracedRequests(
                        _signed(int(record.base_rec.id)),
                        int(record.base_rec.rank),
                        node,
                        is_write,
                        *(rows[name].copy() for name in names),
                    )

    def _variable(self, index: int, kind: str) -> Iterator[Any]:
        """Yields records of varying length, each freed after its turn."""
        while True:
            holder = self._ffi.new("void **")
            result = self._lib.darshan_log_get_record(self._handle, index, holder)
            if result < 1:
                if result < 0:
                    raise self._damaged(kind)
                return
            try:
                yield self._ffi.cast(f"{kind} *", holder[0])
            finally:
                self._lib.darshan_free(holder[0])

    def _osts(self, record: Any) -> list[int]:
        """OSTs of all components of a layout, one after another."""
        stripes = int(record.num_stripes)
        if stripes <= 0 or int(record.num_comps) <= 0:
            return []
        osts: list[int] = np.frombuffer(self._ffi.buffer(record.ost_ids, stripes * 8), np.int64).tolist()
        return osts

    def _modules(self) -> dict[str, tuple[int, bool]]:
        modules = {}
        infos, count = self._ffi.new("struct darshan_mod_info **"), self._ffi.new("int *")
        self._lib.darshan_log_get_modules(self._handle, infos, count)
        for at in range(count[0]):
            info = infos[0][at]
            modules[self._text(self._ffi.string(info.name))] = (int(info.idx), bool(info.partial_flag))
        self._lib.darshan_free(infos[0])
        return modules

    def _exe(self) -> bytes:
        text = self._ffi.new("char[]", 4096)
        self._lib.darshan_log_get_exe(self._handle, text)
        command: bytes = self._ffi.string(text)
        return command

    def _mounts(self) -> list[tuple[str, str]]:
        mounts, count = self._ffi.new("struct darshan_mnt_info **"), self._ffi.new("int *")
        self._lib.darshan_log_get_mounts(self._handle, mounts, count)
        points = [
            (
                self._text(self._ffi.string(mounts[0][at].mnt_path)),
                self._text(self._ffi.string(mounts[0][at].mnt_type)),
            )
            for at in range(count[0])
        ]
        self._lib.darshan_free(mounts[0])
        return sorted(points, key=lambda mount: -len(mount[0]))

    def _version(self) -> str:
        with self._path.open("rb") as file:
            return file.read(8).partition(b"\0")[0].decode("ascii", "replace")

    def _text(self, raw: bytes) -> str:
        return raw.decode("utf-8", "replace")

    def _damaged(self, part: str) -> InputError:
        return InputError(str(self._path), f"damaged: {part} cannot be read")


def _integers(values: "array[int]") -> NDArray[np.int64]:
    return np.array(values, np.int64)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
