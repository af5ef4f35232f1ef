"""The header of PCP's CSV: a column per metric and instance, spelled in three ways.

`disk.dev.read-sda` until PCP 7.1.2, `disk.dev.read[sda]` from 7.1.3 on (the form of pmParseMetricSpec(3)),
and with `--csv-unit-info` `disk.dev.read[sda](count)`. The separator is a comma unless a metric set of pmrep
or the command says otherwise.
"""

import csv
import re
from dataclasses import dataclass
from pathlib import Path

from laggard_aggregator.files.compressed import open_input
from laggard_common.errors import InputError

_METRIC = rb"[A-Za-z]\w*(?:\.\w+)+"
_HEADER = re.compile(
    rb"(?:#[^\n]*\n)*"
    rb'(?:"?Host"?[,;|\t ])?(?:"?Interval"?[,;|\t ])?"?Time"?([,;|\t ]|  +)"?' + _METRIC + rb"(?:-|\[)"
)
_COLUMN = re.compile(r"([A-Za-z]\w*(?:\.\w+)+)(?:\[(.*)\]|-(.+?))(?:\(([^()]*)\))?")
_MAX_HEADER_BYTES = 16 << 20
_SCALES = {
    "byte": 1 / 1024,
    "kbyte": 1.0,
    "mbyte": 1024.0,
    "gbyte": 1024.0**2,
    "tbyte": 1024.0**3,
    "nanosec": 1e-6,
    "microsec": 1e-3,
    "millisec": 1.0,
    "sec": 1e3,
    "min": 6e4,
    "hour": 3.6e6,
    "count": 1.0,
    "none": 1.0,
    "": 1.0,
}
"""Units in those of PCP's own disk metrics: kB and ms."""


@dataclass(frozen=True, slots=True)
class PcpColumn:
    """`name`: in the file. `scale`: its values in kB, ms or counts. `is_rate`: the unit is one a second."""

    name: str
    metric: str
    instance: str
    scale: float = 1.0
    is_rate: bool = False


@dataclass(frozen=True, slots=True)
class PcpHeader:
    """`skipped`: lines before the header. `names`: all columns; `columns`: those of an instance."""

    skipped: int
    separator: str
    names: list[str]
    columns: list[PcpColumn]


def is_pcp(head: bytes) -> bool:
    """True for the begin of a CSV that pmrep wrote."""
    return _HEADER.match(head) is not None


def read_header(path: Path) -> PcpHeader:
    """The header of the file at `path`. Raises InputError for a separator that times contain, too."""
    with open_input(path, cut=lambda _: None) as file:
        text = file.read(_MAX_HEADER_BYTES)
    match = _HEADER.match(text)
    separator = match[1].decode()[:1] if match else ","
    if separator == " ":
        problem = "the header: separated by blanks, as by a metric set of pmrep: add -l , to the command"
        raise InputError(str(path), problem)
    lines = text.decode(errors="replace").splitlines()
    skipped = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    try:
        names = next(csv.reader([lines[skipped]], delimiter=separator))
    except csv.Error as exc:
        raise InputError(str(path), f"the header: {exc}") from exc
    if names.count("Time") != 1:
        raise InputError(str(path), "the header: expected one column Time")
    columns = [column for name in names if (column := _column(name)) is not None]
    return PcpHeader(skipped, separator, names, columns)


def _column(name: str) -> PcpColumn | None:
    match = _COLUMN.fullmatch(name.strip())
    if match is None:
        return None
    unit, _, rate = (match[4] or "").replace(" ", "").lower().partition("/")
    instance = (match[2] or match[3] or "").strip('"')
    if match[2] is None and match[4] is not None and unit not in _SCALES:
        instance, unit, rate = f"{match[3]}({match[4]})", "", ""  # of the instance's own name
    return PcpColumn(name, match[1], instance, _SCALES.get(unit, 1.0), bool(rate))
