import asyncio
from pathlib import Path

import numpy as np
import pytest

from laggard_aggregator import archiving
from laggard_aggregator.archive.keep import Retention
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.archiving import ArchiveFeed
from laggard_aggregator.ingest.taken import TakenBatch
from laggard_common.clock import SystemClock
from tests.aggregator.made_batches import SECOND, batch_of, schema_of

START = 1_800_000_000 * SECOND


def batch(ordinal: int) -> TakenBatch:
    values = np.full((5, 1, 11), ordinal, dtype=np.int64)
    return batch_of(schema_of(), values, START + 5 * ordinal * SECOND, ordinal=ordinal, seq=ordinal)


def feed(folder: Path, safe: list[int]) -> ArchiveFeed:
    writer = ArchiveWriter(folder, "site", START)
    return ArchiveFeed(writer, Retention(), safe.append, SystemClock())


def test_batches_are_safe_after_the_flush_and_not_before(tmp_path: Path) -> None:
    safe: list[int] = []
    fed = feed(tmp_path / "archive", safe)
    for ordinal in (1, 2, 3):
        fed.offer(batch(ordinal))
    asyncio.run(fed.write(flush=False))
    assert safe == []
    asyncio.run(fed.write(flush=True))
    assert safe == [3]
    assert list((tmp_path / "archive").rglob("*.parquet"))


def test_what_does_not_fit_is_dropped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiving, "MAX_SAMPLES", 12)
    safe: list[int] = []
    fed = feed(tmp_path, safe)
    for ordinal in (1, 2, 3):
        fed.offer(batch(ordinal))
    assert fed.dropped == 1
    asyncio.run(fed.write(flush=True))
    fed.offer(batch(4))
    assert (fed.dropped, safe) == (1, [2])


def test_a_disk_that_fails_is_told_once_and_nothing_is_safe_until_it_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "archive"
    folder.touch()
    safe: list[int] = []
    fed = feed(folder, safe)
    fed.offer(batch(1))
    asyncio.run(fed.write(flush=True))
    fed.offer(batch(2))
    asyncio.run(fed.write(flush=True))
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
        fed.offer(batch(7))
        stop.set()
        await running

    asyncio.run(story())
    assert safe == [7]
