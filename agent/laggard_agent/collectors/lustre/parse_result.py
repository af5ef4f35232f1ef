"""Result of parsing one file, and the numbers and header lines common to all of Lustre's files."""

from dataclasses import dataclass

from laggard_common.wire.schema import Field, FieldKind

START_TIME = Field("start_time", FieldKind.GAUGE, "s")
HEADERS = (b"snapshot_time", b"start_time", b"elapsed_time")

_MOST = 2**64
_MOST_DIGITS = 20
_MOST_LEFTOVERS = 100
_SHOWN_BYTES = 200


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

    def __init__(self) -> None:
        self._fields: list[Field] = []
        self._values: list[int] = []
        self._leftovers: list[bytes] = []
        self.has_header = False

    def add(self, field: Field, value: int) -> None:
        """Adds one value."""
        self._fields.append(field)
        self._values.append(value)

    def left_over(self, line: bytes) -> None:
        """Adds an unparsed line."""
        if len(self._leftovers) < _MOST_LEFTOVERS:
            self._leftovers.append(line[:_SHOWN_BYTES])

    def header(self, name: bytes, words: list[bytes], line: bytes) -> None:
        """Parses `snapshot_time`, `start_time` or `elapsed_time`; `words` follow the name."""
        seconds = number(words[0].partition(b".")[0]) if words else None
        if seconds is None:
            self.left_over(line)
        elif name == b"snapshot_time":
            self.has_header = True
        elif name == b"start_time":
            self.add(START_TIME, seconds)

    def parsed(self) -> Parsed:
        """The result; a missing header is reported as a leftover."""
        if not self.has_header:
            self.left_over(b"(no snapshot_time)")
        complete = self.has_header and not self._leftovers
        return Parsed(tuple(self._fields), tuple(self._values), tuple(self._leftovers), complete)


def number(word: bytes) -> int | None:
    """A counter as Lustre prints it, 0 to 2^64-1; None for anything else."""
    if not word.isdigit() or len(word) > _MOST_DIGITS:
        return None
    value = int(word)
    return value if value < _MOST else None


def text(word: bytes) -> str:
    """A name from a file as text fit for a field's name."""
    return "".join(c if c.isprintable() else "?" for c in word.decode("ascii", "replace"))[:100]
