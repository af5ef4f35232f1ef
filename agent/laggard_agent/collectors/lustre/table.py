"""One table, sample after sample: its devices located, every file read once."""

import errno
from collections.abc import Sequence

from laggard_agent.collectors.base import Reading
from laggard_agent.collectors.lustre.columns import Columns
from laggard_agent.collectors.lustre.locate import Parameters
from laggard_agent.collectors.lustre.shapes import Found
from laggard_agent.collectors.lustre.tables import TableSpec, reader_of
from laggard_common.codec import Row
from laggard_common.errors import CollectError
from laggard_common.schema import Component

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
        devices = {n: files for n, files in located.devices.items() if spec.devices.fullmatch(n)}
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
    """A table of one row a device."""

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec
        self.located = Located(spec)
        self._readers = tuple(map(reader_of, spec.files))
        self._columns = Columns()
        self._rows: dict[str, Row] = {}
        self._components: tuple[Component, ...] = ()

    def read(self, parameters: Parameters, at_ns: int, outcome: Outcome) -> Reading | None:
        """All devices now; None when there are none."""
        found = {}
        for name, places in self.located.places.items():
            parts = self._device(parameters, places, outcome)
            if any(parts):
                found[name] = parts
        if not found:
            self._columns = Columns()
            self._rows = {}
            return None
        if not self._columns.fields:
            return None
        rows = {name: self._columns.row(parts) for name, parts in found.items()}
        before = self._rows.get
        for name, row in rows.items():
            known = before(name)
            if known == row:
                rows[name] = known
        self._rows = rows
        components = tuple(self.located.components[name] for name in rows)
        if components != self._components:
            self._components = components
        return Reading(self.spec.source, self._columns.fields, at_ns, self._components, list(rows.values()))

    def _device(
        self, parameters: Parameters, places: Sequence[str | None], outcome: Outcome
    ) -> tuple[Found | None, ...]:
        parts: list[Found | None] = []
        for place, reader in zip(places, self._readers, strict=True):
            data = outcome.read(parameters, place) if place else None
            part = None if data is None else reader(data)
            if part and part[0].leftovers and place:
                outcome.left_over(place, part[0].leftovers)
            parts.append(part)
        refused = self._columns.learn(tuple(part[0] if part else None for part in parts))
        outcome.left_over(next(filter(None, places), ""), refused)
        return tuple(parts)
