"""The demo's job against the recording, row by row."""

from pathlib import Path

import pytest

from laggard_aggregator.demo.recorded_job import write_recorded_job
from laggard_aggregator.demo.recording import read_recording
from laggard_aggregator.demo.site import make_site
from laggard_aggregator.jobs.access.principals import NOBODY, Principal, Role
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.access.results import JobResults
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.verdict.judge import JobJudge

ANYONE = Principal("", Role.SUPPORT)


def test_the_job_is_what_was_recorded(tmp_path: Path) -> None:
    recording = read_recording()
    site = make_site(tmp_path, recording.luns, 0.1)
    ended_at = recording.samples[-1].time + 1_000_000.0
    write_recorded_job(recording, site, ended_at)
    queries = JobQueries(JobIndex(site.archive))
    (job,) = queries.find(ANYONE, "1")
    assert (job["user"], job["application"]) == ("root", "fio")
    assert job["end"] == pytest.approx(ended_at)
    assert job["end"] - job["start"] == pytest.approx(recording.seconds)
    assert job["s_coverage"] == 1.0

    results = JobResults(site.archive)
    components = results.components(job)
    carried = {(row["node"], row["component"], row["direction"]): row for row in components}
    read = written = 0
    for lun in recording.luns:
        first, last = (sample.rows[lun].split() for sample in (recording.samples[0], recording.samples[-1]))
        rises = [int(after) - int(before) for before, after in zip(first[3:], last[3:], strict=True)]
        for direction, at in (("read", 0), ("write", 4)):
            row = carried[site.nodes[lun], lun, direction]
            assert (row["operations"], row["bytes"]) == (rises[at], 512 * rises[at + 2])
            assert row["latency_seconds"] == pytest.approx(rises[at + 3] / 1000)
        read, written = read + 512 * rises[2], written + 512 * rises[6]
    assert len(carried) == 2 * len(recording.luns)
    assert (job["s_read_bytes"], job["s_written_bytes"]) == (read, written)
    (series,) = results.series(job)
    sums = (series["read_bytes"].sum(), series["written_bytes"].sum())
    assert sums == pytest.approx((read, written), rel=1 / 4000), "values have 12 bits"

    slowest = max(components, key=lambda row: row["latency_seconds"] / row["operations"])
    assert slowest["component"] == recording.faulty
    verdict = JobJudge(site.archive, queries).verdict(job)
    assert verdict.verdict == "too few runs"
    assert verdict.sentence.startswith("Too few runs: no earlier run of the same user, ")
    (slow,) = (each for each in verdict.findings if each.kind == "slow component")
    assert (slow.cause, round(slow.factor)) == (f"{site.nodes[recording.faulty]}/{recording.faulty}", 23)
    spans = {each.direction: (each.start, each.end) for each in verdict.phases}
    assert spans["read"] == spans["write"] == pytest.approx((job["start"], job["end"]), abs=1.0)
    assert queries.find(NOBODY, "1") == []
