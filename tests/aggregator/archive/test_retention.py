"""Compaction merges what is over and loses nothing; retention deletes the oldest and never the open day."""

import errno
import gc
import os
import shutil
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laggard_aggregator.archive import layout, part_reader, retention
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.archive.table import Table
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.log.entries import WindowClose
from laggard_aggregator.settings.aggregator import ArchiveTable
from laggard_common.errors import ArchiveError
from tests.aggregator.archive.test_writer import MIDNIGHT_NS, SCHEMA, batch, files, read
from tests.support.builders.batches import SECOND
from tests.support.processes import run_command

HOUR_NS = 3600 * SECOND
DAY_NS = 24 * HOUR_NS
NOON_NS = MIDNIGHT_NS + 12 * HOUR_NS


def write(directory: Path, times: list[int]) -> None:
    """One part for each time, with a batch and a close."""
    writer = ArchiveWriter(directory, "site", times[0])
    for place, at_ns in enumerate(times):
        writer.batch(batch(SCHEMA, 2 * place, at_ns))
        writer.window_close(WindowClose(2 * place + 1, "luns", 0.0, 60.0, at_ns / 1e9))
        writer.flush()


def names(directory: Path) -> list[str]:
    """Names of the counters' files without their digests."""
    return [Path(name).name.rpartition("-")[0] for name in files(directory)]


def days(directory: Path, kind: str) -> list[str]:
    return [day for day, _ in layout.days(directory, kind)]


def test_hours_that_are_over_become_one_file_each(tmp_path: Path) -> None:
    minutes = [NOON_NS + minute * 60 * SECOND for minute in range(5, 145, 20)]
    write(tmp_path, minutes)
    before = read(tmp_path)
    retention.compact(tmp_path, minutes[-1])
    assert names(tmp_path) == [
        "20270116T120500Z-000001-000003",
        "20270116T130500Z-000004-000006",
        "20270116T140500Z-000007-000007",
    ]
    assert [taken.lsn for taken in read(tmp_path)] == [taken.lsn for taken in before]


def test_a_day_that_is_over_becomes_one_file(tmp_path: Path) -> None:
    write(tmp_path, [NOON_NS + hour * HOUR_NS for hour in range(4)])
    retention.compact(tmp_path, NOON_NS + 4 * HOUR_NS)
    retention.compact(tmp_path, NOON_NS + DAY_NS)
    assert names(tmp_path) == ["20270116T120000Z-000001-000004"]
    assert len(read(tmp_path)) == 4
    assert retention.compact(tmp_path, NOON_NS + DAY_NS) == 0, "nothing is left to do"


def test_however_many_parts_there_are_little_is_in_memory_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MERGED_BYTES", 4096)
    write(tmp_path, [NOON_NS + second * SECOND for second in range(60)])
    parts = layout.parts((tmp_path / files(tmp_path)[0]).parent)
    ((_, schema, every),) = retention._unions(parts)
    before, rows, held = pa.total_allocated_bytes(), [], []
    for table in retention._row_groups(parts, schema, every):
        rows.append(table.num_rows)
        held.append(pa.total_allocated_bytes() - before)
    del table
    tables = [table for part in parts for table in retention._tables(part)]
    assert max(held) < (pa.total_allocated_bytes() - before) / 3
    assert sum(rows) == sum(table.num_rows for table in tables) == every
    batches = read(tmp_path)
    retention.compact(tmp_path, NOON_NS + 2 * HOUR_NS)
    (merged,) = files(tmp_path)
    assert pq.ParquetFile(tmp_path / merged).metadata.num_row_groups == len(rows) > 3
    assert [taken.lsn for taken in read(tmp_path)] == [taken.lsn for taken in batches]


def numbers(where: Path, parts: int, groups: int, rows: int) -> list[layout.Part]:
    """Parts in `where`, each of so many row groups of so many rows, which are numbered through."""
    for part in range(parts):
        firsts = range(part * groups * rows, (part + 1) * groups * rows, rows)
        tables = [pa.table({"number": range(first, first + rows), "same": ["x"] * rows}) for first in firsts]
        layout.write_part(where, layout.stamp(NOON_NS), (part, part), tables[0].schema, tables)
    return layout.parts(where)


def test_long_files_of_many_row_groups_are_not_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the hours of a day are. Of their row groups none is divided, whose texts would be in both halves."""
    monkeypatch.setattr(retention, "MERGED_BYTES", 64 * 1024)
    parts = numbers(tmp_path, parts=2, groups=40, rows=2000)
    ((_, schema, every),) = retention._unions(parts)
    before, seen, held = pa.total_allocated_bytes(), 0, []
    for table in retention._row_groups(parts, schema, every):
        held.append(pa.total_allocated_bytes() - before)
        assert table["number"].to_pylist() == list(range(seen, seen + table.num_rows))
        assert table.num_rows % 2000 == 0
        seen += table.num_rows
    assert seen == every == 160_000
    assert max(held) < 80_000 * 12 / 2  # bytes, of one part


def test_long_files_have_no_more_row_groups_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their descriptions are in memory all at once, of whoever writes and of whoever reads."""
    monkeypatch.setattr(retention, "MERGED_BYTES", 1000)
    monkeypatch.setattr(retention, "MOST_ROW_GROUPS", 8)
    (union,) = retention._unions(numbers(tmp_path, parts=30, groups=1, rows=100))
    sizes = [table.num_rows for table in retention._row_groups(*union)]
    assert sizes == [400, 400, 400, 400, 400, 400, 400, 200]
    monkeypatch.setattr(retention, "ROW_GROUP_ROWS", 350)
    sizes = [table.num_rows for table in retention._row_groups(*union)]
    assert sizes == [300] * 10


def test_descriptions_of_parts_do_not_wait_for_the_garbage_collector(tmp_path: Path) -> None:
    """One of a part with many counters is 65 KiB."""
    parts = numbers(tmp_path, parts=5, groups=1, rows=10)
    gc.collect()
    gc.disable()
    try:
        list(retention._unions(parts))
        assert gc.collect() < len(parts)
    finally:
        gc.enable()


def test_looking_through_thousands_of_files_takes_little_memory(tmp_path: Path) -> None:
    """An archive that is flushed every five seconds has 720 of each kind in an hour."""
    where = layout.folder(tmp_path, "closes", layout.OWN, "2027-01-16", "site")
    where.mkdir(parents=True)
    for number in range(1, 3001):
        (where / f"20270116T120000Z-{number:06d}-{number:06d}-{0:016x}.parquet").touch()

    def look_through() -> None:
        retention.compact(tmp_path, NOON_NS + 60 * SECOND)
        retention.retain(tmp_path, NOON_NS + 60 * SECOND, ArchiveTable())

    look_through()  # the interpreter's table of interned strings grows only once
    tracemalloc.start()
    try:
        look_through()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most / 3000 < 750  # bytes a file; as paths they took a thousand


def test_a_damaged_part_is_set_aside_and_the_others_are_merged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, [NOON_NS + minute * 60 * SECOND for minute in range(4)])
    damaged = tmp_path / files(tmp_path)[1]
    content = bytearray(damaged.read_bytes())
    content[60] ^= 1
    damaged.write_bytes(content)
    retention.compact(tmp_path, NOON_NS + DAY_NS)
    aside = tmp_path / layout.DAMAGED / damaged.relative_to(tmp_path)
    assert aside.read_bytes() == bytes(content)
    assert damaged.name in caplog.text
    assert not damaged.exists()
    retention.compact(tmp_path, NOON_NS + DAY_NS)
    assert [name[17:] for name in names(tmp_path)] == ["000001-000001", "000003-000004"]
    assert len(files(tmp_path, "closes")) == 1
    assert [taken.lsn for taken in read(tmp_path)] == [0, 4, 6]
    assert not list(tmp_path.rglob(".*.tmp"))
    retention.retain(tmp_path, NOON_NS + 40 * DAY_NS, ArchiveTable())
    assert not aside.exists(), "as old as its day"


def test_a_crash_between_merging_and_deleting_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, [NOON_NS + minute * 60 * SECOND for minute in range(4)])
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", lambda *_, **__: None)
        retention.compact(tmp_path, NOON_NS + DAY_NS)
    assert len(files(tmp_path)) == 5
    assert [taken.lsn for taken in read(tmp_path)] == [0, 2, 4, 6]
    assert len(list(ArchiveReader(tmp_path).closes())) == 4
    retention.compact(tmp_path, NOON_NS + DAY_NS)
    assert len(files(tmp_path)) == 1


def test_a_clock_that_went_back_hides_no_part(tmp_path: Path) -> None:
    write(tmp_path, [NOON_NS, NOON_NS + HOUR_NS, NOON_NS + 60 * SECOND, NOON_NS + 120 * SECOND])
    retention.compact(tmp_path, NOON_NS + HOUR_NS + 60 * SECOND)
    assert [taken.lsn for taken in read(tmp_path)] == [0, 2, 4, 6]
    assert len(files(tmp_path)) == 3


def test_days_go_by_age_and_results_are_kept_longer(tmp_path: Path) -> None:
    write(tmp_path, [NOON_NS + day * DAY_NS for day in range(5)])
    for day in ("2027-01-16", "2027-01-19"):
        layout.folder(tmp_path, "verdicts", layout.OWN, day, "site").mkdir(parents=True)
    gone = retention.retain(tmp_path, NOON_NS + 4 * DAY_NS, ArchiveTable(raw_days=2, rollup_days=3))
    assert (
        days(tmp_path, "counters") == days(tmp_path, "closes") == ["2027-01-18", "2027-01-19", "2027-01-20"]
    )
    assert days(tmp_path, "verdicts") == ["2027-01-19"]
    assert len(gone) == 2 * 3 + 1
    assert not (tmp_path / "kind=counters/source=diskstats/date=2027-01-16").exists()


def test_the_oldest_days_go_until_the_rest_fits(tmp_path: Path) -> None:
    write(tmp_path, [NOON_NS + day * DAY_NS for day in range(4)])
    size = sum(path.stat().st_size for path in tmp_path.rglob("*.parquet"))
    retention.retain(tmp_path, NOON_NS + 3 * DAY_NS, ArchiveTable(max_bytes=size * 5 // 8))
    assert days(tmp_path, "counters") == ["2027-01-18", "2027-01-19"]
    retention.retain(tmp_path, NOON_NS + 3 * DAY_NS, ArchiveTable(max_bytes=0))
    assert days(tmp_path, "counters") == ["2027-01-19"], "the open day stays"
    assert len(read(tmp_path)) == 1


def test_a_folder_that_cannot_be_deleted_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, [NOON_NS + day * DAY_NS for day in range(5)])
    stuck = next(tmp_path.glob("kind=counters/**/date=2027-01-16/site=*"))
    delete = shutil.rmtree

    def failing(where: Path) -> None:
        if where == stuck:
            raise PermissionError(errno.EACCES, "Permission denied", str(where))
        delete(where)

    monkeypatch.setattr(shutil, "rmtree", failing)
    with pytest.raises(ArchiveError, match=r"date=2027-01-16.*Permission denied"):
        retention.retain(tmp_path, NOON_NS + 4 * DAY_NS, ArchiveTable(raw_days=2))
    assert days(tmp_path, "counters") == ["2027-01-16", "2027-01-18", "2027-01-19", "2027-01-20"]
    assert days(tmp_path, "closes") == ["2027-01-18", "2027-01-19", "2027-01-20"]
    with pytest.raises(ArchiveError, match="Permission denied"):
        retention.retain(tmp_path, NOON_NS + 4 * DAY_NS, ArchiveTable(max_bytes=0))
    assert days(tmp_path, "counters") == ["2027-01-16", "2027-01-20"], "space is made elsewhere"


@pytest.mark.parametrize(("number", "merged"), [(errno.EACCES, True), (errno.ENOSPC, False)])
def test_a_folder_that_cannot_be_merged_stops_no_other_but_on_a_full_disk(
    number: int, merged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, [NOON_NS + minute * 60 * SECOND for minute in range(4)])
    merge = retention._merge

    def failing(where: Path, run: list[layout.Part]) -> int:
        if "kind=counters" in str(where):
            raise OSError(number, os.strerror(number), str(where))
        return merge(where, run)

    monkeypatch.setattr(retention, "_merge", failing)
    with pytest.raises(ArchiveError, match=os.strerror(number)):
        retention.compact(tmp_path, NOON_NS + DAY_NS)
    assert len(files(tmp_path)) == 4
    assert (len(files(tmp_path, "closes")) == 1) == merged


def test_a_reader_goes_on_while_parts_are_merged_and_added(tmp_path: Path) -> None:
    times = [NOON_NS + minute * 60 * SECOND for minute in range(0, 180, 20)]
    write(tmp_path, times)
    reading = ArchiveReader(tmp_path).batches()
    found = [next(reading)[1].lsn]
    retention.compact(tmp_path, times[-1])
    found += [next(reading)[1].lsn for _ in range(3)]
    retention.compact(tmp_path, NOON_NS + DAY_NS)
    assert len(files(tmp_path)) == 1
    found += [taken.lsn for _, taken in reading]
    assert found == [2 * place for place in range(len(times))]


def test_files_of_a_later_version_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a downgrade: a merge wrote them as files of this version, without what it does not know."""
    times = [NOON_NS + hour * HOUR_NS for hour in range(3)]
    with monkeypatch.context() as later:
        later.setattr(layout, "FORMAT", "2")
        write(tmp_path, times)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")}
    with pytest.raises(ArchiveError, match="archive format 2, this version reads 1"):
        retention.compact(tmp_path, NOON_NS + DAY_NS)
    with pytest.raises(ArchiveError, match="archive format 2, this version reads 1"):
        list(Table(tmp_path, "counters", SCHEMA.source).scan())
    with pytest.raises(ArchiveError, match="archive format 2, this version reads 1"):
        part_reader.written(tmp_path, times[0])
    assert not retention.scrub(layout.all_parts(tmp_path), 2**40)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")} == before


def test_a_folder_is_made_though_retention_drops_an_empty_one_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Path.mkdir
    dropped: list[Path] = []

    def mkdir(path: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        if path.name == "site=a" and not dropped:
            dropped.append(path.parent)
            path.parent.rmdir()
        made(path, mode, parents, exist_ok)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    where = layout.folder(tmp_path, "jobs", "laggard", "2026-01-31", "a")
    layout.make_folder(where)
    assert dropped
    assert where.is_dir()


def test_a_file_that_another_process_writes_is_left_alone(tmp_path: Path) -> None:
    """`laggard jobs import` writes beside the daemon, which compacts the archive."""
    folder = layout.folder(tmp_path, "jobs", "jobs", "2026-01-31", "site")
    schema = pa.schema([("job", pa.int64())])

    def tables() -> Iterator[pa.Table]:
        yield pa.table({"job": [1]})
        compaction = "import sys, pathlib; from laggard_aggregator.archive.retention import compact; "
        run_command([sys.executable, "-c", f"{compaction}compact(pathlib.Path(sys.argv[1]), 0)", tmp_path])
        yield pa.table({"job": [2]})

    path = layout.write_part(folder, layout.stamp(MIDNIGHT_NS), (1, 1), schema, tables())
    assert pq.read_table(path)["job"].to_pylist() == [1, 2]
    left = folder / ".20260131T000000Z-000002-000002.tmp"
    left.touch()
    retention.compact(tmp_path, 0)
    assert not left.exists()  # nobody writes it any more
