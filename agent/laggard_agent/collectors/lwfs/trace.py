"""Lines that an LWFS server logs once per 1,000 requests, in both known forms, and their sums by server.

One is the server's own log, the other Beacon's release (Beacon 3.2 and its repository):

    [2018-02-25 18:00:12] N [sw-threads.c:85:record_log] [Trace]: Meta exe: 1 2 3 4 5 6 7 8
    192.0.2.7 [2018-02-25 18:00:12]  [Trace]: queue length: 0 2018-02-25T10:00:12.544Z

Eight numbers are cumulative counts of requests by latency, shortest first; the bounds of the buckets are not
published. The time in brackets is local time in an unnamed zone; only the one in UTC at the end is a time.
"""

import re
from dataclasses import dataclass
from datetime import datetime

from laggard_common.wire.codec import Row
from laggard_common.wire.schema import Component, Field, FieldKind

KINDS = tuple(f"{kind}_{phase}" for kind in ("meta", "read", "write") for phase in ("exe", "wait"))
BUCKETS = 8
FIELDS = (
    *(Field(f"{kind}_{bucket}", FieldKind.HISTOGRAM) for kind in KINDS for bucket in range(BUCKETS)),
    Field("queue_samples"),
    Field("queue_length_sum"),
    Field("last_trace_time_ms", FieldKind.GAUGE, "ms"),
)
MOST_SERVERS = 1024

_LATE_MS = 60_000
_SAMPLES = len(KINDS) * BUCKETS
_SUM = _SAMPLES + 1
_TIME = _SAMPLES + 2
_PLACE = {kind: place * BUCKETS for place, kind in enumerate(KINDS)}

_MARK = b"[Trace]"
_LINE = re.compile(
    rb"(?:(?P<server>[A-Za-z0-9_.:-]{1,128}) )?"
    rb"\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?: [+-]\d{4})?\][ \t]+"
    rb"(?:[A-Z] (?:\[MSGID: \d{1,10}\] )?\[[^\]\s]{1,200}\][ \t]*(?:[\w.-]{1,100}: +)?)?\[Trace\]:[ \t]+"
    rb"(?:(?P<kind>Meta|Read|Write) (?P<phase>exe|wait):(?P<counts>(?:[ \t]+\d{1,20}){8})"
    rb"|queue length:[ \t]*(?P<queue>\d{1,20}))"
    rb"(?:[ \t]+(?P<utc>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)))?[ \t\r]*"
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
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    time_ms = None
    if match["utc"] is not None:
        time_ms = _milliseconds(match["utc"])
        if time_ms is None:
            return None
    server = (match["server"] or b"").decode("ascii")
    if match["queue"] is not None:
        length = int(match["queue"])
        return Trace(server, time_ms, "queue", (length,)) if length < _MOST_QUEUE else None
    counts = tuple(map(int, match["counts"].split()))
    if max(counts) >= _MOST:
        return None
    return Trace(server, time_ms, f"{match['kind'].decode().lower()}_{match['phase'].decode()}", counts)


def _milliseconds(utc: bytes) -> int | None:
    try:
        at = datetime.fromisoformat(utc.decode("ascii"))
    except ValueError:
        return None
    milliseconds = int(at.timestamp()) * 1000 + at.microsecond // 1000
    return milliseconds if milliseconds >= 0 else None


class Servers:
    """Rows of all servers in a log. A server that logs nothing is idle: its row is unchanged.

    `late`: lines after a newer one of the same server and kind, by their UTC times; their counts would look
    like a reset and are ignored. A time more than a minute back means that the clock was set.
    """

    def __init__(self) -> None:
        self.late = 0
        self.refused = 0
        self.components: tuple[Component, ...] = ()
        self._rows: dict[str, list[int | None]] = {}
        self._times: dict[tuple[str, str], int] = {}

    def add(self, trace: Trace, *, counts_queue: bool = True) -> None:
        """Adds a line; queue lengths of lines from before the agent's start do not count."""
        row = self._row(trace.server)
        if row is None:
            self.refused += 1
            return
        if trace.time_ms is not None:
            row[_TIME] = max(row[_TIME] or 0, trace.time_ms)
        if trace.kind in _PLACE:
            if self._is_in_order(trace):
                place = _PLACE[trace.kind]
                row[place : place + BUCKETS] = trace.counts
        elif counts_queue:
            row[_SAMPLES] = (row[_SAMPLES] or 0) + 1
            row[_SUM] = (row[_SUM] or 0) + trace.counts[0]

    def _row(self, server: str) -> list[int | None] | None:
        row = self._rows.get(server)
        if row is None and len(self._rows) < MOST_SERVERS:
            row = self._rows[server] = [*[None] * _SAMPLES, 0, 0, None]
            self.components = (*self.components, _component(server))
        return row

    def rows(self) -> list[Row]:
        """One row for each of `components`."""
        return [tuple(row) for row in self._rows.values()]

    def _is_in_order(self, trace: Trace) -> bool:
        if trace.time_ms is None:
            return True
        newest = self._times.get((trace.server, trace.kind), 0)
        if newest - _LATE_MS <= trace.time_ms < newest:
            self.late += 1
            return False
        self._times[trace.server, trace.kind] = trace.time_ms
        return True


def _component(server: str) -> Component:
    """Component of a server: named in a log of several servers, otherwise the node's own."""
    if not server:
        return Component("lwfs", "lwfs")
    return Component(server, server, (("scope", "site"), ("server", server)))
