"""Parsers of /proc/net, and the sums of its counters over all CPUs.

- /proc/net/dev: network interfaces (source `net`).
- /proc/net/snmp and netstat: TCP of the whole node (source `tcp`). Packet loss shows in TCP's retransmits
  long before it shows in the file system.
- /proc/net/softnet_stat: packet processing of the kernel (source `softnet`). One line per CPU of unnamed
  32-bit hexadecimal numbers; from Linux 5.10 the 13th is the CPU number.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise

from laggard_common.trace_formats.kernel_text import number, numbers
from laggard_common.wire.codec import Row
from laggard_common.wire.schema import Field, FieldKind

_RECEIVE = ("bytes", "packets", "errs", "drop", "fifo", "frame", "compressed", "multicast")
_TRANSMIT = ("bytes", "packets", "errs", "drop", "fifo", "colls", "carrier", "compressed")
INTERFACE_FIELDS = tuple(
    Field(f"{way}_{column}", unit="bytes" if column == "bytes" else "1")
    for way, columns in (("rx", _RECEIVE), ("tx", _TRANSMIT))
    for column in columns
)

_SNMP = (
    *("ActiveOpens", "PassiveOpens", "AttemptFails", "EstabResets", "CurrEstab", "InSegs", "OutSegs"),
    *("RetransSegs", "InErrs", "OutRsts"),
)
_NETSTAT = (
    *("TCPLostRetransmit", "TCPFastRetrans", "TCPSlowStartRetrans", "TCPTimeouts", "TCPSynRetrans"),
    *("TCPBacklogDrop", "TCPRcvQDrop", "TCPZeroWindowDrop", "ListenOverflows", "ListenDrops"),
)
TCP_FIELDS = tuple(
    Field(name, FieldKind.GAUGE if name == "CurrEstab" else FieldKind.COUNTER) for name in (*_SNMP, *_NETSTAT)
)
TCP_NAMES = tuple(field.name for field in TCP_FIELDS)
_WANTED = {name.encode(): name for name in TCP_NAMES}
_PROTOCOLS = (b"Tcp: ", b"TcpExt: ")

_COLUMNS = {"processed": 0, "dropped": 1, "time_squeeze": 2, "received_rps": 9, "flow_limit_count": 10}
_CPU_COLUMN = 12
_LINE = re.compile(rb"[0-9a-fA-F]{8}(?: [0-9a-fA-F]{8})+")
SOFTNET_FIELDS = tuple(Field(name, unit="packets" if at < 2 else "1") for name, at in _COLUMNS.items())


def parse_interfaces(data: bytes) -> dict[str, Row]:
    """Parses the 16 counters of each interface in /proc/net/dev; malformed lines are ignored."""
    rows: dict[str, Row] = {}
    for line in data.splitlines():
        name, colon, counters = line.rpartition(b":")
        row = numbers(counters.split())
        if colon and row is not None and len(row) == len(INTERFACE_FIELDS):
            rows[name.decode("utf-8", "replace").strip()] = row
    return rows


def odd_interfaces(data: bytes) -> list[bytes]:
    """The lines of /proc/net/dev below its header that `parse_interfaces` does not understand."""
    lines = [line for line in data.splitlines() if line.strip() and b"|" not in line]
    return [line for line in lines if not parse_interfaces(line)]


def parse_pairs(data: bytes) -> dict[str, int]:
    """Parses /proc/net/snmp or netstat: each protocol has a line of names and one of numbers.

    Only Tcp and TcpExt, and of these TCP_FIELDS. Raises nothing: inconsistent lines are ignored.
    """
    values: dict[str, int] = {}
    for heads, row in pairwise(data.splitlines()):
        if heads.startswith(_PROTOCOLS) and row.startswith(heads[: heads.index(b" ") + 1]):
            names, places = _wanted(heads)
            words = row.split()
            chosen = [words[at] for at in places if at < len(words)]
            counts = numbers(chosen) or map(number, chosen)
            values.update((name, n) for name, n in zip(names, counts, strict=False) if n is not None)
    return values


@lru_cache(4)  # 130 names, which stay the same
def _wanted(heads: bytes) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The names of TCP_FIELDS in a line of names, and where."""
    words = heads.split()
    places = tuple(at for at, name in enumerate(words) if name in _WANTED)
    return tuple(_WANTED[words[at]] for at in places), places


def parse_softnet(data: bytes) -> tuple[dict[str, Row], list[bytes]]:
    """Parses the columns of SOFTNET_FIELDS by CPU, None where this kernel lacks a column.

    A CPU is identified by its number, or, where the kernel omits it, by its line and the number of lines:
    those change when a CPU goes offline. Also returns the malformed lines, whose CPUs are left out.
    """
    rows: dict[str, Row] = {}
    odd = []
    lines = data.splitlines()
    for place, line in enumerate(lines):
        if _LINE.fullmatch(line) is None:
            odd.append(line)
            continue
        words = line.split()
        cpu = words[_CPU_COLUMN].decode() if len(words) > _CPU_COLUMN else f"{place} of {len(lines)}"
        rows[cpu] = tuple(int(words[at], 16) if at < len(words) else None for at in _COLUMNS.values())
    return rows, odd


def rise(after: int, before: int, bits: int) -> int:
    """Increase of a counter from `before` to `after`, across a wrap.

    An increase of more than half the range means a reset: the result is `after`.
    """
    risen = (after - before) % (1 << bits)
    return risen if risen < 1 << (bits - 1) else after


class Softnet:
    """Sums over all CPUs, starting with their counts at the first sample; they never wrap."""

    def __init__(self) -> None:
        self._before: Mapping[str, Row] | None = None
        self._totals = [0] * len(SOFTNET_FIELDS)

    def total(self, rows: Mapping[str, Row]) -> Row:
        """The row of SOFTNET_FIELDS after this sample.

        A CPU that comes online starts at its current counts.
        """
        nothing: Row = (0,) * len(SOFTNET_FIELDS)
        for cpu, row in rows.items():
            before = nothing if self._before is None else self._before.get(cpu, row)
            for at, (now, then) in enumerate(zip(row, before, strict=True)):
                if now != then and now is not None and then is not None:
                    self._totals[at] += rise(int(now), int(then), 32)
        self._before = rows
        counted = next(iter(rows.values()))
        return tuple(self._totals[at] if value is not None else None for at, value in enumerate(counted))
