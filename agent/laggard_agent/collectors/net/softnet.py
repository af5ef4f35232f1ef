"""/proc/net/softnet_stat: packet processing of the kernel (source `softnet`), all CPUs together.

One line per CPU of unnamed 32-bit hexadecimal numbers; from Linux 5.10 the 13th is the CPU number.
"""

import re
from collections.abc import Mapping

from laggard_agent.collectors.net.wrap32 import rise
from laggard_common.wire.codec import Row
from laggard_common.wire.schema import Component, Field

_COLUMNS = {"processed": 0, "dropped": 1, "time_squeeze": 2, "received_rps": 9, "flow_limit_count": 10}
_CPU_COLUMN = 12
_BITS = 32
_LINE = re.compile(rb"[0-9a-fA-F]{8}(?: [0-9a-fA-F]{8})+")

SOFTNET_FIELDS = tuple(Field(name, unit="packets" if at < 2 else "1") for name, at in _COLUMNS.items())
SOFTNET_COMPONENTS = (Component("softnet", "softnet"),)


def parse_softnet(data: bytes) -> dict[str, Row] | None:
    """Parses the columns of SOFTNET_FIELDS by CPU, None where this kernel lacks a column.

    A CPU is identified by its number, or, where the kernel omits it, by its line and the number of lines:
    those change when a CPU goes offline. None for a text with a malformed line, whose meaning is unknown.
    """
    rows: dict[str, Row] = {}
    lines = data.splitlines()
    for place, line in enumerate(lines):
        if _LINE.fullmatch(line) is None:
            return None
        words = line.split()
        cpu = words[_CPU_COLUMN].decode() if len(words) > _CPU_COLUMN else f"{place} of {len(lines)}"
        rows[cpu] = tuple(int(words[at], 16) if at < len(words) else None for at in _COLUMNS.values())
    return rows or None


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
                if now is not None and then is not None:
                    self._totals[at] += rise(int(now), int(then), _BITS)
        self._before = rows
        counted = next(iter(rows.values()))
        return tuple(self._totals[at] if value is not None else None for at, value in enumerate(counted))
