"""Lines of large text files as Arrow arrays, without a Python object a line."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from laggard_aggregator.files.compressed import open_input

T = TypeVar("T")
_BLOCK_BYTES = 1 << 23
_LONGEST_LINE_BYTES = 1 << 20


def head(path: Path, size: int = 65536) -> bytes:
    """The first bytes of the file, decompressed, or as many as it has. Raises InputError."""
    with open_input(path, cut=lambda _: None) as file:
        return file.read(size)


def content(path: Path, most: int) -> bytes:
    """The first `most` bytes of the file, decompressed. Raises InputError, also where it is cut short."""
    with open_input(path) as file:
        return file.read(most)


def line_blocks(path: Path, cut: Callable[[str], None]) -> Iterator[Any]:
    """Yields string arrays, one value a line with its newline. Raises InputError.

    Bytes that are no UTF-8 are replaced. A line of more than 1 MiB is cut. `cut` is told when compressed
    data is cut short, and when the last line has no line feed: it may lack digits, so it is left out.
    """
    with open_input(path, cut=cut) as file:
        yield from _blocks(file, cut)


def _blocks(file: BinaryIO, cut_short: Callable[[str], None]) -> Iterator[Any]:
    rest = b""
    while block := file.read(_BLOCK_BYTES):
        block = rest + block
        cut = block.rfind(b"\n") + 1
        if not cut and len(block) < _LONGEST_LINE_BYTES:
            rest = block
            continue
        cut = cut or len(block)
        rest = block[cut:]
        yield _lines(block[:cut])
    if rest:
        text = rest[:60].decode(errors="replace")
        cut_short(f"ends in the middle of a line, or without a line feed: left out: {text!r}")


def _lines(block: bytes) -> Any:
    try:
        block.decode()
    except UnicodeDecodeError:
        block = block.decode(errors="replace").encode()
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == 10) + 1
    if not len(ends) or ends[-1] != len(block):
        ends = np.append(ends, len(block))
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends
    return pa.Array.from_buffers(pa.utf8(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(block)])


def joined(parts: Sequence[T]) -> T:
    """One value of columns from several; each part loses its columns, so that memory holds them once."""
    first = parts[0]
    if len(parts) > 1:
        for column in fields(first):  # type: ignore[arg-type]
            whole = np.concatenate([getattr(part, column.name) for part in parts])
            for part in parts:
                setattr(part, column.name, whole[:0])
            setattr(first, column.name, whole)
    return first


def extracted(lines: Any, pattern: str) -> tuple[NDArray[np.int64], dict[str, Any]]:
    """Indexes of the lines that match, and the named groups of these as string arrays."""
    groups = pc.extract_regex(lines, pattern)
    if groups.null_count:
        indexes = np.flatnonzero(groups.is_valid().to_numpy(zero_copy_only=False))
        kept = groups.drop_null()
    else:
        indexes, kept = np.arange(len(groups)), groups
    return indexes, {field.name: kept.field(i) for i, field in enumerate(kept.type)}


def integers(texts: Any) -> NDArray[np.int64]:
    """Decimal numbers; an empty text is -1. Numbers from 2^63 on wrap."""
    try:
        return np.asarray(pc.cast(texts, pa.int64()).to_numpy(zero_copy_only=False))
    except pa.ArrowInvalid:  # some are empty, or too large
        filled = pc.if_else(pc.equal(texts, ""), "-1", texts)
    try:
        return np.asarray(pc.cast(filled, pa.int64()).to_numpy(zero_copy_only=False))
    except pa.ArrowInvalid:
        return np.array([_wrapped(int(text[:40])) for text in filled.to_pylist()], np.int64)


def hexadecimals(texts: Any) -> NDArray[np.int64]:
    """Hexadecimal numbers with or without 0x, as signed 64-bit; an empty text is -1, longer ones are cut."""
    bare = pc.utf8_slice_codeunits(pc.replace_substring_regex(texts, "^0x", ""), -16)
    bare = pc.if_else(pc.equal(bare, ""), "ffffffffffffffff", bare)
    prefixed = pc.binary_join_element_wise("0x", bare, "")
    return np.asarray(pc.cast(prefixed, pa.uint64()).to_numpy(zero_copy_only=False)).view(np.int64)


def nanoseconds(seconds: Any, fraction: Any) -> NDArray[np.int64]:
    """Times from whole seconds and up to nine decimals."""
    padded = fraction
    if not pc.all(pc.equal(pc.binary_length(fraction), 9)).as_py():
        padded = pc.utf8_slice_codeunits(pc.utf8_rpad(fraction, 9, "0"), 0, 9)
    return integers(seconds) * 1_000_000_000 + integers(padded)


def _wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def matches_lines(first: bytes, pattern: str) -> bool:
    """True when one of the first 200 lines matches."""
    lines = first.decode(errors="replace").splitlines()[:200]
    return bool(len(extracted(pa.array(lines, pa.utf8()), pattern)[0]))
