"""Marks: positions in trace logs up to which records were sent, kept in a file over restarts of the agent.

A mark belongs to an inode, so a renamed log keeps it. The marks of logs that are out of sight are kept, too:
a folder may be mounted late, and a log may come back under another name.
"""

import json
import logging
import os
import zlib
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final

from laggard_common.segment_log import sync_path

_log = logging.getLogger(__name__)

TAIL_BYTES: Final = 512
MAX_UNSEEN: Final = 1024
"""Marks of missing logs that are kept, those seen last."""
_UNSEEN_NS: Final = 30 * 86_400 * 10**9
"""Time for which the mark of a missing log is kept."""

FileId = tuple[int, int]
"""Device and inode of a file."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A position in a log. `tail`: checksum of the bytes before; `seen_ns`: when the log was last open.

    `path`, `since_ns`: of the log when it was first seen, which names it for good.
    """

    device: int
    inode: int
    since_ns: int
    at: int = 0
    tail: int = 0
    job: str = ""
    path: str = ""
    seen_ns: int = 0

    @property
    def file(self) -> FileId:
        """Device and inode of the log."""
        return self.device, self.inode

    def follows(self, fd: int) -> bool:
        """Whether the open file is the mark's, and the bytes before it are the same. Raises OSError."""
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) != self.file or status.st_size < self.at:
            return False
        first = max(self.at - TAIL_BYTES, 0)
        return zlib.crc32(os.pread(fd, self.at - first, first)) == self.tail


class Marks:
    """The marks of `node` in the file at `path`.

    `session`: number of this start of the agent. A file that cannot be read is a WARNING, and counts as none.
    """

    def __init__(self, path: Path, node: str) -> None:
        self._path = path
        self._node = node
        self._marks: dict[FileId, Mark] = {}
        self.session = 1
        try:
            kept = json.loads(path.read_bytes())
            if kept["node"] != node:
                return
            marks = [Mark(**values) for values in kept["logs"].values()]
            self.session = int(kept["session"]) + 1
            self._marks = {mark.file: mark for mark in marks if mark.path.isprintable()}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
            _log.warning("traces: %s: %s; sending logs from their beginning", path, exc)

    def of(self, file: FileId) -> Mark | None:
        """The mark of a file, None without one."""
        return self._marks.get(file)

    def put(self, mark: Mark) -> None:
        """Replaces the mark of its file."""
        self._marks[mark.file] = mark

    def save(self, present: Collection[FileId], now_ns: int) -> None:
        """Writes the marks; those of files that are not `present` are bounded. Raises OSError."""
        for file in present:
            self._marks[file] = replace(self._marks[file], seen_ns=now_ns)
        unseen = sorted(
            (mark for file, mark in self._marks.items() if file not in present), key=lambda mark: mark.seen_ns
        )
        for at, mark in enumerate(unseen, MAX_UNSEEN - len(unseen)):
            if at < 0 or now_ns - mark.seen_ns > _UNSEEN_NS:
                del self._marks[mark.file]
        logs = {
            f"{mark.device}:{mark.inode}": {name: getattr(mark, name) for name in _FIELDS}
            for mark in self._marks.values()
        }
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps({"node": self._node, "session": self.session, "logs": logs}))
        sync_path(new)  # else a power loss may leave an empty file, and a session's number may come twice
        new.replace(self._path)


_FIELDS: Final = tuple(field.name for field in fields(Mark))
