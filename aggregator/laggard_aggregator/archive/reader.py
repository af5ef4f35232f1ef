"""Reads the archive: in journal order for replay, by columns for other tools. Needs no daemon."""

import heapq
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from laggard_aggregator.archive import layout, part_reader, schemas
from laggard_aggregator.archive.decode_batches import Stamped, batches
from laggard_aggregator.detect.settings import OF_FUNCTIONS, DetectSettings
from laggard_aggregator.groups.membership import ConfiguredMembership, PeerGroup, Rule
from laggard_aggregator.groups.topology import Branch, Topology
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.log.entries import WindowClose
from laggard_common.errors import InputError
from laggard_common.wire.schema import Component, Field, FieldKind, FieldType, Schema

_SchemaKey = tuple[int, str, str, int]
"""Run, node, stream (hex), epoch."""

_Event = tuple[int, Batch | WindowClose]

_PARQUET = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)


@dataclass(frozen=True, slots=True)
class RunStart:
    """Settings with which a run of the daemon started."""

    run_ns: int
    membership: ConfiguredMembership
    topology: Topology
    lateness_seconds: float
    after_seconds: float


class ArchiveReader:
    """The archive in `directory`. Raises InputError when it is missing or a file cannot be read."""

    def __init__(self, directory: Path) -> None:
        layout.check_archive(directory)
        self.directory = directory

    def runs(self) -> list[RunStart]:
        """The runs in this archive, oldest first."""
        rows: dict[int, dict[int, dict[str, Any]]] = {}
        for table in self._tables("groups"):
            for row in table.to_pylist():
                rows.setdefault(row["run"], {})[row["place"]] = row  # the same rows every day
        return [
            _run_start(run_ns, [by[place] for place in sorted(by)]) for run_ns, by in sorted(rows.items())
        ]

    def events(self) -> Iterator[_Event]:
        """Yields all batches and window closes with their run, in journal order."""
        # Window closes are listed first: they are written last, so all earlier batches are there.
        closes: Iterable[_Event] = list(self.closes())
        streams: list[Iterator[_Event]] = [self._batches(source, site) for source, site in self._sources()]
        yield from heapq.merge(*streams, closes, key=lambda event: (event[0], event[1].lsn))

    def batches(self) -> Iterator[tuple[int, Batch]]:
        """Yields all batches with their run, in journal order."""
        return ((run_ns, event) for run_ns, event in self.events() if isinstance(event, Batch))

    def closes(self) -> Iterator[tuple[int, WindowClose]]:
        """Yields all window closes with their run, in order."""
        rows = [row for table in self._tables("closes") for row in table.to_pylist()]
        closes = [(row.pop("run"), _close(row)) for row in rows]
        return iter(sorted(closes, key=lambda run_close: (run_close[0], run_close[1].lsn)))

    def table(
        self,
        kind: str,
        source: str = layout.OWN,
        columns: Sequence[str] | None = None,
        first_day: str = "",
        last_day: str = "9999-12-31",
    ) -> pa.Table:
        """The rows of a kind and source over some days (ISO 8601, inclusive), site after site.

        The columns are the union over the files, null where a file lacks one; `columns` selects some. Without
        them every file is checked as a whole, otherwise the pages that are read.
        """
        try:
            parts = self.parts(kind, source, first_day, last_day)
            if not parts:
                return pa.table({})
            of_files = [_schema_of(part, whole=columns is None) for part in parts]
            schema = pa.unify_schemas(of_files, promote_options="permissive")
            files = ds.dataset([part.path for part in parts], schema=schema, format=_PARQUET)
            return files.to_table(columns=None if columns is None else list(columns))
        except (OSError, pa.ArrowException, layout.DamagedPartError) as exc:
            raise InputError(str(self.directory), f"cannot be read: {layout.one_line(exc)}") from exc

    def parts(
        self, kind: str, source: str = layout.OWN, first_day: str = "", last_day: str = "9999-12-31"
    ) -> list[layout.Part]:
        """The files of a kind and source over some days, for other tools. Raises InputError."""
        with InputError.from_os_errors(self.directory):
            return [
                part
                for day, where in layout.days(self.directory, kind, source)
                if first_day <= day <= last_day
                for part in layout.parts(where)
            ]

    def _sources(self) -> list[tuple[str, str]]:
        paths = (where for _, where in self._days("counters"))
        return sorted({(p.parts[-3].removeprefix("source="), p.name.removeprefix("site=")) for p in paths})

    def _batches(self, source: str, site: str) -> Iterator[Stamped]:
        known: dict[_SchemaKey, Schema] = {}

        def find_schema(run_ns: int, node: str, stream: str, epoch: int) -> Schema:
            key = (run_ns, node, stream, epoch)
            schema = known.get(key)
            if schema is None:  # of this day, or new: the writer is still appending
                known.update(self._schemas(source, day, site))
                schema = known.get(key)
            if schema is None:
                raise InputError(str(self.directory), f"no schema of {source} of {node}, epoch {epoch}")
            return schema

        for day, where in self._days("counters", source, site):  # noqa: B007 - find_schema's
            for chunks in part_reader.files(where):
                yield from batches(chunks, site, find_schema)

    def _schemas(self, source: str, day: str, site: str) -> Iterator[tuple[_SchemaKey, Schema]]:
        where = layout.folder(self.directory, "schemas", source, day, site)
        for table in part_reader.tables(where):
            for row in table.to_pylist():
                yield (row["run"], row["node"], row["stream"], row["epoch"]), _schema(source, row)

    def _tables(self, kind: str) -> Iterator[pa.Table]:
        for _, where in self._days(kind):
            yield from part_reader.tables(where)

    def _days(self, kind: str, source: str = "*", site: str = "*") -> list[tuple[str, Path]]:
        with InputError.from_os_errors(self.directory):
            return layout.days(self.directory, kind, source, site)


def _schema_of(part: layout.Part, *, whole: bool) -> pa.Schema:
    """Columns of a file, which is checked as a `whole`, or page by page as it is read."""
    with layout.checked_file(part) if whole else layout.page_checked_file(part) as file:
        return file.schema_arrow


def _close(row: dict[str, Any]) -> WindowClose:
    """A window close; older archives have no columns for decisions."""
    drained, restart = (tuple(row.pop(name, None) or ()) for name in ("drained", "afresh"))
    return WindowClose(row.pop("ordinal"), **row, drained=drained, restart=restart)


def _schema(source: str, row: dict[str, Any]) -> Schema:
    return Schema(
        node=row["node"],
        source=source,
        stream=bytes.fromhex(row["stream"]),
        epoch=row["epoch"],
        interval_ns=row["interval_ns"],
        batch_ticks=row["batch_ticks"],
        fields=tuple(
            Field(f["name"], FieldKind[f["kind"].upper()], f["unit"], FieldType[f["type"].upper()])
            for f in row["fields"]
        ),
        components=tuple(Component(c["id"], c["name"], tuple(c["labels"])) for c in row["components"]),
    )


def _run_start(run_ns: int, rows: list[dict[str, Any]]) -> RunStart:
    """The RunStart described by `rows`, which are in the order of the configuration."""
    rules, default, functions = [], DetectSettings(), OF_FUNCTIONS
    for row in rows:
        settings = DetectSettings.of_record(json.loads(row["detect"]))
        if row["automatic"]:
            if row["source"] == schemas.OF_FUNCTIONS:
                functions = settings
            else:
                default = settings
            continue
        group = PeerGroup(row["name"], row["source"], row["role"], tuple(row["metrics"]), settings)
        rules.append(Rule(group, re.compile(row["components"])))
    return RunStart(
        run_ns=run_ns,
        membership=ConfiguredMembership(rules, default, functions),
        topology=Topology([Branch(**branch) for branch in json.loads(rows[0]["topology"])]),
        lateness_seconds=rows[0]["lateness_seconds"],
        after_seconds=rows[0]["after_seconds"],
    )
