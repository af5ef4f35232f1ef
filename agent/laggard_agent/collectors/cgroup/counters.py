"""Counters of one control group: its files in v1 and v2, their parsers, and the devices whose I/O counts.

Kernel: Documentation/admin-guide/cgroup-v2.rst (`io.stat`, `cpu.stat`, `memory.current`) and
cgroup-v1/blkio-controller.rst (`blkio.throttle.*_recursive`), cpuacct.rst, memory.rst.
"""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from laggard_agent.collectors.cgroup.folders import GONE
from laggard_agent.collectors.diskstats.block_devices import BlockDevices
from laggard_agent.collectors.interface import (
    MOST,
    attribute,
    note_read,
    number,
    read_file,
    refused,
    unreadable,
)
from laggard_common.errors import CollectError

_USUAL_BYTES = 2048  # a large buffer costs more than the read
_FILE_BYTES = 64 * 1024
_DEVICES_NS = 60 * 10**9
_BLKIO_ROOT = "fs/cgroup/blkio/blkio.throttle.io_service_bytes_recursive"
_BLKIO = re.compile(rb"(?:\d{1,4}:\d{1,7} \w+ \d+\n)*Total \d+\n?")
_READ_OR_WRITE = re.compile(rb"^(\d+:\d+) (Read|Write) (\d+)$", re.MULTILINE)
_IO_STAT = re.compile(
    rb"(?:\d{1,4}:\d{1,7} ?(?:rbytes=\d+ wbytes=\d+ rios=\d+ wios=\d+(?: [\w.]+=\d+)*)? ?\n)*"
)
_IO = re.compile(rb"^(\d+:\d+) rbytes=(\d+) wbytes=(\d+) rios=(\d+) wios=(\d+)", re.MULTILINE)

Chosen = Callable[[bytes], bool]
"""Whether the I/O of a device, as `8:0`, counts."""
Values = tuple[int | None, ...]
"""Values of a file in the order of the collector's fields."""


class NotUnderstoodError(ValueError):
    """A line is not in the format of its file."""


def parse_io_stat(data: bytes, chosen: Chosen) -> Values:
    """Bytes read and written, reads and writes: sums over the chosen devices. Raises NotUnderstoodError."""
    if not _IO_STAT.fullmatch(data):
        raise NotUnderstoodError
    chosen_values = [map(_number, values) for device, *values in _IO.findall(data) if chosen(device)]
    sums = [sum(column) for column in zip(*chosen_values, strict=True)]
    return tuple(map(_bounded, sums)) or (0, 0, 0, 0)


def parse_blkio(data: bytes, chosen: Chosen, *, counts: bool = True) -> Values:
    """Reads and writes (bytes or requests): sums over the chosen devices. Raises NotUnderstoodError.

    `counts`: whether the kernel counts at all; if not, a file without devices means nothing.
    """
    if not _BLKIO.fullmatch(data):
        raise NotUnderstoodError
    lines = _READ_OR_WRITE.findall(data)
    if not lines and not counts:
        return None, None
    read = write = 0
    for device, operation, value in lines:
        if not chosen(device):
            continue
        if operation == b"Read":
            read += _number(value)
        else:
            write += _number(value)
    return _bounded(read), _bounded(write)


def parse_cpu_stat(data: bytes) -> Values:
    """Microseconds of CPU time. Raises NotUnderstoodError."""
    key, _, value = data.partition(b"\n")[0].partition(b" ")
    if key != b"usage_usec":
        raise NotUnderstoodError
    return (_number(value),)


def parse_cpuacct(data: bytes) -> Values:
    """Microseconds of CPU time, from nanoseconds. Raises NotUnderstoodError."""
    return (_number(data.removesuffix(b"\n")) // 1000,)


def parse_number(data: bytes) -> Values:
    """The number that is all of a file. Raises NotUnderstoodError."""
    return (_number(data.removesuffix(b"\n")),)


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
        except OSError as exc:
            self.close()
            if exc.errno in GONE:
                return None
            raise unreadable(self.path, exc) from exc
        if not self._stay_open:
            self.close()
        if len(data) == _FILE_BYTES:
            raise refused(self.path, f"longer than {_FILE_BYTES - 1} bytes")
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
        self._chosen: dict[bytes, bool] = {}
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

    def chosen(self, device: bytes) -> bool:
        """Whether the I/O of `8:0` counts."""
        known = self._chosen.get(device)
        if known is None:
            known = self._chosen[device] = self._find(device)
        return known

    def _find(self, device: bytes) -> bool:
        words = attribute(f"{self._numbers}/{device.decode()}/uevent").split()
        name = next((word[8:] for word in words if word.startswith("DEVNAME=")), "")
        return bool(name and self._block.components([name.encode()]))
