"""LNet's files `stats`, `nis` and `peers` (Lustre's lnet/lnet/router_proc.c, lnet_debugfs.c from 2.15 on)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from laggard_common.trace_formats.kernel_text import number, numbers
from laggard_common.wire.codec import Row
from laggard_common.wire.schema import Field, FieldKind, FieldType


def _gauge(name: str, unit: str = "1") -> Field:
    return Field(name, FieldKind.GAUGE, unit)


def _signed(name: str) -> Field:
    return Field(name, FieldKind.GAUGE, "1", FieldType.I64)


STATS_FIELDS = (
    *(_gauge("msgs_alloc"), _gauge("msgs_max")),
    *map(Field, ("errors", "send_count", "recv_count", "route_count", "drop_count")),
    *(Field(name, unit="bytes") for name in ("send_length", "recv_length", "route_length", "drop_length")),
)
NI_FIELDS = (
    *map(_gauge, ("up", "refs", "peer_credits", "router_credits", "max_credits")),
    *(_signed("credits"), _signed("min_credits"), _gauge("waiting")),
)
PEER_FIELDS = (
    *map(_gauge, ("up", "refs", "max_credits")),
    *map(_signed, ("router_credits", "min_router_credits", "credits", "min_credits")),
    *(_gauge("waiting"), _gauge("queued_bytes", "bytes")),
)
_NI_COLUMNS = b"nid status alive refs peer rtr max tx min".split()
_PEER_COLUMNS = b"nid refs state last max rtr min tx min queue".split()
NID = re.compile(rb"[0-9A-Za-z][0-9A-Za-z.:_-]{0,63}@[a-z][a-z0-9]{0,15}")
_LOOPBACK = "0@lo"
_UP = {b"up": 1, b"down": 0}
_BOUND = 2**31
"""All numbers of NIs and peers are of 32 bits, so that sums stay within 64."""


@dataclass(slots=True)
class NidTable:
    """Rows by NID, in the order of the file, and the lines that were not understood."""

    rows: dict[str, Row] = field(default_factory=dict)
    odd: list[bytes] = field(default_factory=list)


def parse_stats(data: bytes) -> Row | None:
    """The values of STATS_FIELDS; None for anything else."""
    words = data.split()
    return numbers(words) if len(words) == len(STATS_FIELDS) else None


def parse_nis(data: bytes) -> NidTable:
    """Rows of NI_FIELDS, without the loopback.

    An NI has a line for each CPU partition with a queue of its own: references and credits are summed, the
    lowest is that of any of them.
    """
    table = NidTable()
    for nid, columns in _lines(data, _NI_COLUMNS, table.odd):
        up = _UP.get(columns[1])
        counts, tokens = [_count(word) for word in columns[3:7]], [_credit(word) for word in columns[7:]]
        if up is None or None in counts or None in tokens:
            table.odd.append(b" ".join(columns))
            continue
        refs, peer, router, most = (count or 0 for count in counts)
        now, least = (token or 0 for token in tokens)
        waiting = max(0, -now)
        if before := table.rows.get(nid):
            refs, most, now, waiting = (
                int(before[at] or 0) + value for at, value in ((1, refs), (4, most), (5, now), (7, waiting))
            )
            least = min(int(before[6] or 0), least)
        if nid != _LOOPBACK:
            table.rows[nid] = (up, refs, peer, router, most, now, least, waiting)
    return table


def parse_peers(data: bytes) -> NidTable:
    """Rows of PEER_FIELDS; `up` is None where LNet does not know (NA)."""
    table = NidTable()
    for nid, columns in _lines(data, _PEER_COLUMNS, table.odd):
        counts = [_count(columns[at]) for at in (1, 4, 9)]
        tokens = [_credit(word) for word in columns[5:9]]
        if columns[2] not in (*_UP, b"NA") or None in counts or None in tokens:
            table.odd.append(b" ".join(columns))
            continue
        waiting = max(0, -(tokens[2] or 0))
        table.rows.setdefault(nid, (_UP.get(columns[2]), *counts[:2], *tokens, waiting, counts[2]))
    return table


def _lines(data: bytes, names: Sequence[bytes], odd: list[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """NID and columns of each line; other lines go to `odd`, all of them below another heading."""
    heading, *lines = data.splitlines() or [b""]
    if heading.split() != names:
        odd.append(heading)
        return
    for line in lines:
        columns = line.split()
        if len(columns) == len(names) and NID.fullmatch(columns[0]):
            yield columns[0].decode("ascii"), columns
        else:
            odd.append(line)


def _count(word: bytes) -> int | None:
    """A number of 32 bits; None for anything else."""
    value = number(word)
    return value if value is not None and value < _BOUND else None


def _credit(word: bytes) -> int | None:
    """A number of 32 bits that may be below 0; None for anything else."""
    value = _count(word.removeprefix(b"-"))
    return -value if value is not None and word.startswith(b"-") else value
