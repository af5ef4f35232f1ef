r"""`job_stats` of targets: counters by job id, in a YAML-like format.

It is not parsed as YAML: 2.10 to 2.12 print `min:%8llu` without a blank, so eight digits touch the colon.
An id may be empty, hold blanks, slashes or dots, and is quoted and escaped (`\xHH`) from 2.15.4 on. Entries
expire, so one may disappear and restart from zero. `hist` (2.16 and later) is ignored.
"""

import re

from laggard_agent.collectors.lustre.parse_result import HEADERS, Parsed, ResultBuilder, number, text
from laggard_agent.collectors.lustre.stats import UNITS
from laggard_common.wire.schema import Field

_MOST_ID_BYTES = 160  # 32 characters, escaped and quoted, take 130
_ENTRY = b"\n- job_id:"
_HIST = re.compile(rb", hist: *\{[^{}\n]*\}")
_ESCAPE = re.compile(r"\\x([0-9A-Fa-f]{2})")
_KEYS = {b"samples", b"unit", b"min", b"max", b"sum", b"sumsq"}


def split_jobs(data: bytes) -> tuple[list[tuple[bytes, bytes]], tuple[bytes, ...]]:
    """Splits a file into entries (job id as printed, lines after it) and leftovers.

    Leftovers are lines before the first entry, and entries whose job id is longer than Lustre allows. A file
    without jobs may be empty.
    """
    data = _HIST.sub(b"", data)
    head, *jobs = (b"\n" + data).rsplit(
        _ENTRY
    )  # from the right: that searches for the first byte, which is rare
    leftovers = [] if head.strip() in (b"", b"job_stats:") else [head.strip()[:200]]
    entries = []
    for job in jobs:
        printed, _, lines = job.partition(b"\n")
        if len(printed) <= _MOST_ID_BYTES:
            entries.append((printed, lines))
        else:
            leftovers.append(printed[:200])
    return entries, tuple(leftovers[:100])


def job_id(printed: bytes) -> str:
    """A job id, unescaped where the result is printable."""
    name = printed.strip().decode("utf-8", "replace")
    if len(name) > 1 and name[0] == name[-1] == '"':
        plain = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), name[1:-1])
        name = plain if plain.isprintable() else name[1:-1]
    if not name.isprintable():
        name = "".join(c if c.isprintable() else "?" for c in name)
    return name


def parse_job(lines: bytes) -> Parsed:
    """Parses the counters of one entry, without its first line. Raises nothing."""
    gathering = ResultBuilder()
    for line in lines.splitlines():
        name, colon, value = line.strip().partition(b":")
        if not name:
            continue
        if name in HEADERS:
            gathering.header(name, value.split(), line)
        elif not colon or not _counter(gathering, name, value.strip()):
            gathering.left_over(line)
    return gathering.parsed()


def _counter(gathering: ResultBuilder, name: bytes, value: bytes) -> bool:
    if value[:1] != b"{" or value[-1:] != b"}":
        return False
    pairs = {}
    for part in value[1:-1].split(b","):
        key, _, word = part.partition(b":")
        pairs[key.strip()] = word.strip()
    unit = UNITS.get(pairs.pop(b"unit", b"reqs"))
    numbers = {key: number(word) for key, word in pairs.items()}
    samples = numbers.get(b"samples")
    if unit is None or samples is None or None in numbers.values() or not numbers.keys() <= _KEYS:
        return False
    total = numbers.get(b"sum")
    gathering.add(Field(f"{text(name)}_samples"), samples)
    if total is not None:
        gathering.add(Field(f"{text(name)}_sum", unit=unit), total)
    return True
