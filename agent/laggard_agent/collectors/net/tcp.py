"""/proc/net/snmp and /proc/net/netstat: TCP of the whole node (source `tcp`).

Packet loss shows in TCP's retransmits long before it shows in the file system.
"""

from collections.abc import Mapping

from laggard_common.wire.codec import Row
from laggard_common.wire.schema import Component, Field, FieldKind, FieldType

_SNMP = ("ActiveOpens", "PassiveOpens", "AttemptFails", "EstabResets", "CurrEstab", "InSegs", "OutSegs")
_SNMP_ERRORS = ("RetransSegs", "InErrs", "OutRsts")
_NETSTAT = ("TCPLostRetransmit", "TCPFastRetrans", "TCPSlowStartRetrans", "TCPTimeouts", "TCPSynRetrans")
_NETSTAT_QUEUES = ("TCPBacklogDrop", "TCPRcvQDrop", "TCPZeroWindowDrop", "ListenOverflows", "ListenDrops")
_MOST = 2**64
_MOST_DIGITS = 20

TCP_FIELDS = tuple(
    Field(name, FieldKind.GAUGE if name == "CurrEstab" else FieldKind.COUNTER, "1", FieldType.U64)
    for name in (*_SNMP, *_SNMP_ERRORS, *_NETSTAT, *_NETSTAT_QUEUES)
)
_WANTED = frozenset(field.name for field in TCP_FIELDS)
TCP_COMPONENTS = (Component("tcp", "tcp"),)


def parse_pairs(data: bytes) -> dict[str, int]:
    """Parses /proc/net/snmp or netstat: each protocol has a line of names and one of numbers.

    Only Tcp and TcpExt, and of these TCP_FIELDS. Raises nothing: inconsistent lines are ignored.
    """
    values: dict[str, int] = {}
    lines = data.decode("ascii", "replace").splitlines()
    for heads, numbers in zip(lines[::2], lines[1::2], strict=False):
        protocol, *names = heads.split() or [""]
        row = numbers.split()
        if protocol in ("Tcp:", "TcpExt:") and row[:1] == [protocol]:
            for name, text in zip(names, row[1:], strict=False):
                if name in _WANTED and text.isdecimal() and len(text) <= _MOST_DIGITS and int(text) < _MOST:
                    values[name] = int(text)
    return values


def tcp_row(values: Mapping[str, int]) -> Row:
    """The row of TCP_FIELDS; None for counters that this kernel lacks."""
    return tuple(values.get(field.name) for field in TCP_FIELDS)
