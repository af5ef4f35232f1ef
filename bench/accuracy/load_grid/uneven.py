"""Members that differ without a fault: one with more load, loads apart for good, two generations."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Literal

import numpy as np

from bench.accuracy.load_grid.device import MOST_BUSY, Array, Random
from bench.accuracy.load_grid.grid import AFTER_HOURS, CONTROL_HOURS, FAULT_HOURS, HOUR, WARM_HOURS
from bench.accuracy.load_grid.load import OPEN_LOADS, Shape, static_levels
from bench.accuracy.load_grid.scenario import HALF_MINUTES, Scenario
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

HOT = 1.8
"""The hot member's load in multiples of its peers'."""
HOT_BEGIN_HOURS, HOT_END_HOURS = 9.0, 13.0
GENERATIONS_LOAD = 0.6
"""So that the older generation, too, has room for its load."""
APART = 1.25
"""Service time of the older generation in multiples of the newer one's."""
Victim = Literal["", "any", "hot", "slow class", "fast class"]


@dataclass(frozen=True, slots=True)
class UnevenCase:
    """A group and who of it is ill, if anybody.

    `kind`: `hot` (always), `hot 4 h`, `skew N` (static loads up to N times apart), `half` or `third` of the
    members of an older generation, under the load that `load` names.
    """

    kind: str
    curve: str
    members: int
    factor: float = 1.0
    victim: Victim = ""
    load: str = "common"
    noise: float = 0.06


def _hot(case: UnevenCase, rng: Random, shape: Shape, hot: int) -> Array:
    """The members' utilisation, at most MOST_BUSY / HOT, and of the hot one HOT times as much."""
    busy = OPEN_LOADS["common"](rng, shape) / HOT
    first, last = 0, shape.intervals
    if case.kind == "hot 4 h":
        first, last = (round(shape.steps(hours * HOUR)) for hours in (HOT_BEGIN_HOURS, HOT_END_HOURS))
    busy[hot, first:last] *= HOT
    return busy


def _skewed(case: UnevenCase, rng: Random, shape: Shape) -> Array:
    levels = static_levels(rng, shape.members, float(case.kind.removeprefix("skew ")))[:, None]
    skewed: Array = np.minimum(levels * np.exp(0.1 * rng.standard_normal(shape.both)), MOST_BUSY)
    return skewed


def series_of(case: UnevenCase, rng: Random) -> Series:
    """A group with, if anybody is ill, one member ill after WARM_HOURS."""
    hours = WARM_HOURS + FAULT_HOURS + AFTER_HOURS if case.victim else CONTROL_HOURS
    interval = HALF_MINUTES.interval_seconds
    shape = Shape(case.members, round(hours * HOUR / interval), interval)
    components = names(case.members)
    order = rng.permutation(case.members)
    older = order[: round(case.members * {"half": 1 / 2, "third": 1 / 3}.get(case.kind, 0.0))]
    scale = np.ones((case.members, 1))
    scale[older] = APART
    if case.kind.startswith("hot"):
        busy = _hot(case, rng, shape, int(order[0]))
    elif case.kind.startswith("skew"):
        busy = _skewed(case, rng, shape)
    else:
        busy = GENERATIONS_LOAD * OPEN_LOADS[case.load](rng, shape)
    ill: tuple[Episode, ...] = ()
    if case.victim:
        member = int(order[-1] if case.victim in {"any", "fast class"} else order[0])
        begin = WARM_HOURS * HOUR
        ill = (Episode(components[member], begin, begin + FAULT_HOURS * HOUR, case.factor),)
    factors, requests = episode_factors(components, shape, ill), alike(shape)
    device = Device(case.curve, case.noise)
    drawn = open_loop(rng, shape, device, busy, requests, factors, scale=scale)
    attributes = {}
    if older.size:
        models = {name: "gen1" if m in set(older.tolist()) else "gen2" for m, name in enumerate(components)}
        attributes = {"model": models}
    return assembled(shape, components, drawn, requests, ill, attributes)


def scenarios() -> Iterator[Scenario]:
    """All of them; the detector gets all loads."""
    for kind, curve, members in product(("hot", "hot 4 h"), ("mm1", "saturating", "knee"), (8, 16)):
        quick = members == 16 and curve == "mm1"
        yield _scenario(UnevenCase(kind, curve, members), quick=quick, tries=16)
        yield _scenario(UnevenCase(kind, curve, members, 2.0, "any"), quick=quick, tries=4)
        if kind == "hot":
            yield _scenario(UnevenCase(kind, curve, members, 3.0, "hot"), tries=4)
    for spread, members in product((2, 4, 8), (8, 16)):
        kind, quick = f"skew {spread}", (spread, members) == (4, 16)
        yield _scenario(UnevenCase(kind, "mm1", members), quick=quick, tries=16)
        yield _scenario(UnevenCase(kind, "mm1", members, 2.0, "any"), quick=quick, tries=4)
    classes: tuple[Victim, ...] = ("slow class", "fast class")
    for kind, load in product(("half", "third"), ("common", "jobs", "open")):
        quick = load == "common"
        yield _scenario(UnevenCase(kind, "mm1", 16, load=load), quick=quick, tries=12)
        for factor, victim in product((1.5, 2.0), classes):
            case = UnevenCase(kind, "mm1", 16, factor, victim, load)
            yield _scenario(case, quick=quick and factor == 2.0, tries=4)


def _scenario(case: UnevenCase, *, tries: int, quick: bool = False) -> Scenario:
    kind = "generations" if case.kind in {"half", "third"} else "skew"
    load = f"{case.load}/" if kind == "generations" else ""
    row = f"{kind}/{case.kind}/{load}{case.curve}/{case.members}"
    column = f"{case.victim} {case.factor:g}x" if case.victim else "healthy"
    return Scenario(row, column, partial(series_of, case), quick=quick, tries=tries)
