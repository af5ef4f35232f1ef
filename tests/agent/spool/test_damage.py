"""Segments that the disk damaged: the batches around are sent, those inside are counted."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from laggard_agent.spool.segments import SpooledBatch, SpoolRecordType, SpoolSegment
from laggard_common.segment_log import HEADER, scan
from tests.agent.spool.test_spool import MIB, OWNER, added, backlog, batch, crash, files, opened

BATCHES = 24
TICKS = 5


def filled(directory: Path) -> Path:
    """A spool as a killed agent leaves it: its one segment."""
    spool = opened(directory)
    for _ in range(BATCHES):
        added(spool)
    crash(spool)
    (name,) = files(directory)
    return directory / name


def batches(directory: Path) -> list[SpooledBatch]:
    return [each for name in files(directory) for each in SpoolSegment(directory / name).batches()]


def test_a_flipped_bit_costs_one_batch_which_is_counted(tmp_path: Path) -> None:
    """In whichever record it is: without its header, a first segment has its schemas."""
    path = filled(tmp_path)
    whole = path.read_bytes()
    _, schema, *_, last = scan(path)
    for at in range(0, len(whole), 7):
        data = bytearray(whole)
        data[at] ^= 1 << at % 8
        path.write_bytes(data)
        spool = opened(tmp_path, seed=2)
        sent, dropped = backlog(spool), spool.status()["dropped_samples"]
        only_schema_lost = schema.offset <= at < schema.end and not sent
        assert only_schema_lost or len(sent) >= BATCHES - 1
        assert dropped == TICKS * (BATCHES - len(sent)) or at >= last.offset  # as torn as a crash leaves it
        crash(spool)
        for name in files(tmp_path):
            (tmp_path / name).unlink()


@pytest.mark.parametrize("oldest", [0, 1])
def test_a_flipped_bit_in_one_of_several_segments(tmp_path: Path, oldest: int) -> None:
    """The header of the next one shows how far a segment went, and schemas where one has no header."""
    large = batch(payload=random.Random(1).randbytes(9000))
    spool = opened(tmp_path, max_bytes=MIB)
    while len(files(tmp_path)) < 4 + oldest:
        added(spool, large)
    crash(spool)
    for name in files(tmp_path)[:oldest]:  # acknowledged long ago, with the SCHEMA
        (tmp_path / name).unlink()
    whole = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    seqs = [each.envelope.seq for each in batches(tmp_path)]
    records = [(path, record) for path in list(whole)[:-1] for record in scan(tmp_path / path)]
    for path, record in records:
        for at in {record.offset + 2, record.offset + 5, (record.offset + HEADER.size + record.end) // 2}:
            data = bytearray(whole[path])
            data[at] ^= 16
            (tmp_path / path).write_bytes(data)
            spool = opened(tmp_path, MIB, seed=2)
            sent, dropped = backlog(spool), spool.status()["dropped_samples"]
            assert len(sent) >= len(seqs) - 1 - (record.type == SpoolRecordType.SCHEMA) * len(seqs), (
                record.type,
                at,
            )
            assert dropped == TICKS * (len(seqs) - len(sent)), (path, record.type, record.offset, at)
            crash(spool)
            for name in files(tmp_path):
                (tmp_path / name).unlink()
            for name, content in whole.items():
                (tmp_path / name).write_bytes(content)


def test_a_segment_whose_end_is_lost_is_counted_by_the_next(tmp_path: Path) -> None:
    large = batch(payload=random.Random(1).randbytes(9000))
    spool = opened(tmp_path, max_bytes=MIB)
    while len(files(tmp_path)) < 3:
        added(spool, large)
    crash(spool)
    count, path = len(batches(tmp_path)), tmp_path / files(tmp_path)[1]
    records = [record for record in scan(path) if record.type == SpoolRecordType.BATCH]
    path.write_bytes(path.read_bytes()[: records[-3].offset + 2])
    spool = opened(tmp_path, MIB, seed=2)
    assert len(backlog(spool)) == count - 3
    assert spool.status()["dropped_samples"] == 3 * TICKS
    spool.close()


def test_damage_of_another_nodes_spool_is_not_counted(tmp_path: Path) -> None:
    path = filled(tmp_path)
    tenth = [record for record in scan(path) if record.type == SpoolRecordType.BATCH][10]
    data = bytearray(path.read_bytes())
    data[tenth.offset + HEADER.size] ^= 4
    path.write_bytes(data)
    spool = opened(tmp_path, owner=replace(OWNER, node="oss-2"), seed=2)
    assert backlog(spool) == []
    assert spool.status()["dropped_samples"] == 0
    spool.close()


def test_a_segment_is_deleted_once_the_rest_of_it_is_acknowledged(tmp_path: Path) -> None:
    path = filled(tmp_path)
    data = bytearray(path.read_bytes())
    tenth = [record for record in scan(path) if record.type == SpoolRecordType.BATCH][10]
    data[tenth.offset + HEADER.size] ^= 4
    path.write_bytes(data)
    spool = opened(tmp_path, seed=2)
    spool.rewind()
    first = spool.next_backlog()
    assert first is not None
    spool.acknowledge(first.key, ((0, 9), (11, BATCHES - 1)))
    assert path.name not in files(tmp_path)
    assert spool.status()["spool_bytes"] == 0
    spool.close()


def test_damage_is_one_warning_a_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = filled(tmp_path)
    records = [record for record in scan(path) if record.type == SpoolRecordType.BATCH]
    data = bytearray(path.read_bytes())
    for record in records[3:7]:
        data[record.end - 1] ^= 128
    path.write_bytes(data)
    spool = opened(tmp_path, seed=2)
    assert backlog(spool) == [0, 1, 2, *range(7, BATCHES)]
    assert f"{tmp_path} is damaged: 4 batches are lost" in caplog.text
    assert spool.status()["dropped_samples"] == 4 * TICKS
    spool.close()


def test_a_damaged_schema_costs_its_batches_which_are_counted(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    added(spool)
    for _ in range(3):
        added(spool, batch("tcp"))
    crash(spool)
    path = tmp_path / files(tmp_path)[0]
    schema = [record for record in scan(path) if record.type == SpoolRecordType.SCHEMA][1]
    data = bytearray(path.read_bytes())
    data[schema.end - 1] ^= 1
    path.write_bytes(data)
    spool = opened(tmp_path, seed=2)
    assert backlog(spool) == [0]
    assert spool.status()["dropped_samples"] == 3 * TICKS
    spool.close()
