"""Work that is no fault: a nightly backup, a scrub that rotates; and other users of one device."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from bench.accuracy.load_grid.device import DISK, MOST_BUSY, Array, Random
from bench.accuracy.load_grid.grid import AFTER_HOURS, HOUR, WARM_HOURS
from bench.accuracy.load_grid.load import OPEN_LOADS, Shape
from bench.accuracy.load_grid.scenario import HALF_MINUTES, Scenario
from bench.accuracy.load_grid.series import (
    Device,
    Episode,
    Requests,
    Series,
    alike,
    assembled,
    episode_factors,
    names,
    open_loop,
    requests_of,
)
from bench.accuracy.load_grid.sizes import KIB, by_jobs

NIGHTS = 3
BACKUP_MEMBERS = 4
BACKUP_BEGIN_HOURS, BACKUP_END_HOURS = 25.0, 28.0
"""From 01:00 to 04:00 of the second day on."""
BACKUP_BUSY = 0.85
ORDINARY_BYTES = 16 * KIB
BACKUP_BYTES = 64 * ORDINARY_BYTES
SCRUB_FACTOR, SCRUB_HOURS = 1.8, 2.0
HOG_HOURS = 2.0
HOG_BYTES = 512 * KIB
HOG_BUSY = 0.5


def _shape(members: int, hours: float) -> Shape:
    interval = HALF_MINUTES.interval_seconds
    return Shape(members, round(hours * HOUR / interval), interval)


def _columns(shape: Shape, begin_hours: float, end_hours: float) -> slice:
    first, last = (round(shape.steps(hours * HOUR)) for hours in (begin_hours, end_hours))
    return slice(first, last)


def _joined(shape: Shape, parts: Sequence[tuple[Array, Requests]]) -> tuple[Array, Requests]:
    """Streams of requests together: utilisation, and means over the requests."""
    busy = np.sum([part for part, _ in parts], axis=0)
    rates = [np.divide(part, r.seconds) for part, r in parts]
    rate = np.maximum(np.sum(rates, axis=0), 1e-12)

    def mean(values: Sequence[Array]) -> Array:
        total: Array = np.sum([r * v for r, v in zip(rates, values, strict=True)], axis=0) / rate
        return total

    requests = [r for _, r in parts]
    seconds = np.where(busy > 0, busy / rate, 1.0)
    together = Requests(
        mean([r.request_bytes for r in requests]), mean([r.read_share for r in requests]), seconds
    )
    return np.minimum(busy, MOST_BUSY).reshape(shape.both), together


@dataclass(frozen=True, slots=True)
class BackupCase:
    """`same`: the same four disks each night.

    `victim`: who is 3 times slower during the last night's backup: one of the four (`backed up`), one of the
    others (`other`), or nobody.
    """

    curve: str
    same: bool
    victim: str = ""


def backup(case: BackupCase, rng: Random) -> Series:
    """Sixteen disks with small requests; for three hours a night four of them are read in large ones."""
    shape, components = _shape(16, 24.0 * (NIGHTS + 1)), names(16)
    ordinary = 0.2 * OPEN_LOADS["common"](rng, shape)
    large = np.zeros(shape.both)
    chosen = rng.permutation(16)
    for night in range(NIGHTS):
        members = chosen[:BACKUP_MEMBERS] if case.same else chosen[4 * night : 4 * night + BACKUP_MEMBERS]
        span = _columns(shape, BACKUP_BEGIN_HOURS + 24 * night, BACKUP_END_HOURS + 24 * night)
        paces = np.exp(0.05 * rng.standard_normal((BACKUP_MEMBERS, span.stop - span.start)))
        large[members, span] = BACKUP_BUSY * paces
    ill: tuple[Episode, ...] = ()
    if case.victim:
        member = int(chosen[0] if case.victim == "backed up" else chosen[-1])
        begin = (BACKUP_BEGIN_HOURS + 24 * (NIGHTS - 1)) * HOUR
        ill = (Episode(components[member], begin, begin + 2 * HOUR, 3.0),)
    parts = [
        (ordinary, alike(shape, DISK, ORDINARY_BYTES, 0.6)),
        (large, alike(shape, DISK, BACKUP_BYTES, 1.0)),
    ]
    busy, requests = _joined(shape, parts)
    factors = episode_factors(components, shape, ill)
    drawn = open_loop(rng, shape, Device(case.curve, 0.1), busy, requests, factors)
    return assembled(shape, components, drawn, requests, ill)


@dataclass(frozen=True, slots=True)
class ScrubCase:
    """`stays`: the scrub of the fourth member does not end, for eight hours; that one is ill."""

    load: str
    members: int
    stays: bool = False


def scrub(case: ScrubCase, rng: Random) -> Series:
    """One member after the other is slower for SCRUB_HOURS, after WARM_HOURS."""
    components = names(case.members)
    order = [components[m] for m in rng.permutation(case.members)]
    begins = [(WARM_HOURS + SCRUB_HOURS * turn) * HOUR for turn in range(case.members)]
    turns = [
        Episode(c, at, at + SCRUB_HOURS * HOUR, SCRUB_FACTOR) for c, at in zip(order, begins, strict=True)
    ]
    ill: tuple[Episode, ...] = ()
    if case.stays:
        last = turns[3]
        ill = (Episode(last.component, last.begin, last.begin + 8 * HOUR, SCRUB_FACTOR),)
        turns = turns[:3]
        end = ill[0].end
    else:
        end = turns[-1].end
    shape = _shape(case.members, end / HOUR + AFTER_HOURS)
    factors, requests = episode_factors(components, shape, [*turns, *ill]), alike(shape)
    busy = OPEN_LOADS[case.load](rng, shape)
    drawn = open_loop(rng, shape, Device("flat", 0.06), busy, requests, factors)
    return assembled(shape, components, drawn, requests, ill)


@dataclass(frozen=True, slots=True)
class HogCase:
    """`counted`: the hog's requests are among the device's; otherwise they only take half of its time."""

    hogs: int
    counted: bool
    members: int = 8


def hog(case: HogCase, rng: Random) -> Series:
    """Jobs of all sizes, and beside them hogs, each on a device of its own."""
    components = names(case.members)
    shape = _shape(case.members, WARM_HOURS + HOG_HOURS + AFTER_HOURS)
    mixed = by_jobs(rng, shape, DISK)
    members = rng.permutation(case.members)[: case.hogs].tolist()
    span = _columns(shape, WARM_HOURS, WARM_HOURS + HOG_HOURS)
    begin = WARM_HOURS * HOUR
    factor = 1.0 / (1.0 - HOG_BUSY)
    ill = [Episode(components[m], begin, begin + HOG_HOURS * HOUR, factor) for m in members]
    busy, requests, service = 0.6 * mixed.busy, mixed.requests, np.ones(shape.both)
    if case.counted:
        extra = np.zeros(shape.both)
        extra[members, span] = HOG_BUSY
        sizes = requests_of(DISK, np.full(shape.both, HOG_BYTES), np.full(shape.both, 1.0))
        busy, requests = _joined(shape, [(busy, requests), (extra, sizes)])
    else:
        service[members, span] = factor
    still = np.ones(shape.both)
    drawn = open_loop(rng, shape, Device("mm1", 0.1), busy, requests, still, service_factors=service)
    return assembled(shape, components, drawn, requests, ill)


def scenarios() -> Iterator[Scenario]:
    """All of them; the detector gets all loads."""
    for curve, same in product(("flat", "mm1"), (True, False)):
        row, quick = f"backup/{'same four' if same else 'another four'}/{curve}", curve == "mm1" and same
        yield Scenario(row, "healthy", partial(backup, BackupCase(curve, same)), quick=quick, tries=4)
        if same:
            for victim in ("backed up", "other"):
                make = partial(backup, BackupCase(curve, same, victim))
                yield Scenario(row, f"{victim} 3x", make, tries=4)
    for load, members in (("common", 12), ("jobs", 12), ("common", 24)):
        case, row, quick = ScrubCase(load, members), f"scrub/{load}/{members}", members == 12
        yield Scenario(row, "healthy", partial(scrub, case), quick=quick, tries=4)
        if members == 12:
            yield Scenario(row, "stays", partial(scrub, ScrubCase(load, members, stays=True)), tries=4)
    for hogs, counted in product((1, 2), (True, False)):
        row = f"hog/{'counted' if counted else 'not counted'}/{hogs}"
        yield Scenario(row, "2x", partial(hog, HogCase(hogs, counted)), quick=hogs == 1, tries=8)
