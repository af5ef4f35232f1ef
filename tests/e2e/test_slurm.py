"""A real Slurm: runs of jobs on nodes in the archive, against scontrol and the jobs' own records.

The daemon polls sacct once an hour, and when the hook of slurmctld has left a document in the agent's outbox.
Plain jobs, an array, a heterogeneous job, a requeue, a shared node, a resize, a cancellation, and slurmctld
stopped for a while. Each task writes when it lived and on which node.
"""

import re
import sys
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.archive.table import last_revisions
from laggard_aggregator.jobs.records.store import last_nodes
from tests.support.ports import free_port
from tests.support.processes import running
from tests.support.slurm_lab import SlurmLab, missing
from tests.support.wait import wait_until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.root,
    pytest.mark.skipif(bool(missing()), reason=missing() or "it runs"),
]

DAEMON = [sys.executable, "-P", "-m", "laggard_aggregator.cli.daemon", "--config"]
AGENT = [sys.executable, "-P", "-m", "laggard_agent", "--config"]
HOOK = Path(__file__).parents[2] / "deploy/slurm/laggard-job-hook"
WITHIN_SECONDS = 2.0
TASK_SECONDS = 6.0
"""srun and the batch script start before the tasks and end after them, on a busy machine by seconds."""
OUTAGE_SECONDS = 30.0
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT"}
TASK = """\
#!/bin/sh
job=$(sed -n 's/^[0-9]*:freezer:.*job_\\([0-9]*\\).*/\\1/p' /proc/self/cgroup)
file={work}/$job.$(hostname).$$.task
while :; do date +%s.%N; sleep 0.25; done > $file &
loop=$!
sleep $1
kill $loop
"""


@dataclass(frozen=True)
class Life:
    """A run of a job on a node, by the records of its tasks."""

    node: str
    job: int
    first: float
    last: float


@dataclass(frozen=True)
class Run:
    """A run of a job on a node in the archive."""

    node: str
    job: int
    submit: int
    start: float
    end: float
    doubtful: bool


def lives(work: Path) -> list[Life]:
    """The runs of all jobs: records of one job and node that overlap, or follow within 5 s, are one run."""
    spans: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for file in work.glob("*.task"):
        number, node, *_ = file.name.split(".")
        times = [float(line) for line in file.read_text().splitlines() if re.fullmatch(r"\d+\.\d{9}", line)]
        spans[node, int(number)].append((times[0], times[-1]))
    found = []
    for (node, job), several in spans.items():
        first, last = min(several)
        for start, end in sorted(several):
            if start > last + 5:
                found.append(Life(node, job, first, last))
                first = start
            last = max(last, end)
        found.append(Life(node, job, first, last))
    return found


def archived(folder: Path) -> list[Run]:
    """The runs in the archive that have started and ended."""
    reader = ArchiveReader(folder / "archive")
    jobs = last_revisions(reader.table("jobs"))
    nodes = last_nodes(reader.table("job_nodes"), jobs)
    of = {row["job_key"]: row for row in jobs.to_pylist()}
    return [
        Run(
            row["node"],
            of[row["job_key"]]["raw_id"],
            of[row["job_key"]]["submit"],
            row["start"],
            row["end"],
            bool(row["doubtful"]),
        )
        for row in nodes.to_pylist()
        if row["end"] is not None
    ]


def configured(folder: Path, outbox: Path) -> tuple[Path, Path]:
    """Files of an aggregator that polls by itself once an hour, and of the agent beside slurmctld."""
    aggregator, agent, port = folder / "aggregator.toml", folder / "agent.toml", free_port()
    aggregator.write_text(
        f'[mqtt]\nport = {port}\nembedded = true\n[http]\nlisten = "127.0.0.1:{free_port()}"\n'
        f'[archive]\ndirectory = "{folder}/archive"\n[state]\ndirectory = "{folder}/state"\n'
        f"[jobs]\nsacct = true\npoll_seconds = 3600.0\n"
    )
    agent.write_text(
        'node = "ctl"\nrole = "storage"\ninterval_seconds = 1.0\nbatch_samples = 2\n'
        'collectors = ["diskstats"]\n'
        f'[mqtt]\nport = {port}\n[spool]\ndirectory = "{folder}/spool"\n[outbox]\ndirectory = "{outbox}"\n'
    )
    return aggregator, agent


def joined(runs: list[Run], first: float, last: float) -> tuple[float, float, bool]:
    """Start and end of those that overlap a time, and whether one is doubtful; a resized job has several."""
    mine = [run for run in runs if run.start <= last and run.end >= first - WITHIN_SECONDS]
    assert mine, (first, last, runs)
    return min(run.start for run in mine), max(run.end for run in mine), any(run.doubtful for run in mine)


def states(lab: SlurmLab) -> dict[int, str]:
    """State of each job in slurmctld; none while it does not answer."""
    lines = lab.command("squeue", "-h", "-a", "-t", "all", "-o", "%A %T", check=False).splitlines()
    return {int(job): state for job, state in map(str.split, lines)}


def of_scontrol(lab: SlurmLab) -> dict[tuple[int, int], tuple[int, int]]:
    """Start and end by job and submission."""
    found = {}
    for line in lab.command("scontrol", "show", "job", "-o").splitlines():
        told = dict(word.partition("=")[::2] for word in line.split())
        times = [told[name] for name in ("SubmitTime", "StartTime", "EndTime")]
        if all(each.isdigit() for each in times):
            submit, start, end = map(int, times)
            found[int(told["JobId"]), submit] = (start, end)
    return found


def wait_for(lab: SlurmLab, wanted: set[str], *jobs: int) -> None:
    wait_until(lambda: {states(lab).get(job) for job in jobs} <= wanted, f"{wanted}: {jobs}")


def have_begun(lab: SlurmLab, job: int, tasks: int) -> bool:
    """Whether at least this number of tasks of a job wrote; slurmctld calls it running before they start."""
    return sum("\n" in file.read_text() for file in lab.work.glob(f"{job}.*.task")) >= tasks


def run_jobs(lab: SlurmLab, task: Path, stack: ExitStack) -> None:
    """All the jobs; returns when each has ended."""

    def run(seconds: int, *options: str) -> int:
        return lab.submit(*options, "--wrap", f"srun {task} {seconds}")

    first, second, third, fourth = lab.nodes
    through, within = run(60, "-n2", "-w", f"{third},{fourth}", "-N2"), run(40, "-w", fourth)
    requeued = run(18, "-w", first)
    resized = run(20, "-N2", "-n2", "-w", f"{first},{second}")
    shared = [run(9, "-w", second), run(6, "-w", second)]
    cancelled = run(600, "-w", third)
    run(4)
    run(5, "-N3", "-n3")
    run(4, "--array=0-2")
    lab.submit("-n1", "--wrap", f"srun --het-group=0,1 {task} 6", ":", "-n1")
    wait_for(lab, {"RUNNING"}, through, within, requeued, resized, cancelled)
    wait_for(lab, {"RUNNING", *ENDED}, *shared)
    for job, tasks in ((requeued, 1), (resized, 2), (cancelled, 1)):
        wait_until(partial(have_begun, lab, job, tasks), f"{tasks} tasks of job {job}")
    lab.command("scontrol", "update", f"JobId={resized}", "NumNodes=1")
    lab.command("scontrol", "requeue", str(requeued))
    lab.command("scancel", str(cancelled))
    wait_for(lab, ENDED, resized, cancelled, *shared)  # the resized one's step has lost a node, so it fails
    wait_for(lab, {"RUNNING", *ENDED}, requeued)
    lab.stop("slurmctld")
    time.sleep(OUTAGE_SECONDS)  # the span of the fault
    lab.start("slurmctld", stack)
    wait_until(lambda: states(lab) and set(states(lab).values()) <= ENDED, "the end of all jobs")


def test_membership(tmp_path: Path) -> None:
    """The archive has each run as scontrol within two seconds or as doubtful, and the tasks lie within."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))  # those of pytest are for their owner alone
        outbox, hook = folder / "outbox", folder / "hook"
        outbox.mkdir()
        hook.write_text(f"#!/bin/sh\nLAGGARD_OUTBOX={outbox} exec {HOOK}\n")
        hook.chmod(0o755)
        lab = stack.enter_context(SlurmLab(folder, hook).running())
        aggregator, agent = configured(tmp_path, outbox)
        stack.enter_context(running(lab.inside(*DAEMON, str(aggregator)), tmp_path / "aggregator.log"))
        stack.enter_context(running(lab.inside(*AGENT, str(agent)), tmp_path / "agent.log"))
        task = folder / "task"
        task.write_text(TASK.format(work=lab.work))
        task.chmod(0o755)
        run_jobs(lab, task, stack)
        told, truth = of_scontrol(lab), lives(lab.work)
        ended = {key for key, (_, end) in told.items() if end <= time.time()}

        def all_archived() -> bool:
            return ended <= {(run.job, run.submit) for run in archived(tmp_path)}

        wait_until(all_archived, "all runs in the archive")
        runs = archived(tmp_path)
    compared = late = doubtful = 0
    for (job, _), (start, end) in told.items():
        began, ended_at, unsure = joined([run for run in runs if run.job == job], start, end)
        assert abs(began - start) <= WITHIN_SECONDS
        assert abs(ended_at - end) <= WITHIN_SECONDS or unsure, (job, began, start, ended_at, end)
        compared += 1
    for life in sorted(truth, key=lambda each: (each.first, each.node)):
        mine = [run for run in runs if (run.node, run.job) == (life.node, life.job)]
        began, ended_at, unsure = joined(mine, life.first, life.last)
        before, after = life.first - began, ended_at - life.last
        print(f"{life.node} {life.job}: {before:.2f} s before the tasks, {after:.2f} s after, {unsure=}")
        late += before < -WITHIN_SECONDS or abs(after) > WITHIN_SECONDS
        doubtful += unsure
        assert -WITHIN_SECONDS <= before <= TASK_SECONDS or unsure, (life, mine)
        assert -WITHIN_SECONDS <= after <= TASK_SECONDS or unsure, (life, mine)
    print(f"{compared} runs as scontrol, {len(truth)} with tasks, {doubtful} doubtful, {late} outside 2 s")
    assert compared >= 14
    assert len(truth) >= 17
    assert 0 < doubtful < len(truth) - 8, "cancelled, requeued, or ended while slurmctld was down"
