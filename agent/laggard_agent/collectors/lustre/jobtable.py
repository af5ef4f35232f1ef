"""The opt-in tables of jobs: a row for each job id on each target."""

from laggard_agent.collectors.base import Reading
from laggard_agent.collectors.lustre.columns import Columns
from laggard_agent.collectors.lustre.devices import job
from laggard_agent.collectors.lustre.jobstats import job_id, parse_job, split_jobs
from laggard_agent.collectors.lustre.locate import Parameters
from laggard_agent.collectors.lustre.shapes import Found, Shapes
from laggard_agent.collectors.lustre.table import Located, Outcome
from laggard_agent.collectors.lustre.tables import TableSpec
from laggard_common.codec import Row
from laggard_common.schema import Component

Entry = tuple[str, Found]  # job id, counters


class JobTable:
    """At most `most` rows; the entries past them are counted in `left_out` and not told apart.

    An entry whose text is that of the sample before, as those of idle jobs are, is not looked into.
    """

    def __init__(self, spec: TableSpec, most: int) -> None:
        self.spec = spec
        self.located = Located(spec)
        self.left_out = 0
        self._most = most
        self._shapes = Shapes(parse_job)
        self._columns = Columns()
        self._entries: dict[str, dict[bytes, Entry]] = {}
        self._known: dict[tuple[str, str], Component] = {}
        self._rows: dict[tuple[str, str], Row] = {}
        self._components: tuple[Component, ...] = ()

    def read(self, parameters: Parameters, at_ns: int, outcome: Outcome) -> Reading | None:
        """All jobs of all targets now; None when there are none."""
        self.left_out = 0
        found: dict[tuple[str, str], Found] = {}
        entries_of: dict[str, dict[bytes, Entry]] = {}
        for name, places in self.located.places.items():
            data = outcome.read(parameters, places[0]) if places[0] else None
            if data is None:
                continue
            assert places[0] is not None
            texts, leftovers = split_jobs(data)
            outcome.left_over(places[0], leftovers)
            room = max(self._most - len(found), 0)
            self.left_out += max(len(texts) - room, 0)
            entries = entries_of[name] = self._read_entries(name, texts[:room])
            for known, part in entries.values():
                found[name, known] = part
                if part[0].leftovers:
                    outcome.left_over(places[0], part[0].leftovers)
        self._entries = entries_of
        if not found or not self._columns.fields:
            self._columns = Columns()
            self._rows = {}
            return None
        return self._reading(found, at_ns)

    def _read_entries(self, name: str, texts: list[bytes]) -> dict[bytes, Entry]:
        before = self._entries.get(name, {})
        entries = {}
        for text in texts:
            entry = before.get(text)
            if entry is None:
                known, lines = job_id(text)
                entry = known, self._shapes.read(lines)
                self._columns.learn((entry[1][0],))
            entries[text] = entry
        return entries

    def _reading(self, found: dict[tuple[str, str], Found], at_ns: int) -> Reading:
        before = self._rows.get
        make = self._columns.row
        rows = {}
        for key, part in found.items():
            row = make((part,))
            known = before(key)
            rows[key] = known if known == row else row
        if rows.keys() != self._rows.keys() or not self._components:
            self._components = tuple(self._component(key) for key in rows)
            self._known = dict(zip(rows, self._components, strict=True))
        elif list(rows) != list(self._rows):
            self._components = tuple(self._known[key] for key in rows)
        self._rows = rows
        return Reading(self.spec.source, self._columns.fields, at_ns, self._components, list(rows.values()))

    def _component(self, key: tuple[str, str]) -> Component:
        name, known = key
        return self._known.get(key) or job(self.located.components[name], known)
