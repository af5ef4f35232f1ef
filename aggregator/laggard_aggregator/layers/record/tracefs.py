"""An instance of tracefs: events of its own, buffers of a set size, and the count of lost events."""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from laggard_common.errors import ServiceError

MOUNTS = Path("/proc/self/mounts")
_OWN = re.compile(r"laggard-([0-9]{1,10})-[a-z]+")
_REMOVAL_SECONDS = 1.0
_RETRY_SECONDS = 0.02
_THREAD_ROUNDS = 20


@contextmanager
def mounted() -> Iterator[Path]:
    """The root of tracefs; mounted in a folder of its own for the time of the body where it is not mounted
    yet.

    Raises ServiceError where it cannot be mounted.
    """
    for line in MOUNTS.read_text().splitlines():
        _, where, kind, *_ = line.split(" ")
        if kind == "tracefs":
            yield Path(where)
            return
    folder = tempfile.mkdtemp(prefix="laggard-tracefs-")
    try:
        done = subprocess.run(
            ["mount", "-t", "tracefs", "nodev", folder], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ServiceError(f"tracefs cannot be mounted: {done.stderr.strip()}")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=False)
    finally:
        with suppress(OSError):
            Path(folder).rmdir()  # never its content, which would be the kernel's


def remove_abandoned(root: Path) -> None:
    """Removes instances of recorders that were killed. One that is in use cannot be removed, and stays."""
    with suppress(OSError):
        for instance in (root / "instances").iterdir():
            match = _OWN.fullmatch(instance.name)
            if match and not Path(f"/proc/{match[1]}").exists():
                with suppress(OSError):
                    instance.rmdir()


class TraceInstance:
    """One instance below `root`. Its methods raise ServiceError where the kernel does not allow it."""

    def __init__(self, root: Path, name: str) -> None:
        self.path = root / "instances" / name
        self._is_ours = False

    def create(self, buffer_kib: int) -> None:
        """Makes it, with the monotonic clock and tracing off. `remove` is right even in the middle of it."""
        with self._refused():
            self._is_ours = True
            try:
                self.path.mkdir()
            except FileExistsError:
                self._is_ours = False  # of a process of that number in another namespace
                raise
            self._write("tracing_on", "0")
            self._write("trace_clock", "mono")
            self._write("options/overwrite", "0")  # what does not fit is dropped, and counted
            self._write("options/record-tgid", "1")
            self._write("buffer_size_kb", str(buffer_kib))

    def write(self, name: str, value: str) -> None:
        """Writes one of its files."""
        with self._refused():
            self._write(name, value)

    def _write(self, name: str, value: str) -> None:
        (self.path / name).write_text(value)

    @contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise ServiceError(f"{self.path}: {exc.strerror or exc}") from exc

    def enable(self, events: Iterable[str]) -> list[str]:
        """Enables events; returns those that this kernel has."""
        enabled = []
        with self._refused():
            for event in events:
                if (self.path / "events" / event / "enable").exists():
                    self._write(f"events/{event}/enable", "1")
                    enabled.append(event)
        return enabled

    def follow(self, threads: Callable[[], list[int]]) -> None:
        """Records only these threads and those that they create.

        Threads that begin while the list is written are listed in the next round. Raises ServiceError for an
        empty list, which would mean all threads of the machine.
        """
        self.write("options/event-fork", "1")
        known: set[int] = set()
        for _ in range(_THREAD_ROUNDS):
            added = [thread for thread in threads() if thread not in known]
            if not added:
                break
            with self._refused(), (self.path / "set_event_pid").open("a" if known else "w") as file:
                for thread in added:
                    file.write(f"{thread}\n")
                    file.flush()
            known.update(added)
        if not known:
            raise ServiceError("the processes have ended")

    def followed(self) -> list[int]:
        """All threads that are followed now."""
        with self._refused():
            return [int(word) for word in (self.path / "set_event_pid").read_text().split() if word.isdigit()]

    def lost(self) -> int:
        """Events that did not fit in the buffers."""
        total = 0
        with self._refused():
            for stats in self.path.glob("per_cpu/cpu*/stats"):
                for line in stats.read_text().splitlines():
                    name, _, value = line.partition(":")
                    if name in ("overrun", "commit overrun", "dropped events") and value.strip().isdigit():
                        total += int(value)
        return total

    def stop(self) -> None:
        """Ends the tracing, if the kernel lets it."""
        with suppress(OSError):
            self._write("tracing_on", "0")

    def remove(self) -> None:
        """Ends the tracing and removes the instance; says on stderr where another program keeps it in use."""
        if not self._is_ours:
            return
        for name in ("tracing_on", "events/enable"):
            with suppress(OSError):
                self._write(name, "0")
        until = time.monotonic() + _REMOVAL_SECONDS
        while True:
            try:
                self.path.rmdir()
            except FileNotFoundError:
                break
            except OSError as exc:
                if time.monotonic() < until:
                    time.sleep(_RETRY_SECONDS)
                    continue
                print(
                    f"laggard layers record: {self.path} is left, with its events off: {exc.strerror}. "
                    "Remove it with rmdir when no program uses it any more",
                    file=sys.stderr,
                )
            break
        self._is_ours = False
