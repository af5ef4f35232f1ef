"""The opt-in tables of jobs: a row for each job id on each target."""

from collections.abc import Iterable
from dataclasses import dataclass

from laggard_agent.collectors.interface import Reading
from laggard_agent.collectors.lustre.columns import Columns
from laggard_agent.collectors.lustre.devices import job
from laggard_agent.collectors.lustre.param_paths import Parameters
from laggard_agent.collectors.lustre.parse import job_id, parse_job, split_jobs
from laggard_agent.collectors.lustre.table import LocatedTable, Outcome
from laggard_agent.collectors.lustre.table_specs import TableSpec
from laggard_agent.collectors.lustre.template_cache import Shape, Shapes, Values
from laggard_common.wire.codec import Row
from laggard_common.wire.schema import Component


class JobTable:
    """At most `most` rows; further entries are only counted, in `left_out`.

    Files of idle targets and entries of idle jobs, unchanged since the previous sample, are not parsed.
    """

    def __init__(self, spec: TableSpec, most: int) -> None:
        self.spec = spec
        self.located = LocatedTable(spec)
        self.left_out = 0
        self._most = most
        self._shapes = Shapes(parse_job)
        self._columns = Columns()
        self._files: dict[str, _JobFile] = {}
        self._known: dict[tuple[str, str], Component] = {}
        self._components: tuple[Component, ...] = ()
        self._turn = 0

    def read(self, parameters: Parameters, at_ns: int, outcome: Outcome) -> Reading | None:
        """Reads all jobs of all targets; None without any."""
        room = self._most
        files: dict[str, _JobFile] = {}
        self._turn += 1
        for place, (name, places) in enumerate(self.located.places.items(), self._turn):
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
        same = files.keys() == self._files.keys() and all(
            file.names is self._files[name].names for name, file in files.items()
        )
        self._files = files
        self.left_out = sum(file.left_out for file in files.values())
        if room == self._most:
            self._columns = Columns()
            self._known = {}
            self._components = ()
            return None
        if not same:
            self._name()
        rows: list[Row] = []
        for file in files.values():
            rows += self._rows(file)
        return Reading(self.spec.source, self._columns.fields, at_ns, self._components, rows)

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
                entry = _JobEntry(job_id(printed))
            if entry.lines != lines:
                self._read_entry(entry, lines)
            leftovers += entry.shapes[0].leftovers
            entries[printed] = entry
        names = tuple(dict.fromkeys([entry.name for entry in entries.values()]))
        if before is not None and before.names == names:
            names = before.names
        return _JobFile(data, entries, names, tuple(leftovers), max(len(texts) - room, 0))

    def _read_entry(self, entry: "_JobEntry", lines: bytes) -> None:
        shape, entry.values = self._shapes.read(lines)
        entry.lines = lines
        entry.row = ()
        if entry.shapes != (shape,):
            entry.shapes = (shape,)
            self._columns.learn(entry.shapes)

    def _rows(self, file: "_JobFile") -> Iterable[Row]:
        """One row per name; the later of two entries of one name, which Lustre does not produce."""
        count = len(self._columns.fields)
        if file.columns != count:  # rows of a file that was not read this time remain
            rows: dict[str, Row] = {}
            for entry in file.entries.values():
                if len(entry.row) != count:
                    entry.row = self._columns.row(entry.shapes, (entry.values,))
                rows[entry.name] = entry.row
            file.rows = tuple(rows.values())
            file.columns = count
        return file.rows

    def _name(self) -> None:
        keys = [(device, name) for device, file in self._files.items() for name in file.names]
        components = self.located.components
        self._components = tuple(self._known.get(key) or job(components[key[0]], key[1]) for key in keys)
        self._known = dict(zip(keys, self._components, strict=True))


@dataclass(slots=True)
class _JobEntry:
    """A job's counters; `row` is built on demand, and again when the table has grown."""

    name: str
    lines: bytes | None = None
    shapes: tuple[Shape, ...] = ()
    values: Values = ()
    row: Row = ()


@dataclass(slots=True)
class _JobFile:
    """A file as read; `names`: its jobs, the same object while the set of jobs is unchanged.

    `rows` are built on demand, and again when the table has grown beyond `columns`.
    """

    data: bytes
    entries: dict[bytes, _JobEntry]
    names: tuple[str, ...]
    leftovers: tuple[bytes, ...]
    left_out: int
    rows: tuple[Row, ...] = ()
    columns: int = -1
