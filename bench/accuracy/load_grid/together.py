"""Parts of a group that are slow together, as all disks of a server, a model, a pool; and recovery."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

from bench.accuracy.load_grid.device import Random
from bench.accuracy.load_grid.grid import AFTER_HOURS, HOUR, WARM_HOURS
from bench.accuracy.load_grid.load import OPEN_LOADS, Shape
from bench.accuracy.load_grid.scenario import HALF_MINUTES, Scenario
from bench.accuracy.load_grid.series import (
    Device,
    Episode,
    Part,
    Series,
    alike,
    assembled,
    episode_factors,
    open_loop,
)

MEMBERS = 12
SLOW_HOURS = 2.0
RECOVERY_HOURS = 1.5
"""Time from the fault of all six to the recovery of four."""
STAYING = 2


@dataclass(frozen=True, slots=True)
class PartCase:
    """Half of MEMBERS share a value of `attribute`; they are `factor` times slower after WARM_HOURS.

    `recover`: after RECOVERY_HOURS all but STAYING of them recover.
    """

    attribute: str
    factor: float
    load: str = "common"
    curve: str = "flat"
    recover: bool = False


def series_of(case: PartCase, rng: Random) -> Series:
    """Two servers of six disks named by their server; models and pools go across the servers."""
    interval = HALF_MINUTES.interval_seconds
    shape = Shape(MEMBERS, round((WARM_HOURS + 2 * SLOW_HOURS + AFTER_HOURS) * HOUR / interval), interval)
    half = MEMBERS // 2
    components = tuple(f"oss-{1 + m // half}/d{m % half:02d}" for m in range(MEMBERS))
    attributes = {
        "server": {name: name.partition("/")[0] for name in components},
        "model": {name: "ST8000" if m % 2 else "HUH721" for m, name in enumerate(components)},
        "pool": {name: "flash" if m % 4 < 2 else "bulk" for m, name in enumerate(components)},
    }
    values = attributes[case.attribute]
    slow = values[components[int(rng.integers(MEMBERS))]]
    members = [name for name in components if values[name] == slow]
    begin = WARM_HOURS * HOUR
    end = begin + (RECOVERY_HOURS if case.recover else SLOW_HOURS) * HOUR
    changes = [Episode(name, begin, end, case.factor) for name in members] if case.factor != 1.0 else []
    ill: list[Episode] = []
    if case.recover:
        staying = rng.permutation(len(members))[:STAYING].tolist()
        ill = [Episode(members[m], end, end + SLOW_HOURS * HOUR, case.factor) for m in staying]
    factors, requests = episode_factors(components, shape, [*changes, *ill]), alike(shape)
    busy = OPEN_LOADS[case.load](rng, shape)
    drawn = open_loop(rng, shape, Device(case.curve, 0.06), busy, requests, factors)
    parts = (Part(case.attribute, slow, begin, end),) if changes else ()
    return assembled(shape, components, drawn, requests, ill, attributes, parts)


def scenarios() -> Iterator[Scenario]:
    """Half a group by each attribute; the detector gets all loads."""
    for attribute, load, curve in product(
        ("server", "model", "pool"), ("common", "jobs", "open"), ("flat", "mm1")
    ):
        row, quick = f"together/{attribute}/{load}/{curve}", (load, curve) == ("common", "flat")
        for factor in (1.5, 3.0):
            make = partial(series_of, PartCase(attribute, factor, load, curve))
            yield Scenario(row, f"{factor:g}x", make, quick=quick and factor == 3.0, tries=4)
    for load, factor in product(("common", "jobs"), (2.0, 3.0)):
        case = PartCase("server", factor, load, recover=True)
        quick = load == "common" and factor == 3.0
        yield Scenario(f"recovery/{load}", f"{factor:g}x", partial(series_of, case), quick=quick, tries=8)
