"""The disk of a simulated host: true files, and beside them a record of their state when it was last synced.

Files lie in a folder of the real file system, so the product's code and its libraries read them as they are.
A disk can be full or slow, can tear a write at which its process is killed, and can lose all that was not
synced.
"""

import os
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Policy = Literal["lost", "torn", "kept"]
"""The fate of everything that was not synced when the power is lost: all is lost; a part of each file and the
names of some folders are kept; nothing is lost."""
POLICIES: tuple[Policy, ...] = ("lost", "torn", "kept")

_OF_SQLITE = ".sqlite", ".db"
"""Parts of the names of SQLite's files, which are trusted to be as of the last transaction."""
_SECONDS = 0.004
"""Mean time of a job with operations on a healthy disk."""


@dataclass(slots=True, eq=False)
class _File:
    """Content when it was last synced; None if it never was."""

    synced: bytes | None = None


@dataclass(slots=True, eq=False)
class _Names:
    """Names of a folder when it was last synced: a file, or None for a folder."""

    synced: dict[str, _File | None] = field(default_factory=dict)


class SimulatedDisk:
    """All below `folder`. `full`: names of its top folders that take no further byte, such as `state`."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder = folder
        self.full: set[str] = set()
        self.slowness = 1.0
        self.was_slow = False
        self.operations = 0
        self._prefix = f"{folder}/"
        self.rng = rng
        self._files: dict[str, _File] = {}  # by path
        self._folders: dict[str, _Names] = {}

    def seconds(self) -> float:
        """Time that a job takes."""
        return self.rng.expovariate(1.0) * _SECONDS * self.slowness

    def make_folders(self, *names: str) -> None:
        """Makes top folders, durably."""
        top = self._folders[str(self.folder)] = _Names()
        for name in names:
            (self.folder / name).mkdir(parents=True)
            top.synced[name] = None
            self._folders[str(self.folder / name)] = _Names()

    def place(self, top: str, name: str, content: bytes) -> None:
        """Puts a file into a top folder, durably, as another program does."""
        path = self.folder / top / name
        path.write_bytes(content)
        self.synced(str(path))
        self.synced(str(path.parent))

    def owns(self, path: str) -> bool:
        """Whether `path` is below the folder."""
        return path.startswith(self._prefix)

    def refuses(self, path: str) -> bool:
        """Whether the disk of `path` is full."""
        return bool(self.full) and path.removeprefix(self._prefix).partition("/")[0] in self.full

    # -- operations that succeeded

    def synced(self, path: str) -> None:
        """The content of a file, or the names in a folder, are safe."""
        if os.path.isdir(path):  # noqa: PTH112 - in the hot path of every fsync
            with os.scandir(path) as entries:
                found = {e.name: None if e.is_dir() else self._file(e.path) for e in entries}
            self._folders.setdefault(path, _Names()).synced = found
            return
        with open(path, "rb") as file:  # noqa: PTH123
            self._file(path).synced = file.read()

    def moved(self, path: str, to: str) -> None:
        """A file has another name."""
        self._files[to] = self._files.pop(path) if path in self._files else _File()

    def linked(self, path: str, to: str) -> None:
        """A file has a further name."""
        self._files[to] = self._file(path)

    def removed(self, path: str) -> None:
        """A name is gone."""
        if path in self._files:
            del self._files[path]

    # -- faults

    def lose_power(self, policy: Policy) -> None:
        """Leaves the files as they are found after power was lost now."""
        if policy != "kept":
            image = self._image(str(self.folder), policy)
            for top in self.folder.iterdir():
                shutil.rmtree(top)
            self._write(self.folder, image)
        self._files.clear()
        self._folders.clear()
        self._all_safe(str(self.folder))

    def flip_bit(self, top: str, suffixes: tuple[str, ...]) -> str:
        """Flips a bit of a file below a top folder; where, or empty without a file."""
        found = sorted(
            path
            for path in (self.folder / top).rglob("*")
            if path.suffix in suffixes and path.is_file() and path.stat().st_size
        )
        if not found:
            return ""
        path = self.rng.choice(found)
        data = bytearray(path.read_bytes())
        at = self.rng.randrange(len(data))
        data[at] ^= 1 << self.rng.randrange(8)
        path.write_bytes(data)
        self._file(str(path)).synced = bytes(data)
        return f"{path.relative_to(self.folder)} at {at} of {len(data)}"

    def _file(self, path: str) -> _File:
        found = self._files.get(path)
        if found is None:
            found = self._files[path] = _File()
        return found

    def _image(self, path: str, policy: Policy) -> dict[str, Any]:
        """The files and folders to be found in a folder, by name."""
        names = self._folders.get(path, _Names()).synced
        image: dict[str, Any] = {}
        if policy == "torn" and self.rng.random() < 0.5:
            with os.scandir(path) as entries:
                found = sorted(entries, key=lambda e: e.name)
            names = {e.name: None if e.is_dir() else self._file(e.path) for e in found}
        for name, file in names.items():
            below = f"{path}/{name}"
            if file is None:
                image[name] = self._image(below, policy) if os.path.isdir(below) else {}  # noqa: PTH112
            else:
                image[name] = self._content(below, file, policy)
        with os.scandir(path) as entries:
            image |= {
                e.name: Path(e.path).read_bytes()
                for e in entries
                if any(part in e.name for part in _OF_SQLITE)
            }
        return image

    def _content(self, path: str, file: _File, policy: Policy) -> bytes:
        synced = file.synced or b""
        if policy == "lost" or self._files.get(path) is not file or not os.path.exists(path):  # noqa: PTH110
            return synced
        with open(path, "rb") as now:  # noqa: PTH123
            content = now.read()
        if not content.startswith(synced):  # shortened or written anew
            return self.rng.choice((synced, content))
        kept = content[: self.rng.randint(len(synced), len(content))]
        zeros = self.rng.randint(0, len(content) - len(kept)) if self.rng.random() < 0.3 else 0
        return kept + bytes(zeros)  # its size is on the disk before its data

    def _write(self, folder: Path, image: dict[str, Any]) -> None:
        for name, content in image.items():
            if isinstance(content, bytes):
                (folder / name).write_bytes(content)
            else:
                (folder / name).mkdir()
                self._write(folder / name, content)

    def _all_safe(self, path: str) -> None:
        self.synced(path)
        for name, file in self._folders[path].synced.items():
            if file is None:
                self._all_safe(f"{path}/{name}")
            else:
                self.synced(f"{path}/{name}")
