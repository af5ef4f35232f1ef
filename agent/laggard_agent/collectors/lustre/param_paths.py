"""Where this node's Lustre keeps its files: found by looking, never by the version.

What was in /proc moved to debugfs and sysfs, file by file, between 2.11 and 2.17, and vendors port back as
they like. So every file of every device is looked for in all three trees, and taken where it is.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from laggard_agent.collectors.interface import read_file
from laggard_agent.collectors.read_recorder import note_name, note_not_read

MOST_FILE_BYTES = 64 * 1024 * 1024  # job_stats of 10,000 jobs is 25 MB

Places = Mapping[str, Mapping[str, str]]  # device -> file -> where it can be read


@dataclass(frozen=True, slots=True)
class Located:
    """The devices of some kinds, with the files that each has.

    `refused`: folders that may not be looked at, and why. `partial`: not all files were asked for.
    """

    devices: Places
    refused: tuple[str, ...]
    partial: bool = False


class Parameters(Protocol):
    """Lustre's parameters, wherever they come from."""

    def locate(self, kinds: Sequence[str], files: Sequence[str]) -> Located:
        """Devices of all `kinds` (`obdfilter`, `ost/OSS`), and which of `files` they have."""
        ...

    def find(self, file: str) -> str | None:
        """Where a parameter of no device is, such as `health_check`; None where it is not."""
        ...

    def read(self, place: str) -> bytes:
        """The bytes at a place that `locate` or `find` told. Raises CollectError."""
        ...

    def roots(self) -> str:
        """Where was looked, in words."""
        ...

    def refresh(self) -> None:
        """Called before everything is located anew. Raises CollectError."""
        ...


class Trees:
    """`<procfs>/fs/lustre`, `<sysfs>/fs/lustre` and `<debugfs>/lustre`; None where there is no such tree."""

    def __init__(self, procfs: Path | None, sysfs: Path | None, debugfs: Path | None) -> None:
        below = ((procfs, "fs/lustre"), (sysfs, "fs/lustre"), (debugfs, "lustre"))
        self._roots = [os.path.join(root, path) for root, path in below if root is not None]  # noqa: PTH118
        self._debugfs = None if debugfs is None else str(debugfs)

    def locate(self, kinds: Sequence[str], files: Sequence[str]) -> Located:
        """As `Parameters`. The first kind, then the first tree, that has a device's file counts."""
        found: dict[str, dict[str, str]] = {}
        refused = set(self._closed_debugfs())
        roots = self._roots[:-1] if refused else self._roots
        for kind in kinds:
            for root in roots:
                folder = f"{root}/{kind}"
                try:
                    with os.scandir(folder) as entries:
                        devices = [entry for entry in entries if entry.is_dir()]
                except (NotADirectoryError, FileNotFoundError):
                    continue
                except OSError as exc:
                    refused.add(f"{folder}: {exc.strerror}")
                    note_not_read(folder, str(exc.strerror))
                    continue
                for device in devices:
                    _add(found, device.name, device.path, files)
        return Located(found, tuple(sorted(refused)))

    def find(self, file: str) -> str | None:
        """As `Parameters`."""
        paths = (f"{root}/{file}" for root in self._roots)
        return next((path for path in paths if os.path.isfile(path)), None)  # noqa: PTH113

    def read(self, place: str) -> bytes:
        """As `Parameters`."""
        return read_file(place, MOST_FILE_BYTES)

    def roots(self) -> str:
        """As `Parameters`."""
        return ", ".join(self._roots)

    def refresh(self) -> None:
        """Nothing: trees are looked at each time."""

    def _closed_debugfs(self) -> Iterable[str]:
        """/sys/kernel/debug is open to root alone, and looks empty where it is not mounted."""
        if self._debugfs is not None and os.path.isdir(self._debugfs):  # noqa: PTH112
            try:
                os.listdir(self._debugfs)  # noqa: PTH208
            except OSError as exc:
                note_not_read(self._debugfs, str(exc.strerror))
                yield f"{self._debugfs}: {exc.strerror}"


def _add(found: dict[str, dict[str, str]], name: str, folder: str, files: Sequence[str]) -> None:
    note_name(folder, is_folder=True)
    places = found.setdefault(name, {})
    for file in files:
        if file not in places:
            path = f"{folder}/{file}"
            if os.access(path, os.F_OK):  # half of `exists`; a thousand files on a large server
                places[file] = path
