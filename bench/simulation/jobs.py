"""Jobs of a simulated site: their times and nodes, the counters of their I/O, and the scheduler's answers."""

import io
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import BinaryIO

from bench.simulation.processes import EPOCH_NS, SECOND, Host
from laggard_aggregator.jobs.records.sacct_poll import SEPARATOR, PollError
from laggard_common.wire.schema import Component, Field

CLUSTER = "sim"
FILE_SYSTEM = Component("fs", "fs")
CLIENT_SOURCE = "lustre_llite"
CLIENT_FIELDS = tuple(Field(name) for name in ("read_bytes_sum", "read_bytes_samples"))
_OWN_BYTES, _IDLE_BYTES = 1 << 20, 1000
"""Bytes that a client reads in a second of a job, and otherwise."""


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job: its number, nodes, and times, right epoch seconds."""

    number: int
    nodes: tuple[str, ...]
    start: int
    end: int

    @property
    def key(self) -> str:
        """The job's key in the archive."""
        return f"{CLUSTER}/{self.number}/{self.start - 10}"

    @property
    def document(self) -> bytes:
        """Content of the hook's document."""
        return f'{{"job": {self.number}}}'.encode()


def planned_jobs(rng: random.Random, nodes: Sequence[str], seconds: float) -> tuple[PlannedJob, ...]:
    """Jobs within the first `seconds`, one after the other."""
    jobs: list[PlannedJob] = []
    at = EPOCH_NS // SECOND + 400
    while True:
        start = at + rng.randint(0, 300)
        end = start + rng.randint(600, 1500)
        if end > EPOCH_NS / SECOND + seconds:
            return tuple(jobs)
        own = tuple(sorted(rng.sample(list(nodes), rng.randint(1, 2))))
        jobs.append(PlannedJob(len(jobs) + 1, own, start, end))
        at = end


def read_bytes(jobs: Sequence[PlannedJob], node: str, at_ns: int) -> int:
    """Bytes that a node has read until a right time."""
    bytes_ns = at_ns % (10**7 * SECOND) * _IDLE_BYTES
    for job in jobs:
        if node in job.nodes:
            bytes_ns += max(min(at_ns, job.end * SECOND) - job.start * SECOND, 0) * _OWN_BYTES
    return bytes_ns // SECOND


class SimulatedSlurm:
    """In the place of `SlurmCommands`. `fails`: whether the database answers nothing now."""

    def __init__(self, jobs: Sequence[PlannedJob], host: Host, fails: Callable[[], bool]) -> None:
        self._jobs, self._host, self._fails = jobs, host, fails

    def output(self, command: Sequence[str]) -> BinaryIO:
        """The standard output of `sacct`, and of the others as far as they are needed."""
        if command[0] == "sacctmgr":
            return io.BytesIO(b"Operator\n")
        if command[0] != "sacct" or self._fails():
            raise PollError(f"{command[0]}: no answer")
        since = datetime.fromisoformat(command[command.index("-S") + 1]).replace(tzinfo=UTC).timestamp()
        now = (self._host.wall_ns() - self._host.stepped_ns) // SECOND
        names = command[command.index("-o") + 1].split(",")
        rows = [_row(job, now) for job in self._jobs if job.start <= now and min(job.end, now) >= since]
        lines = [SEPARATOR.join(names), *(SEPARATOR.join(row[name] for name in names) for row in rows)]
        return io.BytesIO("".join(f"{line}\n" for line in lines).encode())

    def stop(self) -> None:
        """Nothing runs."""


def _row(job: PlannedJob, now: int) -> dict[str, str]:
    over = job.end <= now
    return {
        "JobIDRaw": str(job.number),
        "JobID": str(job.number),
        "Cluster": CLUSTER,
        "User": f"user{job.number}",
        "UID": "1000",
        "Account": "project",
        "Partition": "all",
        "State": "COMPLETED" if over else "RUNNING",
        "Submit": str(job.start - 10),
        "Eligible": str(job.start - 10),
        "Start": str(job.start),
        "End": str(job.end) if over else "Unknown",
        "ElapsedRaw": str(min(job.end, now) - job.start),
        "NNodes": str(len(job.nodes)),
        "NCPUS": "1",
        "ExitCode": "0:0",
        "NodeList": ",".join(job.nodes),
        "JobName": "application",
    }
