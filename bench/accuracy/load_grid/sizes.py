"""Requests of different sizes and mixes of reads and writes, by jobs, by member, and in bursts."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from bench.accuracy.load_grid.device import DISK, FLASH, MOST_BUSY, Array, Random, Service, wander
from bench.accuracy.load_grid.grid import AFTER_HOURS, CONTROL_HOURS, FAULT_HOURS, HOUR, WARM_HOURS
from bench.accuracy.load_grid.load import BACKGROUND, BURST_SHARE, OPEN_LOADS, Shape, bursts, jobs
from bench.accuracy.load_grid.scenario import HALF_MINUTES, Scenario
from bench.accuracy.load_grid.series import (
    Device,
    Episode,
    Requests,
    Series,
    assembled,
    episode_factors,
    names,
    open_loop,
    requests_of,
)

KIB, MIB = 1024.0, 1024.0**2
SMALLEST, LARGEST = 4 * KIB, 4 * MIB
SERVICES = {"disk": DISK, "flash": FLASH}
DISKS = 24
"""Members of the group with I/O now and then."""
BURST_FAULT_HOURS = 4.0
NOISE = 0.06
"""Log-deviation of the mean of an interval."""
MIN_BUSY = 40
"""Intervals with I/O that the fault of such a member lasts, if any member has so many."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """Utilisation (C, T) and the requests that make it."""

    busy: Array
    requests: Requests


def any_size(rng: Random) -> float:
    """A power of two from SMALLEST to LARGEST, bytes."""
    return float(SMALLEST * 2.0 ** rng.integers(0, 11))


def any_mix(rng: Random) -> float:
    """A share of reads: mostly reads, mostly writes, or both."""
    return float(rng.choice([0.0, 0.1, 0.5, 0.9, 1.0]))


class _Streams:
    """Streams of requests that add up on the members, each of its own size and share of reads."""

    def __init__(self, shape: Shape, service: Service) -> None:
        self._service = service
        self.busy, self._rate, self._bytes, self._reads = (np.zeros(shape.both) for _ in range(4))

    def add(self, place: tuple[int, slice], busy: Array, size: float, read_share: float) -> None:
        """Adds a stream of utilisation `busy` to a member's columns."""
        seconds = self._service.seconds(np.array(size), np.array(read_share))
        rate = busy / seconds
        self.busy[place] += busy
        self._rate[place] += rate
        self._bytes[place] += rate * size
        self._reads[place] += rate * read_share

    def mixed(self) -> Mixed:
        """All streams together, at most MOST_BUSY; a member without any keeps zeros."""

        def per_request(total: Array) -> Array:
            return np.divide(total, self._rate, out=np.zeros_like(total), where=self._rate > 0)

        idle = self._rate == 0
        seconds = np.where(idle, 1.0, per_request(self.busy))
        requests = Requests(per_request(self._bytes), per_request(self._reads), seconds)
        return Mixed(np.minimum(self.busy, MOST_BUSY), requests)


def by_jobs(rng: Random, shape: Shape, service: Service) -> Mixed:
    """Each job has its size and share of reads; a background of small ones is always there."""
    streams = _Streams(shape, service)
    whole = slice(0, shape.intervals)
    for member in range(shape.members):
        streams.add((member, whole), np.full(shape.intervals, BACKGROUND), 16 * KIB, 0.7)
    for job in jobs(rng, shape):
        size, reads = any_size(rng), any_mix(rng)
        pace = np.exp(0.2 * wander(rng, (1, job.end - job.begin), shape.steps(300.0)))[0]
        for member in job.members:
            streams.add((member, slice(job.begin, job.end)), rng.uniform(0.1, 0.5) * pace, size, reads)
    return streams.mixed()


def by_member(rng: Random, shape: Shape, service: Service) -> Mixed:
    """Each member its own size, evenly from SMALLEST to LARGEST, and its own share of reads; loads wander."""
    exponents = rng.permutation(np.linspace(0.0, 1.0, shape.members))
    sizes = SMALLEST * (LARGEST / SMALLEST) ** exponents
    reads = np.array([any_mix(rng) for _ in range(shape.members)])
    wide = np.ones(shape.both)
    busy = OPEN_LOADS["open"](rng, shape)
    return Mixed(busy, requests_of(service, sizes[:, None] * wide, reads[:, None] * wide))


def now_and_then(rng: Random, shape: Shape, service: Service, *, mixes: bool) -> Mixed:
    """I/O in bursts alone; with `mixes` each burst has its own size and share of reads."""
    busy = bursts(rng, shape, BURST_SHARE)
    streams = _Streams(shape, service)
    for member in range(shape.members):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], busy[member] > 0, [0]])))
        for first, last in edges.reshape(-1, 2):
            size, reads = (any_size(rng), any_mix(rng)) if mixes else (64 * KIB, 0.5)
            streams.add((member, slice(first, last)), busy[member, first:last], size, reads)
    return streams.mixed()


@dataclass(frozen=True, slots=True)
class SizesCase:
    """`kind`: jobs, member, bursts or mixed bursts; `factor` 1.0: nobody is ill."""

    kind: str
    service: str
    curve: str
    members: int
    factor: float
    noise: float = NOISE

    @property
    def fault_hours(self) -> float:
        """Length of the fault."""
        return BURST_FAULT_HOURS if "bursts" in self.kind else FAULT_HOURS


def series_of(case: SizesCase, rng: Random) -> Series:
    """One member is ill after WARM_HOURS, with I/O in at least MIN_BUSY intervals of the fault if any has."""
    hours = CONTROL_HOURS if case.factor == 1.0 else WARM_HOURS + case.fault_hours + AFTER_HOURS
    interval = HALF_MINUTES.interval_seconds
    shape, service = Shape(case.members, round(hours * HOUR / interval), interval), SERVICES[case.service]
    if case.kind == "jobs":
        mixed = by_jobs(rng, shape, service)
    elif case.kind == "member":
        mixed = by_member(rng, shape, service)
    else:
        mixed = now_and_then(rng, shape, service, mixes=case.kind == "mixed bursts")
    components = names(case.members)
    ill: tuple[Episode, ...] = ()
    if case.factor != 1.0:
        begin, end = WARM_HOURS * HOUR, (WARM_HOURS + case.fault_hours) * HOUR
        first, last = (round(shape.steps(seconds)) for seconds in (begin, end))
        busy = (mixed.busy[:, first:last] > 0).sum(axis=1)
        fit = np.flatnonzero(busy >= min(MIN_BUSY, int(busy.max())))
        ill = (Episode(components[int(rng.choice(fit))], begin, end, case.factor),)
    factors = episode_factors(components, shape, ill)
    device = Device(case.curve, case.noise)
    latency_and_counts = open_loop(rng, shape, device, mixed.busy, mixed.requests, factors)
    return assembled(shape, components, latency_and_counts, mixed.requests, ill)


def scenarios() -> Iterator[Scenario]:
    """Sizes by jobs and by member, and I/O now and then; the detector gets all loads."""
    for kind, service, curve, factor in product(
        ("jobs", "member"), SERVICES, ("flat", "mm1"), (1.0, 2.0, 3.0, 6.0)
    ):
        for members in (8, 16):
            case = SizesCase(kind, service, curve, members, factor)
            quick = members == 16 and service == "disk" and factor in {1.0, 2.0, 3.0}
            yield _scenario("sizes", case, tries=12 if factor == 1.0 else 4, quick=quick)
    for kind, curve, factor in product(("bursts", "mixed bursts"), ("flat", "mm1"), (1.0, 2.0, 3.0, 6.0)):
        case = SizesCase(kind, "disk", curve, DISKS, factor)
        yield _scenario("now and then", case, tries=12 if factor == 1.0 else 8, quick=factor in {1.0, 3.0})


def _scenario(kind: str, case: SizesCase, *, tries: int, quick: bool) -> Scenario:
    row = f"{kind}/{case.kind}/{case.service}/{case.curve}/{case.members}"
    column = "healthy" if case.factor == 1.0 else f"{case.factor:g}x"
    return Scenario(row, column, partial(series_of, case), quick=quick, tries=tries)
