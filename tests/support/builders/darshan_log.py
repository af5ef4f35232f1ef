"""Writes Darshan logs of format 3.41 from its specification; shares no code with Laggard's reader.

Header (1,328 bytes): version, magic number, compression, partial modules, places of the names and of 64
modules, their versions. Behind it zlib regions: job (record, command and mounts), names, and one a module.
"""

import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path

MAGIC = 6567223
MODULES = 64
HEADER = struct.Struct("<8sqB7xQ")
POSIX, MPIIO, LUSTRE, STDIO, DXT_POSIX = 1, 2, 8, 9, 10
VERSIONS = {POSIX: 4, MPIIO: 3, LUSTRE: 1, STDIO: 2, DXT_POSIX: 1}

SIZES = [
    "0_100",
    "100_1K",
    "1K_10K",
    "10K_100K",
    "100K_1M",
    "1M_4M",
    "4M_10M",
    "10M_100M",
    "100M_1G",
    "1G_PLUS",
]
COUNTERS = {
    POSIX: [
        "OPENS",
        "FILENOS",
        "DUPS",
        "READS",
        "WRITES",
        "SEEKS",
        "STATS",
        "MMAPS",
        "FSYNCS",
        "FDSYNCS",
        "RENAME_SOURCES",
        "RENAME_TARGETS",
        "RENAMED_FROM",
        "MODE",
        "BYTES_READ",
        "BYTES_WRITTEN",
        "MAX_BYTE_READ",
        "MAX_BYTE_WRITTEN",
        "CONSEC_READS",
        "CONSEC_WRITES",
        "SEQ_READS",
        "SEQ_WRITES",
        "RW_SWITCHES",
        "MEM_NOT_ALIGNED",
        "MEM_ALIGNMENT",
        "FILE_NOT_ALIGNED",
        "FILE_ALIGNMENT",
        "MAX_READ_TIME_SIZE",
        "MAX_WRITE_TIME_SIZE",
        "SIZE_READ_0_100",
        "SIZE_READ_100_1K",
        "SIZE_READ_1K_10K",
        "SIZE_READ_10K_100K",
        "SIZE_READ_100K_1M",
        "SIZE_READ_1M_4M",
        "SIZE_READ_4M_10M",
        "SIZE_READ_10M_100M",
        "SIZE_READ_100M_1G",
        "SIZE_READ_1G_PLUS",
        "SIZE_WRITE_0_100",
        "SIZE_WRITE_100_1K",
        "SIZE_WRITE_1K_10K",
        "SIZE_WRITE_10K_100K",
        "SIZE_WRITE_100K_1M",
        "SIZE_WRITE_1M_4M",
        "SIZE_WRITE_4M_10M",
        "SIZE_WRITE_10M_100M",
        "SIZE_WRITE_100M_1G",
        "SIZE_WRITE_1G_PLUS",
        "STRIDE1_STRIDE",
        "STRIDE2_STRIDE",
        "STRIDE3_STRIDE",
        "STRIDE4_STRIDE",
        "STRIDE1_COUNT",
        "STRIDE2_COUNT",
        "STRIDE3_COUNT",
        "STRIDE4_COUNT",
        "ACCESS1_ACCESS",
        "ACCESS2_ACCESS",
        "ACCESS3_ACCESS",
        "ACCESS4_ACCESS",
        "ACCESS1_COUNT",
        "ACCESS2_COUNT",
        "ACCESS3_COUNT",
        "ACCESS4_COUNT",
        "FASTEST_RANK",
        "FASTEST_RANK_BYTES",
        "SLOWEST_RANK",
        "SLOWEST_RANK_BYTES",
    ],
    MPIIO: [
        "INDEP_OPENS",
        "COLL_OPENS",
        "INDEP_READS",
        "INDEP_WRITES",
        "COLL_READS",
        "COLL_WRITES",
        "SPLIT_READS",
        "SPLIT_WRITES",
        "NB_READS",
        "NB_WRITES",
        "SYNCS",
        "HINTS",
        "VIEWS",
        "MODE",
        "BYTES_READ",
        "BYTES_WRITTEN",
        "RW_SWITCHES",
        "MAX_READ_TIME_SIZE",
        "MAX_WRITE_TIME_SIZE",
        *(f"SIZE_{kind}_AGG_{size}" for kind in ("READ", "WRITE") for size in SIZES),
        *(f"ACCESS{place}_ACCESS" for place in range(1, 5)),
        *(f"ACCESS{place}_COUNT" for place in range(1, 5)),
        "FASTEST_RANK",
        "FASTEST_RANK_BYTES",
        "SLOWEST_RANK",
        "SLOWEST_RANK_BYTES",
    ],
    STDIO: [
        "OPENS",
        "FDOPENS",
        "READS",
        "WRITES",
        "SEEKS",
        "FLUSHES",
        "BYTES_WRITTEN",
        "BYTES_READ",
        "MAX_BYTE_READ",
        "MAX_BYTE_WRITTEN",
        "FASTEST_RANK",
        "FASTEST_RANK_BYTES",
        "SLOWEST_RANK",
        "SLOWEST_RANK_BYTES",
    ],
}
TIMES = {
    POSIX: [
        "OPEN_START_TIMESTAMP",
        "READ_START_TIMESTAMP",
        "WRITE_START_TIMESTAMP",
        "CLOSE_START_TIMESTAMP",
        "OPEN_END_TIMESTAMP",
        "READ_END_TIMESTAMP",
        "WRITE_END_TIMESTAMP",
        "CLOSE_END_TIMESTAMP",
        "READ_TIME",
        "WRITE_TIME",
        "META_TIME",
        "MAX_READ_TIME",
        "MAX_WRITE_TIME",
        "FASTEST_RANK_TIME",
        "SLOWEST_RANK_TIME",
        "VARIANCE_RANK_TIME",
        "VARIANCE_RANK_BYTES",
    ],
    STDIO: [
        "META_TIME",
        "WRITE_TIME",
        "READ_TIME",
        "OPEN_START_TIMESTAMP",
        "CLOSE_START_TIMESTAMP",
        "WRITE_START_TIMESTAMP",
        "READ_START_TIMESTAMP",
        "OPEN_END_TIMESTAMP",
        "CLOSE_END_TIMESTAMP",
        "WRITE_END_TIMESTAMP",
        "READ_END_TIMESTAMP",
        "FASTEST_RANK_TIME",
        "SLOWEST_RANK_TIME",
        "VARIANCE_RANK_TIME",
        "VARIANCE_RANK_BYTES",
    ],
}
TIMES[MPIIO] = TIMES[POSIX]


@dataclass
class LogWriter:
    """A log; records are added and `write` puts it into a file."""

    job: int = 1
    uid: int = 1000
    start: int = 1_750_000_000
    seconds: int = 100
    processes: int = 4
    command: str = "/opt/app/simulate -n 4"
    mounts: list[tuple[str, str]] = field(default_factory=lambda: [("lustre", "/scratch"), ("ext4", "/")])
    partial: set[int] = field(default_factory=set)
    regions: dict[int, bytearray] = field(default_factory=dict)
    versions: dict[int, int] = field(default_factory=lambda: dict(VERSIONS))
    names: dict[int, str] = field(default_factory=dict)

    def file(self, name: str) -> int:
        """Id of a file; the first has one beyond int64."""
        known = {each: number for number, each in self.names.items()}
        if name not in known:
            self.names[(1 << 63) + 17 + len(self.names)] = name
            return list(self.names)[-1]
        return known[name]

    def record(self, module: int, name: str, rank: int, **values: float) -> None:
        """A record of POSIX, MPI-IO or STDIO; some counters by names without prefix; times in seconds."""
        counters = [int(values.pop(each, 0)) for each in COUNTERS[module]]
        times = [float(values.pop(each, 0.0)) for each in TIMES[module]]
        assert not values, values
        packed = struct.pack(f"<Qq{len(counters)}q{len(times)}d", self.file(name), rank, *counters, *times)
        self.region(module).extend(packed)

    def posix(self, name: str, rank: int, direction: str, start: float, end: float, **values: float) -> None:
        """A record of one direction. `requests`, `bytes`, `size_bin`, `seconds` (in calls) have defaults."""
        upper = direction.upper()
        requests, amount = values.pop("requests", 1), values.pop("bytes", 1 << 20)
        word = "BYTES_READ" if direction == "read" else "BYTES_WRITTEN"
        counters = {
            f"{upper}S": requests,
            word: amount,
            f"{upper}_START_TIMESTAMP": start,
            f"{upper}_END_TIMESTAMP": end,
            f"{upper}_TIME": values.pop("seconds", end - start),
            "OPENS": 1,
        }
        self.record(POSIX, name, rank, **{**counters, **values})

    def stripes(self, name: str, osts: list[int], rank: int = -1, size: int = 1 << 20) -> None:
        """The layout of a file."""
        head = struct.pack("<Qq5q", self.file(name), rank, 64, 1, osts[0] if osts else -1, size, len(osts))
        self.region(LUSTRE).extend(head + struct.pack(f"<{len(osts)}q", *osts))

    def composite(self, name: str, components: list[tuple[int, int, list[int]]], rank: int = -1) -> None:
        """The layout of a file by component: begin, end (-1: none) and OSTs. Plain ones cannot be beside."""
        self.versions[LUSTRE] = 2
        osts = [ost for *_, several in components for ost in several]
        packed = b"".join(
            struct.pack("<7q16s", 1 << 20, len(several), 0, 16, begin, end, 0, b"")
            for begin, end, several in components
        )
        head = struct.pack("<Qqqq", self.file(name), rank, len(components), len(osts))
        self.region(LUSTRE).extend(head + packed + struct.pack(f"<{len(osts)}q", *osts))

    def trace(self, name: str, rank: int, node: str, writes: list[tuple[int, int, float, float]]) -> None:
        """Traced writes: offset, length, start, end."""
        head = struct.pack("<Qqq64sqq", self.file(name), rank, 0, node.encode(), len(writes), 0)
        self.region(DXT_POSIX).extend(head + b"".join(struct.pack("<qqdd", *each) for each in writes))

    def region(self, module: int) -> bytearray:
        """Bytes of a module."""
        return self.regions.setdefault(module, bytearray())

    def write(self, path: Path) -> Path:
        """Writes the log; returns its path."""
        end = self.start + self.seconds
        head = struct.pack(
            "<7q1024s", self.uid, self.start, 0, end, 0, self.processes, self.job, b"lib_ver=3.4.7\n"
        )
        mounts = "".join(f"\n{kind}\t{where}" for kind, where in self.mounts)
        job = (head + f"{self.command}{mounts}".encode()).ljust(4096, b"\0")
        names = b"".join(
            struct.pack("<Q", number) + name.encode() + b"\0" for number, name in self.names.items()
        )
        header_bytes = HEADER.size + 16 * (MODULES + 1) + 4 * MODULES
        body = bytearray(zlib.compress(job))
        places = [(header_bytes + len(body), len(packed := zlib.compress(names)))]
        body += packed
        for module in range(MODULES):
            raw = self.regions.get(module)
            packed = zlib.compress(bytes(raw)) if raw else b""
            places.append((header_bytes + len(body) if packed else 0, len(packed)))
            body += packed
        flags = sum(1 << module for module in self.partial)
        header = HEADER.pack(b"3.41", MAGIC, 0, flags)
        header += b"".join(struct.pack("<QQ", *place) for place in places)
        header += struct.pack(f"<{MODULES}I", *(self.versions.get(module, 0) for module in range(MODULES)))
        path.write_bytes(header + bytes(body))
        return path
