import asyncio
from pathlib import Path

import numpy as np
import pytest

from laggard_aggregator.alarms.alarms import Alarm, AlarmEvent, AlarmsCleared
from laggard_aggregator.archive import part_reader, write_queue
from laggard_aggregator.archive import writer as writer_module
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.archive.write_queue import WriteQueue
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.ingest.admission import Room
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.log.entries import WindowClose
from laggard_aggregator.log.journal import GroupCommit, Journal
from laggard_aggregator.settings.aggregator import ArchiveTable
from laggard_common.clock import SystemClock
from laggard_common.errors import ArchiveError
from tests.support.builders.batches import SECOND, batch_of, schema_of
from tests.support.clock import FakeClock, HandClock
from tests.support.wait import async_wait_until

START = 1_800_000_000 * SECOND


def batch(ordinal: int) -> Batch:
    values = np.full((5, 1, 11), ordinal, dtype=np.int64)
    return batch_of(schema_of(), values, START + 5 * ordinal * SECOND, lsn=ordinal, seq=ordinal)


def feed(folder: Path, safe: list[int]) -> WriteQueue:
    writer = ArchiveWriter(folder, "site", START)
    return WriteQueue(writer, ArchiveTable(), safe.append, SystemClock())


def test_batches_are_safe_after_the_flush_and_not_before(tmp_path: Path) -> None:
    safe: list[int] = []
    fed = feed(tmp_path / "archive", safe)
    for ordinal in (1, 2, 3):
        fed.put(batch(ordinal))
    asyncio.run(fed.write(flush=False))
    assert safe == []
    asyncio.run(fed.write(flush=True))
    assert safe == [3]
    assert list((tmp_path / "archive").rglob("*.parquet"))


def test_the_lag_is_the_age_of_the_oldest_record_that_readers_do_not_see(tmp_path: Path) -> None:
    clock = FakeClock(batch(1).received_ns + 70 * SECOND)
    fed = WriteQueue(ArchiveWriter(tmp_path, "site", START), ArchiveTable(), None, clock)
    assert fed.lag_seconds == 0.0
    fed.put(batch(1))
    fed.put(batch(2))
    asyncio.run(fed.write(flush=False))
    assert fed.lag_seconds == 70.0
    asyncio.run(fed.write(flush=True))
    assert fed.lag_seconds == 0.0


def test_room_is_what_waits_less_than_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_queue, "MAX_VALUE_BYTES", 1000)
    monkeypatch.setattr(write_queue, "MAX_RECORDS", 3)
    fed = feed(tmp_path, [])
    assert fed.room() == Room(3, 1000)
    fed.put(batch(1))
    fed.put(batch(2))
    assert fed.room() == Room(1, 1000 - 2 * 5 * 11 * 8)
    asyncio.run(fed.write(flush=True))
    assert fed.room() == Room(3, 1000)


def test_other_records_beyond_the_limit_are_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_queue, "MAX_RECORDS", 1)
    fed = feed(tmp_path, [])
    fed.put(batch(1))
    fed.put(WindowClose(2, "g", 0.0, 60.0, START / 1e9))
    assert fed.dropped == 1


def test_nothing_is_written_before_it_is_safe(tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path, "site", START)
    (tmp_path / "journal").mkdir()
    journal = GroupCommit(Journal(tmp_path / "journal", 2**20), lambda _: None, last_lsn=1)
    fed = WriteQueue(writer, ArchiveTable(), lambda _: None, SystemClock())
    fed.journal = journal
    for ordinal in (1, 2, 3):
        fed.put(batch(ordinal))
    assert asyncio.run(fed.write(flush=True))
    assert [taken.lsn for _, taken in ArchiveReader(tmp_path).batches()] == [1]
    assert asyncio.run(fed.has(2))  # a snapshot is about to make it safe
    assert [taken.lsn for _, taken in ArchiveReader(tmp_path).batches()] == [1, 2]


def test_alarms_that_ended_otherwise_than_by_a_window_are_archived_once(tmp_path: Path) -> None:
    alarm = Alarm("g", "oss-5/sda", "await", "component", 60.0, 120.0, 180.0, 4.0, 2.0, 3.0, 20.0, 10.0)
    ended = AlarmsCleared(7, (AlarmEvent("cleared", alarm, 200.0),))
    fed = feed(tmp_path, [])
    fed.put(ended)
    assert asyncio.run(fed.write(flush=True))
    again = ArchiveWriter(tmp_path, "site", START, continues_at_ns=START + SECOND, continued_run_ns=START)
    assert again.open() == 7
    again.alarms_cleared(ended)
    again.flush()
    columns = ("ordinal", "transition", "group", "component", "start", "end", "at", "since")
    rows = ArchiveReader(tmp_path).table("alarms", columns=columns).to_pylist()
    assert [tuple(row[name] for name in columns) for row in rows] == [
        (7, "cleared", "g", "oss-5/sda", 200.0, 200.0, 200.0, 60.0)
    ]


def test_of_many_alarms_that_ended_together_no_more_wait_than_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "MAX_OWN_ROWS", 3)
    alarm = Alarm("g", "oss-5/sda", "await", "component", 60.0, 120.0, 180.0, 4.0, 2.0, 3.0, 20.0, 10.0)
    writer = ArchiveWriter(tmp_path, "site", START)
    writer.alarms_cleared(
        AlarmsCleared(7, tuple(AlarmEvent("cleared", alarm, 200.0 + at) for at in range(10)))
    )
    assert writer.dropped_rows == 7
    writer.flush()
    assert ArchiveReader(tmp_path).table("alarms", columns=("at",))["at"].to_pylist() == [207.0, 208.0, 209.0]


def test_a_run_that_goes_on_writes_nothing_twice(tmp_path: Path) -> None:
    """What the writer before had flushed is skipped by table, as a crash leaves them; the rest is written."""
    close = WindowClose(3, "g", 0.0, 60.0, START / 1e9)
    first = ArchiveWriter(tmp_path, "site", START)
    for ordinal in (1, 2):
        first.batch(batch(ordinal))
    first.flush()
    first.window_close(close)
    first.flush()
    rows, _ = part_reader.written(tmp_path, START)
    assert rows == {("counters", "diskstats"): 2, ("closes", "laggard"): 3}
    of_another, _ = part_reader.written(tmp_path, START - 1)
    assert set(of_another.values()) == {-1}
    second = ArchiveWriter(tmp_path, "site", START, continues_at_ns=START + SECOND, continued_run_ns=START)
    fed = WriteQueue(second, ArchiveTable(), lambda _: None, SystemClock())
    assert fed.open()
    fed.replay([batch(1), batch(2), close, batch(4)])
    asyncio.run(fed.write(flush=True))
    reader = ArchiveReader(tmp_path)
    assert [taken.lsn for _, taken in reader.batches()] == [1, 2, 4]
    assert [(run_ns, each.lsn) for run_ns, each in reader.closes()] == [(START, 3)]


def test_a_disk_that_fails_is_told_once_and_nothing_is_safe_until_it_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "archive"
    folder.touch()
    safe: list[int] = []
    fed = feed(folder, safe)
    for ordinal in (1, 2):
        fed.put(batch(ordinal))
        asyncio.run(fed.write(flush=True))
        asyncio.run(fed.write(flush=False))  # in between nothing is tried, which says nothing of the disk
    assert safe == []
    folder.unlink()
    with caplog.at_level("INFO"):
        asyncio.run(fed.write(flush=True))
    assert safe == [2]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_the_rest_is_written_at_the_end(tmp_path: Path) -> None:
    safe: list[int] = []
    fed = feed(tmp_path, safe)

    async def story() -> None:
        stop = asyncio.Event()
        running = asyncio.create_task(fed.run(stop))
        fed.put(batch(7))
        stop.set()
        await running

    asyncio.run(story())
    assert safe == [7]


def test_old_days_go_also_where_there_is_no_room_to_compact(tmp_path: Path) -> None:
    """Deleting is what makes room again."""
    day_ns = 86_400 * SECOND
    old = ArchiveWriter(tmp_path, "site", START - 40 * day_ns)
    old.batch(batch_of(schema_of(), np.zeros((5, 1, 11), dtype=np.int64), START - 40 * day_ns))
    old.flush()
    parts = list(tmp_path.rglob("*.parquet"))
    assert parts
    writer = NoRoom(tmp_path, "site", START)

    async def story() -> None:
        stop = asyncio.Event()
        fed = WriteQueue(writer, ArchiveTable(raw_days=30), lambda _: None, HandClock(START))
        running = asyncio.create_task(fed.run(stop))
        await async_wait_until(lambda: not any(part.exists() for part in parts))
        stop.set()
        await running

    asyncio.run(story())


class NoRoom(ArchiveWriter):
    """An archive on a disk that has no room for a merged file."""

    def compact(self, now_ns: int) -> int:
        raise ArchiveError(str(self.directory), "No space left on device")
