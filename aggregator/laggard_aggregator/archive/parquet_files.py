"""Writes Parquet files atomically, with the archive's encodings."""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from laggard_aggregator.archive.layout import FORMAT
from laggard_common.errors import ArchiveError

ROW_GROUP_ROWS = 131_072
ZSTD_LEVEL = 3
_INTEGERS = (pa.int64(), pa.uint64(), pa.uint32(), pa.timestamp("ns", tz="UTC"))


def write_parquet(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch | pa.Table]) -> int:
    """Writes `batches` to `path`; returns the size in bytes.

    The file gets its name only when it is complete and on disk. Raises ArchiveError and leaves nothing behind
    when it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    schema = schema.with_metadata({**(schema.metadata or {}), b"laggard.format": FORMAT.encode()})
    try:
        _make(path.parent)
        with pq.ParquetWriter(temporary, schema, **_options(schema)) as writer:
            for batch in batches:
                table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
                writer.write_table(table.replace_schema_metadata(schema.metadata), ROW_GROUP_ROWS)
        _sync(temporary)
        size = temporary.stat().st_size
        temporary.rename(path)
        _sync(path.parent)
    except OSError as exc:
        raise ArchiveError(str(path), exc.strerror or str(exc)) from exc
    finally:
        with suppress(OSError):
            temporary.unlink()
    return size


def _options(schema: pa.Schema) -> Mapping[str, object]:
    """Dictionaries for strings and packed deltas for integers, which suit slowly rising counters."""
    texts = [each.name for each in schema if pa.types.is_dictionary(each.type)]
    deltas = {each.name: "DELTA_BINARY_PACKED" for each in schema if each.type in _INTEGERS}
    return {
        "compression": "zstd",
        "compression_level": ZSTD_LEVEL,
        "use_dictionary": texts,
        "column_encoding": deltas or None,
        "write_statistics": True,
    }


def _make(folder: Path) -> None:
    """Creates a folder durably (fsync of its parent)."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync(folder.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
