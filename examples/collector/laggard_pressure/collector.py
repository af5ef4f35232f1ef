"""Collector `pressure`: microseconds in which some or all tasks of the node waited for I/O.

Source: Documentation/accounting/psi.rst of the kernel; a line is `some avg10=0.00 ... total=12345`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from laggard_agent.collectors.interface import Context, Reading, read_file
from laggard_agent.collectors.registry import register
from laggard_common.errors import CollectError
from laggard_common.wire.schema import Component, Field

FIELDS = (Field("io_some_us", unit="us"), Field("io_full_us", unit="us"))
COMPONENTS = (Component("pressure", "host"),)
_TOTAL = re.compile(rb"^(some|full) .*total=([0-9]{1,18})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PressureSettings:
    """`[pressure]` has no settings."""


def parse(text: bytes) -> tuple[int | None, int | None]:
    """Totals of `some` and `full` in microseconds; None for a line that is missing or damaged."""
    totals = {match[1]: int(match[2]) for match in _TOTAL.finditer(text)}
    return totals.get(b"some"), totals.get(b"full")


@register
class Pressure:
    """Reads `<procfs>/pressure/io`."""

    name = "pressure"
    settings = PressureSettings
    sources: ClassVar = {"pressure": FIELDS}

    def __init__(self, settings: PressureSettings, context: Context) -> None:  # noqa: ARG002
        self._path = context.roots.procfs / "pressure" / "io"
        self._now = context.now

    def read(self) -> Iterator[Reading]:
        """One row for the node. Raises CollectError where the kernel keeps no such totals."""
        read_at_ns = self._now()
        row = parse(read_file(self._path))
        if row == (None, None):
            raise CollectError(str(self._path), "not as expected: no total")
        yield Reading("pressure", FIELDS, read_at_ns, COMPONENTS, [row])
