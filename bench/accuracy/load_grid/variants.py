"""Cells of the grid otherwise: other columns of load, faults of service time, ill from the start."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from bench.accuracy.load_grid.device import Random
from bench.accuracy.load_grid.grid import AFTER_HOURS, FAULT_HOURS, HOUR, WARM_HOURS, Cell, cell_series
from bench.accuracy.load_grid.load import LOADS, OPEN_LOADS, Shape
from bench.accuracy.load_grid.scenario import ALL_LOADS, HALF_MINUTES, OPERATIONS, Scenario
from bench.accuracy.load_grid.series import (
    Device,
    Episode,
    Series,
    alike,
    assembled,
    episode_factors,
    names,
    open_loop,
)

COLD_HOURS = 8.0
COLUMNS = {"all loads": ALL_LOADS, "throughput": ("throughput",)}
"""Those that the daemon has; and a column of load that `laggard diagnose` takes for throughput."""


@dataclass(frozen=True, slots=True)
class ServiceCase:
    """The fault multiplies the time that a request occupies the device, so that its queue grows, too."""

    load: str
    curve: str
    factor: float


def slow_service(case: ServiceCase, rng: Random) -> Series:
    """One of sixteen after WARM_HOURS."""
    interval = HALF_MINUTES.interval_seconds
    shape = Shape(16, round((WARM_HOURS + FAULT_HOURS + AFTER_HOURS) * HOUR / interval), interval)
    components, begin = names(16), WARM_HOURS * HOUR
    ill = (Episode(components[int(rng.integers(16))], begin, begin + FAULT_HOURS * HOUR, case.factor),)
    service = episode_factors(components, shape, ill)
    busy, requests = OPEN_LOADS[case.load](rng, shape), alike(shape)
    device = Device(case.curve, 0.1)
    drawn = open_loop(rng, shape, device, busy, requests, np.ones(shape.both), service_factors=service)
    return assembled(shape, components, drawn, requests, ill)


def cold(cell: Cell, rng: Random) -> Series:
    """The cell's series with its fault from the first interval to the end."""
    healthy = cell_series(Cell(cell.load, cell.curve, cell.members, cell.noise, 1.0), rng, COLD_HOURS)
    victim = healthy.components[int(rng.integers(cell.members))]
    ill = (Episode(victim, 0.0, COLD_HOURS * HOUR, cell.factor),)
    shape = Shape(cell.members, healthy.latency.shape[1], healthy.interval_seconds)
    factors = episode_factors(healthy.components, shape, ill)
    return Series(healthy.components, healthy.interval_seconds, healthy.latency * factors, healthy.load, ill)


def scenarios() -> Iterator[Scenario]:
    """Those that no cell of the grid holds."""
    for (columns, loads), load, curve, factor in product(
        COLUMNS.items(), LOADS, ("flat", "mm1"), (1.0, 2.0, 3.0)
    ):
        column, quick = "healthy" if factor == 1.0 else f"{factor:g}x", curve == "flat" and factor == 2.0
        make = partial(cell_series, Cell(load, curve, 16, 0.10, factor))
        yield Scenario(f"{columns}/{load}/{curve}/16", column, make, loads=loads, quick=quick, tries=2)
    for load, curve, factor in product(OPEN_LOADS, ("flat", "mm1"), (1.2, 1.5, 2.0, 3.0)):
        if load != "bursts":
            make = partial(slow_service, ServiceCase(load, curve, factor))
            quick = (load, curve, factor) == ("jobs", "mm1", 2.0)
            yield Scenario(
                f"service/{load}/{curve}/16", f"{factor:g}x", make, loads=OPERATIONS, quick=quick, tries=2
            )
    for load, curve, factor in product(OPEN_LOADS, ("flat", "mm1"), (2.0, 3.0)):
        make = partial(cold, Cell(load, curve, 16, 0.10, factor))
        quick = (load, curve, factor) == ("jobs", "flat", 3.0)
        yield Scenario(
            f"cold/{load}/{curve}/16", f"{factor:g}x", make, loads=OPERATIONS, quick=quick, tries=2
        )
