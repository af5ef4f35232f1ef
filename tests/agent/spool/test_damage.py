"""Segments that the disk damaged: the batches around are sent, those inside are counted."""

from pathlib import Path

import pytest

from laggard_agent.spool.segments import SpoolRecordType
from laggard_common.segment_log import HEADER, scan
from tests.agent.spool.test_spool import added, backlog, batch, crash, files, opened

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


def test_a_flipped_bit_costs_one_batch_which_is_counted(tmp_path: Path) -> None:
    path = filled(tmp_path)
    whole = path.read_bytes()
    spans = {
        at: record.type
        for record in scan(path)
        for at in range(record.offset, record.end)
        if record.type == SpoolRecordType.BATCH
    }
    last = max(record.offset for record in scan(path) if record.type == SpoolRecordType.BATCH)
    for at in sorted(spans)[::21]:
        data = bytearray(whole)
        data[at] ^= 1 << at % 8
        path.write_bytes(data)
        spool = opened(tmp_path, seed=2)
        sent, dropped = backlog(spool), spool.status()["dropped_samples"]
        assert len(sent) >= BATCHES - 1
        assert dropped == TICKS * (BATCHES - len(sent)) or at >= last  # as torn as a crash leaves it
        crash(spool)
        for name in files(tmp_path):
            (tmp_path / name).unlink()


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
