"""Tables over the samples: each locates its devices and reads each file once."""

import errno
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from laggard_agent.collectors.interface import Reading
from laggard_agent.collectors.lustre.param_paths import Parameters
from laggard_agent.collectors.lustre.parse import job_id, parse_job, split_jobs
from laggard_agent.collectors.lustre.table_specs import Read, TableSpec, job, reader_of
from laggard_agent.collectors.lustre.template_cache import Columns, Shape, Shapes, Shown, Values
from laggard_common.errors import CollectError
from laggard_common.wire.codec import Row
from laggard_common.wire.schema import Component

_HEADER = re.compile(rb"(?:(?:snapshot_time|elapsed_time|(start_time[^\n]*))[^\n]*\n)*")
_GONE = (errno.ENOENT, errno.ENODEV, errno.ESTALE, errno.ESHUTDOWN)


class Outcome:
    """Outcome of one sample: files read, vanished, failed; leftover lines by file."""

    def __init__(self) -> None:
        self.files = 0
        self.gone = 0
        self.failures: list[CollectError] = []
        self.leftovers: dict[str, tuple[bytes, ...]] = {}

    def left_over(self, place: str, lines: tuple[bytes, ...]) -> None:
        """Adds unparsed lines of a file."""
        if lines:
            self.leftovers[place] = self.leftovers.get(place, ()) + lines

    def read(self, parameters: Parameters, place: str) -> bytes | None:
        """Reads a location; counts a failure and returns None."""
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


class LocatedTable:
    """Devices of a table and the locations of their files, as of the latest search, and its columns.

    `devices`: their names, distinct from those of other kinds. `left_out`: entries without a row.
    """

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec
        self.left_out = 0
        self._columns = Columns()
        self._components: tuple[Component, ...] = ()
        self._turn = 0
        self._identify = spec.identify()
        self.places: dict[str, tuple[str | None, ...]] = {}
        self.components: dict[str, Component] = {}
        self.devices: frozenset[str] = frozenset()
        self.problem: CollectError | None = None

    def locate(self, parameters: Parameters) -> None:
        """Searches devices and files again; an error is kept in `problem`."""
        spec = self.spec
        located = parameters.locate(spec.kinds, spec.files)
        devices = {
            n: files for n, files in located.devices.items() if n.isprintable() and spec.devices.fullmatch(n)
        }
        self.places = {
            name: tuple(map(files.get, spec.files)) for name, files in sorted(devices.items()) if files
        }
        if self.places.keys() != self.components.keys():
            self.components = self._identify(self.places)
            self.devices = frozenset([f"{spec.kinds[-1]}/{name}" for name in self.places])
        self.problem = None
        if located.partial or not spec.essential:
            return
        if devices and not any(places[0] for places in self.places.values()):
            wanted = f"{' or '.join(spec.kinds)} has {len(devices)} devices but none has {spec.files[0]}"
            refused = "; ".join(located.refused) or "is debugfs mounted?"
            self.problem = CollectError(parameters.roots, f"{wanted} ({refused})")
        elif located.refused and not devices and spec.kinds[0] in located.refused[0]:
            self.problem = CollectError(*located.refused[0].rsplit(": ", 1))

    def _reading(self, at_ns: int, components: tuple[Component, ...], rows: list[Row]) -> Reading:
        if components != self._components:
            self._components = components
        return Reading(self.spec.source, self._columns.fields, at_ns, self._components, rows)


class ParamTable(LocatedTable):
    """A table with one row per device.

    A file that is unchanged since the previous sample, apart from its timestamps, is not parsed, and a row of
    such files is the same object.
    """

    def __init__(self, spec: TableSpec) -> None:
        super().__init__(spec)
        self._readers = tuple(map(reader_of, spec.files))
        self._devices: dict[str, _TableDevice] = {}

    def read(self, parameters: Parameters, at_ns: int, outcome: Outcome) -> Reading | None:
        """Reads all devices; None without devices or without any counter."""
        devices = {}
        self._turn += 1
        for place, (name, places) in enumerate(self.places.items(), self._turn):
            device = self._devices.get(name)
            if device is None or place % self.spec.every == 0:
                device = device or _TableDevice(self._readers)
                device.read(parameters, places, outcome, self._columns)
            if device.is_there:
                devices[name] = device
                for file, lines in device.leftovers:
                    outcome.left_over(file, lines)
        self._devices = devices
        if not devices or not self._columns.fields:
            self._columns = Columns()
            self._devices = {}
            return None
        rows = [device.row_in(self._columns) for device in devices.values()]
        return self._reading(at_ns, tuple([self.components[name] for name in devices]), rows)


class _TableDevice:
    """The files of a device as last read, and their row.

    `is_there`: at least one was readable. `leftovers`: lines that are unparsed or contradict the table, by
    file.
    """

    def __init__(self, readers: Iterable[Read]) -> None:
        self.is_there = False
        self.leftovers: list[tuple[str, tuple[bytes, ...]]] = []
        self._files = tuple(map(_TableFile, readers))
        self._shapes: Shown = ()
        self._row: Row = ()
        self._is_old = False  # the row: a file changed

    def read(
        self, parameters: Parameters, places: Sequence[str | None], outcome: Outcome, columns: Columns
    ) -> None:
        """Reads the files and adds new fields to the columns."""
        changed = False
        for file, place in zip(self._files, places, strict=True):
            changed |= file.update(outcome.read(parameters, place) if place else None)
        if not changed:
            return
        self._is_old = True
        shapes = tuple([file.shape for file in self._files])
        if shapes != self._shapes:
            self._shapes = shapes
            self.is_there = any(shapes)
            leftovers = [(place, s.leftovers) for place, s in zip(places, shapes, strict=True) if place and s]
            leftovers.append((next(filter(None, places), ""), columns.learn(shapes)))
            self.leftovers = [(place, lines) for place, lines in leftovers if lines]

    def row_in(self, columns: Columns) -> Row:
        """The row of this device, the same object while its values are unchanged."""
        if self._is_old or len(self._row) != len(columns.fields):
            row = columns.row(self._shapes, [file.values for file in self._files if file.shape])
            if row != self._row:
                self._row = row
            self._is_old = False
        return self._row


class _TableFile:
    """Contents of one file; `shape` is None while it is unreadable."""

    def __init__(self, read: Read) -> None:
        self.shape: Shape | None = None
        self.values: Values = ()
        self._read = read
        self._start: bytes | None = None
        self._body = b""

    def update(self, data: bytes | None) -> bool:
        """Parses new contents; True if anything but the timestamps changed."""
        if data is None:
            was_there = self.shape is not None
            self.shape = None
            return was_there
        header = _HEADER.match(data)
        assert header is not None  # it may not match at all
        start, body = header[1], data[header.end() :]
        if self.shape is not None and body == self._body and start == self._start:
            return False
        self._start, self._body = start, body
        self.shape, self.values = self._read(data)
        return True


class JobTable(LocatedTable):
    """At most `most` rows; further entries are only counted, in `left_out`.

    Files of idle targets and entries of idle jobs, unchanged since the previous sample, are not parsed.
    """

    def __init__(self, spec: TableSpec, most: int) -> None:
        super().__init__(spec)
        self._most = most
        self._shapes = Shapes(parse_job)
        self._files: dict[str, _JobFile] = {}

    def read(self, parameters: Parameters, at_ns: int, outcome: Outcome) -> Reading | None:
        """Reads all jobs of all targets; None without any."""
        room = self._most
        files: dict[str, _JobFile] = {}
        self._turn += 1
        for place, (name, places) in enumerate(self.places.items(), self._turn):
            if places[0] is None:
                continue
            file = self._files.get(name)
            if file is None or place % self.spec.every == 0:
                data = outcome.read(parameters, places[0])
                file = None if data is None else self._file(name, data, room)
            if file is not None:
                files[name] = file
                room -= len(file.entries)
                outcome.left_over(places[0], file.leftovers)
        self._files = files
        self.left_out = sum(file.left_out for file in files.values())
        if room == self._most:
            self._columns = Columns()
            return None
        components: list[Component] = []
        rows: list[Row] = []
        for file in files.values():
            self._fill(file)
            components += file.components
            rows += file.rows
        return self._reading(at_ns, tuple(components), rows)

    def _file(self, name: str, data: bytes, room: int) -> "_JobFile":
        before = self._files.get(name)
        if before is not None and before.data == data and len(before.entries) <= room and not before.left_out:
            return before
        texts, not_understood = split_jobs(data)
        leftovers = [*not_understood]
        known = before.entries if before is not None else {}
        entries: dict[bytes, _JobEntry] = {}
        for printed, lines in texts[:room]:
            entry = known.get(printed)
            if entry is None:
                entry = _JobEntry(job(self.components[name], job_id(printed)))
            if entry.lines != lines:
                self._read_entry(entry, lines)
            leftovers += entry.shapes[0].leftovers
            entries[printed] = entry
        return _JobFile(data, entries, tuple(leftovers), max(len(texts) - room, 0))

    def _read_entry(self, entry: "_JobEntry", lines: bytes) -> None:
        shape, entry.values = self._shapes.read(lines)
        entry.lines = lines
        entry.row = ()
        if entry.shapes != (shape,):
            entry.shapes = (shape,)
            self._columns.learn(entry.shapes)

    def _fill(self, file: "_JobFile") -> None:
        """One row per name; the later of two entries of one name, which Lustre does not produce."""
        count = len(self._columns.fields)
        if file.columns != count:  # rows of a file that was not read this time remain
            entries = {entry.component.id: entry for entry in file.entries.values()}.values()
            for entry in entries:
                if len(entry.row) != count:
                    entry.row = self._columns.row(entry.shapes, (entry.values,))
            file.components = [entry.component for entry in entries]
            file.rows = [entry.row for entry in entries]
            file.columns = count


@dataclass(slots=True)
class _JobEntry:
    """A job's counters; `row` is built on demand, and again when the table has grown."""

    component: Component
    lines: bytes | None = None
    shapes: tuple[Shape, ...] = ()
    values: Values = ()
    row: Row = ()


@dataclass(slots=True)
class _JobFile:
    """A file as read. Its rows are built on demand, and again when the table has grown beyond `columns`."""

    data: bytes
    entries: dict[bytes, _JobEntry]
    leftovers: tuple[bytes, ...]
    left_out: int
    components: Sequence[Component] = ()
    rows: Sequence[Row] = ()
    columns: int = -1
