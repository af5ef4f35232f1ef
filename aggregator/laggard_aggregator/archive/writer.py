"""Writes the archive. Nothing here is asynchronous: the daemon calls it from a thread of its own."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from laggard_aggregator.alarms.alarms import AlarmsCleared
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.archive import layout, part_reader, schemas
from laggard_aggregator.archive.counter_columns import Pending
from laggard_aggregator.archive.documents import document_table
from laggard_aggregator.archive.schemas import MAX_SOURCE_FIELDS, FieldKey, Row, field_key
from laggard_aggregator.groups.membership import ConfiguredMembership
from laggard_aggregator.groups.topology import Topology
from laggard_aggregator.ingest.batches import Batch, Document
from laggard_aggregator.log.entries import EntryTimes, WindowClose
from laggard_common.errors import WireError
from laggard_common.wire.schema import Schema

FLUSH_ROWS = 262_144
MAX_PENDING_ROWS = 8 * FLUSH_ROWS
FLUSH_CELLS = 64 * FLUSH_ROWS
"""Values of all sources together, 128 MiB of them: of one node a row may have 1,024 fields."""
MAX_PENDING_CELLS = 8 * FLUSH_CELLS
MAX_PENDING_DOCUMENT_BYTES = 64 * 1024**2
"""Documents in memory; more are a flush."""
MAX_OWN_ROWS = 65_536
MAX_NEW_FIELDS = 4096
"""Fields that a node may add in a day to the tables of all sources."""
MAX_OWN_FIELDS = MAX_SOURCE_FIELDS // 2
"""Fields of a source that one node alone has: the schemas of others fit beside them."""
MAX_NEW_SHARED_FIELDS = 256
"""Of them, to the table of a source that other nodes have, and that none of those has: each makes all their
rows wider."""

MAX_SCHEMAS = 20_000
"""Schemas of a node in a day, one every four seconds: each has a whole dictionary on disk."""

_OWN_TABLES = {
    "groups": schemas.GROUPS,
    "closes": schemas.CLOSES,
    "windows": schemas.WINDOWS,
    "alarms": schemas.ALARMS,
    "shadow_windows": schemas.WINDOWS,
}


@dataclass(slots=True)
class _Fields:
    """Fields of a source's table, and whether a schema of today has them. `owner`: None if several nodes."""

    used: dict[FieldKey, bool]
    owner: str | None
    added: Counter[str] = field(default_factory=Counter)
    """Fields that each node added today."""
    asked: dict[int, str] = field(default_factory=dict)
    """Sets of fields that were too many for one node, as a hash, and the node; each node's last one."""

    def another_has(self, node: str, fields: frozenset[FieldKey]) -> bool:
        """Whether the same fields were too many for another node today; notes that this one has them."""
        key = hash(fields)
        if self.asked.get(key, node) != node:
            return True
        self.asked = {other: by for other, by in self.asked.items() if by != node}
        self.asked[key] = node
        return False


class FieldBounds:
    """Bounds the columns of each source's table, and those that each node adds in a day.

    Fields in use stay known over the days, so that a node with ever new ones keeps out those of no other.
    """

    def __init__(self) -> None:
        self._sources: dict[tuple[str, str], _Fields] = {}
        self._added: Counter[str] = Counter()

    def admits(self, source: tuple[str, str], schema: Schema) -> bool:
        """Whether the fields of a schema fit into the table of its source; they are added if so."""
        node = schema.node
        known = self._sources.get(source) or _Fields({}, node)
        columns = [field_key(field) for field in schema.fields]
        fields = frozenset(column for column in columns if column not in known.used)
        new = len(fields)
        shared = known.owner != node
        if new and (
            len(known.used) + new > (MAX_SOURCE_FIELDS if shared else MAX_OWN_FIELDS)
            or self._added[node] + new > MAX_NEW_FIELDS
        ):
            return False
        if shared and new and known.added[node] + new > MAX_NEW_SHARED_FIELDS:
            if not known.another_has(node, fields):
                return False
        else:
            known.added[node] += new
        self._sources[source] = known
        known.used.update(dict.fromkeys(columns, True))
        self._added[node] += new
        if shared:
            known.owner = None
        return True

    def new_day(self) -> None:
        """Forgets the fields that no schema of the day had."""
        self._added.clear()
        for source, known in list(self._sources.items()):
            known.used = {column: False for column, used in known.used.items() if used}
            known.added.clear()
            known.asked.clear()
            if not known.used:
                del self._sources[source]


class ArchiveWriter:
    """Writes batches and results, in the order in which they are added, as parts of daily tables.

    `run_ns`: when the daemon started; ordinals count within a run. Rows wait in memory until `flush`, which
    happens by itself at FLUSH_ROWS rows of a source, at FLUSH_CELLS and at the end of a day; how often else
    is the caller's.

    A day is what `layout.day_of` makes of the receive time, and never goes back within a run.

    While the disk does not take a flush, what it holds waits for the next one; beyond MAX_PENDING_ROWS
    (a source) and MAX_PENDING_CELLS the oldest rows are thrown away and counted in `dropped_rows`.
    `refused_rows`: rows by node whose schemas have fields beyond FieldBounds, or are more than MAX_SCHEMAS.
    """

    def __init__(
        self,
        directory: Path,
        site: str,
        run_ns: int,
        *,
        continues_at_ns: int | None = None,
        continued_run_ns: int | None = None,
        repeats: EntryTimes | None = None,
    ) -> None:
        """`continues_at_ns`: start of this writer's records where it continues an earlier one's run.

        `continued_run_ns`: that run. `open` reads how far the archive has it, so that no row is repeated.
        `repeats`: that run is not known, but the times of entries that will be added again. The runs that
        have rows of them are continued.
        """
        self.directory = directory
        self.site = site
        self.run_ns = run_ns
        self.dropped_rows = 0
        self.refused_rows: Counter[str] = Counter()
        self.refused_documents = 0
        self._bounds = FieldBounds()
        self._continued_run_ns = continued_run_ns
        self._repeats = repeats
        self._written: dict[tuple[str, str], int] = {}  # the last ordinal in each table
        self._begun_ns = run_ns if continues_at_ns is None else continues_at_ns
        self._day = layout.day_of(self._begun_ns)
        self._opened_ns: int | None = None
        self._closed: dict[str, int] = {}
        self._pending: dict[tuple[str, str], list[Pending]] = {}
        self._cells = 0
        self._flush_at = FLUSH_CELLS
        self._schemas: dict[tuple[str, str], list[Row]] = {}
        self._schemas_written: dict[tuple[str, str, str, bytes, int], int] = {}
        self._schemas_of: Counter[str] = Counter()  # of the day, by node
        self._latest: dict[tuple[str, str, str], Schema] = {}
        self._documents: dict[tuple[str, str], list[pa.Table]] = {}  # by source and site
        self._document_bytes = 0
        self._groups: list[Row] = []
        self._own: dict[str, list[Row]] = {kind: [] for kind in _OWN_TABLES}
        self._verdicts: dict[str, list[pa.Table]] = {"verdicts": [], "shadow_verdicts": []}
        self._next_part: dict[Path, int] = {}

    def open(self) -> int:
        """Reads how far the archive has the continued run; its last ordinal there, -1 without any.

        Its last day goes on, even where that is to come: the clock was ahead, and a day never goes back. To
        be called before anything is added. Raises ArchiveError.
        """
        runs: Collection[int] = ()
        if self._continued_run_ns is not None:
            runs = (self._continued_run_ns,)
        elif self._repeats is not None:
            runs = part_reader.runs_of(self.directory, self._repeats)
        for run_ns in runs:
            written, last_day = part_reader.written(self.directory, run_ns)
            for table, lsn in written.items():
                self._written[table] = max(self._written.get(table, -1), lsn)
            self._day = max(self._day, last_day)
        return max(self._written.values(), default=-1)

    def has_batch(self, source: str, lsn: int) -> bool:
        """Whether the archive had a batch of a continued run when it was opened."""
        return not self._is_new("counters", source, lsn)

    def schemas_lost(self) -> None:
        """Schemas of the day were set aside: the next batches write theirs again."""
        self._schemas_written.clear()
        self._schemas_of.clear()
        self._latest.clear()

    def groups(
        self,
        membership: ConfiguredMembership,
        topology: Topology,
        lateness_seconds: float,
        after_seconds: float,
    ) -> None:
        """Adds the rules by which this run groups and judges, so that a replay needs no configuration.

        Every day gets them, as the day on which the run began will be deleted before others.
        """
        self._groups = schemas.group_rows(membership, topology, lateness_seconds, after_seconds)
        self._own["groups"].extend(self._groups)

    def batch(self, batch: Batch) -> None:
        """Adds a batch, also when it raises ArchiveError as it made a flush necessary and that failed."""
        try:
            self._clock(batch.received_ns)
        finally:
            full = self._add_batch(batch)
        if full:
            self.flush()

    def document(self, document: Document) -> None:
        """Adds a document, even when it raises ArchiveError as `batch` does. A malformed one is counted."""
        try:
            self._clock(document.received_ns)
        finally:
            if self._is_new("events", document.source, document.lsn):
                self._add_document(document)
        if self._document_bytes >= MAX_PENDING_DOCUMENT_BYTES:
            self.flush()

    def window_close(self, close: WindowClose) -> None:
        """Adds a window close, even when it raises ArchiveError as `batch` does."""
        try:
            self._clock(round(close.closed_at * 1e9))
        finally:
            self._closed[close.group] = close.lsn
            self._put("closes", close.lsn, [schemas.close_row(close)])

    def judgement(self, judged: Judgement) -> None:
        """Adds the findings of detector and shadow at the last close of the judgement's group."""
        ordinal = self._closed.get(judged.group, -1)
        window = (judged.start, judged.end)
        self._put("alarms", ordinal, schemas.alarm_rows(ordinal, judged.transitions, window))
        self._put_verdicts(layout.OF_DETECTORS, ordinal, judged)
        if judged.shadow is not None:
            self._put_verdicts(layout.OF_SHADOWS, ordinal, judged.shadow)
        self._bound_own()

    def alarms_cleared(self, cleared: AlarmsCleared) -> None:
        """Adds alarms that were cleared without a window."""
        self._put("alarms", cleared.lsn, schemas.alarm_rows(cleared.lsn, cleared.transitions))
        self._bound_own()

    def flush(self) -> None:
        """Writes everything that waits; after it returns a reader sees it. Raises ArchiveError.

        Schemas are written before the counters that need them, groups and batches before the closes, so that
        a reader can read all that it finds.
        """
        self._flush_at = self._cells + FLUSH_CELLS  # when it is tried again, should it fail
        for (source, site), rows in list(self._schemas.items()):
            self._write("schemas", source, site, schemas.table_of(self.run_ns, rows, schemas.SCHEMAS))
            del self._schemas[source, site]
        for (source, site), waiting in list(self._pending.items()):
            while waiting:
                self._write("counters", source, site, waiting[0].table(self.run_ns))
                self._cells -= waiting.pop(0).cells
        self._flush_at = FLUSH_CELLS
        for (source, site), pending in list(self._documents.items()):
            table = pa.concat_tables(pending).unify_dictionaries()
            self._write("events", source, site, table)
            self._document_bytes -= sum(document.nbytes for document in self._documents.pop((source, site)))
        for kind, schema in _OWN_TABLES.items():
            if self._own[kind]:
                table = schemas.table_of(self.run_ns, self._own[kind], schema)
                self._write(kind, layout.OWN, self.site, table)
                self._own[kind] = []
        for kind, pending in self._verdicts.items():
            if pending:
                self._write(kind, layout.OWN, self.site, pa.concat_tables(pending).unify_dictionaries())
                self._verdicts[kind] = []
        self._opened_ns = None

    def _add_batch(self, batch: Batch) -> bool:
        """Whether enough waits for a flush, with the batch."""
        if not batch.counters.indexes.size or not self._is_new("counters", batch.schema.source, batch.lsn):
            return False
        source = (batch.schema.source, batch.site)
        if not self._admits(source, batch):
            return False
        waiting = self._pending.setdefault(source, [])
        if not waiting or not waiting[-1].has_room(batch, FLUSH_ROWS, FLUSH_CELLS):
            waiting.append(Pending())
        self._cells -= waiting[-1].cells
        waiting[-1].add(batch)
        self._cells += waiting[-1].cells
        full = waiting[-1].rows >= FLUSH_ROWS or self._cells >= self._flush_at
        if full:
            self._bound(waiting)
        return full

    def _add_document(self, document: Document) -> None:
        try:
            table = document_table(document, self.run_ns)
        except WireError:
            self.refused_documents += 1
            return
        self._documents.setdefault((document.source, document.site), []).append(table)
        self._document_bytes += table.nbytes

    def _admits(self, source: tuple[str, str], batch: Batch) -> bool:
        """Whether the batch can be written; its schema is to be written if it is new today.

        A batch is left out when its schema contradicts the one of the same node, stream and epoch, as nobody
        could read it, or has more fields than FieldBounds admits, or is beyond MAX_SCHEMAS. Only a node that
        does not keep to the wire format, or invents fields or streams, sends such. Of a day's schemas a hash
        is kept: each has a whole dictionary, and a busy node has many epochs.
        """
        schema = batch.schema
        of_node = (*source, schema.node)
        if self._latest.get(of_node) is schema:
            return True
        rows = batch.counters.indexes.size * batch.counters.tick_ns.size
        key, content = (*of_node, batch.stream, schema.epoch), hash(schema)
        if self._schemas_written.get(key, content) != content:
            self.dropped_rows += rows
            return False
        if key not in self._schemas_written:
            if self._schemas_of[schema.node] >= MAX_SCHEMAS or not self._bounds.admits(source, schema):
                self.refused_rows[schema.node] += rows
                return False
            self._schemas_written[key] = content
            self._schemas_of[schema.node] += 1
            self._schemas.setdefault(source, []).append(schemas.schema_row(batch))
        self._latest[of_node] = schema
        return True

    def _clock(self, now_ns: int) -> None:
        """Follows the time of additions; a new day begins with a flush of the rows of the one before."""
        day = layout.day_of(now_ns)
        if day > self._day:
            self.flush()
            self._day = day
            self._own["groups"].extend(self._groups)
            self.schemas_lost()
            self._next_part.clear()
            self._bounds.new_day()
        if self._opened_ns is None:
            self._opened_ns = now_ns

    def _is_new(self, kind: str, source: str, ordinal: int) -> bool:
        return ordinal > self._written.get((kind, source), -1)

    def _put(self, kind: str, ordinal: int, rows: list[Row]) -> None:
        if self._is_new(kind, layout.OWN, ordinal):
            self._own[kind] += rows

    def _put_verdicts(self, kinds: tuple[str, str], ordinal: int, judged: Judgement) -> None:
        """Adds a judgement to the tables of `kinds`, verdicts and windows."""
        verdicts, windows = kinds
        self._put(windows, ordinal, [schemas.window_row(ordinal, judged)])
        table = schemas.verdict_table(self.run_ns, ordinal, judged)
        if table is not None and self._is_new(verdicts, layout.OWN, ordinal):
            self._verdicts[verdicts].append(table)

    def _bound_own(self) -> None:
        own = [self._own[kind] for kind in ("windows", "alarms", "closes", "shadow_windows")]
        for kept in (*own, *self._verdicts.values()):
            beyond = max(len(kept) - MAX_OWN_ROWS, 0)
            self.dropped_rows += beyond
            del kept[:beyond]

    def _bound(self, waiting: list[Pending]) -> None:
        """Throws the oldest rows away while more wait than memory is meant for."""
        while sum(pending.rows for pending in waiting) > MAX_PENDING_ROWS:
            self._drop_oldest(waiting)
        while self._cells > MAX_PENDING_CELLS:
            self._drop_oldest(max(self._pending.values(), key=lambda parts: sum(p.cells for p in parts)))

    def _drop_oldest(self, waiting: list[Pending]) -> None:
        dropped = waiting.pop(0)
        self.dropped_rows += dropped.rows
        self._cells -= dropped.cells

    def _write(self, kind: str, source: str, site: str, table: pa.Table) -> None:
        where = layout.folder(self.directory, kind, source, self._day, site)
        number = self._next_part.pop(where, None) or layout.next_part(where)
        opened_at = layout.stamp(self._opened_ns or self._begun_ns)
        layout.write_part(where, opened_at, (number, number), table.schema, [table])
        self._next_part[where] = number + 1
