"""Readers of the product's files that share no code with it: segments, journal, snapshots, Parquet."""

import hashlib
import json
import math
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

_HEADER = struct.Struct("<IIB")
_MESSAGE = struct.Struct("<QqH")
_JOURNAL = {1: "begin", 2: "batch", 3: "schema", 4: "close", 5: "return", 6: "sweep", 7: "forget"}
_MOST_NUMBERS = 12
_NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]\d+)?")
Json = Any


def records(path: Path) -> Iterator[tuple[int, bytes]]:
    """Type and payload of each record of a segment; fails on a damaged one."""
    data = path.read_bytes()
    assert data[:8] == b"LAGGSEG1"
    at = 8
    while at < len(data):
        length, crc, type_ = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        payload = data[at : at + length]
        assert zlib.crc32(payload, zlib.crc32(bytes((type_,)))) == crc
        yield type_, payload
        at += length


def journal(directory: Path) -> list[list[Json]]:
    """The entries of all segments of a journal: kind, then values; messages as digests.

    Sweeps are left out, as they come by the clock on the wall.
    """
    found: list[list[Json]] = []
    for path in sorted(directory.glob("*.journal")):
        for type_, payload in records(path):
            kind = _JOURNAL[type_]
            if kind in ("batch", "schema"):
                number, received_ns, length = _MESSAGE.unpack_from(payload)
                topic = payload[_MESSAGE.size : _MESSAGE.size + length].decode()
                message = payload[_MESSAGE.size + length :]
                found.append([kind, number, received_ns, topic, digest(_plain_message(message))])
            elif kind != "sweep":
                found.append([kind, plain(msgpack.unpackb(payload))])
    return found


def snapshot(path: Path) -> list[Json]:
    """The sections of a snapshot as plain data; long arrays as digests."""
    sections: list[Json] = []
    pieces: list[bytes] = []
    count = -1
    for type_, payload in records(path):
        assert count < 0
        if type_ == 3:
            count = msgpack.unpackb(payload)
            continue
        pieces.append(payload)
        if type_ == 2:
            packed = zstandard.ZstdDecompressor().decompress(b"".join(pieces))
            sections.append(plain(msgpack.unpackb(packed, ext_hook=_array, strict_map_key=False)))
            pieces = []
    assert count == len(sections)
    return sections


def newest_snapshot(directory: Path) -> Path:
    """The path of the newest snapshot of a state directory."""
    return max(directory.glob("*.snapshot"))


def tables(archive: Path) -> dict[str, pa.Table]:
    """The archive's tables by `kind/source`, all days together, in the order in which rows were written."""
    found: dict[str, list[Path]] = {}
    for path in sorted(archive.rglob("*.parquet")):
        kind, source = (part.partition("=")[2] for part in path.relative_to(archive).parts[:2])
        found.setdefault(f"{kind}/{source}", []).append(path)
    return {
        name: pa.concat_tables([pq.ParquetFile(path).read() for path in paths], promote_options="default")
        for name, paths in sorted(found.items())
    }


def columns(table: pa.Table) -> list[str]:
    """Name, type and nullability of each column, and the metadata of the table."""
    metadata = [f"metadata {key.decode()}" for key in sorted(table.schema.metadata or {})]
    return [f"{f.name}: {f.type}{'' if f.nullable else ' not null'}" for f in table.schema] + metadata


def rows(table: pa.Table) -> list[dict[str, Json]]:
    """The rows as plain data; times in ns since the epoch."""
    plain_columns = {}
    for name in table.column_names:
        column = table.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        plain_columns[name] = column.to_pylist()
    count = table.num_rows
    return [{name: plain(values[i]) for name, values in plain_columns.items()} for i in range(count)]


def plain(value: Json) -> Json:
    """`value` as JSON can say it: bytes as hex, NaN as a word, long arrays as digests."""
    if isinstance(value, np.ndarray):
        return _numbers(value)
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, bytes):
        return value.hex() if len(value) <= 32 else f"{len(value)} bytes {digest(value)}"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def digest(data: bytes) -> str:
    """A short hash."""
    return hashlib.sha256(data).hexdigest()[:16]


def rounded_digest(rows: list[Json]) -> str:
    """A digest of rows whose floats have twelve digits: the last bits differ between kinds of processors."""
    return digest(json.dumps([_rounded(row) for row in rows]).encode())


def _rounded(value: Json) -> Json:
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value


def text(value: Json) -> str:
    """JSON with one entry a line down to the second level, so that a difference shows."""
    if isinstance(value, list):
        return "[\n" + ",\n".join(_line(each) for each in value) + "\n]\n"
    parts = []
    for key, each in value.items():
        if isinstance(each, list):
            inner = ",\n  ".join(_line(one) for one in each)
            parts.append(f"{json.dumps(key)}: [\n  {inner}\n]")
        elif isinstance(each, dict):
            inner = ",\n  ".join(f"{json.dumps(k)}: {_line(v)}" for k, v in each.items())
            parts.append(f"{json.dumps(key)}: {{\n  {inner}\n}}")
        else:
            parts.append(f"{json.dumps(key)}: {_line(each)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def close(now: str, golden: str) -> bool:
    """Whether two texts differ in nothing but the last digits of numbers."""
    parts, others = _NUMBER.split(now), _NUMBER.split(golden)
    numbers, known = _NUMBER.findall(now), _NUMBER.findall(golden)
    return parts == others and all(
        math.isclose(float(a), float(b), rel_tol=1e-9, abs_tol=1e-11)
        for a, b in zip(numbers, known, strict=True)
    )


def _line(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


def _numbers(array: np.ndarray[Any, Any]) -> Json:
    if array.size <= _MOST_NUMBERS:
        return {"dtype": array.dtype.str, "shape": list(array.shape), "values": plain(array.ravel().tolist())}
    return {"dtype": array.dtype.str, "shape": list(array.shape), "sha256": digest(array.tobytes())}


def _array(_: int, data: bytes) -> np.ndarray[Any, Any]:
    dtype, shape, raw = msgpack.unpackb(data)
    return np.frombuffer(raw, dtype=dtype).reshape(shape)


def _plain_message(message: bytes) -> bytes:
    """A message with its payload decompressed: other versions of zstd compress otherwise."""
    parts = msgpack.unpackb(message)
    if len(parts) == 12 and parts[10] == 1:
        head = b""
        payload = parts[11]
        if parts[1] == 3:  # coalesced: the ticks of each batch come first, as they are
            (batches,) = struct.unpack_from("<H", payload)
            head, payload = payload[: 2 + 2 * batches], payload[2 + 2 * batches :]
        parts[11] = head + zstandard.ZstdDecompressor().decompress(payload)
    packed: bytes = msgpack.packb(parts)
    return packed
