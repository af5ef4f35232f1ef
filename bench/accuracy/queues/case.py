"""One case: a load, a fault and a seed become files of counters and the truth about them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.accuracy.queues.counters import (
    EPOCH_S,
    Integers,
    SampleTimes,
    counters,
    device_name,
    sample_times,
    write_pcp_csv,
)
from bench.accuracy.queues.events import serve_events
from bench.accuracy.queues.fault import FAULTS, QueueFault, queue_fault
from bench.accuracy.queues.load import LOADS, LoadPlan, load_plan
from bench.accuracy.queues.requests import serve_open

SECONDS = 6 * 3600
FAULT_BEGIN_S = 3 * 3600
FAULT_END_S = 5 * 3600

MEMBERS = 16
MEMBERS_BY_SERVER = 24
SERVERS = {"server": 4, "half": 2}

LOAD_CHANCES, FAULT_CHANCES, REQUEST_CHANCES, SAMPLE_CHANCES = range(4)
"""Streams of random numbers of one seed, so that a fault leaves loads and requests as they are."""


@dataclass(frozen=True, slots=True)
class QueueCase:
    """A load and a fault, and the seed of all chances."""

    load: str
    fault: str
    seed: int

    @property
    def name(self) -> str:
        """As `--only` matches it."""
        return f"{self.load}/{self.fault}/{self.seed}"

    @property
    def members(self) -> int:
        """How many devices."""
        return MEMBERS_BY_SERVER if self.fault == "server" else MEMBERS

    @property
    def servers(self) -> list[int]:
        """The server of each member."""
        return [member * SERVERS.get(self.fault, 1) // self.members for member in range(self.members)]

    def component(self, member: int) -> str:
        """Returns a member's name in the verdicts."""
        name = device_name(member)
        return f"oss-{self.servers[member] + 1}/{name}" if self.fault in SERVERS else name

    def plan(self, seconds: int = SECONDS) -> LoadPlan:
        """Returns the loads."""
        return load_plan(self.load, self.members, seconds, np.random.default_rng([self.seed, LOAD_CHANCES]))

    def queue_fault(self) -> QueueFault:
        """Returns who is slower, and when."""
        generator = np.random.default_rng([self.seed, FAULT_CHANCES])
        return queue_fault(self.fault, self.servers, FAULT_BEGIN_S, FAULT_END_S, generator)


@dataclass(frozen=True, slots=True)
class WrittenCase:
    """The files of a case, the ill components, their servers, and the fault's begin and end (epoch)."""

    files: tuple[Path, ...]
    ill: frozenset[str]
    ill_servers: frozenset[str]
    begin_s: int
    end_s: int


def case_names(seeds: int) -> list[QueueCase]:
    """Returns all cases, `seeds` of each load and fault."""
    return [
        QueueCase(load, fault, seed) for load in LOADS for fault in FAULTS for seed in range(1, seeds + 1)
    ]


def write_case(case: QueueCase, folder: Path, seconds: int = SECONDS) -> WrittenCase:
    """Simulates a case and writes a file for each server."""
    fault = case.queue_fault()
    generator = np.random.default_rng([case.seed, SAMPLE_CHANCES])
    servers = case.servers
    samples = [sample_times(seconds, generator) for _ in range(max(servers) + 1)]
    values = list(_counted(case, fault, seconds, samples))
    files = []
    for server, times in enumerate(samples):
        path = folder / f"oss-{server + 1}.csv"
        here = [member for member in range(case.members) if servers[member] == server]
        named = [(device_name(member), values[member]) for member in here]
        write_pcp_csv(path, times, named, generator)
        files.append(path)
    return WrittenCase(
        tuple(files),
        frozenset(case.component(member) for member in fault.members),
        frozenset(f"oss-{servers[member] + 1}" for member in fault.members),
        EPOCH_S + FAULT_BEGIN_S,
        EPOCH_S + FAULT_END_S,
    )


def _counted(
    case: QueueCase, fault: QueueFault, seconds: int, samples: list[SampleTimes]
) -> Iterator[Integers]:
    """Yields the counters of each member in turn."""
    plan = case.plan(seconds)
    serve = serve_events if plan.needs_events else serve_open
    for member, requests in enumerate(serve(plan, fault, (case.seed, REQUEST_CHANCES))):
        yield counters(requests, samples[case.servers[member]].time_ms)
