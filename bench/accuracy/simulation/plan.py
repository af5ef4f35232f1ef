"""Which runs there are, and whose seeds are whose.

Seeds for tuning, training and the oracle are never used for reporting. A change to a detector is made on
tuning seeds; the reporting seeds are run once it is made.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.accuracy.simulation.faults import CASES, FAULTS
from bench.accuracy.simulation.scenario import Scenario
from bench.accuracy.simulation.shapes import SHAPES
from bench.accuracy.simulation.workloads import WORKLOADS

TUNING = range(100_000, 200_000)
REPORTING = range(200_000, 300_000)
TRAINING = range(300_000, 400_000)
ORACLE = range(400_000, 500_000)

RUNS_A_PAIR = 10
"""As in the HotDep paper: ten experiments for each workload and fault, each with another faulty server."""
TRAINING_WORKLOADS = ("ddr", "ddw", "postmark", "hpc")
"""The HotDep paper's three, and hpc for the one that it does not have."""

_SHAPE_OF = {
    "server-slow": ("pvfs-2", "couplets"),
    "controller-failover": ("couplets",),
    "two-slow": ("jbod-12",),
    "three-slow": ("jbod-12",),
    "five-slow": ("jbod-12",),
    "none": tuple(SHAPES),
}


@dataclass(frozen=True, slots=True)
class Pair:
    """A fault and a workload on a shape."""

    shape: str
    fault: str
    workload: str

    def __str__(self) -> str:
        return f"{self.shape}/{self.fault}/{self.workload}"

    def scenarios(self, seeds: range, runs: int = RUNS_A_PAIR) -> list[Scenario]:
        """`runs` experiments with seeds from `seeds` that belong to this pair alone."""
        first = seeds.start + 100 * PAIRS.index(self)
        start = 0.0 if self.fault == "lun-slow-from-start" else 120.0
        shape, workload = SHAPES[self.shape], WORKLOADS[self.workload]
        return [Scenario(shape, workload, self.fault, first + at, start=start) for at in range(runs)]


PAIRS = tuple(
    Pair(shape, fault, workload)
    for fault in FAULTS
    for shape in _SHAPE_OF.get(fault, ("pvfs",))
    for workload in WORKLOADS
)


def training(shape: str, runs: int = RUNS_A_PAIR) -> list[Scenario]:
    """Fault-free experiments on `shape` for the detectors that need thresholds."""
    return [
        scenario
        for pair in PAIRS
        if pair.shape == shape and pair.fault == "none" and pair.workload in TRAINING_WORKLOADS
        for scenario in pair.scenarios(TRAINING, runs)
    ]


FREE = tuple(pair for pair in PAIRS if pair.fault == "none")


def controls(seeds: range, days: int, pair: Pair) -> Sequence[Scenario]:
    """Fault-free days of one of FREE at 15 s: `days`, at most 1,000, times its LUNs component-days."""
    shape, workload = SHAPES[pair.shape], WORKLOADS[pair.workload]
    first = seeds.start + 50_000 + 1_000 * FREE.index(pair)
    return [Scenario(shape, workload, "none", first + at, 5760, 15.0, 0.0, 86400.0) for at in range(days)]


CASE_FAULT_SHARE = 0.8
"""Share of a case's run, its end, in which the fault is there."""
_CASE_SAMPLES = {1.0: 1200, 15.0: 720}
"""Intervals in a run by their length: 20 minutes, and 3 hours."""
_CASE_WORKLOADS = ("ddr", "ddw", "iozonew", "hpc")
_AT_TIMES = ("20-of-60-s", "third-interval", "5-of-15-min")


@dataclass(frozen=True, slots=True)
class Case:
    """One of CASES under a workload, sampled at an interval, on ten servers of one LUN."""

    fault: str
    workload: str
    interval_seconds: float

    def __str__(self) -> str:
        return f"{self.fault}/{self.workload}/{self.interval_seconds:.0f} s"

    def scenarios(self, seeds: range, runs: int = RUNS_A_PAIR) -> list[Scenario]:
        """`runs` experiments, at most 100, with seeds from `seeds` that belong to this case alone."""
        first = seeds.start + 30_000 + 100 * ALL_CASES.index(self)
        samples = _CASE_SAMPLES[self.interval_seconds]
        end = samples * self.interval_seconds
        start = (1.0 - CASE_FAULT_SHARE) * end
        shape, workload = SHAPES["pvfs"], WORKLOADS[self.workload]
        return [
            Scenario(shape, workload, self.fault, first + at, samples, self.interval_seconds, start, end)
            for at in range(runs)
        ]


ALL_CASES = (
    *(Case(fault, workload, 1.0) for fault in CASES if fault != _AT_TIMES[2] for workload in _CASE_WORKLOADS),
    *(Case(fault, workload, 15.0) for fault in _AT_TIMES for workload in ("ddr", "hpc")),
)
