"""perf_event_open(2): a sampling event for each CPU, its ring buffer, and the reason for a refusal."""

import ctypes
import errno
import mmap
import os
import platform
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from laggard_agent.collectors.fnprofile.address_spaces import beginning_of
from laggard_common.errors import CollectError

# Only machines whose kernel lays bit fields out from the lowest bit (little-endian ones).
_SYSCALLS = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "loongarch64": 241, "ppc64le": 319}
_IN_CGROUP, _CLOSE_ON_EXEC = 4, 8
_ATTRIBUTES = struct.Struct("<IIQQQQQIIQQ")  # the first version with all fields used here, 72 bytes
_HARDWARE, _CPU_CYCLES = 0, 0
_SOFTWARE, _CPU_CLOCK = 1, 0
_IP, _TID, _TIME = 1, 2, 4
_FLAGS = sum(1 << bit for bit in (8, 9, 13, 14, 18, 23, 24))
"""mmap, comm, task, watermark, sample_id_all, mmap2, comm_exec: records of changes of address spaces."""
_EXCLUDE_IDLE = 1 << 7

_REASONS = {
    errno.EACCES: "not permitted",
    errno.EPERM: "not permitted",
    errno.ENOSYS: "this kernel has no perf events",
    errno.EMFILE: "too many open files: one is needed for each CPU",
}

_HEAD, _TAIL = 128, 129  # offsets of data_head and data_tail ("MMAP layout"), in words of 8 bytes

Open = Callable[["PerfEvent", int], int]  # (event, cpu) -> file descriptor; raises OSError


@dataclass(frozen=True, slots=True)
class PerfEvent:
    """The sampled event: one sample each `period` of `name`, which is `cpu_ns` of CPU time.

    `cgroup`: folder of the only control group to sample; empty: all processes.
    """

    name: str
    type: int
    config: int
    period: int
    cpu_ns: int
    flags: int
    cgroup: str = ""


def clock_event(frequency_hz: float) -> PerfEvent:
    """The kernel's CPU clock, a timer that does not run in the idle task."""
    period = round(1e9 / frequency_hz)
    return PerfEvent("cpu-clock", _SOFTWARE, _CPU_CLOCK, period, period, _FLAGS | _EXCLUDE_IDLE)


def cycles_event(frequency_hz: float, cpu_hz: float) -> PerfEvent:
    """Cycles in which a CPU is not halted, of a CPU that runs at `cpu_hz` by its description."""
    period = round(cpu_hz / frequency_hz)
    return PerfEvent("cycles", _HARDWARE, _CPU_CYCLES, period, round(1e9 / frequency_hz), _FLAGS)


def cpu_hz(sysfs: Path) -> float | None:
    """Frequency of CPU 0; None when unknown (virtual machines)."""
    folder = sysfs / "devices/system/cpu/cpu0/cpufreq"
    for name in ("base_frequency", "cpuinfo_max_freq"):
        text = beginning_of(folder / name, 64).strip()
        if text.isdigit() and int(text) > 0:
            return int(text) * 1000.0
    return None


def open_event(event: PerfEvent, cpu: int) -> int:
    """The file descriptor of `event` on this CPU, of all processes or of those in its control group.

    Raises OSError, with the folder as file name when it is no control group of perf events.
    """
    if not event.cgroup:
        return _open(event, cpu, -1, _CLOSE_ON_EXEC)
    folder = os.open(event.cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _open(event, cpu, folder, _CLOSE_ON_EXEC | _IN_CGROUP)
    except OSError as exc:
        if exc.errno == errno.EBADF:
            raise OSError(exc.errno, "no control group of perf events", event.cgroup) from None
        raise
    finally:
        os.close(folder)


def _open(event: PerfEvent, cpu: int, whose: int, flags: int) -> int:
    number = _SYSCALLS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"perf events are not supported on {platform.machine()}")
    watermark = ring_bytes(event) // 2
    attributes = ctypes.create_string_buffer(
        _ATTRIBUTES.pack(
            *(event.type, _ATTRIBUTES.size, event.config, event.period, _IP | _TID | _TIME, 0, event.flags),
            *(watermark, 0, 0, 0),
        ),
        _ATTRIBUTES.size,
    )
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (ctypes.c_int(whose), ctypes.c_int(cpu), ctypes.c_int(-1), ctypes.c_ulong(flags))
    fd = int(libc.syscall(ctypes.c_long(number), attributes, *arguments))
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return fd


def ring_bytes(event: PerfEvent) -> int:
    """Size of a CPU's ring buffer: 8 s of samples or more, but 512 KiB at most (a user's share)."""
    wanted = 8 * 32 * 1_000_000_000 // event.cpu_ns
    return int(min(max(1 << (wanted - 1).bit_length(), 64 << 10), 512 << 10))


def refusal(exc: OSError, procfs: Path) -> CollectError:
    """The error for a refused event: the reason, and the permission that is missing."""
    reason = _REASONS.get(exc.errno or 0) or exc.strerror or str(exc)
    if exc.errno in (errno.EACCES, errno.EPERM):
        level = beginning_of(procfs / "sys/kernel/perf_event_paranoid", 64).strip().decode("ascii", "replace")
        reason += (
            f": needs CAP_PERFMON (before Linux 5.8 CAP_SYS_ADMIN), or kernel.perf_event_paranoid below 1"
            f" (it is {level or 'not known'})"
        )
    return CollectError(exc.filename or "perf_event_open", reason)


class Ring:
    """Ring buffer of the event `fd`, which it owns. Raises OSError when it cannot be mapped."""

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self._size = size
        try:
            self._memory = mmap.mmap(fd, mmap.PAGESIZE + size)
        except (OSError, ValueError) as exc:
            os.close(fd)
            raise exc if isinstance(exc, OSError) else OSError(exc) from exc

    def drain(self) -> bytes:
        """Everything that is new, whole records in order of writing; its place is free for others."""
        control = memoryview(self._memory)[: mmap.PAGESIZE].cast("Q")
        try:
            head, tail = control[_HEAD], control[_TAIL]
            data = unwrapped(self._memory, mmap.PAGESIZE, self._size, head, tail)
            control[_TAIL] = head
        finally:
            control.release()
        return data

    def close(self) -> None:
        """Ends the sampling of this CPU."""
        self._memory.close()
        os.close(self.fd)


def unwrapped(memory: "mmap.mmap | bytes", start: int, size: int, head: int, tail: int) -> bytes:
    """The bytes between `tail` and `head`, which only grow, in a ring of `size` bytes at `start`."""
    length = head - tail
    if not 0 <= length <= size:
        return b""
    begin = start + tail % size
    first = min(length, start + size - begin)
    return memory[begin : begin + first] + memory[start : start + length - first]
