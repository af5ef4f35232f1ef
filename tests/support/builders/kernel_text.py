"""Text of tracefs and the files beside it, line by line; shares nothing with the recorder or the readers."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class KernelTrace:
    """Collects the events of one recording. Times are microseconds, offsets and sizes bytes."""

    events: list[tuple[float, str]] = field(default_factory=list)
    maps: list[str] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)

    def line(self, time: float, text: str, *, pid: int = 10, tid: int | None = None) -> None:
        """One event."""
        seconds = 1000 + time / 1e6
        thread = pid if tid is None else tid
        self.events.append((time, f"app-{thread} ({pid:7}) [000] ..... {seconds:.6f}: {text}\n"))

    def opened(self, begin: float, fd: int, *, pid: int = 10) -> None:
        """An open that returns `fd`."""
        self.line(begin, "sys_openat(dfd: ffffff9c, filename: 7f00, flags: 0, mode: 0)", pid=pid)
        self.line(begin + 1, f"sys_openat -> 0x{fd:x}", pid=pid)

    def closed(self, begin: float, fd: int, *, pid: int = 10) -> None:
        """A close."""
        self.line(begin, f"sys_close(fd: {fd:x})", pid=pid)
        self.line(begin + 1, "sys_close -> 0x0", pid=pid)

    def pread(
        self, begin: float, end: float, fd: int, offset: int, *, pid: int = 10, tid: int | None = None
    ) -> None:
        """A read of 64 KiB at an offset."""
        self.line(
            begin, f"sys_pread64(fd: {fd:x}, buf: 7f00, count: 10000, pos: {offset:x})", pid=pid, tid=tid
        )
        self.line(end, "sys_pread64 -> 0x10000", pid=pid, tid=tid)

    def read(self, begin: float, end: float, fd: int, *, pid: int = 10) -> None:
        """A read of 64 KiB at the file position."""
        self.line(begin, f"sys_read(fd: {fd:x}, buf: 7f00, count: 10000)", pid=pid)
        self.line(end, "sys_read -> 0x10000", pid=pid)

    def bio(self, time: float, device: str, place: int) -> None:
        """64 KiB queued to a device."""
        self.line(time, f"block_bio_queue: {device} R {place // 512} + 128 [app]")

    def bio_done(self, time: float, device: str, place: int) -> None:
        """64 KiB completed by a device that makes no requests."""
        self.line(time, f"block_bio_complete: {device} R {place // 512} + 128 [0]")

    def issued(self, time: float, device: str, place: int) -> None:
        """64 KiB issued to a device."""
        self.line(time, f"block_rq_issue: {device} R 65536 () {place // 512} + 128 none,0,0 [app]")

    def completed(self, time: float, device: str, place: int) -> None:
        """64 KiB completed by a device."""
        self.line(time, f"block_rq_complete: {device} R () {place // 512} + 128 none,0,0 [0]")

    def device(self, begin: float, end: float, device: str, place: int) -> None:
        """64 KiB on a device: queued, issued and completed."""
        self.bio(begin, device, place)
        self.issued(begin + 1, device, place)
        self.completed(end, device, place)

    def extent(self, path: str, physical: int, size: int = 1 << 24) -> None:
        """A file in one extent at a place of its device."""
        blocks = size // 4096
        first = physical // 4096
        self.maps.append(
            f"File size of {path} is {size} ({blocks} blocks of 4096 bytes)\n"
            " ext:     logical_offset:        physical_offset: length:   expected: flags:\n"
            f"   0:        0..{blocks - 1:8}: {first:10}..{first + blocks - 1:10}: {blocks:6}: last\n"
        )

    def write(self, folder: Path) -> Path:
        """Writes the folder of the recording."""
        folder.mkdir(parents=True)
        lines = [text for _, text in sorted(self.events, key=lambda each: each[0])]
        (folder / "tracefs.txt").write_text("# tracer: nop\n" + "".join(lines))
        if self.maps:
            (folder / "fiemap.txt").write_text("Filesystem type is: ef53\n" + "".join(self.maps))
        if self.meta:
            (folder / "meta.json").write_text(json.dumps({"descriptors": [], **self.meta}))
        return folder
