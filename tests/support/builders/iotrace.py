"""What the tests of the I/O trace share."""

import io
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import msgpack
import zstandard

from laggard_agent.tools import seconds
from laggard_agent.tools.iotrace.command import FORMATS
from laggard_common.trace_formats.line_reader import TraceReader
from laggard_common.wire import Envelope, codec
from laggard_common.wire.trace_records import Folded, TraceRecord

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "iotrace"
SAMPLES = {"laggard": "node.trace", "strace": "calls.strace", "dxt": "job.dxt.txt"}


def read(format_name: str, data: bytes) -> tuple[list[TraceRecord], TraceReader]:
    """The records of a log, and the reader with its counts."""
    reader = TraceReader(FORMATS[format_name]("cn-17").parse)
    return list(reader.read(io.BytesIO(data))), reader


def sample(format_name: str) -> bytes:
    """The fixture in this format."""
    return (FIXTURES / SAMPLES[format_name]).read_bytes()


def as_line(record: TraceRecord) -> str:
    """Formats `record` as a line for `text.parse`, without newline."""
    r = record
    offset = "-" if r.offset is None else r.offset
    line = f"{seconds(r.time_ns)} {r.node} {r.operation} {r.descriptor} {offset} {r.size}"
    return f"{line} {r.path}" if r.path else line


def unfold(folded: Folded) -> Iterator[TraceRecord]:
    """Yields the original records; times between the first and the last are interpolated."""
    f = folded
    span_ns = f.last_ns - f.first_ns
    for i in range(f.count):
        offset = None if f.offset is None else f.offset + i * f.size
        time_ns = f.first_ns + (span_ns * i // (f.count - 1) if i else 0)
        yield TraceRecord(f.node, f.operation, f.descriptor, offset, f.size, time_ns, f.path)


def decoded(envelope: Envelope) -> list[Folded]:
    """The records of a message of kind events, decoded plainly as docs/wire-format.md describes it."""
    raw = envelope.payload if envelope.codec == codec.RAW else zstandard.decompress(envelope.payload)
    strings, *columns = msgpack.unpackb(raw)
    width = [len(column) // envelope.n for column in columns]
    assert [envelope.n * w for w in width] == [len(column) for column in columns]
    node, operation, descriptor, path, offset, size, count, first, span = (
        [int.from_bytes(column[i : i + w], "little", signed=True) for i in range(0, len(column), w)]
        for column, w in zip(columns, width, strict=True)
    )
    offsets = [_lane(value) for value in accumulate(offset)]
    firsts = [_lane(value) for value in accumulate(first, initial=envelope.t0_ns)][1:]
    return [
        Folded(
            strings[node[i]],
            strings[operation[i]],
            strings[descriptor[i]],
            None if offsets[i] == -1 else offsets[i],
            size[i],
            count[i],
            firsts[i],
            firsts[i] + span[i],
            strings[path[i]],
        )
        for i in range(envelope.n)
    ]


def _lane(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63
