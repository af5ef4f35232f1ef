"""`laggard layers send`: leaves the requests of a recording in the outbox of this node's agent.

The requests are matched on the node, where the names and maps of its files are. They become documents of
source `layers`; the last document, of source `layer_reports`, has the report and says how many requests there
are, so that a reader knows when the recording is complete.
"""

import argparse
import errno
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from laggard_aggregator.archive.documents import LAYERS, NULL, NUMBERS, TEXTS, RecordingPart, encode_part
from laggard_aggregator.layers.readers.open_recording import open_recording
from laggard_aggregator.layers.report import records
from laggard_aggregator.layers.search import findings
from laggard_aggregator.layers.stack import Stack, build
from laggard_aggregator.layers.store import request_tables
from laggard_common.errors import ConfigError, InputError
from laggard_common.visible import visible
from laggard_common.wire.limits import MAX_EVENT_BYTES, MAX_NAME_CHARS

REPORTS = "layer_reports"
ROWS = 12_000
"""Requests of a document: 1.7 MiB of them, without names."""

Documents = Iterator[tuple[str, bytes]]


def run(args: argparse.Namespace) -> int:
    """Analyses a recording and leaves it in the outbox. Raises LaggardError; nothing is left then."""
    stack = build(open_recording(args.inputs, tuple(args.order)))
    name = args.name or args.inputs[0].resolve().name
    if not (0 < len(name) <= MAX_NAME_CHARS and name.isprintable()):
        raise ConfigError("", [f"--name: expected up to {MAX_NAME_CHARS} printable characters"])
    files, size = leave(
        documents(stack, name), args.outbox, f"{time.time_ns()}-{os.getpid()}", args.max_mib << 20
    )
    print(f"left {files} documents, {size / 2**20:.1f} MiB, in {visible(str(args.outbox))}", file=sys.stderr)
    return 0


def documents(stack: Stack, name: str) -> Documents:
    """Source and content of each document of the recording `name`; the report is the last."""
    requests = parts = 0
    for table in request_tables(stack, "", name, 0):
        requests += table.num_rows
        for first in range(0, table.num_rows, ROWS):
            for content in _contents(table.slice(first, ROWS), name):
                parts += 1
                yield LAYERS, content
    stack_findings = findings(stack)
    report = {
        "recording": name,
        "requests": requests,
        "documents": parts,
        "records": [json.loads(records.line(record)) for record in records.records(stack, stack_findings)],
    }
    content = json.dumps(report).encode()
    if len(content) > MAX_EVENT_BYTES:
        raise InputError(name, "its report is larger than a document")
    yield REPORTS, content


def leave(documents: Documents, outbox: Path, stem: str, max_bytes: int) -> tuple[int, int]:
    """Writes the documents into `outbox`, all or none; returns their number and bytes.

    Raises InputError, also where they take more than `max_bytes`.
    """
    written: list[Path] = []
    size = 0
    try:
        for number, (source, content) in enumerate(documents):
            size += len(content)
            if size > max_bytes:
                raise InputError(str(outbox), f"the recording takes more than --max-mib {max_bytes >> 20}")
            path = outbox / f".{stem}-{number:06d}.{source}"
            written.append(path)
            path.write_bytes(content)
            path.chmod(0o640)
        for path in written:
            path.rename(path.with_name(path.name[1:]))
    except OSError as exc:
        reason = exc.strerror or str(exc)
        if exc.errno == errno.ENOENT:
            reason += ": the agent's [outbox] directory; --outbox names another"
        raise InputError(str(outbox), reason) from exc
    finally:
        for path in written:
            with suppress(OSError):
                path.unlink(missing_ok=True)
    return len(written), size


def _contents(table: pa.Table, name: str) -> Iterator[bytes]:
    """Rows as the contents of one document, or of several where their names are long."""
    content = encode_part(_part(table, name))
    if len(content) <= MAX_EVENT_BYTES or table.num_rows == 1:
        yield content
        return
    half = table.num_rows // 2
    yield from _contents(table.slice(0, half), name)
    yield from _contents(table.slice(half), name)


def _part(table: pa.Table, name: str) -> RecordingPart:
    columns: dict[str, NDArray[np.int64]] = {
        name: table[name].fill_null(NULL).to_numpy().astype(np.int64) for name in NUMBERS
    }
    strings: dict[str, int] = {}
    for text_name in TEXTS:
        values = table[text_name].combine_chunks()
        codes = values.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        used, places = np.unique(codes, return_inverse=True)
        names = [None if code < 0 else values.dictionary[code].as_py() for code in used.tolist()]
        own = [NULL if text is None else strings.setdefault(text, len(strings)) for text in names]
        columns[text_name] = np.array(own, np.int64)[places]
    return RecordingPart(name, list(strings), columns)
