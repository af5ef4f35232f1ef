"""Caches the structure of files whose digits alone change from sample to sample.

A file is split into its skeleton, all but digits and blanks, and its runs of digits. For a new skeleton the
parser runs twice: on the file itself, and with each run replaced by its index, which shows the run of every
field. From then on two `bytes.translate`, a `split` and an `itemgetter` suffice. Runs that are part of a name
or a bin (`4K:`) must be equal too. Blanks are ignored, as numbers are padded; a change of blanks alone goes
unnoticed.

The columns of a table only grow, and its rows are built from files of known shape.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeVar

from laggard_agent.collectors.lustre.parse import Parsed
from laggard_common.trace_formats.kernel_text import MOST
from laggard_common.wire.codec import Row
from laggard_common.wire.limits import MAX_FIELDS
from laggard_common.wire.schema import Field, FieldKind

T = TypeVar("T")

Runs = Sequence[bytes]
Values = tuple[int, ...]
Parse = Callable[[bytes], Parsed]

_DIGITS = b"0123456789"
_NOT_SKELETON = _DIGITS + b" \t"
_TO_BLANKS = bytes(c if c in _DIGITS else 0x20 for c in range(256))
_RUN = re.compile(rb"\d+")
_NAME = re.compile(rb"[\w/]")
_AFTER_NAME = re.compile(rb"[\w/:]")
_MOST_SHAPES = 1024
_ZERO = 0
_NONE = 1
_BEFORE_VALUES = 2  # [0, None, values of the first file, of the second, ...]
_MOST_PLANS = 4096
_MOST_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """Structure of files with one skeleton: `fields`, each once, and their positions.

    `pick` extracts their values from the runs, in order, followed by those of `again`: fields that Lustre
    prints twice and whose second value is added.
    """

    fields: tuple[Field, ...]
    pick: Callable[[Runs], tuple[bytes, ...]]
    again: tuple[int, ...]
    leftovers: tuple[bytes, ...]
    complete: bool

    def values(self, runs: Runs) -> Values:
        """The values of `fields`. Raises ValueError for a run that is too long to be a number."""
        values = tuple(map(int, self.pick(runs)))
        if not self.again:
            return values
        count = len(self.fields)
        sums = list(values[:count])
        for place, second in zip(self.again, values[count:], strict=True):
            sums[place] += second
        return tuple(sums)


Found = tuple[Shape, Values]

Shown = tuple[Shape | None, ...]  # of one component, one entry per file of the table


class Shapes:
    """Cache of shapes of one kind of file; `parse` is its pure parser."""

    def __init__(self, parse: Parse) -> None:
        self._parse = parse
        self._plain: dict[tuple[Field, ...], Shape] = {}
        self._known: dict[bytes, _Skeleton] = {}
        self._latest: _Skeleton | None = None
        self._count = 0

    def read(self, data: bytes) -> Found:
        """Shape of a file and the values of its fields, each below 2^64. Raises nothing."""
        bones = data.translate(None, _NOT_SKELETON)
        runs = data.translate(_TO_BLANKS).split()
        skeleton = self._latest
        if skeleton is None or skeleton.bones != bones:  # most files equal the previous one
            skeleton = self._latest = self._known.get(bones)
        if skeleton is not None and len(runs) == skeleton.runs:
            shape = skeleton.shapes.get(skeleton.fixed(runs))
            if shape is not None:
                try:
                    values = shape.values(runs)
                except ValueError:
                    return self.read_plain(data)
                if sum(values) < MOST or max(values) < MOST:  # twice as fast as a loop
                    return shape, values
        if len(data) > _MOST_BYTES:
            return self.read_plain(data)
        return self._learn(data, bones, runs)

    def read_plain(self, data: bytes) -> Found:
        """As `read`, but caches only the fields: for short files with varying names and addresses."""
        return self._as_parsed(self._parse(data))

    def _learn(self, data: bytes, bones: bytes, runs: Runs) -> Found:
        parsed = self._parse(data)
        marked, fixed = _mark(data)
        by_place = self._parse(marked)
        same = by_place.fields == parsed.fields and len(by_place.leftovers) == len(parsed.leftovers)
        if not same or parsed.values != tuple(int(runs[place]) for place in by_place.values):
            return self._as_parsed(parsed)
        shape = _shape(parsed, by_place.values)
        if self._count >= _MOST_SHAPES:
            self._known.clear()
            self._count = 0
        skeleton = self._known.get(bones)
        if skeleton is None or skeleton.runs != len(runs) or skeleton.places != fixed:
            skeleton = self._known[bones] = _Skeleton(bones, len(runs), fixed, getter(fixed), {})
        skeleton.shapes[skeleton.fixed(runs)] = shape
        self._latest = skeleton
        self._count += 1
        return _bounded(shape, shape.values(runs))

    def _as_parsed(self, parsed: Parsed) -> Found:
        """Shape whose runs are the parsed values; cached for files that were parsed as a whole."""
        shape = self._plain.get(parsed.fields) if parsed.complete else None
        if shape is None:
            shape = _shape(parsed, range(len(parsed.values)))
            if parsed.complete and len(self._plain) < _MOST_SHAPES:
                self._plain[parsed.fields] = shape
        if len(shape.fields) == len(parsed.values):
            return shape, parsed.values
        return _bounded(shape, shape.values([b"%d" % value for value in parsed.values]))


@dataclass(frozen=True, slots=True)
class _Skeleton:
    """Files of one skeleton: number of runs, fixed runs, and the shape for each set of fixed runs."""

    bones: bytes
    runs: int
    places: tuple[int, ...]
    fixed: Callable[[Runs], tuple[bytes, ...]]
    shapes: dict[tuple[bytes, ...], Shape]


def _mark(data: bytes) -> tuple[bytes, tuple[int, ...]]:
    """The file with every run replaced by its index, and the indexes of unreplaced runs."""
    fixed = []
    pieces: list[bytes] = []
    end = 0
    for place, run in enumerate(_RUN.finditer(data)):
        before, after = data[run.start() - 1 : run.start()], data[run.end() : run.end() + 1]
        if _NAME.match(before) or _AFTER_NAME.match(after):
            fixed.append(place)
        else:
            pieces += (data[end : run.start()], b"%d" % place)
            end = run.end()
    return b"".join((*pieces, data[end:])), tuple(fixed)


def _bounded(shape: Shape, values: Values) -> Found:
    """Wraps at 2^64, as sums of a counter printed twice may exceed it."""
    return shape, tuple([value % MOST for value in values])


def _shape(parsed: Parsed, places: Sequence[int]) -> Shape:
    at: dict[str, int] = {}
    fields: list[Field] = []
    once: list[int] = []
    again: list[tuple[int, int]] = []
    for field, place in zip(parsed.fields, places, strict=True):
        known = at.setdefault(field.name, len(fields))
        if known == len(fields):
            fields.append(field)
            once.append(place)
        elif fields[known] == field:
            again.append((known, place))
    pick = getter([*once, *(place for _, place in again)])
    places_again = tuple(known for known, _ in again)
    return Shape(tuple(fields), pick, places_again, parsed.leftovers, parsed.complete)


def getter(places: Sequence[int]) -> Callable[[Sequence[T]], tuple[T, ...]]:
    """Returns a getter of the items at `places` as a tuple, also for one place or none."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda items: tuple(items[place] for place in places)


class Columns:
    """Fields in order of first appearance, and the way to fill them.

    A counter missing from a fully parsed file never counted: it is 0. For a file that is missing or was not
    fully parsed, missing counters are None.
    """

    def __init__(self) -> None:
        self.fields: tuple[Field, ...] = ()
        self._at: dict[str, int] = {}
        self._file_of: list[int] = []
        self._refused: dict[Shown, tuple[bytes, ...]] = {}
        self._plans: dict[Shown, Callable[[Sequence[int | None]], Row] | None] = {}

    def learn(self, shapes: Shown) -> tuple[bytes, ...]:
        """Adds the fields of a component's files; returns those that contradict existing fields."""
        refused = self._refused.get(shapes)
        if refused is None:
            if len(self._refused) >= _MOST_PLANS:
                self._refused.clear()
            refused = self._refused[shapes] = tuple(self._take(shapes))
        return refused

    def row(self, shapes: Shown, parts: Sequence[Values]) -> Row:
        """The row of a component whose shapes were learnt; `parts`: values of the files present."""
        try:
            plan = self._plans[shapes]
        except KeyError:
            plan = self._plan(shapes)
        if plan is None:  # one file that has all fields in order
            return parts[0]
        values: list[int | None] = [0, None]
        for part in parts:
            values += part
        return plan(values)

    def _take(self, shapes: Shown) -> list[bytes]:
        refused = []
        new = list(self.fields)
        for file, shape in enumerate(shapes):
            for field in shape.fields if shape else ():
                at = self._at.get(field.name)
                if at is None and len(new) < MAX_FIELDS:
                    self._at[field.name] = len(new)
                    self._file_of.append(file)
                    new.append(field)
                elif at is None:
                    refused.append(f"({field.name}: too many fields)".encode())
                elif new[at] != field or self._file_of[at] != file:
                    refused.append(f"({field.name}: in {field.unit}, was in {new[at].unit})".encode())
        if len(new) > len(self.fields):
            self.fields = tuple(new)
            self._plans.clear()
        return refused

    def _plan(self, shapes: Shown) -> Callable[[Sequence[int | None]], Row] | None:
        starts = []
        end = _BEFORE_VALUES
        for shape in shapes:
            starts.append(end)
            end += len(shape.fields) if shape else 0
        here = [{f: i for i, f in enumerate(shape.fields)} if shape else {} for shape in shapes]
        named = {field.name for fields in here for field in fields}
        places = []
        for field, file in zip(self.fields, self._file_of, strict=True):
            shape = shapes[file]
            at = here[file].get(field)
            if at is not None:
                places.append(starts[file] + at)
            elif (
                shape is not None
                and shape.complete
                and field.kind is not FieldKind.GAUGE
                and field.name not in named
            ):
                places.append(_ZERO)
            else:
                places.append(_NONE)
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        identity = len(shapes) == 1 and places == list(range(_BEFORE_VALUES, end))
        plan = None if identity else getter(places)
        self._plans[shapes] = plan
        return plan
