"""/proc/net/dev: the counters of network interfaces (source `net`)."""

from collections.abc import Sequence

from laggard_common.wire.codec import Row
from laggard_common.wire.schema import Field

_RECEIVE = ("bytes", "packets", "errs", "drop", "fifo", "frame", "compressed", "multicast")
_TRANSMIT = ("bytes", "packets", "errs", "drop", "fifo", "colls", "carrier", "compressed")
_MOST = 2**64
_MOST_DIGITS = 20


def _unit(column: str) -> str:
    return "bytes" if column == "bytes" else "1"


INTERFACE_FIELDS = (
    *(Field(f"rx_{column}", unit=_unit(column)) for column in _RECEIVE),
    *(Field(f"tx_{column}", unit=_unit(column)) for column in _TRANSMIT),
)


def parse_interfaces(data: bytes) -> dict[str, Row]:
    """Parses the 16 counters of each interface in /proc/net/dev; malformed lines are ignored."""
    rows: dict[str, Row] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        name, colon, numbers = line.rpartition(":")
        row = _numbers(numbers.split())
        if colon and row is not None and len(row) == len(INTERFACE_FIELDS):
            rows[name.strip()] = row
    return rows


def _numbers(words: Sequence[str]) -> Row | None:
    if not all(word.isdecimal() and len(word) <= _MOST_DIGITS for word in words):
        return None
    row = tuple(map(int, words))
    return row if row and max(row) < _MOST else None
