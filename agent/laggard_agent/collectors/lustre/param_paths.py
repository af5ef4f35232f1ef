"""Locates Lustre's files by searching, independent of the version.

Between 2.11 and 2.17 files moved from /proc to debugfs and sysfs one by one, and vendors backport changes. So
every file of every device is searched in all three trees.

A saved output of `lctl get_param` may take their place, for support cases. There a parameter is a line
`name=value`, or a line `name=` and the lines after it. The last occurrence of a name counts (a file may hold
several commands). Parameters that are not in the file are not errors.
"""

import codecs
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from laggard_agent.collectors.interface import note_name, note_not_read, read_file

MOST_FILE_BYTES = 64 * 1024 * 1024  # job_stats of 10,000 jobs is 25 MB

_HEAD = re.compile(rb"^([A-Za-z0-9_][^\s=]*)=(.*)$", re.MULTILINE)

Places = Mapping[str, Mapping[str, str]]  # device -> file -> its location


@dataclass(frozen=True, slots=True)
class Located:
    """The devices of some kinds, with the files that each has.

    `refused`: unreadable folders with the reason. `partial`: not all files were requested.
    """

    devices: Places
    refused: tuple[str, ...]
    partial: bool = False


class Parameters(Protocol):
    """Source of Lustre's parameters. `roots`: where they are searched, as text."""

    roots: str

    def locate(self, kinds: Sequence[str], files: Sequence[str]) -> Located:
        """Devices of all `kinds` (`obdfilter`, `ost/OSS`), and the `files` that each has."""
        ...

    def find(self, file: str) -> str | None:
        """Location of a parameter without device, such as `health_check`; None if missing."""
        ...

    def read(self, place: str) -> bytes:
        """Bytes at a location returned by `locate` or `find`. Raises CollectError."""
        ...

    def refresh(self) -> None:
        """Called before all files are located again. Raises CollectError."""
        ...


class Trees:
    """`<procfs>/fs/lustre`, `<sysfs>/fs/lustre` and `<debugfs>/lustre`; None where a tree is missing."""

    def __init__(self, procfs: Path | None, sysfs: Path | None, debugfs: Path | None) -> None:
        below = ((procfs, "fs/lustre"), (sysfs, "fs/lustre"), (debugfs, "lustre"))
        self._roots = [os.path.join(root, path) for root, path in below if root is not None]  # noqa: PTH118
        self.roots = ", ".join(self._roots)
        self._debugfs = None if debugfs is None else str(debugfs)

    def locate(self, kinds: Sequence[str], files: Sequence[str]) -> Located:
        """As `Parameters`. The first kind, then the first tree, with a device's file counts."""
        files_of: dict[str, dict[str, str]] = {}
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
                    _add(files_of, device.name, device.path, files)
        return Located(files_of, tuple(sorted(refused)))

    def find(self, file: str) -> str | None:
        """As `Parameters`."""
        paths = (f"{root}/{file}" for root in self._roots)
        return next((path for path in paths if os.path.isfile(path)), None)  # noqa: PTH113

    def read(self, place: str) -> bytes:
        """As `Parameters`."""
        return read_file(place, MOST_FILE_BYTES)

    def refresh(self) -> None:
        """Does nothing: trees are read each time."""

    def _closed_debugfs(self) -> Iterable[str]:
        """True for an inaccessible debugfs: only root may open /sys/kernel/debug; unmounted it is empty."""
        if self._debugfs is not None and os.path.isdir(self._debugfs):  # noqa: PTH112
            try:
                os.listdir(self._debugfs)  # noqa: PTH208
            except OSError as exc:
                note_not_read(self._debugfs, str(exc.strerror))
                yield f"{self._debugfs}: {exc.strerror}"


def _add(devices: dict[str, dict[str, str]], name: str, folder: str, files: Sequence[str]) -> None:
    note_name(folder, is_folder=True)
    places = devices.setdefault(name, {})
    for file in files:
        if file not in places:
            path = f"{folder}/{file}"
            if os.access(path, os.F_OK):  # half of `exists`; a thousand files on a large server
                places[file] = path


def parse_dump(data: bytes) -> dict[str, bytes]:
    """Text of each parameter by name, such as `obdfilter.scratch-OST0000.stats`. Raises nothing."""
    heads = list(_HEAD.finditer(data))
    ends = [*(head.start() for head in heads), len(data)][1:]
    return {
        head[1].decode("utf-8", "replace"): data[head.start(2) : end].lstrip(b"\r\n")
        for head, end in zip(heads, ends, strict=bool(heads))
    }


class ParamDump:
    """Parameters of a saved output; `refresh` reads the file again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.roots = str(path)
        self._parameters: dict[str, bytes] = {}

    def locate(self, kinds: Sequence[str], files: Sequence[str]) -> Located:
        """As `Parameters`."""
        devices: dict[str, dict[str, str]] = {}
        for kind in kinds:
            prefix = kind.replace("/", ".") + "."
            for name in self._parameters:
                if name.startswith(prefix):
                    device, _, file = name[len(prefix) :].partition(".")
                    if file:
                        places = devices.setdefault(device, {})
                        if file in files:
                            places.setdefault(file, name)
        return Located(devices, (), partial=True)

    def find(self, file: str) -> str | None:
        """As `Parameters`."""
        return file if file in self._parameters else None

    def read(self, place: str) -> bytes:
        """As `Parameters`."""
        return self._parameters[place]

    def refresh(self) -> None:
        """Reads the file. Raises CollectError."""
        data = read_file(self._path, MOST_FILE_BYTES)
        self._parameters = parse_dump(data.removeprefix(codecs.BOM_UTF8))
