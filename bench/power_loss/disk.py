"""A disk that loses power: files and names as they may be found, from the record of `recorder.c`."""

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal

Policy = Literal["lost", "torn", "kept"]
POLICIES: tuple[Policy, ...] = ("lost", "torn", "kept")
"""The fate of everything that was not synced: all of it is lost; of each folder all names are lost or
none, and of each file the first writes are kept, the last of them in part; nothing is lost, as by kill -9."""

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


@dataclass(slots=True, eq=False)
class File:
    """Content as of the last sync, and the changes since: offset and data, or a size and None."""

    synced: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)

    def content(self, changes: list[tuple[int, bytes | None]]) -> bytearray:
        """The synced content with `changes`."""
        made = bytearray(self.synced)
        for at, data in changes:
            if data is None:
                made[at:] = bytes(max(at - len(made), 0))
            else:
                made[len(made) :] = bytes(max(at - len(made), 0))
                made[at : at + len(data)] = data
        return made


@dataclass(slots=True, eq=False)
class Folder:
    """Names now, and as of the last sync."""

    names: "dict[str, File | Folder]" = field(default_factory=dict)
    synced: "dict[str, File | Folder]" = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Operation:
    """One record: `kind` as in recorder.c."""

    kind: str
    handle: int = 0
    at: int = 0
    data: bytes = b""
    path: str = ""
    other: str = ""


def operations(log: Path) -> Iterator[Operation]:
    """The recorded operations, in order."""
    with log.open("rb") as file:
        while kind := file.read(1).decode():
            if kind == "O":
                handle, cut = _u32(file), file.read(1)[0]
                yield Operation(kind, handle, cut, path=_data(file).decode())
            elif kind == "W":
                handle, at = _u32(file), _U64.unpack(file.read(8))[0]
                yield Operation(kind, handle, at, _data(file))
            elif kind == "T":
                yield Operation(kind, _u32(file), _U64.unpack(file.read(8))[0])
            elif kind == "S":
                yield Operation(kind, _u32(file))
            elif kind in "RL":
                yield Operation(kind, path=_data(file).decode(), other=_data(file).decode())
            else:
                yield Operation(kind, path=_data(file).decode())


class Disk:
    """The disk below `root`, which is there; `apply` does the recorded operations one after the other."""

    def __init__(self, root: Path) -> None:
        self.root = Folder()
        self._prefix = str(root)
        self._handles: dict[int, File | Folder] = {}

    def apply(self, done: Operation) -> None:
        """Does `done`."""
        if done.kind == "O":
            self._open(done)
        elif done.kind in "WT":
            of = self._handles[done.handle]
            assert isinstance(of, File)
            of.pending.append((done.at, done.data if done.kind == "W" else None))
        elif done.kind == "S":
            self._sync(self._handles[done.handle])
        elif done.kind in "RL":
            parent, name = self._parent(done.path)
            other, new = self._parent(done.other)
            node = parent.names[name]
            if done.kind == "R":
                del parent.names[name]
            other.names[new] = node
        elif done.kind == "M":
            parent, name = self._parent(done.path)
            parent.names[name] = Folder()
        else:
            parent, name = self._parent(done.path)
            del parent.names[name]

    def make(self, name: str) -> None:
        """Makes a folder that is safe."""
        self.root.names[name] = self.root.synced[name] = Folder()

    def write(self, into: Path, policy: Policy, rng: random.Random) -> None:
        """Writes files as they are found after power was lost now."""
        self._write(self.root, into, policy, rng)

    def _write(self, folder: Folder, into: Path, policy: Policy, rng: random.Random) -> None:
        into.mkdir()
        kept = policy == "kept" or (policy == "torn" and rng.random() < 0.5)
        for name, node in (folder.names if kept else folder.synced).items():
            if isinstance(node, Folder):
                self._write(node, into / name, policy, rng)
            else:
                (into / name).write_bytes(self._content(node, policy, rng))

    @staticmethod
    def _content(file: File, policy: Policy, rng: random.Random) -> bytes:
        changes = file.pending if policy != "lost" else []
        if policy == "torn" and changes:
            changes = changes[: rng.randint(0, len(changes))]
            if changes and changes[-1][1]:
                at, data = changes[-1]
                assert data is not None
                changes = [*changes[:-1], (at, data[: rng.randint(0, len(data))])]
        return bytes(file.content(changes))

    def _open(self, done: Operation) -> None:
        if done.path == self._prefix:
            self._handles[done.handle] = self.root
            return
        parent, name = self._parent(done.path)
        node = parent.names.setdefault(name, File())
        if done.at and isinstance(node, File):
            node.pending.append((0, None))
        self._handles[done.handle] = node

    def _sync(self, node: File | Folder) -> None:
        if isinstance(node, Folder):
            node.synced = dict(node.names)
        else:
            node.synced, node.pending = node.content(node.pending), []

    def _parent(self, path: str) -> tuple[Folder, str]:
        *folders, name = path.removeprefix(self._prefix + "/").split("/")
        node: File | Folder = self.root
        for each in folders:
            assert isinstance(node, Folder)
            node = node.names[each]
        assert isinstance(node, Folder)
        return node, name


def _u32(file: BinaryIO) -> int:
    number: int = _U32.unpack(file.read(4))[0]
    return number


def _data(file: BinaryIO) -> bytes:
    return file.read(_u32(file))
