"""Merged traces of jobs: the same records and modes, once no more are waited for, each job once."""

import shutil
from pathlib import Path

import pytest

from laggard_aggregator.archive import layout
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.traces.job_traces import JobTraces
from laggard_aggregator.jobs.traces.trace_pass import TracePass
from laggard_common.errors import ArchiveError
from laggard_common.wire.trace_records import Folded
from tests.support.builders.job_tables import DAY, EPOCH
from tests.support.builders.traced_site import ADMIN, TracedSite, part

LATE_NS = round((EPOCH + 20 * DAY) * 1e9)
DAY_NS = round(DAY * 1e9)
SOON_NS = round((EPOCH + 7 * DAY) * 1e9)


def merge(folder: Path, now_ns: int = LATE_NS) -> int:
    index = JobIndex(folder)
    index.refresh()
    return TracePass(folder, "s", index).run(now_ns)


def as_multiset(records: list[Folded]) -> list[str]:
    return sorted(map(repr, records))


def test_a_merged_trace_has_the_records_of_the_documents(tmp_path: Path) -> None:
    site = TracedSite(tmp_path)
    key, other, untraced = site.job(), site.job(78), site.job(79)
    site.sent(part(1, 50), part(50, 90), part(1, 30, job="78", log="/m@1"), part(1, 4, job="", log="/n@1"))
    site.sent(part(50, 99, session=2), day=5)
    before = [site.records(each) for each in (key, other)]
    assert merge(tmp_path) == 2
    shutil.rmtree(tmp_path / "kind=events")
    assert [as_multiset(site.records(each)) for each in (key, other)] == [
        as_multiset(each) for each in before
    ]
    assert site.records(untraced) == []
    table = ArchiveReader(tmp_path).table("job_traces", layout.OWN, ["job_key", "records"])
    assert {row["job_key"]: row["records"] for row in table.to_pylist()} == {key: 98, other: 29}


def test_records_are_waited_for(tmp_path: Path) -> None:
    site = TracedSite(tmp_path)
    key = site.job()
    site.sent(part(1, 9))
    assert merge(tmp_path, SOON_NS) == 0
    site.sent(part(9, 20), day=6)
    assert merge(tmp_path) == 1
    assert len(site.records(key)) == 19


def test_a_job_is_merged_once(tmp_path: Path) -> None:
    site = TracedSite(tmp_path)
    site.job()
    site.sent(part(1, 9))
    index = JobIndex(tmp_path)
    index.refresh()
    merging = TracePass(tmp_path, "s", index)
    assert [merging.run(LATE_NS) for _ in range(2)] == [1, 0]
    assert merge(tmp_path) == 0


def test_modes_are_those_of_the_documents(tmp_path: Path) -> None:
    site = TracedSite(tmp_path)
    key = site.job()
    site.sent(part(1, 50), part(50, 90))

    def modes() -> object:
        queries = site.queries()
        try:
            row = queries.job(ADMIN, key)
            assert row is not None
            return JobTraces(tmp_path, queries).modes(row)
        finally:
            queries.close()

    before = modes()
    assert before
    merge(tmp_path)
    shutil.rmtree(tmp_path / "kind=events")
    assert modes() == before


def test_a_job_that_another_one_s_array_shows_is_merged(tmp_path: Path) -> None:
    site = TracedSite(tmp_path)
    key = site.job(1005, job="1000_5", submit=int(EPOCH))
    site.job(2000, job="1005")
    site.sent(part(1, 9, job="1005"))
    assert merge(tmp_path) == 1
    shutil.rmtree(tmp_path / "kind=events")
    assert len(site.records(key)) == 8


def test_a_job_that_is_known_late_is_merged_the_next_day(tmp_path: Path) -> None:
    site = TracedSite(tmp_path)
    site.sent(part(1, 9))
    site.job(78)
    index = JobIndex(tmp_path)
    index.refresh()
    merging = TracePass(tmp_path, "s", index)
    assert merging.run(LATE_NS) == 0
    key = site.job()
    index.refresh()
    assert merging.run(LATE_NS + DAY_NS) == 1
    shutil.rmtree(tmp_path / "kind=events")
    assert len(site.records(key)) == 8


def test_a_stop_between_blocks_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laggard_aggregator.jobs.traces.trace_pass.MAX_RECORDS", 10)
    site = TracedSite(tmp_path)
    key = site.job()
    site.sent(part(1, 96))
    index = JobIndex(tmp_path)
    index.refresh()
    merging, asked = TracePass(tmp_path, "s", index), iter([True, True, False])
    assert merging.run(LATE_NS, lambda: next(asked)) == 0
    assert not list(tmp_path.rglob("kind=job_traces/**/*.parquet"))
    assert merging.run(LATE_NS) == 1
    shutil.rmtree(tmp_path / "kind=events")
    assert as_multiset(site.records(key)) == as_multiset(list(part(1, 96).records))
    table = ArchiveReader(tmp_path).table("job_traces", layout.OWN, ["records"])
    assert table["records"].to_pylist() == [10] * 9 + [5]


def test_a_job_that_cannot_be_written_stops_no_other(tmp_path: Path) -> None:
    site = TracedSite(tmp_path)
    key, other = site.job(), site.job(78, end=EPOCH + 3600 - DAY, start=EPOCH - DAY)
    site.sent(part(1, 9), part(1, 9, at=EPOCH + 600 - DAY, job="78", log="/m@1"))
    where = layout.folder(tmp_path, "job_traces", layout.OWN, "2025-11-19", "s")
    where.parent.mkdir(parents=True)
    where.touch()
    index = JobIndex(tmp_path)
    index.refresh()
    merging = TracePass(tmp_path, "s", index)
    for _ in range(2):
        with pytest.raises(ArchiveError):
            merging.run(LATE_NS)
    table = ArchiveReader(tmp_path).table("job_traces", layout.OWN, ["job_key"])
    assert table["job_key"].to_pylist() == [key]
    where.unlink()
    assert merging.run(LATE_NS) == 1
    assert len(site.records(other)) == 8
