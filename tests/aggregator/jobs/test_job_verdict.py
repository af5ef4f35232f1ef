"""The verdict on a job of an archive: by its own history, a straggler on its path, its own change, advice."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from laggard_aggregator.archive import layout
from laggard_aggregator.archive.schemas import ALARMS, VERDICTS
from laggard_aggregator.jobs.access.principals import Principal, Role
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.verdict.analysis.cause_ranking import PathStraggler
from laggard_aggregator.jobs.verdict.causes import alarm_finding
from laggard_aggregator.jobs.verdict.evidence.alarms import PathAlarm, SlowTime, slow_times
from laggard_aggregator.jobs.verdict.judge import JobJudge, RunReport
from tests.support.builders.job_tables import (
    DAY,
    EPOCH,
    component_row,
    job_row,
    node_rows,
    summary_row,
    write_rows,
)

GIB = 2.0**30
ADMIN = Principal("", Role.ADMIN)
OST = "scratch-OST0042"
RUNS = 13


def series_row(job: dict[str, Any], seconds: float, volume: float) -> dict[str, Any]:
    """An hour at 10 s a row, with one phase of writing from its tenth minute on, that lasts `seconds`."""
    rows, first = np.zeros(360), 60
    count = round(seconds / 10)
    rows[first : first + count] = volume / count
    return {
        **{name: job[name] for name in ("job_key", "revision_at")},
        "layer": "client",
        "node": None,
        "resolution_seconds": 10.0,
        "start": job["start"],
        "written_bytes": rows.tolist(),
        "read_bytes": [0.0] * 360,
        "metadata_operations": [0.0] * 360,
    }


def jobs_of(count: int = RUNS) -> list[dict[str, Any]]:
    """Runs one after another, two hours apart."""
    return [job_row(n, submit=int(EPOCH) + 7200 * n, node_count=8) for n in range(count)]


def alarm_rows(component: str, since: float, until: float, severity: float) -> list[dict[str, Any]]:
    own = {
        "run": 0,
        "ordinal": 1,
        "group": "luns",
        "metric": "await",
        "component": component,
        "level": "component",
        "since": since,
        "score": 2.0,
        "severity": severity,
        "worst_severity": severity,
        "observed": 1.0,
        "reference": 1.0,
        "causes": [],
    }
    return [
        {**own, "transition": kind, "at": at, "start": at - 60, "end": at}
        for kind, at in (("raised", since + 60), ("cleared", until))
    ]


def window_rows(
    component: str, since: float, until: float, severity: float | None, *, anomalous: bool = True
) -> list[dict[str, Any]]:
    """Verdicts on a component that had an alarm, in windows of five minutes; `severity` None: not judged."""
    own = {"run": 0, "ordinal": 1, "group": "luns", "metric": "await", "component": component}
    own |= {"level": "component", "anomalous": anomalous, "severity": severity, "score": severity}
    own |= {"persistence": 9, "straggler": True, "since": since, "causes": []}
    return [{**own, "start": at, "end": at + 300} for at in np.arange(since, until, 300.0).tolist()]


def write_alarms(archive: Path, rows: Sequence[dict[str, Any]], kind: str = "alarms") -> None:
    schema, moment = (ALARMS, "at") if kind == "alarms" else (VERDICTS, "end")
    by_day: dict[float, list[dict[str, Any]]] = {}
    for row in rows:
        by_day.setdefault(row[moment] // DAY * DAY, []).append(row)
    for day, some in by_day.items():
        date = layout.stamp(int(day * 1e9))
        where = layout.folder(archive, kind, layout.OWN, f"{date[:4]}-{date[4:6]}-{date[6:8]}", "s")
        number = layout.next_part(where)
        table = pa.Table.from_pylist(some, schema=schema)
        stamp = layout.stamp(int(day * 1e9) + layout.DAY_OPENS_NS)
        layout.write_part(where, stamp, (number, number), schema, [table])


def judged_alarm(archive: Path, component: str, since: float, until: float, severity: float) -> None:
    """An alarm, and the windows in which its component was anomalous all the time."""
    write_alarms(archive, alarm_rows(component, since, until, severity))
    write_alarms(archive, window_rows(component, since, until, severity), "verdicts")


def archive_of(
    folder: Path,
    seconds: Sequence[float],
    volumes: Sequence[float] = (),
    mdops: Sequence[float] = (),
    requests: Sequence[float] = (),
    latency: float | None = None,
) -> list[dict[str, Any]]:
    """Runs whose writing took so many seconds, for 100 GiB and no metadata operations by default.

    `requests`: mean write of each run in bytes, unknown by default. `latency`: of a request, in s.
    """
    jobs = jobs_of(len(seconds))
    volumes = volumes or [100 * GIB] * len(jobs)
    mdops = mdops or [1.0] * len(jobs)
    means = requests or [0.0] * len(jobs)
    tables = defaultdict[tuple[str, float], list[Mapping[str, Any]]](list)
    for job, took, volume, rate, mean in zip(jobs, seconds, volumes, mdops, means, strict=True):
        day = job["end"] // DAY * DAY
        half = [
            component_row(job, f"scratch-OST00{n:02d}-osc-ffff8801", "client")
            | {
                "bytes": volume / 8,
                "direction": "write",
                "operations": volume / 8 / mean if mean else None,
                "latency_seconds": volume / 8 / mean * latency if mean and latency else None,
            }
            for n in (40, 41, 42, 43, 44, 45, 46, 47)
        ]
        summary = summary_row(
            job, read_bytes=0.0, written_bytes=volume, mdops=rate, coverage=1.0, shared=False
        )
        tables["job_nodes", day] += node_rows(job, ["cn-1"])
        tables["jobs", day].append(job)
        tables["job_series", day].append(series_row(job, took, volume))
        tables["job_components", day] += half
        tables["job_summaries", day].append(summary)
    for (kind, day), rows in tables.items():
        write_rows(folder, kind, rows, day)
    return jobs


def verdict_on(folder: Path, job: dict[str, Any], principal: Principal = ADMIN) -> RunReport:
    index = JobIndex(folder)
    index.refresh()
    queries = JobQueries(index)
    try:
        row = queries.job(principal, job["job_key"])
        assert row is not None
        return JobJudge(folder, queries).shown(row)
    finally:
        queries.close()


def usual(rng: np.random.Generator) -> list[float]:
    return [float(each) for each in np.round(300 * np.exp(rng.normal(0, 0.08, RUNS - 1)), -1)]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def test_a_usual_run_is_as_usual(tmp_path: Path, rng: np.random.Generator) -> None:
    jobs = archive_of(tmp_path, [*usual(rng), 310.0])
    found = verdict_on(tmp_path, jobs[-1])
    assert (found.verdict, found.sentence) == ("as usual", "As usual, by 12 earlier runs")
    assert [each.direction for each in found.phases] == ["write"]
    assert found.phases[0].amount == pytest.approx(100 * GIB)
    assert found.phases[0].end - found.phases[0].start == pytest.approx(310.0)


def test_runs_that_were_slow_do_not_make_slowness_usual(tmp_path: Path, rng: np.random.Generator) -> None:
    """Half of the latest runs took up to four times as long; so does the last."""
    later = [900.0, 310.0, 1200.0, 500.0, 290.0, 600.0, 300.0, 1000.0, 460.0, 800.0, 310.0, 1100.0, 700.0]
    jobs = archive_of(tmp_path, [*usual(rng), *later])
    index = JobIndex(tmp_path)
    index.refresh()
    with closing(JobQueries(index)) as queries:
        judge = JobJudge(tmp_path, queries)
        found = [queries.job(ADMIN, job["job_key"]) for job in jobs]
        verdicts = [judge.verdict(job).verdict for job in found if job is not None]
    slow = [
        verdict == "slow" for verdict, took in zip(verdicts[RUNS - 1 :], later, strict=True) if took >= 600
    ]
    assert slow == [True] * 7


def test_twice_the_data_in_twice_the_time_is_no_slowness(tmp_path: Path, rng: np.random.Generator) -> None:
    jobs = archive_of(tmp_path, [*usual(rng), 600.0], [100 * GIB] * 12 + [200 * GIB])
    assert verdict_on(tmp_path, jobs[-1]).verdict == "as usual"


@pytest.mark.parametrize(
    ("lasted", "verb", "span"),
    [
        (math.inf, "has been", "since 2025-11-21 00:05 UTC"),
        (2100.0, "was", "from 2025-11-21 00:05 to 00:40 UTC"),
        (86400.0, "was", "from 2025-11-21 00:05 to 2025-11-22 00:05 UTC"),
    ],
)
def test_an_alarm_on_the_path_is_told_with_its_days(lasted: float, verb: str, span: str) -> None:
    since = 1_763_683_500.0
    straggler = PathStraggler("OST7", since, since + lasted, 3.2, 0.0, 0.12)
    text = alarm_finding(PathAlarm(straggler, since, since + lasted)).text
    assert text == f"OST7 {verb} a straggler (3.2 times slower) {span} and carried 12% of its bytes"


def test_a_straggler_on_the_path_is_named_with_its_share(tmp_path: Path, rng: np.random.Generator) -> None:
    jobs = archive_of(tmp_path, [*usual(rng), 930.0])
    start = jobs[-1]["start"]
    judged_alarm(tmp_path, "scratch-OST0007", start, start + 3600, 9.0)
    judged_alarm(tmp_path, f"oss-8/{OST}", start + 300, start + 2400, 3.2)
    found = verdict_on(tmp_path, jobs[-1])
    assert found.verdict == "slow"
    assert found.factor == pytest.approx(3.1, rel=0.1)
    usually = "the median of 12 earlier runs"
    assert found.sentence.startswith(f"Writing took 3.2 times {usually}, all its I/O 3.1 times")
    assert (
        f"oss-8/{OST} was a straggler (3.2 times slower) from 2025-11-21 00:05 to 00:40 UTC and"
        in found.sentence
    )
    assert found.sentence.endswith("carried 12% of its bytes")
    assert [(each.kind, each.cause) for each in found.findings] == [("straggler", f"oss-8/{OST}")]


@pytest.mark.parametrize("anomalous", [True, False])
def test_an_alarm_that_stands_while_nothing_is_judged_is_no_evidence(
    tmp_path: Path, rng: np.random.Generator, anomalous: bool
) -> None:
    """Its component was slow before the job; then the windows have no verdict, or found it healthy."""
    jobs = archive_of(tmp_path, [*usual(rng), 930.0])
    start = jobs[-1]["start"]
    name = f"oss-8/{OST}"
    write_alarms(tmp_path, alarm_rows(name, start - 3600, start + 7200, 5.0))
    before = window_rows(name, start - 3600, start - 600, 5.0)
    idle = None if anomalous else 1.1
    during = window_rows(name, start - 600, start + 7200, idle, anomalous=anomalous)
    write_alarms(tmp_path, [*before, *during], "verdicts")
    assert verdict_on(tmp_path, jobs[-1]).findings == []


def test_the_times_in_which_a_component_was_slow_are_those_of_its_windows(tmp_path: Path) -> None:
    name, begun = f"oss-8/{OST}", 1_763_600_000.0
    write_alarms(tmp_path, window_rows(name, begun, begun + 600, 2.0), "verdicts")
    write_alarms(tmp_path, window_rows(name, begun + 900, begun + 1200, 4.0), "verdicts")
    write_alarms(tmp_path, window_rows(name, begun + 1200, begun + 1500, 1.1, anomalous=False), "verdicts")
    assert slow_times(tmp_path, [name], begun + 100, begun + 1000) == [
        SlowTime(name, begun + 100, begun + 600, 2.0),
        SlowTime(name, begun + 900, begun + 1000, 4.0),
    ]
    assert slow_times(tmp_path, ["oss-8/other"], begun, begun + 2000) == []


@pytest.mark.parametrize(("node", "is_cause"), [("cn-1", True), ("fwd-3", False)])
def test_what_a_client_sees_of_a_target_counts_for_its_own_jobs(
    tmp_path: Path, rng: np.random.Generator, node: str, is_cause: bool
) -> None:
    jobs = archive_of(tmp_path, [*usual(rng), 930.0])
    start = jobs[-1]["start"]
    component = f"{node}/scratch-OST0042-osc"
    write_rows(
        tmp_path,
        "job_components",
        [component_row(jobs[-1], "scratch", "client") | {"node": "cn-1", "bytes": GIB}],
        jobs[-1]["end"] // DAY * DAY,
    )
    judged_alarm(tmp_path, component, start, start + 3600, 3.2)
    causes = [(each.kind, each.cause) for each in verdict_on(tmp_path, jobs[-1]).findings]
    assert causes == ([("straggler", component)] if is_cause else [])


def test_without_anything_on_its_path_the_cause_is_unknown(tmp_path: Path, rng: np.random.Generator) -> None:
    jobs = archive_of(tmp_path, [*usual(rng), 930.0])
    start = jobs[-1]["start"]
    judged_alarm(tmp_path, "scratch-OST0007", start, start + 3600, 9.0)
    found = verdict_on(tmp_path, jobs[-1])
    assert found.verdict == "slow"
    assert found.sentence.endswith("; no cause is known")
    assert found.findings == []


def test_its_own_change_is_named(tmp_path: Path, rng: np.random.Generator) -> None:
    jobs = archive_of(tmp_path, [*usual(rng), 930.0], mdops=[*rng.uniform(9, 11, 12).tolist(), 900.0])
    found = verdict_on(tmp_path, jobs[-1])
    assert found.verdict == "slow"  # of the ten latest runs the median is 10.17
    assert "its metadata operations a second were 88.5 times the usual" in found.sentence
    assert [each.kind for each in found.findings] == ["own change", "metadata rate"]


def test_smaller_requests_are_its_own_change_and_get_advice(tmp_path: Path, rng: np.random.Generator) -> None:
    jobs = archive_of(tmp_path, [*usual(rng), 930.0], requests=[*[131072.0] * 12, 4096.0])
    found = verdict_on(tmp_path, jobs[-1])
    assert found.sentence.endswith("its mean write of 4 KiB was 32.0 times smaller than the usual")
    assert [(each.kind, each.cause) for each in found.findings] == [
        ("own change", "mean write"),
        ("small writes", ""),
    ]
    assert found.findings[1].text == "the mean write is 4 KiB"


def test_advice_says_what_the_job_would_save(tmp_path: Path) -> None:
    (job,) = archive_of(tmp_path, [930.0], requests=[4096.0], latency=3e-5)
    found = verdict_on(tmp_path, job)
    (small,) = found.findings
    assert small.text == "the mean write is 4 KiB"
    assert small.advice.endswith(
        "; that would save a node about 12 min of waiting for writes, in a job of 60 min"
    )


def test_requests_as_ever_are_no_cause(tmp_path: Path, rng: np.random.Generator) -> None:
    jobs = archive_of(tmp_path, [*usual(rng), 930.0], requests=[4096.0] * 13)
    found = verdict_on(tmp_path, jobs[-1])
    assert "no cause is known" in found.sentence
    assert [each.kind for each in found.findings] == ["small writes"]


def test_four_runs_are_too_few(tmp_path: Path) -> None:
    jobs = archive_of(tmp_path, [300.0] * 4 + [900.0])
    found = verdict_on(tmp_path, jobs[-1])
    assert found.verdict == "too few runs"
    assert found.sentence.startswith("Too few runs: 4 earlier runs of the same user")


def test_a_running_job_and_one_without_counters_are_not_judged(tmp_path: Path) -> None:
    running, bare = job_row(1, end=None, state="RUNNING"), job_row(2)
    write_rows(tmp_path, "jobs", [running, bare])
    sentence = verdict_on(tmp_path, running).sentence
    assert sentence.startswith("It runs: until ")
    assert sentence.endswith("the archive has no counters of it in its last 2 h")
    assert verdict_on(tmp_path, bare).sentence == "Not judged: the archive has no counters of it"


def test_a_job_whose_volumes_are_known_is_never_without_io(tmp_path: Path) -> None:
    idle, small = job_row(1), job_row(2)
    write_rows(tmp_path, "jobs", [idle, small])
    rows = [summary_row(idle, read_bytes=0.0, written_bytes=0.0, metadata_operations=0.0)]
    rows += [summary_row(small, read_bytes=4e4, written_bytes=2e3, metadata_operations=12.0)]
    write_rows(tmp_path, "job_summaries", rows)
    assert verdict_on(tmp_path, idle).sentence == "Not judged: it did no I/O, by its counters"
    reason = "it read 40 kB and wrote 2 kB, with 12 metadata operations"
    expected = f"Not judged: none of its I/O stands out as a phase: {reason}"
    assert verdict_on(tmp_path, small).sentence == expected


def test_runs_of_a_few_short_phases_are_judged(tmp_path: Path, rng: np.random.Generator) -> None:
    """Ten minutes by 10 s; the last run took four times as long for each of its five reads of 14 GiB."""
    jobs = jobs_of()
    rows = []
    for n, job in enumerate(jobs):
        slower = 4.0 if n == RUNS - 1 else float(rng.uniform(0.97, 1.03))
        seconds = np.zeros(620)
        for first in range(90, 600, 120):
            seconds[first : first + round(16 * slower)] = 14 * GIB / round(16 * slower)
        values = seconds.reshape(-1, 10).sum(axis=1).tolist()
        rows.append(series_row(job, 10.0, 1.0) | {"read_bytes": values, "written_bytes": [0.0] * 62})
    write_rows(tmp_path, "jobs", jobs)
    for job, row in zip(jobs, rows, strict=True):
        write_rows(tmp_path, "job_series", [row], job["end"] // DAY * DAY)
    assert verdict_on(tmp_path, jobs[-2]).verdict == "as usual"
    found = verdict_on(tmp_path, jobs[-1])
    assert (found.verdict, len(found.phases)) == ("slow", 5)
    assert found.factor == pytest.approx(4.0, rel=0.1)


def test_runs_that_may_not_be_seen_are_no_history(tmp_path: Path, rng: np.random.Generator) -> None:
    jobs = archive_of(tmp_path, [*usual(rng), 930.0])
    other = Principal("otto", Role.USER)
    write_rows(tmp_path, "jobs", [dict(jobs[-1], user="otto", revision_at=2)], jobs[-1]["end"] // DAY * DAY)
    assert verdict_on(tmp_path, jobs[-1], other).verdict == "too few runs"
    assert verdict_on(tmp_path, jobs[-2], Principal("alice", Role.USER)).verdict == "as usual"
