r"""Pure parsers of Lustre's files; none raises anything: unparsed lines become leftovers.

- `stats`, `md_stats` of every device and service: a line is `name  N samples [unit] [min max sum [sumsq]]`,
  cumulative since mount or reset. Counters that never counted are absent. The fields are `<name>_samples`
  and, if present, `<name>_sum` in the unit of the line. `min` and `max` cover all time, so differences are
  meaningless, and `sumsq` of bytes overflows 2^64 within days: none of the three is a field.
- `job_stats` of targets: the same by job id, in a YAML-like format. It is not parsed as YAML: 2.10 to 2.12
  print `min:%8llu` without a blank, so eight digits touch the colon. An id may be empty, hold blanks,
  slashes or dots, and is quoted and escaped (`\xHH`) from 2.15.4 on. Entries expire, so one may disappear
  and restart from zero. `hist` (2.16 and later) is ignored.
- `brw_stats` of targets, `rpc_stats` of osc and mdc: histograms. A section has a line that names its
  columns (`read | write`, `read write`, `modify`), a line with the title, and a line per bin: `4K:  7  3  3
  |  0  0  0`, in which each first number is the count and the two others are percentages. A field is
  `<title>_<column>_<bin>`, such as `disk_io_size_write_4096`. Bins that Lustre omits at both ends are
  empty. Before its sections `rpc_stats` has gauges: `read RPCs in flight:  0`.
- `import` of osc and mdc: the client's own view of its connection to a target. Fields: the state, RPCs in
  flight, timeouts, the average wait and Lustre's adaptive estimates; the rest describes how the connection
  was made. IDLE is normal, like FULL: a client drops unused connections.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from laggard_agent.collectors.interface import printable
from laggard_common.trace_formats.kernel_text import number
from laggard_common.wire.schema import Field, FieldKind

_START_TIME = Field("start_time", FieldKind.GAUGE, "s")
_HEADERS = (b"snapshot_time", b"start_time", b"elapsed_time")
_MOST_LEFTOVERS = 100
_SHOWN_BYTES = 200

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

_COLUMNS = (b"read", b"write", b"modify")
_TITLE = re.compile(rb"(\S.*?)\s+(?:rpcs|ios|maps|count)\s+% cum %")
_BIN = re.compile(rb"(\d+)([KMGTP]?)")
_GAUGE = re.compile(rb"([A-Za-z][A-Za-z _]*?):\s*(\d+)")
_UNSAFE = re.compile(r"[^a-z0-9]+")
_TITLES = {b"I/O time (1/1000s)": "io_time_ms"}
_SHIFT = {b"": 0, b"K": 10, b"M": 20, b"G": 30, b"T": 40, b"P": 50}
_NUMBERS_A_COLUMN = 3
_MOST_LINE_BYTES = 1024  # Lustre's lines have 80; longer ones are not matched

_MOST_ID_BYTES = 160  # 32 characters, escaped and quoted, take 130
_ENTRY = b"\n- job_id:"
_HIST = re.compile(rb", hist: *\{[^{}\n]*\}")
_ESCAPE = re.compile(r"\\x([0-9A-Fa-f]{2})")
_KEYS = {b"samples", b"unit", b"min", b"max", b"sum", b"sumsq"}

# As in enum lustre_imp_state.
STATES = tuple(
    b"CLOSED NEW DISCONN CONNECTING REPLAY REPLAY_LOCKS REPLAY_WAIT RECOVER FULL EVICTED IDLE".split()
)
_CODES = {name: code for code, name in enumerate(STATES, start=1)}

_STATE = Field("import_state", FieldKind.GAUGE)
_NUMBERS = {
    b"inflight": (Field("import_inflight", FieldKind.GAUGE), ()),
    b"unregistering": (Field("import_unregistering", FieldKind.GAUGE), ()),
    b"timeouts": (Field("import_timeouts"), ()),
    b"connection_attempts": (Field("import_connection_attempts"), ()),
    b"avg_waittime": (Field("import_avg_waittime", FieldKind.GAUGE, "us"), (b"usec", b"usecs")),
    b"services": (Field("import_services", FieldKind.GAUGE, "s"), (b"sec", b"secs")),
    b"network": (Field("import_network", FieldKind.GAUGE, "s"), (b"sec", b"secs")),
}


@dataclass(frozen=True, slots=True)
class Parsed:
    """One file, or one entry of job_stats.

    `values[i]` belongs to `fields[i]`, in the file's order; a name that Lustre prints twice occurs twice.
    `leftovers`: unparsed lines, truncated, at most 100. `complete`: the file has its header and no leftovers,
    so a counter missing from it is zero, not unknown.
    """

    fields: tuple[Field, ...]
    values: tuple[int, ...]
    leftovers: tuple[bytes, ...]
    complete: bool


class ResultBuilder:
    """Collects fields, values and leftovers while a file is parsed."""

    def __init__(self, *, needs_header: bool = True) -> None:
        self._fields: list[Field] = []
        self._values: list[int] = []
        self._leftovers: list[bytes] = []
        self._has_header = not needs_header

    def add(self, field: Field, value: int) -> None:
        """Adds one value."""
        self._fields.append(field)
        self._values.append(value)

    def left_over(self, line: bytes) -> None:
        """Adds an unparsed line."""
        if len(self._leftovers) < _MOST_LEFTOVERS:
            self._leftovers.append(line[:_SHOWN_BYTES])

    def header(self, words: list[bytes], line: bytes) -> bool:
        """Parses `snapshot_time`, `start_time` or `elapsed_time`; False for another line."""
        name, _, rest = words[0].partition(b":")
        if name not in _HEADERS:
            return False
        value = rest or b"".join(words[1:2])
        seconds = number(value.partition(b".")[0])
        if seconds is None:
            self.left_over(line)
        elif name == b"snapshot_time":
            self._has_header = True
        elif name == b"start_time":
            self.add(_START_TIME, seconds)
        return True

    def parsed(self) -> Parsed:
        """The result; a missing header is reported as a leftover."""
        if not self._has_header:
            self.left_over(b"(no snapshot_time)")
        complete = self._has_header and not self._leftovers
        return Parsed(tuple(self._fields), tuple(self._values), tuple(self._leftovers), complete)


def parse_stats(data: bytes) -> Parsed:
    """Parses a statistics file."""
    return _parse_lines(data, _stats_counter)


def parse_job(lines: bytes) -> Parsed:
    """Parses the counters of one entry of job_stats, without its first line."""
    return _parse_lines(lines, _job_counter)


def _parse_lines(data: bytes, counter: Callable[["ResultBuilder", list[bytes], bytes], bool]) -> Parsed:
    """Parses header lines, and the others by `counter`, which is False for an unparsed one."""
    gathering = ResultBuilder()
    for line in data.splitlines():
        words = line.split()
        if words and not gathering.header(words, line) and not counter(gathering, words, line):
            gathering.left_over(line)
    return gathering.parsed()


def _stats_counter(gathering: ResultBuilder, words: list[bytes], _: bytes) -> bool:
    if len(words) < 4 or words[2] != b"samples" or not words[3].startswith(b"["):
        return False
    unit = UNITS.get(words[3].strip(b"[]"))
    samples = number(words[1])
    numbers = [number(word) for word in words[4:7]] + [_squares(word) for word in words[7:]]
    if unit is None or samples is None or None in numbers or len(numbers) not in _LENGTHS:
        return False
    name = _name(words[0])
    gathering.add(Field(f"{name}_samples"), samples)
    if numbers:
        total = numbers[2]
        assert total is not None
        gathering.add(Field(f"{name}_sum", unit=unit), total)
    return True


def _job_counter(gathering: ResultBuilder, _words: list[bytes], line: bytes) -> bool:
    name, _, value = line.strip().partition(b":")
    value = value.strip()
    if value[:1] != b"{" or value[-1:] != b"}":
        return False
    pairs = {}
    for part in value[1:-1].split(b","):
        key, _, word = part.partition(b":")
        pairs[key.strip()] = word.strip()
    unit = UNITS.get(pairs.pop(b"unit", b"reqs"))
    numbers = {key: _squares(word) if key == b"sumsq" else number(word) for key, word in pairs.items()}
    samples = numbers.get(b"samples")
    if unit is None or samples is None or None in numbers.values() or not numbers.keys() <= _KEYS:
        return False
    total = numbers.get(b"sum")
    gathering.add(Field(f"{_name(name)}_samples"), samples)
    if total is not None:
        gathering.add(Field(f"{_name(name)}_sum", unit=unit), total)
    return True


def _squares(word: bytes) -> int | None:
    """`sumsq`, which Lustre up to 2.12 prints with a sign: beyond 2^63 it is below 0."""
    return number(word.removeprefix(b"-"))


def split_jobs(data: bytes) -> tuple[list[tuple[bytes, bytes]], tuple[bytes, ...]]:
    """Splits a file into entries (job id as printed, lines after it) and leftovers.

    Leftovers are lines before the first entry, and entries whose job id is longer than Lustre allows. A file
    without jobs may be empty.
    """
    data = _HIST.sub(b"", data)
    # From the right: that searches for the first byte, which is rare.
    head, *jobs = (b"\n" + data).rsplit(_ENTRY)
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
    return printable(name)


def parse_histograms(data: bytes) -> Parsed:
    """Parses the bins and gauges of a file."""
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
        if gathering.header(words, line):
            continue
        if all(word in _COLUMNS for word in words):
            columns = [_name(word) for word in words]
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
    match = _GAUGE.fullmatch(line.strip())
    value = number(match[2]) if match else None
    if match is None or value is None:
        return False
    gathering.add(Field(_slug(match[1]), FieldKind.GAUGE), value)
    return True


def _slug(title: bytes) -> str:
    """A title as part of a field's name: `disk I/Os in flight` becomes `disk_ios_in_flight`."""
    known = _TITLES.get(title)
    return known or _UNSAFE.sub("_", _name(title).lower().replace("i/o", "io")).strip("_")


def parse_import(data: bytes) -> Parsed:
    """Parses an import."""
    gathering = ResultBuilder(needs_header=False)
    for line in data.splitlines():
        key, *values = line.split() or [b""]
        if not key:
            continue
        wanted, units = _NUMBERS.get(key[:-1], (None, ()))
        value = number(values[0]) if values else None
        if key == b"state:":
            wanted, value = _STATE, _CODES.get(b" ".join(values))
        if not key.endswith(b":"):
            gathering.left_over(line)
        elif wanted is not None:
            if value is None or (values[1:] and values[1] not in units) or len(values) > 2:
                gathering.left_over(line)
            else:
                gathering.add(wanted, value)
    if not data.lstrip().startswith(b"import:"):
        gathering.left_over(b"(no import:)")
    return gathering.parsed()


def parse_scalar(field: Field, data: bytes) -> Parsed:
    """Parses a file that holds one number."""
    gathering = ResultBuilder(needs_header=False)
    value = number(data.strip())
    if value is None:
        gathering.left_over(data.strip() or b"(empty)")
    else:
        gathering.add(field, value)
    return gathering.parsed()


def _name(word: bytes) -> str:
    """A name from a file as text fit for a field's name."""
    return printable(word.decode("ascii", "replace"))[:100]
