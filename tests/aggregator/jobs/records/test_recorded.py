"""A recorded run of Slurm 22.05.8 against the truth beside it."""

import json
from pathlib import Path
from typing import Any

import pytest

from laggard_aggregator.jobs.records.hostlist import expand
from laggard_aggregator.jobs.records.local_times import LocalTimes
from laggard_aggregator.jobs.records.model import ReadReport
from laggard_aggregator.jobs.records.settle import with_late_ends
from laggard_aggregator.jobs.records.sources.inputs import job_tables
from tests.support.job_records import read_rows
from tests.support.shared_data import shared

pytestmark = pytest.mark.shared_data
WITHIN_SECONDS = 2.0
IN_OUTAGE = 55
"""Ended while slurmctld was down: its end in the database is the time of slurmctld's start, 23 s late."""
RESIZED = 30
"""Its first process runs on through the resize."""


def truth() -> dict[str, Any]:
    """Runs as scontrol showed them, and tasks as they recorded themselves."""
    found: dict[str, Any] = json.loads(shared("slurm_recorded/truth.json").read_text())
    return found


def recorded(name: str, zone: str | None = None) -> list[dict[str, Any]]:
    """Started runs of a recorded output."""
    rows, _ = read_rows(shared(f"slurm_recorded/{name}"), cluster="h20", zone=zone)
    assert len({row["job_key"] for row in rows}) == len(rows)
    return [row for row in rows if row["start"] is not None]


def run_of(rows: list[dict[str, Any]], job: int, nodes: set[str], start: float, end: float) -> dict[str, Any]:
    """The run of a job on some nodes that overlaps an interval most."""
    fit = [row for row in rows if row["raw_id"] == job and nodes <= set(expand(row["node_list"]))]
    return max(fit, key=lambda row: min(row["end"], end) - max(row["start"], start))


@pytest.mark.parametrize("name", ["sacct/D.json.gz", "sacct/X_D_P_core.txt"])
def test_runs_are_those_of_scontrol(name: str) -> None:
    rows = recorded(name)
    is_text = name.endswith(".txt")
    compared = 0
    for run in truth()["runs"]:
        if is_text and run["jobid_raw"] == 15:
            continue  # its name breaks its row, which is counted
        until = run.get("seen_until") or 1795325831.0  # job 12 ran when the recording of scontrol ended
        row = run_of(rows, run["jobid_raw"], set(expand(run["nodes"])), run["seen_from"], until)
        assert -0.1 <= run["seen_from"] - row["start"] <= WITHIN_SECONDS, run
        assert abs(until - row["end"]) <= WITHIN_SECONDS or row["doubtful"], run
        compared += 1
    assert compared >= 60


def test_processes_lie_within_their_runs() -> None:
    rows = recorded("sacct/D.json.gz")
    compared = 0
    for task in truth()["tasks"]:
        if not task["cgroup"]:
            continue  # of salloc, on the login node
        groups = [part for path in task["cgroup"] for part in path.split("/") if part.startswith("job_")]
        job = int(groups[0].removeprefix("job_"))  # the environment has the leader's for a component
        if job == RESIZED:
            continue
        row = run_of(rows, job, {task["host"]}, task["start"], task["last_alive"])
        assert row["start"] <= task["start"]
        assert task["last_alive"] <= row["end"] + 1.0 or row["doubtful"], task
        compared += 1
    assert compared >= 100


def test_the_end_in_the_outage_is_doubtful_with_the_start_of_slurmctld() -> None:
    started = [event["t"] for event in truth()["events"] if event["what"] == "slurmctld restarted"]
    parts = job_tables(
        shared("slurm_recorded/sacct/D.json.gz"), "sacct", "h20", LocalTimes(None), ReadReport()
    )
    rows = [row for part in parts for row in with_late_ends(part, started).to_pylist()]
    known = {row["job_key"] for row in recorded("sacct/D.json.gz") if row["doubtful"]}
    added = {
        row["raw_id"] for row in rows if row["doubtful"] and row["start"] and row["job_key"] not in known
    }
    assert added == {IN_OUTAGE, IN_OUTAGE + 1}, (
        "and the one that ended 24 s after the start, which may be as late"
    )


def test_outputs_agree() -> None:
    plain = recorded("sacct/X_D_P_core.txt")
    assert recorded("sacct/X_D_P_core_US_delim.txt") == plain
    assert recorded("sacct/X_D_P_core_NewYork_default_timefmt.txt", "America/New_York") == plain
    assert recorded("sacct/X_D_P_core_Kolkata_tz_format.txt", "Asia/Kolkata") == plain
    by_key = {row["job_key"]: row for row in recorded("sacct/D.json.gz")}
    for row in plain:
        same = by_key[row["job_key"]]
        for name in ("state", "start", "end", "node_list", "user", "account", "job", "doubtful", "het_job"):
            assert same[name] == row[name], (name, row["job_key"])


@pytest.mark.parametrize("when", ["mid", "mid2", "mid3", "nodefail", "second_mid", "second_final", "zombie"])
def test_snapshots_of_the_controller_have_no_forecasts(when: str) -> None:
    path: Path = shared(f"slurm_recorded/snap/{when}") / "squeue.json.gz"
    if not path.exists():
        pytest.skip(f"no squeue.json.gz of {when}")
    rows, report = read_rows(path, cluster="h20")
    assert rows
    assert not report.broken
    for row in rows:
        if row["state"] in ("PENDING", "RUNNING"):
            assert row["end"] is None
        if row["state"] == "PENDING":
            assert row["start"] is None
