"""Scenarios in, recordings out."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from bench.accuracy.simulation.closed_loop import Work, run
from bench.accuracy.simulation.counters import Recording, record
from bench.accuracy.simulation.faults import inject
from bench.accuracy.simulation.nuisances import add_nuisances
from bench.accuracy.simulation.scenario import Conditions, Scenario, quiet

BATCH = 120
"""Runs that are simulated together; what a run does is independent of it."""


def conditions_of(scenario: Scenario) -> Conditions:
    """What the scenario's components will be like: nuisances and fault, from the scenario's seed alone."""
    conditions = quiet(scenario)
    add_nuisances(conditions, scenario, np.random.default_rng((scenario.seed, 0)))
    inject(conditions, scenario, np.random.default_rng((scenario.seed, 4)))
    return conditions


def simulate(scenarios: Sequence[Scenario]) -> tuple[Recording, Work, tuple[Conditions, ...]]:
    """The recording of scenarios of one shape, workload and length, and what was behind it."""
    conditions = tuple(conditions_of(scenario) for scenario in scenarios)
    work = run(scenarios, conditions)
    return record(scenarios, conditions, work), work, conditions


def batches(scenarios: Sequence[Scenario]) -> Iterator[tuple[Scenario, ...]]:
    """`scenarios` in batches that can be simulated together."""

    def kind(scenario: Scenario) -> tuple[str, str, int, float]:
        return (
            scenario.shape.name,
            scenario.workload.name,
            scenario.samples,
            scenario.interval_seconds,
        )

    for _, alike in groupby(sorted(scenarios, key=kind), key=kind):
        rest = tuple(alike)
        for at in range(0, len(rest), BATCH):
            yield rest[at : at + BATCH]
