"""An instance of tracefs: events of its own, buffers of a set size, and the count of lost events."""

import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from laggard_common.errors import ServiceError

MOUNTS = Path("/proc/self/mounts")


@contextmanager
def mounted() -> Iterator[Path]:
    """The root of tracefs; mounted in a folder of its own for the time of the body where it is not mounted
    yet.

    Raises ServiceError without root.
    """
    if os.geteuid() != 0:
        raise ServiceError("recording reads kernel tracepoints, which needs root")
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


class TraceInstance:
    """One instance below `root`. Raises ServiceError where the kernel does not allow it."""

    def __init__(self, root: Path, name: str, buffer_kib: int) -> None:
        self.path = root / "instances" / name
        try:
            self.path.mkdir()
            self.write("tracing_on", "0")
            self.write("trace_clock", "mono")
            self.write("options/overwrite", "0")  # what does not fit is dropped, and counted
            self.write("options/record-tgid", "1")
            self.write("buffer_size_kb", str(buffer_kib))
        except OSError as exc:
            self.remove()
            raise ServiceError(f"{self.path}: {exc.strerror or exc}") from exc

    def write(self, name: str, value: str) -> None:
        """Writes one of its files."""
        (self.path / name).write_text(value)

    def enable(self, events: Iterable[str]) -> list[str]:
        """Enables events; returns those that this kernel has."""
        found = []
        for event in events:
            switch = self.path / "events" / event / "enable"
            if switch.exists():
                switch.write_text("1")
                found.append(event)
        return found

    def follow(self, threads: Iterable[int]) -> None:
        """Records only these threads and those that they create."""
        self.write("options/event-fork", "1")
        with (self.path / "set_event_pid").open("w") as file:
            for thread in threads:
                file.write(f"{thread}\n")
                file.flush()

    def followed(self) -> list[int]:
        """All threads that are followed now."""
        return [int(word) for word in (self.path / "set_event_pid").read_text().split() if word.isdigit()]

    def lost(self) -> int:
        """Events that did not fit in the buffers."""
        total = 0
        for stats in self.path.glob("per_cpu/cpu*/stats"):
            for line in stats.read_text().splitlines():
                name, _, value = line.partition(":")
                if name in ("overrun", "commit overrun", "dropped events") and value.strip().isdigit():
                    total += int(value)
        return total

    def remove(self) -> None:
        """Ends the tracing and removes the instance."""
        with suppress(OSError):
            self.write("tracing_on", "0")
        with suppress(OSError):
            self.path.rmdir()
