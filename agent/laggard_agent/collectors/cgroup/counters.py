"""Counters of one control group: its files in v1 and v2, their parsers, and the devices whose I/O counts.

Kernel: Documentation/admin-guide/cgroup-v2.rst (`io.stat`, `cpu.stat`, `memory.current`) and
cgroup-v1/blkio-controller.rst (`blkio.throttle.*_recursive`), cpuacct.rst, memory.rst.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from laggard_agent.collectors.cgroup.folders import GONE
from laggard_agent.collectors.diskstats.block_devices import BlockDevices
from laggard_agent.collectors.interface import attribute, note_read, read_file, refused, unreadable
from laggard_common.errors import CollectError
from laggard_common.trace_formats.kernel_text import MOST, number

_USUAL_BYTES = 2048  # a large buffer costs more than the read
_FILE_BYTES = 64 * 1024
_MOST_BYTES = 1024 * 1024
_DEVICES_NS = 60 * 10**9
_BLKIO_ROOT = "fs/cgroup/blkio/blkio.throttle.io_service_bytes_recursive"
_BLKIO = re.compile(rb"(?:\d{1,4}:\d{1,7} \w+ \d+\n)*Total \d+\n?")
_BLKIO_LINE = re.compile(rb"(\d{1,4}:\d{1,7}|\(unknown\)) (\w+) (\d+)")
_READ_OR_WRITE = re.compile(rb"^(\d+:\d+) (Read|Write) (\d+)$", re.MULTILINE)
_IO_STAT = re.compile(
    rb"(?:\d{1,4}:\d{1,7} ?(?:rbytes=\d+ wbytes=\d+ rios=\d+ wios=\d+(?: [\w.]+=\d+)*)? ?\n)*"
)
_IO = re.compile(rb"^(\d+:\d+) rbytes=(\d+) wbytes=(\d+) rios=(\d+) wios=(\d+)", re.MULTILINE)
_DEVICE = re.compile(rb"\d{1,4}:\d{1,7}|\(unknown\)")
_IO_KEYS = (b"rbytes", b"wbytes", b"rios", b"wios")
_UNKNOWN_DEVICE = b"(unknown)"

_MOST_COUNTED = 2**63
"""Counters beyond it went below 0."""

Chosen = Callable[[bytes], bool | None]
"""Whether the I/O of a device, as `8:0`, counts; None for a device that sysfs does not name."""
Values = tuple[int | None, ...]
"""Values of a file in the order of the collector's fields."""


class NotUnderstoodError(ValueError):
    """A file, or a line of one, is not in its format."""


class GoodLines(NamedTuple):
    """`odd`: the lines that were not understood; the others count. Without any other, values are unknown."""

    values: Values
    odd: Sequence[bytes] = ()


def parse_io_stat(data: bytes, chosen: Chosen) -> GoodLines:
    """Bytes read and written, reads and writes: sums over the chosen devices.

    A line is of the last of its numbers, as detached loop devices print theirs before it. A device that the
    kernel cannot name counts for nobody: its bytes are on the line of the device above it.
    """
    odd: list[bytes] = []
    lines: list[tuple[bytes, ...]] = []
    if _IO_STAT.fullmatch(data):
        lines = _IO.findall(data)
    else:
        for line in data.splitlines(keepends=True):
            try:
                lines += _io_line(line)
            except NotUnderstoodError:
                odd.append(line)
    sums = [0, 0, 0, 0]
    good = 0
    for device, *words in lines:
        counts = chosen(device)
        values = [value for word in words if (value := number(word)) is not None and value < _MOST_COUNTED]
        if counts is None or (counts and len(values) < len(words)):
            odd.append(b" ".join((device, *words)))
            continue
        good += 1
        if counts:
            sums = [a + b for a, b in zip(sums, values, strict=True)]
    if odd and not good:
        return GoodLines((None,) * len(sums), odd)
    return GoodLines(tuple(map(_bounded, sums)), odd)


def _io_line(line: bytes) -> list[tuple[bytes, ...]]:
    """The device and four numbers of a line, empty without any. Raises NotUnderstoodError."""
    words = line.split()
    names = list(takewhile(_DEVICE.fullmatch, words))
    if not names:
        raise NotUnderstoodError
    pairs = dict(word.split(b"=", 1) for word in words[len(names) :] if b"=" in word)
    values = [pairs[key] for key in _IO_KEYS if key in pairs]
    is_torn = bool(pairs) and not line.endswith(b"\n")
    if len(values) not in (0, len(_IO_KEYS)) or is_torn:
        raise NotUnderstoodError
    return [(names[-1], *values)] if values and names[-1] != _UNKNOWN_DEVICE else []


def parse_blkio(data: bytes, chosen: Chosen, *, counts: bool = True) -> GoodLines:
    """Reads and writes (bytes or requests): sums over the chosen devices.

    `counts`: whether the kernel counts at all; if not, a file without devices means nothing.
    """
    odd = [] if _BLKIO.fullmatch(data) else _odd_blkio_lines(data)
    lines = _READ_OR_WRITE.findall(data if not odd or data.endswith(b"\n") else data[: data.rfind(b"\n") + 1])
    if not lines and not counts:
        return GoodLines((None, None), odd)
    read = write = good = 0
    for device, operation, word in lines:
        included, value = chosen(device), number(word)
        if included is None or (included and (value is None or value >= _MOST_COUNTED)):
            odd.append(b" ".join((device, operation, word)))
            continue
        good += 1
        if not included or value is None:
            continue
        if operation == b"Read":
            read += value
        else:
            write += value
    if odd and not good:
        return GoodLines((None, None), odd)
    return GoodLines((_bounded(read), _bounded(write)), odd)


def _odd_blkio_lines(data: bytes) -> list[bytes]:
    *lines, last = data.split(b"\n")
    odd = [line for line in lines if not _BLKIO_LINE.fullmatch(line) and not line.startswith(b"Total ")]
    return [*odd, last] if last and not last.startswith(b"Total ") else odd


def parse_cpu_stat(data: bytes) -> GoodLines:
    """Microseconds of CPU time. Raises NotUnderstoodError."""
    for line in data.splitlines():
        key, _, value = line.partition(b" ")
        if key == b"usage_usec":
            return GoodLines((_number(value),))
    raise NotUnderstoodError


def parse_cpuacct(data: bytes) -> GoodLines:
    """Microseconds of CPU time, from nanoseconds. Raises NotUnderstoodError."""
    return GoodLines((_number(data.removesuffix(b"\n")) // 1000,))


def parse_number(data: bytes) -> GoodLines:
    """The number that is all of a file. Raises NotUnderstoodError."""
    return GoodLines((_number(data.removesuffix(b"\n")),))


def _number(word: bytes) -> int:
    value = number(word)
    if value is None:
        raise NotUnderstoodError
    return value


def _bounded(value: int) -> int:
    return min(value, MOST - 1)


class CounterFile:
    """A file of a control group; only its first read is recorded.

    `stay_open`: a file of a kernel, which reports no size, stays open between the samples.
    """

    def __init__(self, path: str, *, stay_open: bool) -> None:
        self.path = path
        self._stay_open = stay_open
        self._recorded = False
        self._fd = -1

    def read(self) -> bytes | None:
        """All bytes; None where the file or its control group is gone. Raises CollectError."""
        try:
            if self._fd < 0:
                self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                self._stay_open &= not os.fstat(self._fd).st_size
            data = os.pread(self._fd, _USUAL_BYTES, 0)
            if len(data) == _USUAL_BYTES:
                data = os.pread(self._fd, _FILE_BYTES, 0)
            if len(data) == _FILE_BYTES:
                data = os.pread(self._fd, _MOST_BYTES, 0)
        except OSError as exc:
            self.close()
            if exc.errno in GONE:
                return None
            raise unreadable(self.path, exc) from exc
        if not self._stay_open:
            self.close()
        if len(data) == _MOST_BYTES:
            raise refused(self.path, f"longer than {_MOST_BYTES - 1} bytes")
        if not self._recorded:
            self._recorded = True
            note_read(self.path, data)
        return data

    def close(self) -> None:
        """Closes the file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class Devices:
    """Selects the devices whose I/O counts: those that the collector `diskstats` selects.

    A request to a device above others (LVM, md, multipath) is counted for these, too, so a sum over all
    devices would count it twice.
    """

    def __init__(self, sysfs: Path, include: Iterable[str], exclude: Iterable[str]) -> None:
        self._numbers = sysfs / "dev" / "block"
        self._root = sysfs / _BLKIO_ROOT
        self.blkio_counts = False
        self._block = BlockDevices(sysfs, tuple(include), tuple(exclude))
        self._chosen: dict[bytes, bool | None] = {}
        self._until_ns = 0

    def update(self, now_ns: int) -> None:
        """Forgets the selection after a minute, as holders come and go.

        `blkio_counts` is updated: from Linux 6.10 on v1 counts the I/O of a device only once a limit was set
        on it, and then its root lists the device.
        """
        if now_ns >= self._until_ns:
            self._until_ns = now_ns + _DEVICES_NS
            self._chosen = {}
            try:
                self.blkio_counts = bool(_READ_OR_WRITE.search(read_file(self._root)))
            except CollectError:
                self.blkio_counts = False

    def chosen(self, device: bytes) -> bool | None:
        """Whether the I/O of `8:0` counts; None for a device that sysfs does not name."""
        try:
            return self._chosen[device]
        except KeyError:
            choice = self._chosen[device] = self._find(device)
            return choice

    def _find(self, device: bytes) -> bool | None:
        words = attribute(f"{self._numbers}/{device.decode()}/uevent").split()
        name = next((word[8:] for word in words if word.startswith("DEVNAME=")), "")
        return self._block.is_peer(name) if name else None
