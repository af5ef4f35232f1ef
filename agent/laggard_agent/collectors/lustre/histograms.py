"""Histograms: `brw_stats` of targets, `rpc_stats` of osc and mdc.

A section has a line that names its columns (`read | write`, `read write`, `modify`), a line with the title,
and a line per bin: `4K:  7  3  3  |  0  0  0`, in which each first number is the count and the two others are
percentages. A field is `<title>_<column>_<bin>`, such as `disk_io_size_write_4096`. Bins that Lustre omits at
both ends are empty. Before its sections `rpc_stats` has gauges: `read RPCs in flight:  0`.
"""

import re

from laggard_agent.collectors.lustre.parse_result import HEADERS, Parsed, ResultBuilder, number, text
from laggard_common.wire.schema import Field, FieldKind

_COLUMNS = (b"read", b"write", b"modify")
_TITLE = re.compile(rb"(\S.*?)\s+(?:rpcs|ios|maps|count)\s+% cum %")
_BIN = re.compile(rb"(\d+)([KMGTP]?)")
_GAUGE = re.compile(rb"([A-Za-z][A-Za-z _]*?):\s*(\d+)")
_UNSAFE = re.compile(r"[^a-z0-9]+")
_TITLES = {b"I/O time (1/1000s)": "io_time_ms"}
_SHIFT = {b"": 0, b"K": 10, b"M": 20, b"G": 30, b"T": 40, b"P": 50}
_NUMBERS_A_COLUMN = 3
_MOST_LINE_BYTES = 1024  # Lustre's lines have 80; longer ones are not matched


def parse_histograms(data: bytes) -> Parsed:
    """Parses the bins and gauges of a file. Raises nothing: unparsed lines become leftovers."""
    gathering = ResultBuilder()
    columns: list[str] = []
    title = ""
    for line in data.splitlines():
        if len(line) > _MOST_LINE_BYTES:
            gathering.left_over(line)
            continue
        words = line.replace(b"|", b" ").split()
        if not words:
            title = ""
            continue
        name = words[0].rstrip(b":")
        if name in HEADERS:
            gathering.header(name, words[1:], line)
        elif all(word in _COLUMNS for word in words):
            columns = [text(word) for word in words]
            title = ""
        elif heading := _TITLE.match(line.strip()):
            title = _slug(heading[1])
        elif not (_bin(gathering, title, columns, words) or _gauge(gathering, line)):
            gathering.left_over(line)
    return gathering.parsed()


def _bin(gathering: ResultBuilder, title: str, columns: list[str], words: list[bytes]) -> bool:
    key = _BIN.fullmatch(words[0][:-1]) if words[0].endswith(b":") else None
    numbers = [number(word) for word in words[1:]]
    if key is None or not title or None in numbers or len(numbers) != _NUMBERS_A_COLUMN * len(columns):
        return False
    base = number(key[1])
    if base is None:
        return False
    for column, count in zip(columns, numbers[::_NUMBERS_A_COLUMN], strict=True):
        assert count is not None
        name = f"{title}_{column}_{base << _SHIFT[key[2]]}"
        gathering.add(Field(name, FieldKind.HISTOGRAM), count)
    return True


def _gauge(gathering: ResultBuilder, line: bytes) -> bool:
    found = _GAUGE.fullmatch(line.strip())
    value = number(found[2]) if found else None
    if found is None or value is None:
        return False
    gathering.add(Field(_slug(found[1]), FieldKind.GAUGE), value)
    return True


def _slug(title: bytes) -> str:
    """A title as part of a field's name: `disk I/Os in flight` becomes `disk_ios_in_flight`."""
    known = _TITLES.get(title)
    return known or _UNSAFE.sub("_", text(title).lower().replace("i/o", "io")).strip("_")
