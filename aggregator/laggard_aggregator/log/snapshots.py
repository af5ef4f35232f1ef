"""Snapshots on disk: written atomically, checksummed, the newest two kept.

Synchronous. A snapshot is a segment file. Its sections (`snapshot_codec`) are split into pieces that fit a
record; the last record has the number of sections, and a file without it is invalid.
"""

from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgpack

from laggard_aggregator.log import snapshot_codec
from laggard_aggregator.log.journal import delete_all, state_errors
from laggard_common import segment_log
from laggard_common.errors import StateError

SUFFIX = ".snapshot"
KEPT = 2
_PIECE_BYTES = 4 * 1024 * 1024
_PIECE, _LAST_PIECE, _END = 1, 2, 3


class Pruned(NamedTuple):
    """`oldest`: number of the oldest snapshot that is kept. `problem`: about a file that stays, or empty."""

    oldest: int
    problem: str


def write(directory: Path, number: int, sections: Iterator[Any]) -> int:
    """Writes and fsyncs the snapshot before journal segment `number`; its size in bytes.

    It is not valid before `publish`. Raises StateError.
    """
    temporary = _temporary(directory, number)
    try:
        with state_errors(temporary):
            temporary.unlink(missing_ok=True)
            with closing(segment_log.SegmentWriter(temporary)) as writer:
                count = 0
                for section in sections:
                    _write(writer, snapshot_codec.pack(section))
                    count += 1
                writer.append(_END, msgpack.packb(count))
                writer.sync()
                return writer.size_bytes
    except StateError:
        discard(directory, number)
        raise


def publish(directory: Path, number: int) -> None:
    """Renames a written snapshot to its final name. Raises StateError."""
    path = _path(directory, number)
    with state_errors(path):
        _temporary(directory, number).replace(path)
        segment_log.sync_path(directory)


def discard(directory: Path, number: int) -> None:
    """Deletes an unpublished snapshot."""
    with suppress(OSError):
        _temporary(directory, number).unlink(missing_ok=True)


def numbers(directory: Path) -> list[int]:
    """Numbers of the snapshots, newest first. Raises StateError."""
    with state_errors(directory):
        stems = [path.stem for path in segment_log.files(directory, SUFFIX)]
    return sorted((int(stem) for stem in stems if stem.isdecimal()), reverse=True)


def read(directory: Path, number: int) -> Iterator[Any]:
    """The sections of a snapshot, one at a time. Raises StateError, possibly after some of them."""
    path = _path(directory, number)
    pieces: list[bytes] = []
    count, ended, end = 0, False, len(segment_log.MAGIC)
    try:
        with state_errors(path):
            for record in segment_log.scan(path):
                if ended:
                    raise ValueError("something follows its end")
                if record.offset != end:
                    raise ValueError(f"the record at {end} is damaged")
                end = record.end
                if record.type == _END:
                    ended = msgpack.unpackb(record.payload) == count
                    if not ended or pieces:
                        raise ValueError("a section is missing")
                    continue
                pieces.append(record.payload)
                if record.type == _LAST_PIECE:
                    yield snapshot_codec.unpack(b"".join(pieces))
                    count, pieces = count + 1, []
                elif record.type != _PIECE:
                    raise ValueError(f"a record of type {record.type}")
    except (ValueError, msgpack.UnpackException) as exc:
        raise StateError(str(path), f"is not a snapshot: {exc}") from exc
    if not ended:
        raise StateError(str(path), "is not a snapshot: it is cut short, or damaged")


def prune(directory: Path, unusable: Collection[int] = ()) -> "Pruned":
    """Deletes all but the newest KEPT and the leftovers of a crash; the oldest kept.

    Those that are `unusable` do not count and are deleted; the result is 0 where only one is left then. The
    caller writes no snapshot meanwhile. Raises StateError where the directory cannot be read.
    """
    snapshots = numbers(directory)
    kept = [number for number in snapshots if number not in unusable][:KEPT]
    with state_errors(directory):
        left_overs = segment_log.files(directory, f"{SUFFIX}.tmp", ".")
    old = [_path(directory, number) for number in snapshots if number not in kept]
    problem = delete_all([*left_overs, *old])
    return Pruned(kept[-1] if kept and not (unusable and len(kept) < KEPT) else 0, problem)


def _path(directory: Path, number: int) -> Path:
    return directory / f"{number:012d}{SUFFIX}"


def _temporary(directory: Path, number: int) -> Path:
    return directory / f".{number:012d}{SUFFIX}.tmp"


def _write(writer: segment_log.SegmentWriter, data: bytes) -> None:
    for at in range(0, len(data), _PIECE_BYTES):
        last = at + _PIECE_BYTES >= len(data)
        writer.append(_LAST_PIECE if last else _PIECE, data[at : at + _PIECE_BYTES])
