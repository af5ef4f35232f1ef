"""Lustre's generic statistics file: `stats`, `md_stats` of every device and service.

A line is `name  N samples [unit] [min max sum [sumsq]]`, cumulative since mount or reset. Counters that never
counted are absent. The fields are `<name>_samples` and, if present, `<name>_sum` in the unit of the line.
`min` and `max` cover all time, so differences are meaningless, and `sumsq` of bytes overflows 2^64 within
days: none of the three is a field.
"""

from laggard_agent.collectors.lustre.parse_result import HEADERS, Parsed, ResultBuilder, number, text
from laggard_common.wire.schema import Field

# Text in brackets -> unit of the sum. llite spelt `reqs` as `regs` up to 2.12.
UNITS = {
    b"usec": "us",
    b"usecs": "us",
    b"sec": "s",
    b"secs": "s",
    b"bytes": "bytes",
    b"reqs": "1",
    b"regs": "1",
    b"bufs": "1",
    b"pages": "pages",
    b"locks": "1",
}
_LENGTHS = (0, 3, 4)  # numbers after the unit: none; min, max, sum; those and sumsq


def parse_stats(data: bytes) -> Parsed:
    """Parses a statistics file. Raises nothing: unparsed lines become leftovers."""
    gathering = ResultBuilder()
    for line in data.splitlines():
        words = line.split()
        if not words:
            continue
        name = words[0].rstrip(b":")
        if name in HEADERS:
            gathering.header(name, words[1:], line)
        elif not _counter(gathering, words):
            gathering.left_over(line)
    return gathering.parsed()


def _counter(gathering: ResultBuilder, words: list[bytes]) -> bool:
    if len(words) < 4 or words[2] != b"samples" or not words[3].startswith(b"["):
        return False
    unit = UNITS.get(words[3].strip(b"[]"))
    samples = number(words[1])
    numbers = [number(word) for word in words[4:]]
    if unit is None or samples is None or None in numbers or len(numbers) not in _LENGTHS:
        return False
    name = text(words[0])
    gathering.add(Field(f"{name}_samples"), samples)
    if numbers:
        total = numbers[2]
        assert total is not None
        gathering.add(Field(f"{name}_sum", unit=unit), total)
    return True
