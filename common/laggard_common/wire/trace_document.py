"""Documents of source `traces`: folded records of a job's trace log; docs/wire-format.md is the contract."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import msgpack

from laggard_common.errors import WireError
from laggard_common.wire.codec import RAW, WIDTHS, signed
from laggard_common.wire.limits import MAX_NAME_CHARS, MAX_PATH_CHARS, MAX_TICKS
from laggard_common.wire.trace_codec import EventEncoder, batches
from laggard_common.wire.trace_records import MAX_POSITION, Folded

TRACES: Final = "traces"
VERSION: Final = 1
MAX_LOG_CHARS: Final = MAX_PATH_CHARS + MAX_NAME_CHARS
_COLUMNS: Final = 9
_NAMES: Final = 4
_TYPECODES: Final = dict(WIDTHS)


@dataclass(frozen=True, slots=True)
class TraceDocument:
    """The records of the bytes from `start` to `end` of `log`, which is unique on its node.

    `job`: the scheduler's number of the job, empty if unknown. `session`: number of the agent's start; from
    where a session begins to send, records of earlier ones are void.
    """

    job: str
    log: str
    session: int
    start: int
    end: int
    records: Sequence[Folded]


def fits(records: Sequence[Folded]) -> bool:
    """Whether `records` fit one document; those of one line always do."""
    return len(list(batches(records))) <= 1


def encode_document(document: TraceDocument) -> bytes:
    """The content of a document; not compressed, as the message is compressed as a whole."""
    d = document
    payload = EventEncoder(RAW).encode(d.records)
    head = [VERSION, d.job, d.log, d.session, d.start, d.end, len(d.records), d.records[0].first_ns]
    packed: bytes = msgpack.packb([*head, payload], use_bin_type=True)
    return packed


def decode_document(content: bytes) -> TraceDocument:
    """The document of a content. Raises WireError."""
    try:
        version, job, log, session, start, end, n, t0_ns, payload = _unpacked(content)
        if (
            version != VERSION
            or not (_is_text(job, MAX_NAME_CHARS) and _is_text(log, MAX_LOG_CHARS))
            or not all(type(number) is int for number in (session, start, end, n, t0_ns))
            or not (
                0 <= session <= MAX_POSITION
                and 0 <= start < end <= MAX_POSITION
                and 0 < n <= MAX_TICKS
                and 0 <= t0_ns <= MAX_POSITION
            )
        ):
            raise WireError("document", "is no part of a trace of this version")
        return TraceDocument(job, log, session, start, end, decode_records(payload, n, t0_ns))
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as exc:
        raise WireError("document", str(exc)[:200]) from exc


def decode_records(payload: bytes, n: int, t0_ns: int) -> list[Folded]:
    """The records of an EventEncoder's payload. Raises WireError, ValueError and TypeError."""
    strings, *packed = _unpacked(payload)
    columns = [_column(column, n) for column in packed]
    if (
        len(columns) != _COLUMNS
        or not isinstance(strings, list)
        or not all(_is_text(string, MAX_PATH_CHARS) for string in strings)
    ):
        raise WireError("document", "its records are malformed")
    for places in columns[:_NAMES]:
        if not 0 <= min(places) <= max(places) < len(strings):
            raise WireError("document", "no such string")
    node, operation, descriptor, path = ([strings[at] for at in column] for column in columns[:_NAMES])
    offset, size, count, first, span = columns[_NAMES:]
    offsets = [signed(value) for value in accumulate(offset)]
    firsts = [signed(t0_ns + value) for value in accumulate(first)]
    records = []
    for at in range(n):
        last = firsts[at] + span[at]
        end = max(offsets[at], 0) + size[at] * count[at]
        if not (
            offsets[at] >= -1
            and size[at] >= 0
            and count[at] >= 1
            and end <= MAX_POSITION
            and 0 <= firsts[at] <= MAX_POSITION
            and 0 <= last <= MAX_POSITION
        ):
            raise WireError("document", "a number of its records is out of range")
        place = None if offsets[at] == -1 else offsets[at]
        records.append(
            Folded(
                node[at],
                operation[at],
                descriptor[at],
                place,
                size[at],
                count[at],
                firsts[at],
                last,
                path[at],
            )
        )
    return records


def _column(packed: bytes, n: int) -> tuple[int, ...]:
    width, rest = divmod(len(packed), n)
    if rest or width not in _TYPECODES:
        raise WireError("document", "columns of different lengths")
    return struct.unpack(f"<{n}{_TYPECODES[width]}", packed)


def _unpacked(content: bytes) -> list[Any]:
    fields = msgpack.unpackb(content, raw=False, max_str_len=4 * MAX_LOG_CHARS, max_ext_len=0)
    if not isinstance(fields, list):
        raise WireError("document", "is no array")
    return fields


def _is_text(value: object, most_chars: int) -> bool:
    return isinstance(value, str) and len(value) <= most_chars and value.isprintable()
