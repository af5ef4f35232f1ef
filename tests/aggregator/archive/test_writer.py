"""Days, crashes, full disks and changing schemas: what is on the disk is whole, and reads."""

import dataclasses
import gc
import os
import resource
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from laggard_aggregator.archive import layout
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.archive.retention import compact
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.log.entries import WindowClose
from laggard_common.errors import ArchiveError, InputError
from laggard_common.wire.schema import Component, Field, FieldKind, FieldType, Schema
from tests.support.builders.archives import START_NS, assert_same, judgement
from tests.support.builders.batches import SECOND, batch_of
from tests.support.processes import run_command

MIDNIGHT_NS = START_NS // (86_400 * SECOND) * 86_400 * SECOND + 86_400 * SECOND
"""The first one after START_NS, which is 2027-01-15T08:00:00Z."""

DAY_NS = 86_400 * SECOND


def schema_with(*fields: Field, epoch: int = 1, components: tuple[str, ...] = ("sda",)) -> Schema:
    parts = tuple(Component(f"id-{name}", name) for name in components)
    return Schema("oss-1", "diskstats", b"s" * 16, epoch, SECOND, 5, fields, parts)


def batch(schema: Schema, ordinal: int = 0, at_ns: int = START_NS) -> Batch:
    shape = (2, len(schema.components), len(schema.fields))
    values = np.arange(np.prod(shape), dtype=np.int64).reshape(shape) + ordinal
    return batch_of(schema, values, at_ns - SECOND, seq=ordinal, lsn=ordinal, received_ns=at_ns)


SCHEMA = schema_with(Field("rd_ios"), Field("rd_ms", unit="ms"))


def files(directory: Path, kind: str = "counters") -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.glob(f"kind={kind}/**/*.parquet"))


def read(directory: Path) -> list[Batch]:
    return [taken for _, taken in ArchiveReader(directory).batches()]


def test_a_file_lies_where_the_contract_says(tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path, "lab", START_NS)
    writer.batch(dataclasses.replace(batch(SCHEMA), site="lab"))
    writer.flush()
    (name,) = files(tmp_path)
    digest = run_command(["b2sum", "--length=64", tmp_path / name]).stdout[:16]
    assert name == (
        "kind=counters/source=diskstats/date=2027-01-15/site=lab/"
        f"20270115T080000Z-000001-000001-{digest}.parquet"
    )


def test_a_day_opens_five_seconds_after_midnight_and_never_again(tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path, "site", START_NS)
    times = [MIDNIGHT_NS + 4 * SECOND, MIDNIGHT_NS + 5 * SECOND, MIDNIGHT_NS - 2 * SECOND]
    sent = [batch(SCHEMA, ordinal, at_ns) for ordinal, at_ns in enumerate(times)]
    for taken in sent:
        writer.batch(taken)
    writer.flush()
    assert [name.split("/")[2] for name in files(tmp_path)] == ["date=2027-01-15", "date=2027-01-16"]
    for got, expected in zip(read(tmp_path), sent, strict=True):
        assert_same(got, expected)


@pytest.mark.parametrize("killed_early", [True, False])
def test_a_day_that_a_wrong_clock_opened_goes_on_after_restarts(tmp_path: Path, killed_early: bool) -> None:
    """The run began two days ahead, perhaps without a row; its clock was set right, and it restarts twice."""
    began = START_NS + 2 * DAY_NS
    first = ArchiveWriter(tmp_path, "site", began)
    first.open()
    if not killed_early:
        first.batch(batch(SCHEMA, 1, began))
        first.flush()
    for lsn in (2, 3):
        again = ArchiveWriter(
            tmp_path, "site", began, continues_at_ns=START_NS + SECOND, continued_run_ns=began
        )
        again.open()
        for replayed in range(2, lsn + 1):
            again.batch(batch(SCHEMA, replayed, START_NS + replayed * SECOND))
        again.flush()
    assert [taken.lsn for taken in read(tmp_path)] == ([2, 3] if killed_early else [1, 2, 3])
    assert {name.split("/")[2] for name in files(tmp_path)} == {"date=2027-01-17"}


def test_a_day_that_a_wrong_clock_opened_in_a_right_run_goes_on_too(tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path, "site", START_NS)
    for lsn, at_ns in enumerate((START_NS, START_NS + 2 * DAY_NS)):
        writer.batch(batch(SCHEMA, lsn, at_ns))
    writer.flush()
    again = ArchiveWriter(
        tmp_path, "site", START_NS, continues_at_ns=START_NS + SECOND, continued_run_ns=START_NS
    )
    assert again.open() == 1
    for lsn in range(3):
        again.batch(batch(SCHEMA, lsn, START_NS + 2 * SECOND))
    again.flush()
    assert [taken.lsn for taken in read(tmp_path)] == [0, 1, 2]


def test_each_day_has_the_schemas_that_read_it(tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path, "site", START_NS)
    for ordinal, at_ns in enumerate([START_NS, MIDNIGHT_NS + 10 * SECOND]):
        writer.batch(batch(SCHEMA, ordinal, at_ns))
    writer.flush()
    assert [name.split("/")[2] for name in files(tmp_path, "schemas")] == [
        "date=2027-01-15",
        "date=2027-01-16",
    ]


def test_a_schema_that_grows_within_a_day_adds_columns(tmp_path: Path) -> None:
    grown = schema_with(*SCHEMA.fields, Field("dc_ios"), epoch=2, components=("sda", "sdb"))
    sent = [batch(SCHEMA, 0), batch(grown, 1), batch(SCHEMA, 2)]
    writer = ArchiveWriter(tmp_path, "site", START_NS)
    for taken in sent:
        writer.batch(taken)
    writer.flush()
    assert len(files(tmp_path)) == 1
    for got, expected in zip(read(tmp_path), sent, strict=True):
        assert_same(got, expected)
    table = ArchiveReader(tmp_path).table("counters", "diskstats", ["ordinal", "dc_ios"])
    assert table.filter(table["ordinal"].to_numpy() != 1)["dc_ios"].null_count == 4


def double(name: str) -> Field:
    return Field(name, FieldKind.GAUGE, "1", FieldType.F64)


OTHER_TYPE = schema_with(double("rd_ios"), Field("node"), double("field.f64.rd_ios"), epoch=2)
"""Fields as SCHEMA and RESERVED have them, of another type, and one named as a column beside one."""
RESERVED = schema_with(Field("rd_ios"), double("node"), Field("field.f64.rd_ios"), epoch=3)


@pytest.mark.parametrize("flushed_every", [1, 2, 3, 50])
def test_fields_of_two_types_are_in_one_table(tmp_path: Path, flushed_every: int) -> None:
    """Whichever comes first, in every file and in the one that they are merged to."""
    cycle = [OTHER_TYPE, SCHEMA, OTHER_TYPE, RESERVED, SCHEMA]
    sent = [batch(cycle[turn % len(cycle)], turn) for turn in range(50)]
    writer = ArchiveWriter(tmp_path, "site", START_NS)
    for turn, taken in enumerate(sent):
        writer.batch(taken)
        if turn % flushed_every == flushed_every - 1:
            writer.flush()
    writer.flush()
    assert len(files(tmp_path)) == -(-len(sent) // flushed_every)
    for got, expected in zip(read(tmp_path), sent, strict=True):
        assert_same(got, expected)
    compact(tmp_path, MIDNIGHT_NS + SECOND * 3600)
    (merged,) = files(tmp_path)
    for got, expected in zip(read(tmp_path), sent, strict=True):
        assert_same(got, expected)
    columns = {each.name: str(each.type) for each in pq.read_schema(tmp_path / merged)}
    assert (columns["rd_ios"], columns["field.f64.rd_ios"]) == ("int64", "double")
    assert (columns["field.node"], columns["field.f64.field.node"]) == ("int64", "double")


def test_columns_carry_the_meaning_of_their_fields(tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path, "site", START_NS)
    writer.batch(batch(SCHEMA))
    writer.flush()
    schema = pq.read_schema(tmp_path / files(tmp_path)[0])
    assert schema.metadata[b"laggard.format"] == b"1"
    assert schema.field("rd_ms").metadata == {b"kind": b"counter", b"unit": b"ms", b"type": b"u64"}


def test_a_crash_while_a_file_is_written_leaves_nothing_that_counts(tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path, "site", START_NS)
    writer.batch(batch(SCHEMA))
    writer.flush()
    whole = tmp_path / files(tmp_path)[0]
    # What a crash between writing and renaming leaves: half of a next part under its temporary name.
    torn = whole.with_name(".20270115T080100Z-000002-000002.parquet.tmp")
    torn.write_bytes(whole.read_bytes()[:200])
    assert len(read(tmp_path)) == 1
    again = ArchiveWriter(tmp_path, "site", START_NS + SECOND)
    again.batch(batch(SCHEMA, 1, START_NS + SECOND))
    again.flush()
    assert len(read(tmp_path)) == 2
    compact(tmp_path, START_NS + 60 * SECOND)
    assert not torn.exists()


def test_a_reader_sees_whole_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    rename = Path.rename

    def look_and_rename(self: Path, target: Path) -> Path:
        seen.append(files(tmp_path))
        return rename(self, target)

    writer = ArchiveWriter(tmp_path, "site", START_NS)
    writer.batch(batch(SCHEMA))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", look_and_rename)
        writer.flush()
    assert seen == [[], []], "written completely under another name first"
    assert len(files(tmp_path)) == 1


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process may grow beyond 64 bytes, as on a disk without room."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def test_what_a_full_disk_refuses_is_written_when_there_is_room(tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path, "site", START_NS)
    writer.batch(batch(SCHEMA))
    writer.window_close(WindowClose(1, "luns", 0.0, 60.0, START_NS / 1e9))
    with full_disk(), pytest.raises(ArchiveError, match="File too large"):
        writer.flush()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    writer.flush()
    assert_same(read(tmp_path)[0], batch(SCHEMA))
    assert len(list(ArchiveReader(tmp_path).closes())) == 1


def test_while_nothing_can_be_written_memory_is_bounded_and_losses_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laggard_aggregator.archive.writer.FLUSH_ROWS", 10)
    monkeypatch.setattr("laggard_aggregator.archive.writer.MAX_PENDING_ROWS", 30)
    blocked = tmp_path / "archive"
    blocked.write_text("a file where the folder should be")
    writer = ArchiveWriter(blocked, "site", START_NS)
    refused = 0
    for ordinal in range(50):
        try:
            writer.batch(batch(SCHEMA, ordinal))
        except ArchiveError:
            refused += 1
    assert refused == 10, "tried again with every ten rows, not with every batch"
    assert writer.dropped_rows == 100 - 30
    blocked.unlink()
    writer.flush()
    assert [taken.lsn for taken in read(blocked)] == list(range(35, 50))


def test_what_waits_is_bounded_by_the_values_of_all_sources_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node's many fields are columns of all rows in the same table, and it may name many sources."""
    monkeypatch.setattr("laggard_aggregator.archive.writer.FLUSH_CELLS", 1000)
    monkeypatch.setattr("laggard_aggregator.archive.writer.MAX_PENDING_CELLS", 3000)
    wide = dataclasses.replace(schema_with(*(Field(f"f{n}") for n in range(100))), node="evil")
    blocked = tmp_path / "archive"
    blocked.write_text("a file where the folder should be")
    writer = ArchiveWriter(blocked, "site", START_NS)
    refused = 0
    for ordinal in range(0, 300, 3):
        try:
            writer.batch(batch(SCHEMA, ordinal))
            writer.batch(batch(wide, ordinal + 1))
            writer.batch(batch(dataclasses.replace(wide, source=f"s{ordinal % 7}"), ordinal + 2))
        except ArchiveError:
            refused += 1
        assert sum(p.cells for waiting in writer._pending.values() for p in waiting) <= 3000 + 1000
        assert all(p.cells <= 1000 for waiting in writer._pending.values() for p in waiting)
    assert 10 < refused < 60, "tried again with every thousand values"
    rows = sum(p.rows for waiting in writer._pending.values() for p in waiting)
    blocked.unlink()
    writer.flush()
    assert sum(taken.counters.tick_ns.size for taken in read(blocked)) == rows
    assert writer.dropped_rows > 0
    writer.batch(batch(wide, 301))
    assert writer._cells == 200


def test_a_batch_that_opens_a_day_is_kept_when_the_day_before_cannot_be_written(tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path, "site", START_NS)
    writer.batch(batch(SCHEMA, 0))
    with full_disk(), pytest.raises(ArchiveError):
        writer.batch(batch(SCHEMA, 1, MIDNIGHT_NS + 60 * SECOND))
    writer.batch(batch(SCHEMA, 2, MIDNIGHT_NS + 61 * SECOND))
    writer.flush()
    assert [taken.lsn for taken in read(tmp_path)] == [0, 1, 2]


def test_a_judgement_belongs_to_its_groups_close_whatever_came_since(tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path, "site", START_NS)
    writer.window_close(WindowClose(7, "luns", 0.0, 60.0, START_NS / 1e9))
    writer.window_close(WindowClose(8, "others", 0.0, 60.0, START_NS / 1e9))
    writer.batch(batch(SCHEMA, 9))
    writer.judgement(judgement())
    writer.flush()
    reader = ArchiveReader(tmp_path)
    for kind in ("verdicts", "windows", "alarms"):
        assert set(reader.table(kind, columns=["ordinal"])["ordinal"].to_pylist()) == {7}


def test_numbers_of_parts_go_on_after_a_restart(tmp_path: Path) -> None:
    for run in range(3):
        writer = ArchiveWriter(tmp_path, "site", START_NS + run)
        writer.batch(batch(SCHEMA, 0, START_NS + run * SECOND))
        writer.flush()
    where = layout.folder(tmp_path, "counters", "diskstats", "2027-01-15", "site")
    assert [(part.first, part.last) for part in layout.parts(where)] == [(1, 1), (2, 2), (3, 3)]
    assert [run_ns - START_NS for run_ns, _ in ArchiveReader(tmp_path).batches()] == [0, 1, 2]


def test_what_is_no_archive_or_of_another_format_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a Laggard archive"):
        ArchiveReader(tmp_path)
    writer = ArchiveWriter(tmp_path, "site", START_NS)
    writer.batch(batch(SCHEMA))
    writer.flush()
    path = tmp_path / files(tmp_path)[0]
    table = pq.read_table(path)
    path.unlink()
    path = path.with_name("20270115T080000Z-000001-000001.parquet")  # of an earlier version
    pq.write_table(table.replace_schema_metadata({b"laggard.format": b"2"}), path)
    with pytest.raises(InputError, match="archive format 2, this version reads 1"):
        read(tmp_path)
    path.write_bytes(b"not Parquet")
    with pytest.raises(InputError, match="cannot be read"):
        read(tmp_path)


def test_a_schema_that_contradicts_one_before_spoils_neither_the_run_nor_the_archive(tmp_path: Path) -> None:
    """Node, stream and epoch are the same: a node that does not keep to the wire format."""
    other = schema_with(*SCHEMA.fields, components=("sdb", "sdc", "sdd"))
    writer = ArchiveWriter(tmp_path, "site", START_NS)
    for ordinal, schema in enumerate((SCHEMA, other, SCHEMA)):
        writer.batch(batch(schema, ordinal))
    writer.flush()
    assert writer.dropped_rows == 2 * 3
    again = ArchiveWriter(tmp_path, "site", START_NS + 1)
    again.batch(batch(other, 0))
    again.flush()
    assert [taken.lsn for taken in read(tmp_path)] == [0, 2, 0]
    assert [taken.schema for taken in read(tmp_path)] == [SCHEMA, SCHEMA, other]


def test_a_day_of_many_epochs_and_streams_leaves_one_schema_of_a_node_in_memory(tmp_path: Path) -> None:
    def alive() -> int:
        gc.collect()
        return sum(isinstance(each, Schema) for each in gc.get_objects())

    writer = ArchiveWriter(tmp_path, "site", START_NS)
    before = alive()
    for ordinal in range(20):
        stream = bytes((ordinal,)) * 16
        made = dataclasses.replace(SCHEMA, epoch=ordinal % 7, stream=stream)
        writer.batch(dataclasses.replace(batch(made, ordinal), stream=stream))
        del made
    writer.flush()
    assert alive() - before <= 1
    assert [taken.lsn for taken in read(tmp_path)] == list(range(20))


def test_only_the_owner_and_its_group_read_an_archive(tmp_path: Path) -> None:
    """Also where a command makes it, `laggard jobs import` under the usual umask."""
    before = os.umask(0o022)
    try:
        writer = ArchiveWriter(tmp_path / "archive", "site", START_NS)
        writer.batch(batch(SCHEMA, 0, START_NS))
        writer.flush()
    finally:
        os.umask(before)
    made = [tmp_path / "archive", *(tmp_path / "archive").rglob("*")]
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in made}
    assert modes == {(True, 0o750), (False, 0o640)}
