"""One table, sample after sample: its devices located, every file read once."""

import errno
import re
from collections.abc import Sequence
from operator import is_

from laggard_agent.collectors.base import Reading
from laggard_agent.collectors.lustre.columns import Columns
from laggard_agent.collectors.lustre.locate import Parameters
from laggard_agent.collectors.lustre.shapes import Found
from laggard_agent.collectors.lustre.tables import Read, TableSpec, reader_of
from laggard_common.codec import Row
from laggard_common.errors import CollectError
from laggard_common.schema import Component

Text = tuple[tuple[bytes, bytes], Found]  # a file without its times, and what was found in it
Parts = tuple[Found | None, ...]  # of one device, a place for each file

_HEADER = re.compile(rb"(?:(?:snapshot_time|elapsed_time|(?P<start>start_time[^\n]*))[^\n]*\n)*")
_GONE = (errno.ENOENT, errno.ENODEV, errno.ESTALE, errno.ESHUTDOWN)


class Outcome:
    """What one sample came to: files read, gone since they were listed, failed; lines left over by file."""

    def __init__(self) -> None:
        self.files = 0
        self.gone = 0
        self.failures: list[CollectError] = []
        self.leftovers: dict[str, tuple[bytes, ...]] = {}

    def left_over(self, place: str, lines: tuple[bytes, ...]) -> None:
        """Notes lines of a file that were not understood."""
        if lines:
            self.leftovers[place] = self.leftovers.get(place, ()) + lines

    def read(self, parameters: Parameters, place: str) -> bytes | None:
        """The bytes at a place; None, and counted, when they could not be had."""
        try:
            data = parameters.read(place)
        except CollectError as exc:
            if isinstance(exc.__cause__, OSError) and exc.__cause__.errno in _GONE:
                self.gone += 1
            else:
                self.failures.append(exc)
            return None
        self.files += 1
        return data


class Located:
    """The devices of a table and where their files are, as of the latest look."""

    def __init__(self, spec: TableSpec) -> None:
        self._spec = spec
        self._identify = spec.identify()
        self.places: dict[str, tuple[str | None, ...]] = {}
        self.components: dict[str, Component] = {}
        self.problem: CollectError | None = None

    def look(self, parameters: Parameters) -> None:
        """Finds devices and files anew. What is wrong is in `problem`."""
        spec = self._spec
        located = parameters.locate(spec.kinds, spec.files)
        devices = {
            n: files for n, files in located.devices.items() if n.isprintable() and spec.devices.fullmatch(n)
        }
        self.places = {
            name: tuple(map(files.get, spec.files)) for name, files in sorted(devices.items()) if files
        }
        self.components = self._identify(self.places)
        self.problem = None
        if located.partial or not spec.essential:
            return
        if devices and not any(places[0] for places in self.places.values()):
            wanted = f"{' or '.join(spec.kinds)} has {len(devices)} devices but none has {spec.files[0]}"
            refused = "; ".join(located.refused) or "is debugfs mounted?"
            self.problem = CollectError(parameters.roots(), f"{wanted} ({refused})")
        elif located.refused and not devices and spec.kinds[0] in located.refused[0]:
            self.problem = CollectError(*located.refused[0].rsplit(": ", 1))


class Table:
    """A table of one row a device.

    A file that says what it said in the sample before, its times aside, is not looked into, and a row of such
    files is the same object again.
    """

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec
        self.located = Located(spec)
        self._readers = tuple(map(reader_of, spec.files))
        self._columns = Columns()
        self._texts: dict[str, Text] = {}
        self._parts: dict[str, Parts] = {}
        self._rows: dict[str, Row] = {}
        self._components: tuple[Component, ...] = ()
        self._turn = 0

    def read(self, parameters: Parameters, at_ns: int, outcome: Outcome) -> Reading | None:
        """All devices now; None when there are none, or none has counted anything."""
        found = {}
        texts: dict[str, Text] = {}
        self._turn += 1
        for place, (name, places) in enumerate(self.located.places.items(), self._turn):
            due = name not in self._parts or place % self.spec.every == 0
            parts = self._device(parameters if due else None, places, outcome, texts)
            if any(parts):
                found[name] = parts
        self._texts = texts
        if not found or not self._columns.fields:
            self._columns = Columns()
            self._parts = {}
            self._rows = {}
            return None
        self._rows = {name: self._row(name, parts) for name, parts in found.items()}
        self._parts = found
        components = tuple(self.located.components[name] for name in found)
        if components != self._components:
            self._components = components
        rows = list(self._rows.values())
        return Reading(self.spec.source, self._columns.fields, at_ns, self._components, rows)

    def _row(self, name: str, parts: Parts) -> Row:
        before = self._rows.get(name)
        if before is not None and len(before) == len(self._columns.fields):
            if all(map(is_, parts, self._parts[name])):
                return before
            row = self._columns.row(parts)
            return before if row == before else row
        return self._columns.row(parts)

    def _device(
        self,
        parameters: Parameters | None,
        places: Sequence[str | None],
        outcome: Outcome,
        texts: dict[str, Text],
    ) -> Parts:
        """The files of a device; as they were when it is not its turn and `parameters` is None."""
        parts: list[Found | None] = []
        for place, reader in zip(places, self._readers, strict=True):
            part = None
            if place is not None:
                known = self._texts.get(place)
                if parameters is not None:
                    known = _look_into(outcome.read(parameters, place), known, reader)
                if known is not None:
                    texts[place] = known
                    part = known[1]
                    outcome.left_over(place, part[0].leftovers)
            parts.append(part)
        refused = self._columns.learn(tuple(part[0] if part else None for part in parts))
        outcome.left_over(next(filter(None, places), ""), refused)
        return tuple(parts)


def _look_into(data: bytes | None, before: Text | None, read: Read) -> Text | None:
    if data is None:
        return None
    text = without_times(data)
    return before if before is not None and before[0] == text else (text, read(data))


def without_times(data: bytes) -> tuple[bytes, bytes]:
    """`start_time` and what follows the header: what changes only when something was counted."""
    found = _HEADER.match(data)
    assert found is not None  # it may match nothing at all
    return found["start"] or b"", data[found.end() :]
