"""What a collector is, and how it reads files: the seam between a source and everything after it."""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from laggard_agent.collectors.read_recorder import note_not_read, note_read
from laggard_common.errors import CollectError
from laggard_common.wire.codec import Row
from laggard_common.wire.schema import Component, Field

Now = Callable[[], int]  # nanoseconds since the epoch on the agent's timeline

ABSENT = (errno.ENOENT, errno.ENOTDIR)

MAX_FILE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Reading:
    """One table as it was read at one moment: `rows[i]` belongs to `components[i]`, its values to `fields`.

    A value is None where the component lacks the field. A row that did not change is the same object as in
    the reading before, and so is `components` when none came or went: later stages compare by identity.
    """

    source: str
    fields: tuple[Field, ...]
    read_at_ns: int
    components: tuple[Component, ...]
    rows: Sequence[Row]


class Collector(Protocol):
    """Reads one source, on a thread of its own."""

    name: str

    def read(self) -> Iterator[Reading]:
        """What the source says now. Raises CollectError, after everything that could be read was yielded."""
        ...


def read_file(path: Path | str, most_bytes: int = MAX_FILE_BYTES) -> bytes:
    """All bytes of a file of /proc or /sys. Raises CollectError, also for a file that is longer than that."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            chunks = []
            size = 0
            while chunk := os.read(fd, 65536):
                chunks.append(chunk)
                size += len(chunk)
                if size > most_bytes:
                    reason = f"longer than {most_bytes} bytes"
                    note_not_read(path, reason)
                    raise CollectError(str(path), reason)
        finally:
            os.close(fd)
    except OSError as exc:
        reason = exc.strerror or str(exc)
        if exc.errno not in ABSENT:
            note_not_read(path, reason)
        raise CollectError(str(path), reason) from exc
    data = b"".join(chunks)
    note_read(path, data)
    return data
