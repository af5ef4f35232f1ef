"""Parses the lines that an LWFS server logs once per 1,000 requests, in both known forms.

One is the server's own log, the other Beacon's release (Beacon 3.2 and its repository):

    [2018-02-25 18:00:12] N [sw-threads.c:85:record_log] [Trace]: Meta exe: 1 2 3 4 5 6 7 8
    192.0.2.7 [2018-02-25 18:00:12]  [Trace]: queue length: 0 2018-02-25T10:00:12.544Z

Eight numbers are cumulative counts of requests by latency, shortest first; the bounds of the buckets are not
published. The time in brackets is local time in an unnamed zone; only the one in UTC at the end is a time.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

KINDS = tuple(f"{kind}_{phase}" for kind in ("meta", "read", "write") for phase in ("exe", "wait"))
BUCKETS = 8

_MARK = b"[Trace]"
_LINE = re.compile(
    rb"(?:(?P<server>[A-Za-z0-9_.:-]{1,128}) )?"
    rb"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?\] +(?:[A-Z] \[[^\]\s]{1,200}\] *)?\[Trace\]: +"
    rb"(?:(?P<kind>Meta|Read|Write) (?P<phase>exe|wait):(?P<counts>(?: +\d{1,20}){8})"
    rb"|queue length: *(?P<queue>\d{1,20}))"
    rb"(?: +(?P<utc>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?)Z)?[ \r]*"
)
_MOST = 2**64
_MOST_QUEUE = 2**32


@dataclass(frozen=True, slots=True)
class Trace:
    """One line. `server`: empty if not in the line; `time_ms`: since the epoch, None if not in the line.

    Either `kind` is one of KINDS and `counts` are its buckets, or it is `queue` and `counts` is one length.
    """

    server: str
    time_ms: int | None
    kind: str
    counts: tuple[int, ...]


def is_trace(line: bytes) -> bool:
    """True for a trace line; the log has other lines too."""
    return _MARK in line


def parse_trace(line: bytes) -> Trace | None:
    """Parses a line without its newline; None for a malformed one."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    time_ms = None
    if found["utc"] is not None:
        time_ms = _milliseconds(found["utc"])
        if time_ms is None:
            return None
    server = (found["server"] or b"").decode("ascii")
    if found["queue"] is not None:
        length = int(found["queue"])
        return Trace(server, time_ms, "queue", (length,)) if length < _MOST_QUEUE else None
    counts = tuple(map(int, found["counts"].split()))
    if max(counts) >= _MOST:
        return None
    return Trace(server, time_ms, f"{found['kind'].decode().lower()}_{found['phase'].decode()}", counts)


def _milliseconds(utc: bytes) -> int | None:
    try:
        at = datetime.fromisoformat(utc.decode("ascii")).replace(tzinfo=UTC)
    except ValueError:
        return None
    milliseconds = int(at.timestamp()) * 1000 + at.microsecond // 1000
    return milliseconds if milliseconds >= 0 else None
