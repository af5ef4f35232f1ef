"""Where files lie: device, disk of a partition, file behind a loop device, device below a mapped one."""

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from laggard_aggregator.layers.record import fiemap

SYSTEM = Path("/sys/dev/block")
SECTOR_BYTES = 512
MAX_FILES = 256


@dataclass(slots=True)
class FileDevices:
    """Devices of files by their numbers (`7,0`).

    `lies_on`: the device below each. `partitions`: disk and first byte. `backing_files`: of loop devices.
    """

    file_devices: dict[str, str] = field(default_factory=dict)
    lies_on: dict[str, str] = field(default_factory=dict)
    partitions: dict[str, tuple[str, int]] = field(default_factory=dict)
    backing_files: dict[str, str] = field(default_factory=dict)
    inodes: dict[str, list[int]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def all(self) -> list[str]:
        """All devices whose events belong to the files, in the order in which they were found."""
        disks = [disk for disk, _ in self.partitions.values()]
        return list(dict.fromkeys([*self.file_devices.values(), *self.lies_on.values(), *disks]))

    def add_files(self, paths: Iterable[Path], out: TextIO, system: Path = SYSTEM) -> None:
        """Writes the extents of the files, and of those behind loop devices, as `filefrag -v` prints them."""
        waiting = [*paths]
        if len(waiting) > MAX_FILES:
            self.remarks.append(f"{len(waiting)} files were open, {MAX_FILES} are mapped to their devices")
        waiting = waiting[:MAX_FILES]
        out.write("Filesystem type is: unknown\n")
        while waiting:
            path = waiting.pop(0)
            if str(path) in self.file_devices:
                continue
            lines, known = fiemap.filefrag_lines(path)
            out.writelines(lines)
            if known is None:
                self.remarks.append(f"{path} could not be opened: it is not mapped to its device")
                continue
            number = f"{os.major(known.st_dev)},{os.minor(known.st_dev)}"
            if os.major(known.st_dev) == 0:
                self.remarks.append(
                    f"{path} lies on a file system without a block device of its own: its block and device "
                    "layers are not recorded"
                )
                continue
            self.file_devices[str(path)] = number
            self.inodes[str(path)] = [known.st_dev, known.st_ino]
            backing = self._look_below(number, system)
            if backing:
                waiting.append(Path(backing))

    def _look_below(self, device: str, system: Path) -> str:
        """Follows a device down; returns the file behind it, if it is a loop device."""
        place = system / device.replace(",", ":")
        with suppress(OSError):
            backing = (place / "loop" / "backing_file").read_text().rstrip("\n")
            self.backing_files[device] = backing
            with suppress(OSError):
                number = Path(backing).stat().st_dev
                self.lies_on[device] = f"{os.major(number)},{os.minor(number)}"
            return backing
        with suppress(OSError, ValueError):
            first = int((place / "start").read_text()) * SECTOR_BYTES
            if (place / "partition").exists():
                disk = (place.resolve().parent / "dev").read_text().strip().replace(":", ",")
                self.partitions[device] = (disk, first)
                return self._look_below(disk, system)
        return self._follow_mapped(device, place, system)

    def _follow_mapped(self, device: str, place: Path, system: Path) -> str:
        """Adds the device below a mapped one (dm, md), where there is one alone, and those below that."""
        below: list[str] = []
        with suppress(OSError):
            below = [(slave / "dev").read_text().strip() for slave in sorted((place / "slaves").iterdir())]
        if len(below) > 1:
            self.remarks.append(
                f"device {device} lies on {len(below)} devices: they are not recorded, and its requests not "
                "followed down"
            )
        elif below:
            self.remarks.append(f"device {device} is mapped: requests below it are matched by size and time")
            lower = below[0].replace(":", ",")
            self.lies_on[device] = lower
            if lower not in self.lies_on:
                return self._look_below(lower, system)
        return ""
