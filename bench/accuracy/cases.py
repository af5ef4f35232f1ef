"""Hogs, hot LUNs and faults that come and go, in the simulation, as a markdown table.

    python -m bench.accuracy.cases [--tuning] [--runs N] [--only TEXT]

Without options: the reporting seeds, ten runs a case. `--only` keeps cases whose `fault/workload/interval`
contains TEXT. Each run is simulated a second time without its fault, for the loss of throughput.
"""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.accuracy.judging import over_metrics, settings_of
from bench.accuracy.measured import Measured, measure
from bench.accuracy.score import Outcome, outcome, rates
from bench.accuracy.simulation.plan import (
    ALL_CASES,
    CASE_FAULT_SHARE,
    REPORTING,
    RUNS_A_PAIR,
    TUNING,
    Case,
)
from bench.accuracy.simulation.scenario import Array, Scenario
from bench.accuracy.simulation.simulate import simulate
from bench.machine import machine


@dataclass(frozen=True, slots=True)
class Looked:
    """One run: the outcome, and the LUN's load and latency over the others' median during the fault.

    `lost`: share of the clients' throughput.
    """

    outcome: Outcome
    load: float
    latency: float
    lost: float


def run(case: Case, seeds: range, runs: int) -> list[Looked]:
    """The runs of a case, judged by `laggard`."""
    faulty = case.scenarios(seeds, runs)
    recording, work, _ = simulate([*faulty, *(replace(one, fault="none") for one in faulty)])
    luns, *_ = measure(recording, ("await",), network=False)
    done, undisturbed = work.records[:runs], work.records[runs:]
    found = []
    for at, scenario in enumerate(faulty):
        settings = settings_of(scenario, "laggard", len(luns.components), {})
        findings = over_metrics(luns, at, settings, scenario.shape.topology)
        scored = outcome([findings], recording.faulty[at], scenario.shape, scenario.start)
        lost = (1.0 - done[at] / undisturbed[at]) / CASE_FAULT_SHARE
        found.append(Looked(scored, *_ratios(luns, at, scenario), lost))
    return found


def _ratios(luns: Measured, run: int, scenario: Scenario) -> tuple[float, float]:
    """Load and latency of the LUN that the case is about, over the median of the others."""
    own = scenario.seed % scenario.shape.luns
    during = slice(round(scenario.start / scenario.interval_seconds), None)
    operations = luns.load["operations"][run][:, during]
    load = np.nansum(operations, axis=1)
    latency = np.nansum(luns.metrics["await"][run][:, during] * operations, axis=1) / load

    def over_others(values: Array) -> float:
        return float(values[own] / np.median(np.delete(values, own)))

    return over_others(load), over_others(latency)


def table(cases: Iterable[tuple[Case, Sequence[Looked]]]) -> Iterator[str]:
    """The lines of the table."""
    yield "| case | load | latency | clients lose | named / healthy blamed, delay |"
    yield "|---|---|---|---|---|"
    for case, looked in cases:
        load, latency, lost = np.median([(one.load, one.latency, one.lost) for one in looked], axis=0)
        scored = rates(one.outcome for one in looked)
        yield f"| {case} | {load:.2f} | {latency:.2f} | {max(lost, 0.0):.0%} | {scored} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.accuracy.cases", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--tuning", action="store_true", help="the seeds for tuning, not those for reporting")
    parser.add_argument("--runs", type=int, default=RUNS_A_PAIR, help="runs a case")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases with TEXT in their name")
    asked = parser.parse_args()
    seeds = TUNING if asked.tuning else REPORTING
    print(machine("numpy", "scipy"))
    kept = (case for case in ALL_CASES if asked.only in str(case))
    for line in table((case, run(case, seeds, asked.runs)) for case in kept):
        print(line, flush=True)


if __name__ == "__main__":
    main()
