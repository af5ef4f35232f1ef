"""Loop-device LUNs with real kernel counters, and faults to slow one of them down.

A LUN is two loop devices on one file. The lower one is throttled by cgroup v1 blkio, the upper one carries
the file system and is what gets sampled. Throttling sits before the kernel's accounting, so a cap on the
sampled device itself would leave no trace in its counters.

    scratch/lunN.img  <-  loop40+N (capped)  <-  loop20+N (sampled, ext4)  <-  scratch/lunN/

Everything made here is taken down when its context ends, also after an exception; `stop_on_signals` turns
SIGTERM and SIGINT into one. Devices that exist already are refused, never reused.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

LOOP_CONTROL = Path("/dev/loop-control")
LOOP_CTL_ADD = 0x4C80  # include/uapi/linux/loop.h
LOOP_CTL_REMOVE = 0x4C81
MAX_LUNS = 20
FIRST_LOOP = 20  # loop20..39 are sampled, loop40..59 are throttled
LAST_LOOP = 1000
DETACH_SECONDS = 10.0
STOP_SECONDS = 10.0
RUN_SECONDS = 120.0


class TestbedError(Exception):
    """The testbed could not be built or did not hold; the message is one line for the person who asked."""


class CannotRunError(TestbedError):
    """The machine lacks what the testbed takes: a package, a privilege, a part of the kernel."""


@dataclass(frozen=True, slots=True)
class Lun:
    """One fake LUN: its number, its two kernel device names, its backing file, its mount point, its cap."""

    index: int
    sampled: str
    throttled: str
    backing: Path
    mount: Path
    cap_bytes_per_second: int


@contextmanager
def loop_luns(
    count: int, scratch: Path, size_bytes: int, cap_bytes_per_second: int, first_loop: int = FIRST_LOOP
) -> Iterator[tuple[Lun, ...]]:
    """Yield `count` mounted LUNs of `size_bytes` each, every one capped at `cap_bytes_per_second` each way.

    Their devices are numbered from `first_loop` on, the lower ones MAX_LUNS further on.

    The cap keeps a LUN under load from saturating the shared disk below, which would slow its peers too. It
    binds only processes in this one's own blkio cgroup: v1 blkio is flat. Raises TestbedError without root,
    blkio or free device numbers.
    """
    if os.geteuid() != 0:
        raise CannotRunError("loop devices, mounts and blkio throttling need root")
    if not LOOP_CONTROL.exists():
        raise CannotRunError(f"no {LOOP_CONTROL}: loop devices cannot be added")
    if not 1 <= count <= MAX_LUNS:
        raise TestbedError(f"expected 1 to {MAX_LUNS} LUNs, got {count}")
    blkio_folder()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="testbed-", dir=scratch)))
        yield tuple(
            _build(stack, index, first_loop, folder, size_bytes, cap_bytes_per_second)
            for index in range(count)
        )


def free_loops() -> int:
    """Return from which number on there are none of all the devices that MAX_LUNS would take."""
    taken = {int(name.name[4:]) for name in Path("/sys/block").glob("loop[0-9]*")}
    for first in range(FIRST_LOOP, LAST_LOOP, 2 * MAX_LUNS):
        if taken.isdisjoint(range(first, first + 2 * MAX_LUNS)):
            return first
    raise TestbedError("no free loop device numbers")


@contextmanager
def throttled(lun: Lun, bytes_per_second: int) -> Iterator[None]:
    """Cut the LUN to `bytes_per_second` each way while the context lasts, then back to its usual cap."""
    try:
        _set_cap(lun.throttled, bytes_per_second)
        yield
    finally:
        _set_cap(lun.throttled, lun.cap_bytes_per_second)


@contextmanager
def disk_hog(lun: Lun, block_bytes: int = 256 << 20, within: Sequence[str] = ()) -> Iterator[None]:
    """Read the LUN's own device from end to end, again and again, in direct requests of `block_bytes`.

    `within`: a command that runs what stands behind it, where it is to run.
    """
    dd = ["dd", f"if=/dev/{lun.sampled}", "of=/dev/null", f"bs={block_bytes}", "iflag=direct", "status=none"]
    with process([*within, "sh", "-c", 'while "$@"; do :; done', "sh", *dd]):
        yield


@contextmanager
def process(command: Sequence[str], log: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process in a session of its own; its group gets SIGTERM, then SIGKILL, at the end.

    What it prints goes to `log`, or where this one's goes.
    """
    with ExitStack() as files:
        output = None if log is None else files.enter_context(log.open("wb"))
        running = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield running
    finally:
        _end_group(running)


def _end_group(leader: subprocess.Popen[bytes]) -> None:
    """End the group of a process that still runs, and wait until nothing is left of it."""
    if leader.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        os.killpg(leader.pid, number)
        deadline = time.monotonic() + STOP_SECONDS
        while time.monotonic() < deadline:
            leader.poll()
            try:
                os.killpg(leader.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.02)


def stop_on_signals() -> None:
    """Turn the first SIGTERM or SIGINT into SystemExit, so that contexts end, and ignore later ones."""

    def stop(number: int, _frame: FrameType | None) -> None:
        ignore_signals()
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


def ignore_signals() -> None:
    """Ignore SIGTERM and SIGINT from here on: a teardown is short, and one cut off leaves devices behind."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def blkio_folder() -> Path:
    """Return the cgroup v1 blkio folder that binds this process and its children, or raise TestbedError."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        folder = Path("/sys/fs/cgroup/blkio") / path.lstrip("/")
        if "blkio" in controllers.split(",") and (folder / "blkio.throttle.read_bps_device").exists():
            return folder
    raise CannotRunError("no cgroup v1 blkio controller with throttling at /sys/fs/cgroup/blkio")


def _build(stack: ExitStack, index: int, first_loop: int, folder: Path, size_bytes: int, cap: int) -> Lun:
    """Return one mounted LUN; every step leaves its undoing on the stack before it is taken."""
    lun = Lun(
        index,
        f"loop{first_loop + index}",
        f"loop{first_loop + MAX_LUNS + index}",
        folder / f"lun{index}.img",
        folder / f"lun{index}",
        cap,
    )
    lun.mount.mkdir()
    with lun.backing.open("wb") as backing:
        backing.truncate(size_bytes)
    attach(stack, lun.throttled, lun.backing)
    stack.callback(_set_cap, lun.throttled, 0)
    _set_cap(lun.throttled, cap)
    attach(stack, lun.sampled, Path("/dev") / lun.throttled)
    device = f"/dev/{lun.sampled}"
    run("mkfs.ext4", "-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", device)
    stack.callback(_unmount, lun.mount)
    run("mount", "-o", "noatime", device, str(lun.mount))
    return lun


def attach(stack: ExitStack, name: str, target: Path) -> None:
    """Add loop device `name` and put it on `target` with direct I/O; `stack` takes the undoing."""
    number = int(name.removeprefix("loop"))
    node = Path("/dev") / name
    if Path("/sys/block", name).exists():
        raise TestbedError(f"{name} exists already; it is not this testbed's to use")
    _control(LOOP_CTL_ADD, number)
    stack.callback(_remove, number, node)
    if not node.exists():
        major, minor = map(int, Path("/sys/block", name, "dev").read_text().split(":"))
        os.mknod(node, 0o600 | stat.S_IFBLK, os.makedev(major, minor))
    stack.callback(_detach, name)
    run("losetup", "--direct-io=on", str(node), str(target))


def _set_cap(name: str, bytes_per_second: int) -> None:
    """Set a device's read and write cap; 0 clears it."""
    device = Path("/sys/block", name, "dev").read_text().strip()
    for direction in ("read", "write"):
        rule = blkio_folder() / f"blkio.throttle.{direction}_bps_device"
        rule.write_text(f"{device} {bytes_per_second}\n")


def _unmount(mount: Path) -> None:
    if mount.is_mount():
        run("umount", str(mount))


def _detach(name: str) -> None:
    """Take a loop device off its file and wait until the kernel has let go of it."""
    attached = Path("/sys/block", name, "loop")
    if attached.exists():
        run("losetup", "--detach", f"/dev/{name}")
    deadline = time.monotonic() + DETACH_SECONDS
    while attached.exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def _remove(number: int, node: Path) -> None:
    """Remove a loop device and its node; one that stays busy is reported, no more."""
    deadline = time.monotonic() + DETACH_SECONDS
    while True:
        try:
            _control(LOOP_CTL_REMOVE, number)
        except OSError as exc:
            if exc.errno == errno.EBUSY and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            print(f"testbed: /dev/loop{number} stays behind: {exc.strerror}", file=sys.stderr)
        else:
            node.unlink(missing_ok=True)
        return


def _control(request: int, number: int) -> None:
    with LOOP_CONTROL.open("rb", buffering=0) as control:
        fcntl.ioctl(control, request, number)


def run(*command: str) -> str:
    """Run a command to its end and return what it printed.

    Raises TestbedError with its last line of stderr, or of stdout where that is empty.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_SECONDS)
    except subprocess.TimeoutExpired as exc:
        raise TestbedError(f"{command[0]} did not end within {RUN_SECONDS:.0f} s") from exc
    if done.returncode != 0:
        reason = (f"{done.stdout}\n{done.stderr}".strip().splitlines() or ["no message"])[-1]
        raise TestbedError(f"{command[0]} failed with {done.returncode}: {reason}")
    return done.stdout
