"""/proc/net: counters of network interfaces (source `net`), and of TCP as a whole (source `tcp`).

Packet loss shows in TCP's retransmits long before it shows anywhere in the file system.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from laggard_agent.collectors.base import Now, Reading, read_file
from laggard_agent.collectors.names import any_of
from laggard_common.codec import Row
from laggard_common.errors import CollectError
from laggard_common.limits import MAX_NAME_CHARS
from laggard_common.schema import Component, Field, FieldKind, FieldType

_RECEIVE = ("bytes", "packets", "errs", "drop", "fifo", "frame", "compressed", "multicast")
_TRANSMIT = ("bytes", "packets", "errs", "drop", "fifo", "colls", "carrier", "compressed")


def _unit(column: str) -> str:
    return "bytes" if column == "bytes" else "1"


INTERFACE_FIELDS = (
    *(Field(f"rx_{column}", unit=_unit(column)) for column in _RECEIVE),
    *(Field(f"tx_{column}", unit=_unit(column)) for column in _TRANSMIT),
)

_SNMP = ("ActiveOpens", "PassiveOpens", "AttemptFails", "EstabResets", "CurrEstab", "InSegs", "OutSegs")
_SNMP_ERRORS = ("RetransSegs", "InErrs", "OutRsts")
_NETSTAT = ("TCPLostRetransmit", "TCPFastRetrans", "TCPSlowStartRetrans", "TCPTimeouts", "TCPSynRetrans")
_NETSTAT_QUEUES = ("TCPBacklogDrop", "TCPRcvQDrop", "TCPZeroWindowDrop", "ListenOverflows", "ListenDrops")

TCP_FIELDS = tuple(
    Field(name, FieldKind.GAUGE if name == "CurrEstab" else FieldKind.COUNTER, "1", FieldType.U64)
    for name in (*_SNMP, *_SNMP_ERRORS, *_NETSTAT, *_NETSTAT_QUEUES)
)
TCP_COMPONENTS = (Component("tcp", "tcp"),)

_MOST = 2**64


def parse_interfaces(data: bytes) -> dict[str, Row]:
    """The 16 counters of each interface in the text of /proc/net/dev; lines of another shape are left out."""
    rows: dict[str, Row] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        name, colon, numbers = line.rpartition(":")
        row = _numbers(numbers.split())
        if colon and row is not None and len(row) == len(INTERFACE_FIELDS):
            rows[name.strip()] = row
    return rows


def parse_pairs(data: bytes) -> dict[str, int]:
    """Values of /proc/net/snmp or netstat by name: each protocol has a line of names and one of numbers.

    Only Tcp and TcpExt. Raises nothing: what does not fit together is left out.
    """
    values: dict[str, int] = {}
    lines = data.decode("ascii", "replace").splitlines()
    for heads, numbers in zip(lines[::2], lines[1::2], strict=False):
        protocol, *names = heads.split() or [""]
        row = numbers.split()
        if protocol in ("Tcp:", "TcpExt:") and row[:1] == [protocol]:
            for name, text in zip(names, row[1:], strict=False):
                if text.isdecimal() and int(text) < _MOST:
                    values[name] = int(text)
    return values


def tcp_row(values: Mapping[str, int]) -> Row:
    """The row of TCP_FIELDS; None for what this kernel does not count."""
    return tuple(values.get(field.name) for field in TCP_FIELDS)


class Net:
    """Reads `<procfs>/net/dev`, `net/snmp` and `net/netstat`; one that fails leaves the others be."""

    name = "net"

    def __init__(self, procfs: Path, include: Sequence[str], exclude: Sequence[str], now: Now) -> None:
        self._folder = procfs / "net"
        self._include = any_of(include)
        self._exclude = any_of(exclude)
        self._now = now
        self._rows: dict[str, Row] = {}
        self._components: tuple[Component, ...] = ()
        self._tcp: Row = ()

    def read(self) -> Iterator[Reading]:
        """Interfaces, then TCP. Raises CollectError for the first file that could not be read, at the end."""
        failed: CollectError | None = None
        for part in (self._interfaces, self._tcp_counters):
            try:
                yield part()
            except CollectError as exc:
                failed = failed or exc
        if failed:
            raise failed

    def _interfaces(self) -> Reading:
        at = self._now()
        path = self._folder / "dev"
        data = read_file(path)
        every = parse_interfaces(data)
        if data.strip() and not every and b"|" not in data:
            raise CollectError(str(path), "no line has the 16 counters of an interface")
        rows = {name: _same(row, self._rows.get(name)) for name, row in every.items() if self._wanted(name)}
        if list(rows) != list(self._rows):
            self._components = tuple(Component(name, name) for name in rows)
        self._rows = rows
        return Reading("net", INTERFACE_FIELDS, at, self._components, list(rows.values()))

    def _tcp_counters(self) -> Reading:
        at = self._now()
        path = self._folder / "snmp"
        values = parse_pairs(read_file(path))
        if not values:
            raise CollectError(str(path), "no Tcp lines")
        values.update(parse_pairs(read_file(self._folder / "netstat")))
        self._tcp = _same(tcp_row(values), self._tcp)
        return Reading("tcp", TCP_FIELDS, at, TCP_COMPONENTS, [self._tcp])

    def _wanted(self, name: str) -> bool:
        if not name or len(name) > MAX_NAME_CHARS or not name.isprintable():
            return False
        if self._exclude is not None and self._exclude(name):
            return False
        return self._include is None or self._include(name)


def _numbers(words: Sequence[str]) -> Row | None:
    if not all(word.isdecimal() for word in words):
        return None
    row = tuple(map(int, words))
    return row if row and max(row) < _MOST else None


def _same(row: Row, before: Row | None) -> Row:
    return before if before == row else row
