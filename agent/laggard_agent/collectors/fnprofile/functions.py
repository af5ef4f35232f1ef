"""Names of functions outside this node, and the selection of those that get a row of their own.

The paper keeps functions with at least 100 samples of 100,000 cycles in one window of 60 s, 201 of 7,446
(HotDep 2010, "Feature-Vector Dimensionality"); the others would only lengthen vectors, schemas and archives.
Here a function gets its row when it has that CPU time, 4 ms, within a minute; one with much more gets it at
once, as it may be the fault.
"""

import zlib
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

from laggard_agent.collectors.interface import printable
from laggard_agent.collectors.rows import named
from laggard_common.wire.codec import Row
from laggard_common.wire.schema import Component, Field

OTHER = "other"
OTHERS = "[others]/other"
_MOST_PART_CHARS = 64
_MOST_FUNCTION_CHARS = 126  # with two parts before it: MAX_NAME_CHARS
FIELDS = (Field("samples"), Field("cpu_ns", unit="ns"))
LEAST_CPU_NS = 4_000_000
MUCH_CPU_NS = 250_000_000
_ADMIT_EVERY_NS = 60 * 1_000_000_000
_IDLE_NS = 600 * 1_000_000_000  # after this time a row may go to another function


@lru_cache(1 << 12)
def function_id(program: str, image: str, function: str) -> str:
    """The three joined, without a `/` in any of them; too long a part ends in a checksum."""
    parts = (_part(program, _MOST_PART_CHARS), _part(image, _MOST_PART_CHARS))
    return "/".join((*parts, _part(function, _MOST_FUNCTION_CHARS)))


def other_of(function: str) -> str:
    """The row in which functions of the same program are counted that have none of their own."""
    return f"{function.partition('/')[0]}/{OTHER}"


def _part(name: str, most_chars: int) -> str:
    name = printable(name.replace("/", ":"))
    if len(name) > most_chars:
        checksum = zlib.crc32(name.encode("utf-8", "surrogateescape"))
        name = f"{name[: most_chars - 9]}~{checksum:08x}"
    return name or "?"


class Functions:
    """Cumulative samples by function, at most `most` rows; one sample is `cpu_ns` of CPU time.

    Functions without a row count in `program/other`, or in `[others]/other` if that has no row either, so the
    sum is complete.
    """

    def __init__(self, most: int, cpu_ns: int) -> None:
        self._most = most
        self._cpu_ns = cpu_ns
        self._least, self._much = (max(1, -(-cpu // cpu_ns)) for cpu in (LEAST_CPU_NS, MUCH_CPU_NS))
        self._totals: dict[str, int] = {OTHERS: 0}
        self._seen_ns: dict[str, int] = {}
        self._candidates: Counter[str] = Counter()
        self._admit_at_ns: int | None = None
        self.components: tuple[Component, ...] = (named(OTHERS),)
        self.rows: list[Row] = [(0, 0)]
        self.replaced = 0

    def add(self, counts: Mapping[str, int], at_ns: int) -> None:
        """Adds the samples of one vector, taken at `at_ns` of a monotonic clock."""
        for name, count in counts.items():
            if name not in self._totals:
                self._candidates[name] += count
        if self._admit_at_ns is None or at_ns >= self._admit_at_ns:
            self._admit_at_ns = at_ns + _ADMIT_EVERY_NS
            self._admit(self._least, at_ns)
            self._candidates.clear()
        elif any(count >= self._much for count in self._candidates.values()):
            self._admit(self._much, at_ns)
        for name, count in counts.items():
            home = name if name in self._totals else other_of(name)
            home = home if home in self._totals else OTHERS
            self._totals[home] += count
            self._seen_ns[home] = at_ns
        rows = zip(self._totals.values(), self.rows, strict=True)
        self.rows = [row if row[0] == n else (n, n * self._cpu_ns) for n, row in rows]

    def _admit(self, least: int, at_ns: int) -> None:
        """Gives rows to the candidates with `least` samples or more, while there is room."""
        programs: Counter[str] = Counter()
        for name, count in self._candidates.items():
            if count < least and other_of(name) not in self._totals:
                programs[other_of(name)] += count
        enough = (item for item in (self._candidates | programs).items() if item[1] >= least)
        wanted = sorted(enough, key=lambda item: (-item[1], item[0]))[: self._most]
        room = self._most - len(self._totals)
        if len(wanted) > room:
            room += self._make_room(len(wanted) - room, at_ns)
        new = [name for name, _ in wanted[:room]]
        if new:
            self._totals.update(dict.fromkeys(new, 0))
            for name in new:
                self._candidates.pop(name, None)
            self.components = (*self.components, *map(named, new))
            self.rows += [(0, 0)] * len(new)

    def _make_room(self, wanted: int, at_ns: int) -> int:
        """Frees rows of functions unseen for long; returns their number."""
        idle = [n for n in self._totals if n != OTHERS and at_ns - self._seen_ns.get(n, 0) > _IDLE_NS]
        gone = set(sorted(idle, key=lambda name: self._seen_ns.get(name, 0))[:wanted])
        if gone:
            kept = [i for i, name in enumerate(self._totals) if name not in gone]
            self.components = tuple(self.components[i] for i in kept)
            self.rows = [self.rows[i] for i in kept]
            for name in gone:
                del self._totals[name]
                self._seen_ns.pop(name, None)
            self.replaced += len(gone)
        return len(gone)
