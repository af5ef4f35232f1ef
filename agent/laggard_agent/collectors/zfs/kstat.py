"""Files of ZFS below /proc/spl/kstat/zfs (OpenZFS's module/os/linux/spl/spl-kstat.c, module/zfs/spa_stats.c).

A line of seven numbers, a heading, then names, types and values, or a line of columns.
"""

import re
from collections.abc import Mapping

from laggard_agent.collectors.zfs.bins import bin_of, fields_of
from laggard_common.trace_formats.kernel_text import number

TX_ASSIGN = tuple(fields_of("tx_assign"))
IO_COLUMNS = {
    "reads": "reads",
    "writes": "writes",
    "nread": "read_bytes",
    "nwritten": "written_bytes",
    "wlentime": "queue_us",
    "rlentime": "disk_us",
}
"""Fields by column. The last two are ns of all requests together, in the queue and on the devices."""
DATASET = {
    "reads": "reads",
    "writes": "writes",
    "nread": "read_bytes",
    "nwritten": "written_bytes",
    "nunlinks": "unlinks",
}
KSTAT_HEADER = re.compile(rb"[0-9]+ [0-9]+ 0x[0-9a-f]+ [0-9]+ [0-9]+ [0-9]+ [0-9]+")
_NAMED = re.compile(rb"(\S+(?: ns)?) +([0-9]+) +(.*)")
_NANOSECONDS = re.compile(rb"([0-9]{1,20}) ns")


class NotKstatError(ValueError):
    """The content is not a kstat of the expected kind."""


def _lines(data: bytes, heading: bytes) -> list[bytes]:
    """The lines below the heading. A last one without an end was cut off, and is left out."""
    header, names, *lines = [*data.rpartition(b"\n")[0].splitlines(), b"", b""]
    if not KSTAT_HEADER.fullmatch(header) or names.split()[:3] != heading.split():
        raise NotKstatError("no kstat")
    return [line for line in lines if line]


def parse_named(data: bytes) -> tuple[Mapping[bytes, bytes], int]:
    """Values by name, and the number of odd lines. Raises NotKstatError."""
    lines = _lines(data, b"name type data")
    matches = [match for match in map(_NAMED.fullmatch, lines) if match]
    return {match[1]: match[3].strip() for match in matches}, len(lines) - len(matches)


def parse_tx_assign(data: bytes) -> tuple[Mapping[str, int], int]:
    """The histogram TX_ASSIGN of `dmu_tx_assign`, and the number of odd lines. Raises NotKstatError.

    A line has the times up to its own. Those above the longest are left out by the kernel, and are 0.
    """
    values, odd = parse_named(data)
    counts = dict.fromkeys(TX_ASSIGN, 0)
    for name, value in values.items():
        match, count = _NANOSECONDS.fullmatch(name), number(value)
        if match is None or count is None:
            odd += 1
            continue
        counts[TX_ASSIGN[bin_of((int(match[1]) - 1).bit_length())]] += count
    return counts, odd


def parse_io(data: bytes) -> Mapping[str, int]:
    """Fields of IO_COLUMNS of the file `io`. Raises NotKstatError."""
    lines = _lines(data, b"nread nwritten reads")
    names, values = data.splitlines()[1].split(), lines[0].split() if lines else []
    known = dict(zip((name.decode("ascii", "replace") for name in names), map(number, values), strict=False))
    row = {field: known.get(name) for name, field in IO_COLUMNS.items()}
    if len(names) != len(values) or None in row.values():
        raise NotKstatError("no values of io")
    return {
        field: value // 1000 if field.endswith("_us") else value
        for field, value in row.items()
        if value is not None
    }


def parse_dataset(data: bytes) -> tuple[str, Mapping[str, int]]:
    """The name of an objset, and the fields of DATASET. Raises NotKstatError."""
    values, _ = parse_named(data)
    row = {field: number(values.get(name.encode(), b"")) for name, field in DATASET.items()}
    name = values.get(b"dataset_name", b"").decode("utf-8", "replace")
    if not name or None in row.values():
        raise NotKstatError("no dataset")
    return name, {field: value for field, value in row.items() if value is not None}
