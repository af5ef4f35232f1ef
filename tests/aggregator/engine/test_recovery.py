"""Crash and restart over real files: what was safe is there again, and nothing else was acknowledged."""

import asyncio
import logging
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from laggard_aggregator.alarms.alarms import Alarm
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.engine import checkpoint
from laggard_aggregator.engine import recovery as keeper_module
from laggard_aggregator.engine.recovery import ARCHIVE_LEAD_LSNS, Recovery
from laggard_aggregator.ingest.admission import NO_ROOM, Room
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.log import journal_codec, snapshots
from laggard_aggregator.settings.aggregator import StateTable
from laggard_common import segment_log, wire
from laggard_common.errors import LaterVersionError, ServiceError, StateError
from tests.support.builders.site import (
    NODES,
    START,
    Message,
    close,
    data_message,
    new_core,
    other_settings,
    receive,
    schema,
    schema_message,
    steps,
    told,
)
from tests.support.clock import HandClock
from tests.support.wait import async_wait_until

BATCHES = 36
FIXTURES = Path(__file__).parents[2] / "fixtures"


class Process:
    """An aggregator without broker, loop and archive: its core and its state."""

    def __init__(
        self, directory: Path, is_archived: Callable[[str, int], bool] | None = None, **changes: float
    ) -> None:
        self.clock = HandClock(START)
        self.keeper = Recovery(StateTable(directory, **changes), self.clock)  # type: ignore[arg-type]
        self.core, self.head = self.keeper.load(new_core)
        records = list(self.keeper.replay(self.core, *([is_archived] if is_archived else ())))
        self.replayed = [record for record in records if isinstance(record, Judgement)]
        self.retaken = [record.seq for record in records if isinstance(record, Batch)]
        self.core.start_counting()
        self.durable_lsns: list[int] = []

    async def start(self) -> "Process":
        def durable(lsn: int) -> None:
            self.durable_lsns.append(lsn)
            self.core.admission.acks.durable(lsn)

        await self.keeper.start(self.core, 1, durable)
        return self

    async def commit(self) -> None:
        await self.keeper.journal.commit()

    async def snapshot(self) -> bool:
        return await self.keeper.snapshot((), None)

    def acknowledged(self) -> dict[str, tuple[tuple[int, int], ...]]:
        acks = {topic: wire.decode_ack(payload) for topic, payload in self.core.admission.acks.messages()}
        return {topic.rpartition("/")[2]: ack[0].ranges for topic, ack in acks.items()}

    def durable(self) -> bool:
        return self.keeper.journal.whole

    def kill(self) -> None:
        """What waits in memory is gone."""
        self.keeper.close()


@cache
def uninterrupted() -> list[tuple[object, ...]]:
    core = new_core()
    found = []
    for messages, now_ns in steps(BATCHES):
        receive(core, messages)
        found += close(core, now_ns)
    return list(map(told, found))


@pytest.mark.parametrize("crashes", [(3, 11, 12, 20, 29), (17,), (1, 35)])
def test_verdicts_after_crashes_are_those_of_an_uninterrupted_run(
    tmp_path: Path, crashes: tuple[int, ...]
) -> None:
    """Crashes come after a group commit; in between are snapshots, and all messages come once more."""

    async def story() -> None:
        found: list[Judgement] = []
        published = 0
        process = await Process(tmp_path).start()
        before: list[Message] = []
        for at, (messages, now_ns) in enumerate(steps(BATCHES)):
            receive(process.core, messages)
            found += close(process.core, now_ns)
            await process.commit()
            if at % 5 == 4:
                assert await process.snapshot()
            if at in crashes:
                process.kill()
                process = await Process(tmp_path).start()
                assert (
                    list(map(told, process.replayed))
                    == list(map(told, found))[len(found) - len(process.replayed) :]
                )
                receive(process.core, before + messages)  # whoever heard no acknowledgement sends again
                assert process.core.samples == 0
            before = messages
            published += len(messages)
        process.kill()
        assert list(map(told, found)) == uninterrupted()
        assert [t.kind for judged in found for t in judged.transitions] == ["raised"]

    asyncio.run(story())


def test_what_was_not_committed_comes_again_and_the_verdicts_are_the_same(tmp_path: Path) -> None:
    async def story() -> None:
        found: list[Judgement] = []
        process = await Process(tmp_path).start()
        for at, (messages, now_ns) in enumerate(steps(BATCHES)):
            if at in {9, 22}:
                lost = messages[: len(messages) // 2]
                receive(process.core, lost)
                for node, ranges in process.acknowledged().items():
                    assert (at - 1) not in range(ranges[-1][0], ranges[-1][1] + 1), node
                process.kill()
                process = await Process(tmp_path).start()
            receive(process.core, messages)
            found += close(process.core, now_ns)
            await process.commit()
        process.kill()
        assert list(map(told, found)) == uninterrupted()

    asyncio.run(story())


def test_acknowledged_is_what_was_committed(tmp_path: Path) -> None:
    async def story() -> None:
        process = await Process(tmp_path).start()
        of = schema(NODES[0])
        receive(process.core, [schema_message(of), data_message(of, 0), data_message(of, 1)])
        assert process.acknowledged() == {}
        await process.commit()
        assert process.acknowledged() == {NODES[0]: ((0, 1),)}
        receive(process.core, [data_message(of, 2)])
        process.kill()
        process = await Process(tmp_path).start()
        assert process.acknowledged() == {NODES[0]: ((0, 1),)}
        receive(process.core, [data_message(of, 1)])
        assert process.core.admission.counts.duplicates == 1
        process.kill()

    asyncio.run(story())


def test_a_batch_without_room_is_not_acknowledged_and_is_accepted_later(tmp_path: Path) -> None:
    async def story() -> None:
        process = await Process(tmp_path).start()
        of = schema(NODES[0])
        receive(process.core, [schema_message(of), data_message(of, 0)])
        assert list(process.core.receive([data_message(of, 1)], NO_ROOM)) == []
        await process.commit()
        assert process.acknowledged() == {NODES[0]: ((0, 0),)}
        process.kill()
        process = await Process(tmp_path).start()
        assert process.acknowledged() == {NODES[0]: ((0, 0),)}
        assert process.retaken == [0]  # the archive gets the batch when it is accepted, and not before
        assert len(receive(process.core, [data_message(of, 1)])) == 1
        process.kill()

    asyncio.run(story())


def test_batches_without_room_are_judged_and_a_replay_judges_them_too(tmp_path: Path) -> None:
    async def story() -> None:
        process = await Process(tmp_path).start()
        found: list[Judgement] = []
        for at, (messages, now_ns) in enumerate(steps(BATCHES)):
            list(process.core.receive(messages, Room(3, 10**9) if at % 2 else None))
            found += close(process.core, now_ns)
        assert process.core.admission.counts.unaccepted > BATCHES
        await process.commit()
        process.kill()
        again = Process(tmp_path)
        assert list(map(told, again.replayed)) == list(map(told, found))
        again.kill()

    asyncio.run(story())


def test_a_journal_of_version_0_1_with_returned_batches(tmp_path: Path) -> None:
    """Batches that were taken back are judged, but neither archived nor acknowledged, as they were then."""
    directory = tmp_path / "state"
    shutil.copytree(FIXTURES / "state" / "journal_with_returns", directory)

    async def story() -> None:
        process = Process(directory)
        assert process.core.sequence.last == 203
        assert len(process.retaken) == 152 - 23
        events = [(e.kind, e.alarm.component) for judged in process.replayed for e in judged.transitions]
        assert (len(process.replayed), events) == (9, [("raised", "oss-5")])
        await process.start()
        acknowledged = process.acknowledged()
        assert acknowledged["oss-1"] == ((1, 11), (13, 14), (16, 20), (22, 23))
        assert acknowledged["oss-7"] == ((0, 2), (4, 20), (22, 23))
        process.kill()

    asyncio.run(story())


@contextmanager
def full_disk(free_bytes: int) -> Iterator[None]:
    """No file may grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (free_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_withholds_acknowledgements_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "laggard_aggregator.log")

    async def story() -> None:
        process = await Process(tmp_path).start()
        of = schema(NODES[0])
        receive(process.core, [schema_message(of), data_message(of, 0)])
        await process.commit()
        assert process.acknowledged() == {NODES[0]: ((0, 0),)}
        with full_disk(100):
            for seq in (1, 2):
                assert len(receive(process.core, [data_message(of, seq)])) == 1
                await process.commit()
                assert not await process.snapshot()
            assert process.acknowledged() == {}
            assert not process.durable()
        receive(process.core, [data_message(of, 3)])
        await process.commit()
        assert process.acknowledged() == {}  # what came before is only in memory
        assert await process.snapshot()
        assert process.acknowledged() == {NODES[0]: ((0, 3),)}
        assert process.durable()
        receive(process.core, [data_message(of, 4)])
        await process.commit()
        process.kill()
        process = await Process(tmp_path).start()
        assert process.acknowledged() == {NODES[0]: ((0, 4),)}
        process.kill()

    asyncio.run(story())
    said = [record.getMessage() for record in caplog.records if "acknowledged" in record.getMessage()]
    assert len(said) == 2
    assert "File too large: batches are not acknowledged until" in said[0]
    assert said[1] == "the state is written again: batches are acknowledged"


def test_what_no_journal_has_is_archived_before_it_is_acknowledged(tmp_path: Path) -> None:
    async def story() -> None:
        process = await Process(tmp_path).start()
        of = schema(NODES[0])
        receive(process.core, [schema_message(of), data_message(of, 0)])
        await process.commit()
        with full_disk(100):
            receive(process.core, [data_message(of, 1)])
            await process.commit()
        assert not process.durable()
        asked = []

        async def archived(ordinal: int) -> bool:
            asked.append((ordinal, process.durable_lsns[-1], len(snapshots.numbers(tmp_path))))
            return len(asked) > 1

        assert not await process.keeper.snapshot((), archived)
        assert list(tmp_path.glob(".*.tmp")) == []
        assert process.acknowledged() == {NODES[0]: ((0, 0),)}
        assert await process.keeper.snapshot((), archived)
        assert asked == [(2, 1, 1)] * 2
        assert process.acknowledged() == {NODES[0]: ((0, 1),)}
        process.kill()

    asyncio.run(story())


def test_a_restart_replays_nothing_behind_entries_that_the_journal_lacks(tmp_path: Path) -> None:
    """They were not acknowledged: later ones alone would give other verdicts, and count them as lost."""

    async def never(_: int) -> bool:
        return False

    async def story() -> None:
        process = await Process(tmp_path).start()
        of = schema(NODES[0])
        receive(process.core, [schema_message(of), data_message(of, 0)])
        await process.commit()
        with full_disk(100):
            receive(process.core, [data_message(of, 1)])
            await process.commit()
        assert not await process.keeper.snapshot((), never)  # the archive's disk is full
        receive(process.core, [data_message(of, 2)])
        await process.commit()
        process.kill()
        process = await Process(tmp_path).start()
        assert (process.keeper.lost, process.core.sequence.last) == (0, 1)
        again = receive(process.core, [data_message(of, seq) for seq in range(3)])
        assert [each.seq for each in again] == [1, 2]
        await process.commit()
        assert process.acknowledged() == {NODES[0]: ((0, 2),)}
        process.kill()

    asyncio.run(story())


def test_entries_after_a_snapshot_that_covers_a_failure_are_in_the_journal(tmp_path: Path) -> None:
    async def story() -> None:
        process = await Process(tmp_path).start()
        of = schema(NODES[0])
        receive(process.core, [schema_message(of), data_message(of, 0)])
        with full_disk(100):
            await process.commit()

        async def archived(_: int) -> bool:
            receive(process.core, [data_message(of, 1)])  # behind the snapshot, which is not on the disk yet
            return True

        committing = asyncio.create_task(process.keeper.journal.run(asyncio.Event()))
        assert await process.keeper.snapshot((), archived)
        await async_wait_until(lambda: process.keeper.journal.durable_lsn == 2)
        committing.cancel()
        assert process.acknowledged() == {NODES[0]: ((0, 1),)}
        process.kill()
        process = await Process(tmp_path).start()
        assert (process.keeper.lost, process.acknowledged()) == (0, {NODES[0]: ((0, 1),)})
        process.kill()

    asyncio.run(story())


@pytest.mark.parametrize("ever_free", [True, False])
def test_a_snapshot_waits_for_a_moment_between_windows_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ever_free: bool
) -> None:
    monkeypatch.setattr(keeper_module, "POLL_SECONDS", 0.01)

    async def story() -> list[tuple[float, int]]:
        process = await Process(tmp_path, snapshot_seconds=60.0).start()
        clock, stop = process.clock, asyncio.Event()
        asked: list[tuple[float, int]] = []  # seconds past the due moment, snapshots on the disk

        def free_seconds() -> float:
            asked.append(((clock.ns - due_ns) / 1e9, len(snapshots.numbers(tmp_path))))
            clock.ns += 4_000_000_000
            return 1.0 if ever_free and len(asked) == 2 else -1.0

        due_ns = clock.ns + 60_000_000_000
        running = asyncio.create_task(process.keeper.run(stop, (), None, free_seconds))
        await asyncio.sleep(0)
        clock.ns = due_ns
        await async_wait_until(lambda: len(snapshots.numbers(tmp_path)) >= 2)
        stop.set()
        await running
        process.kill()
        return asked

    asked = asyncio.run(story())
    assert asked == [(4.0 * looked, 1) for looked in range(2 if ever_free else 3)]


def test_a_journal_that_is_full_waits_for_a_snapshot(tmp_path: Path) -> None:
    async def story() -> None:
        process = await Process(tmp_path, journal_max_bytes=2000).start()
        of = schema(NODES[0])
        receive(process.core, [schema_message(of)])
        seq = 0
        while process.durable():
            receive(process.core, [data_message(of, seq)])
            await process.commit()
            seq += 1
            assert seq < 20
        ((_, last),) = process.acknowledged()[NODES[0]]
        assert last == seq - 2
        assert process.keeper.journal.bytes < 3000
        assert await process.snapshot()
        assert process.acknowledged() == {NODES[0]: ((0, seq - 1),)}
        assert await process.snapshot()  # the journal before the older of two snapshots is gone now
        assert process.keeper.journal.bytes < 100
        process.kill()

    asyncio.run(story())


def test_a_disk_that_is_too_slow_withholds_acknowledgements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laggard_aggregator.log.journal.MAX_WAITING_BYTES", 2500)

    async def story() -> None:
        process = await Process(tmp_path).start()
        of = schema(NODES[0])
        receive(process.core, [schema_message(of), *(data_message(of, seq) for seq in range(20))])
        assert not process.durable()
        await process.commit()
        assert process.acknowledged() == {}
        assert await process.snapshot()
        assert process.acknowledged() == {NODES[0]: ((0, 19),)}
        process.kill()

    asyncio.run(story())


async def filled(directory: Path, snapshots_taken: int = 2) -> Process:
    """A directory with so many snapshots more than the first, and a journal behind the last."""
    process = await Process(directory).start()
    of = schema(NODES[0])
    receive(process.core, [schema_message(of)])
    for seq in range(snapshots_taken + 1):
        if seq:
            assert await process.snapshot()
        receive(process.core, [data_message(of, seq)])
    await process.commit()
    return process


def test_two_snapshots_are_kept_and_the_journal_behind_them(tmp_path: Path) -> None:
    async def story() -> None:
        process = await filled(tmp_path, 4)
        process.kill()

    asyncio.run(story())
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == [
        *("000000000004.journal", "000000000004.snapshot", "000000000005.journal", "000000000005.snapshot"),
        "lock",
    ]


@pytest.mark.parametrize("harm", ["cut", "mutated", "empty"])
def test_a_snapshot_that_cannot_be_used_is_told_and_the_one_before_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: str
) -> None:
    async def story() -> None:
        process = await filled(tmp_path)
        process.kill()
        newest = tmp_path / f"{snapshots.numbers(tmp_path)[0]:012d}.snapshot"
        data = bytearray(newest.read_bytes())
        if harm == "mutated":
            data[len(data) // 2] ^= 1
        newest.write_bytes(data[: {"cut": len(data) - 3, "empty": 0}.get(harm, len(data))])
        process = Process(tmp_path)
        await process.start()
        assert process.acknowledged() == {NODES[0]: ((0, 2),)}
        process.kill()

    asyncio.run(story())
    (warning,) = (record for record in caplog.records if record.levelname == "WARNING")
    assert ".snapshot: is not a snapshot: " in warning.getMessage()


def test_a_snapshot_of_a_later_version_ends_the_start_and_nothing_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one before it would go on without the batches that the later version acknowledged."""

    async def story() -> None:
        process = await filled(tmp_path, 1)
        with monkeypatch.context() as later:
            later.setattr("laggard_aggregator.engine.checkpoint.VERSION", 3)
            assert await process.snapshot()
        process.kill()
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        keeper = Recovery(StateTable(tmp_path), HandClock(START))
        with pytest.raises(LaterVersionError, match=r"\.snapshot: is of a later version of Laggard"):
            keeper.load(new_core)
        keeper.close()
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before

    asyncio.run(story())


def test_a_new_field_of_an_alarm_needs_a_new_version_of_the_snapshot() -> None:
    """An earlier version takes a snapshot with it for damaged, and begins without evidence and alarms."""
    names = " ".join(field.name for field in fields(Alarm))
    assert (checkpoint.VERSION, names) == (
        2,
        "group component metric level since raised_at updated_at score severity worst_severity observed"
        " reference causes slow_share slow_severity stops",
    )


def test_a_torn_journal_is_read_as_far_as_it_goes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        process = await filled(tmp_path, 0)
        process.kill()
        journal = max(tmp_path.glob("*.journal"))
        journal.write_bytes(journal.read_bytes()[:-1])
        process = await Process(tmp_path).start()
        assert process.acknowledged() == {}
        receive(process.core, [data_message(schema(NODES[0]), 0)])
        await process.commit()
        assert process.acknowledged() == {NODES[0]: ((0, 0),)}
        process.kill()

    asyncio.run(story())
    (warning,) = (record for record in caplog.records if record.levelname == "WARNING")
    assert "bytes at the end are torn or damaged" in warning.getMessage()


def test_damaged_records_of_the_journal_are_counted_and_those_around_are_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        process = await filled(tmp_path, 0)
        for seq in range(1, 9):
            receive(process.core, [data_message(schema(NODES[0]), seq)])
        await process.commit()
        process.kill()
        path = max(tmp_path.glob("*.journal"))
        batches = [r for r in segment_log.scan(path) if r.type == journal_codec.RecordType.BATCH]
        data = bytearray(path.read_bytes())
        for record in batches[2:5]:
            data[record.end - 5] ^= 16
        path.write_bytes(data)
        process = await Process(tmp_path).start()
        assert process.acknowledged() == {NODES[0]: ((0, 1), (5, 8))}
        assert (process.keeper.lost, process.keeper.damaged) == (3, 1)
        process.kill()

    asyncio.run(story())
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert any("damaged bytes are left out" in each for each in said)
    assert any("lost 3 batches and window closes of the journal" in each for each in said)


@pytest.mark.parametrize("archived", [None, 8, 10])
def test_damaged_records_at_the_end_of_the_journal_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, archived: int | None
) -> None:
    """They are complete, so they may have been acknowledged; no later sequence number shows the gap."""

    async def story() -> None:
        process = await filled(tmp_path, 0)
        for seq in range(1, 9):
            receive(process.core, [data_message(schema(NODES[0]), seq)])
        await process.commit()
        process.kill()
        path = max(tmp_path.glob("*.journal"))
        batches = [r for r in segment_log.scan(path) if r.type == journal_codec.RecordType.BATCH]
        data = bytearray(path.read_bytes())
        for record in batches[-2:]:
            data[record.end - 5] ^= 16
        path.write_bytes(data)
        process = Process(tmp_path)
        last = process.core.sequence.last
        if archived is not None:
            process.keeper.skip_to(process.core.sequence, last - 8 + archived)
        assert process.keeper.lost == max(2, (archived or 0) - 8)
        assert process.keeper.damaged == 1
        process.kill()
        path.write_bytes(data[: batches[-1].end - 1] + b"\0")  # the power was lost before its data was there
        process = Process(tmp_path)
        assert (process.keeper.lost, process.keeper.damaged) == (0, 0)
        process.kill()

    asyncio.run(story())
    assert "2 damaged records at the end are left out" in caplog.text


@pytest.mark.parametrize("archived", [9, 5, -1])
def test_batches_whose_schema_is_damaged_wait_for_it_unless_they_are_archived(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, archived: int
) -> None:
    """Their lsn is theirs: with a later one the archive would take them for others, and have them twice."""

    async def story() -> None:
        process = await Process(tmp_path).start()
        made = schema(NODES[0])
        receive(process.core, [schema_message(made)])
        for seq in range(9):
            receive(process.core, [data_message(made, seq)])
        await process.commit()
        process.kill()
        flip(max(tmp_path.glob("*.journal")), journal_codec.RecordType.SCHEMA)
        process = await Process(tmp_path, is_archived=lambda _, lsn: lsn <= archived).start()
        known = max(archived, 0)
        assert process.keeper.lost == 0
        assert (process.core.admission.held, process.core.sequence.last) == (9 - known, 9)
        acks = [
            ack for _, payload in process.core.admission.acks.messages() for ack in wire.decode_ack(payload)
        ]
        assert [ack.ranges for ack in acks if ack.ranges] == ([((0, known - 1),)] if known else [])
        some = [schema_message(made), *(data_message(made, seq) for seq in range(10))]
        again = receive(process.core, some)
        assert [(each.seq, each.lsn) for each in again] == [
            (seq, seq - known + 10) for seq in range(known, 10)
        ]
        process.kill()

    asyncio.run(story())
    assert "9 batches of the journal have no schema" in caplog.text


def test_batches_that_wait_for_a_damaged_schema_outlive_another_crash(tmp_path: Path) -> None:
    """They were acknowledged: the first snapshot after the damage is all that has them."""

    async def story() -> None:
        process = await Process(tmp_path).start()
        made = schema(NODES[0])
        receive(process.core, [schema_message(made), *(data_message(made, seq) for seq in range(9))])
        await process.commit()
        process.kill()
        flip(max(tmp_path.glob("*.journal")), journal_codec.RecordType.SCHEMA)
        process = await Process(tmp_path).start()
        process.kill()
        process = await Process(tmp_path).start()
        assert process.core.admission.held == 9
        assert await process.snapshot()
        again = receive(process.core, [schema_message(made), data_message(made, 9)])
        assert [each.seq for each in again] == list(range(10))
        await process.commit()
        process.kill()
        process = await Process(tmp_path).start()
        assert (process.core.admission.held, process.keeper.lost) == (0, 0)
        assert process.retaken == list(range(10))
        assert list(process.acknowledged().values()) == [((0, 9),)]
        process.kill()

    asyncio.run(story())


def flip(path: Path, kind: journal_codec.RecordType) -> None:
    """Damages the only record of a kind in a segment."""
    (record,) = (record for record in segment_log.scan(path) if record.type == kind)
    data = bytearray(path.read_bytes())
    data[record.end - 5] ^= 16
    path.write_bytes(data)


@pytest.mark.parametrize("harm", ["missing", "empty", "without its header"])
def test_a_journal_that_is_gone_is_told_and_an_archive_that_is_ahead_counts_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: str
) -> None:
    async def story() -> None:
        process = await filled(tmp_path)
        process.kill()
        last = process.core.sequence.last
        path = max(tmp_path.glob("*.journal"))
        if harm == "missing":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[: 0 if harm == "empty" else len(segment_log.MAGIC)])
        again = Process(tmp_path)
        kept = again.core.sequence.last
        again.keeper.skip_to(again.core.sequence, last)
        assert (again.keeper.lost, again.keeper.damaged) == (last - kept, 1)
        assert again.core.sequence.last == last > kept
        again.kill()

    asyncio.run(story())
    assert ".journal is missing or empty" in caplog.text


def test_both_snapshots_damaged_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The journal behind the older one is replayed: nothing of it is acknowledged twice or lost."""

    async def story() -> None:
        process = await filled(tmp_path)
        process.kill()
        for number in snapshots.numbers(tmp_path):
            path = tmp_path / f"{number:012d}.snapshot"
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        again = Process(tmp_path)
        assert again.head is None
        assert (again.keeper.damaged, again.keeper.lost) == (2, 0)
        again.kill()

    asyncio.run(story())
    assert "no snapshot can be read" in caplog.text


def test_a_damaged_snapshot_is_not_kept_as_the_older_of_two(tmp_path: Path) -> None:
    """The newest is damaged, and after a start the next one: the one before both is still there."""

    def damage_newest() -> None:
        path = tmp_path / f"{snapshots.numbers(tmp_path)[0]:012d}.snapshot"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)

    async def story() -> None:
        process = await filled(tmp_path)
        older = snapshots.numbers(tmp_path)[1]
        process.kill()
        damage_newest()
        (await Process(tmp_path).start()).kill()
        assert snapshots.numbers(tmp_path)[1:] == [older]
        damage_newest()
        again = Process(tmp_path)
        assert again.head is not None
        assert again.keeper.lost == 0
        assert again.core.sequence.last == process.core.sequence.last
        again.kill()

    asyncio.run(story())


def test_sequence_numbers_left_out_for_an_archive_are_not_lost(tmp_path: Path) -> None:
    async def story() -> None:
        process = await filled(tmp_path, 0)
        process.keeper.skip_to(process.core.sequence, None)
        receive(process.core, [data_message(schema(NODES[0]), 1)])
        await process.commit()
        process.kill()
        again = Process(tmp_path)
        assert (again.keeper.lost, again.keeper.damaged) == (0, 0)
        assert again.core.sequence.last > ARCHIVE_LEAD_LSNS
        again.kill()

    asyncio.run(story())


def test_a_crash_while_a_segment_begins_is_no_damage(tmp_path: Path) -> None:
    async def story() -> None:
        process = await filled(tmp_path, 0)
        process.kill()
        number = int(max(tmp_path.glob("*.journal")).stem) + 1
        (tmp_path / f"{number:012d}.journal").write_bytes(segment_log.MAGIC)
        again = Process(tmp_path)
        assert (again.keeper.lost, again.keeper.damaged) == (0, 0)
        again.kill()

    asyncio.run(story())


def test_groups_that_are_judged_otherwise_now_start_afresh(tmp_path: Path) -> None:
    async def story() -> None:
        process = await Process(tmp_path).start()
        for messages, now_ns in steps(BATCHES):
            receive(process.core, messages)
            close(process.core, now_ns)
        await process.commit()
        assert await process.snapshot()
        assert len(process.core.judge.alarms.standing) == 1
        process.kill()

    asyncio.run(story())
    keeper = Recovery(StateTable(tmp_path), HandClock(START))
    core, head = keeper.load(lambda: new_core(detect=other_settings()))
    assert head is not None
    assert core.judge.alarms.standing == {}
    assert core.groups == {}
    assert len(core.admission.nodes) == len(NODES)
    keeper.close()


def test_the_state_of_another_site_or_process_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        process = await filled(tmp_path)
        with pytest.raises(ServiceError, match="in use by another aggregator"):
            Process(tmp_path)
        process.kill()

    asyncio.run(story())
    keeper = Recovery(StateTable(tmp_path), HandClock(START))
    with pytest.raises(ServiceError, match="is the state of site 'site', not of 'elsewhere'"):
        keeper.load(lambda: new_core("elsewhere"))
    keeper.close()


def test_a_directory_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match="is not a directory"):
        Recovery(StateTable(tmp_path / "file"), HandClock(START))


def test_a_directory_that_goes_away_is_survived(tmp_path: Path) -> None:
    async def story() -> None:
        process = await filled(tmp_path / "state")
        process.acknowledged()
        shutil.rmtree(tmp_path / "state")
        assert not await process.snapshot()
        receive(process.core, [data_message(schema(NODES[0]), 3)])
        await process.commit()
        assert process.acknowledged() == {}
        (tmp_path / "state").mkdir()
        assert await process.snapshot()
        assert process.acknowledged() == {NODES[0]: ((0, 3),)}
        process.kill()

    asyncio.run(story())


def test_a_snapshot_waits_for_the_archive_while_the_journal_has_room(tmp_path: Path) -> None:
    async def story() -> None:
        process = await filled(tmp_path)
        asked: list[int] = []

        async def archived(ordinal: int) -> bool:
            asked.append(ordinal)
            return len(asked) > 1

        before = snapshots.numbers(tmp_path)
        assert not await process.keeper.snapshot((), archived)
        assert snapshots.numbers(tmp_path) == before
        assert await process.keeper.snapshot((), archived)
        assert snapshots.numbers(tmp_path)[0] > before[0]
        assert asked == [process.core.sequence.last] * 2
        process.kill()

    asyncio.run(story())


def test_a_snapshot_that_cannot_be_renamed_is_one_warning_though_the_journal_is_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        process = await Process(tmp_path).start()
        in_the_way = [tmp_path / f"{number:012d}.snapshot" for number in range(2, 5)]
        for path in in_the_way:
            (path / "full").mkdir(parents=True)
        with caplog.at_level(logging.INFO):
            assert [await process.snapshot() for _ in range(3)] == [False] * 3
            assert process.durable()
            for path in in_the_way:
                shutil.rmtree(path)
            assert await process.snapshot()
        process.kill()
        lines = [r.getMessage() for r in caplog.records if "snapshot" in r.getMessage()]
        assert [line.partition(":")[2][:25] for line in lines] == [
            " no snapshot is written: ",
            " a snapshot is written ag",
        ]

    asyncio.run(story())


def test_files_of_the_state_that_cannot_be_deleted_keep_no_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else the journal would grow to its limit, and nothing be acknowledged any more."""

    async def story() -> None:
        process = await Process(tmp_path).start()
        (tmp_path / ".000000000000.snapshot.tmp" / "full").mkdir(parents=True)
        (tmp_path / "000000000000.snapshot" / "full").mkdir(parents=True)
        for messages, _ in steps(3):
            receive(process.core, messages)
            await process.commit()
        (first,) = tmp_path.glob("*.journal")
        first.unlink()
        (first / "full").mkdir(parents=True)
        with caplog.at_level(logging.INFO):
            assert all([await process.snapshot() for _ in range(5)])
        process.kill()
        assert len([path for path in tmp_path.glob("*.journal") if path.is_file()]) == 2
        assert len([path for path in tmp_path.glob("*.snapshot") if path.is_file()]) == 2
        lines = [message for message in caplog.messages if "cannot be deleted" in message]
        assert len(lines) == 1

    asyncio.run(story())
