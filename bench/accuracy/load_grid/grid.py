"""The grid: kind of load, curve of latency over load, size of the group, noise, factor."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

from bench.accuracy.load_grid.device import Random
from bench.accuracy.load_grid.load import LOADS, OPEN_LOADS, Shape, depths
from bench.accuracy.load_grid.scenario import (
    HALF_MINUTES,
    OPERATIONS,
    QUARTER_MINUTES,
    SECONDS,
    Scenario,
    Windows,
)
from bench.accuracy.load_grid.series import (
    Device,
    Episode,
    Series,
    alike,
    assembled,
    closed_loop,
    episode_factors,
    names,
    open_loop,
)

HOUR = 3600.0
GRID_CURVES = ("flat", "mm1", "saturating", "merging")
GROUPS = (4, 8, 16, 64)
NOISES = (0.03, 0.10, 0.25, 0.50)
FACTORS = (1.0, 1.2, 1.5, 2.0, 3.0, 6.0, 10.0)
QUICK = {(16, 0.10, factor) for factor in (1.0, 1.5, 2.0, 3.0)} | {
    (16, 0.25, 1.0),
    (16, 0.25, 2.0),
    (8, 0.10, 3.0),
    (4, 0.10, 2.0),
}
"""Members, noise and factor of `--quick`, for each load and curve."""
WARM_HOURS = 8.0
"""Healthy time before a fault."""
CONTROL_HOURS = 16.0
AFTER_HOURS = 1.0
FAULT_HOURS = 2.0
BURST_FAULT_HOURS = 6.0
"""With I/O in 7 % of the time: some 50 intervals with I/O."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One place of the grid. `factor` 1.0: nobody is ill, for CONTROL_HOURS."""

    load: str
    curve: str
    members: int
    noise: float
    factor: float
    windows: Windows = HALF_MINUTES
    wandering: float = 0.0

    @property
    def row(self) -> str:
        """`grid/load/curve/members/noise`, and the interval where it is not 30 s."""
        seconds, wanders = self.windows.interval_seconds, "w" if self.wandering else ""
        other = "" if seconds == HALF_MINUTES.interval_seconds else f"/{seconds:g}s"
        return f"grid/{self.load}/{self.curve}/{self.members}/{self.noise:.0%}{wanders}{other}"

    @property
    def hours(self) -> float:
        """Length of the series."""
        if self.factor == 1.0:
            return CONTROL_HOURS
        return WARM_HOURS + 0.5 + self.fault_hours + AFTER_HOURS

    @property
    def fault_hours(self) -> float:
        """Length of the fault."""
        return BURST_FAULT_HOURS if self.load == "bursts" else FAULT_HOURS


def cell_series(cell: Cell, rng: Random, hours: float | None = None) -> Series:
    """One member, drawn at random, is ill from some moment of the half hour after WARM_HOURS on.

    `hours`: length, for comparison of a cell with its healthy twin.
    """
    interval = cell.windows.interval_seconds
    shape = Shape(cell.members, round((hours or cell.hours) * HOUR / interval), interval)
    components = names(cell.members)
    ill: tuple[Episode, ...] = ()
    victim, begin = (
        components[int(rng.integers(cell.members))],
        WARM_HOURS * HOUR + rng.uniform(0.0, 0.5 * HOUR),
    )
    if cell.factor != 1.0:
        ill = (Episode(victim, begin, begin + cell.fault_hours * HOUR, cell.factor),)
    factors = episode_factors(components, shape, ill)
    device = Device(cell.curve, cell.noise, cell.wandering)
    requests = alike(shape)
    if cell.load == "closed":
        latency_and_counts = closed_loop(rng, shape, device, depths(rng, shape), requests, factors)
    else:
        busy = OPEN_LOADS[cell.load](rng, shape)
        latency_and_counts = open_loop(rng, shape, device, busy, requests, factors)
    return assembled(shape, components, latency_and_counts, requests, ill)


def scenario(cell: Cell, *, quick: bool = False) -> Scenario:
    """The cell's scenario; its detector gets the operations, as from `laggard diagnose --load operations`."""
    column = "healthy" if cell.factor == 1.0 else f"{cell.factor:g}x"
    make = partial(cell_series, cell)
    return Scenario(cell.row, column, make, cell.windows, OPERATIONS, quick=quick)


def scenarios() -> Iterator[Scenario]:
    """All cells, and some at 15 s, with another curve and with noise that wanders."""
    for load, curve, members, noise, factor in product(LOADS, GRID_CURVES, GROUPS, NOISES, FACTORS):
        cell = Cell(load, curve, members, noise, factor)
        yield scenario(cell, quick=(members, noise, factor) in QUICK)
    for load, factor in product(LOADS, (1.0, 2.0, 3.0)):
        yield scenario(Cell(load, "knee", 16, 0.10, factor))
        yield scenario(Cell(load, "mm1", 16, 0.10, factor, QUARTER_MINUTES))
        yield scenario(Cell(load, "mm1", 8, 0.10, factor, SECONDS))
        yield scenario(Cell(load, "mm1", 16, 0.25, factor, wandering=0.5))
