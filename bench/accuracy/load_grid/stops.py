"""Devices that stop at times: firmware and link resets on one of them, garbage collection on all alike."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from bench.accuracy.load_grid.device import Array, Random
from bench.accuracy.load_grid.grid import AFTER_HOURS, HOUR
from bench.accuracy.load_grid.load import Shape
from bench.accuracy.load_grid.scenario import QUARTER_MINUTES, SECONDS, Scenario, Windows
from bench.accuracy.load_grid.series import Device, Episode, Series, alike, assembled, names, open_loop

BUSY = 0.3
SERVICE_SECONDS = 0.006
STOP_WARM_HOURS = 4.0
STOP_FAULT_HOURS = 4.0
GC_SECONDS, GC_EVERY_SECONDS = (0.1, 0.6), 240.0
"""Pauses of garbage collection, and the mean time from one to the next."""
CONTROL_HOURS = 24.0


@dataclass(frozen=True, slots=True)
class Stop:
    """`seconds` without service from `begin` on, seconds since EPOCH."""

    member: int
    begin: float
    seconds: float


def stop_sums(shape: Shape, stops: list[Stop]) -> tuple[Array, Array]:
    """Changes that stops make: requests completed, and seconds waited by them in all, per interval (C, T).

    Requests arrive at BUSY of the device's capacity. None is served during a stop of p seconds; the backlog
    is served at full capacity for d = p BUSY / (1 - BUSY) seconds. One served y seconds after the stop's
    begin (p <= y <= p + d) arrived at x = (y - p) / BUSY and waited y - x. Stops of one member do not
    overlap.
    """
    capacity, seconds = 1.0 / SERVICE_SECONDS, shape.interval_seconds
    completed, waited = np.zeros(shape.both), np.zeros(shape.both)
    for stop in stops:
        drain = stop.seconds * BUSY / (1.0 - BUSY)
        first = int(stop.begin // seconds)
        last = int((stop.begin + stop.seconds + drain) // seconds)
        for t in range(first, min(last + 1, shape.intervals)):
            low, high = t * seconds - stop.begin, (t + 1) * seconds - stop.begin
            pause = max(min(high, stop.seconds + drain) - max(low, 0.0), 0.0)
            begin, end = max(low, stop.seconds), min(high, stop.seconds + drain)
            served = capacity * max(end - begin, 0.0)
            middle = (begin + end) / 2.0
            completed[stop.member, t] += served - capacity * BUSY * pause
            waited[stop.member, t] += served * (middle - (middle - stop.seconds) / BUSY)
    return completed, waited


def every(rng: Random, member: int, period: float, seconds: float, begin: float, end: float) -> list[Stop]:
    """Stops of one member, a period apart give or take a tenth of it."""
    count = int((end - begin) / period)
    at = begin + period * (np.arange(count) + 0.5 + 0.1 * rng.uniform(-1.0, 1.0, count))
    return [Stop(member, float(start), seconds) for start in at]


def collections(rng: Random, shape: Shape) -> list[Stop]:
    """Pauses of garbage collection, at random times and of random lengths on every member."""
    span = shape.intervals * shape.interval_seconds
    pauses = []
    for member in range(shape.members):
        gaps = 5.0 + rng.exponential(GC_EVERY_SECONDS, int(2 * span / GC_EVERY_SECONDS))
        begins = np.cumsum(gaps)
        lengths = rng.uniform(*GC_SECONDS, begins.size)
        pauses += [
            Stop(member, b, p) for b, p in zip(begins.tolist(), lengths.tolist(), strict=True) if b < span
        ]
    return pauses


@dataclass(frozen=True, slots=True)
class StopCase:
    """One of `members` stops for `seconds` every `period`; 0: none. `collects`: all collect garbage."""

    windows: Windows
    members: int
    seconds: float = 0.0
    period: float = 600.0
    collects: bool = False


def series_of(case: StopCase, rng: Random) -> Series:
    """Stops begin after STOP_WARM_HOURS and go on for STOP_FAULT_HOURS."""
    interval = case.windows.interval_seconds
    hours = STOP_WARM_HOURS + STOP_FAULT_HOURS + AFTER_HOURS if case.seconds else CONTROL_HOURS
    shape, components = Shape(case.members, round(hours * HOUR / interval), interval), names(case.members)
    stops = collections(rng, shape) if case.collects else []
    ill: list[Episode] = []
    if case.seconds:
        member = int(rng.integers(case.members))
        begin, end = STOP_WARM_HOURS * HOUR, (STOP_WARM_HOURS + STOP_FAULT_HOURS) * HOUR
        stops = [stop for stop in stops if stop.member != member or not begin <= stop.begin < end]
        stops += every(rng, member, case.period, case.seconds, begin, end)
        ill = [Episode(components[member], begin, end, 1.0)]
    busy = BUSY * np.exp(0.1 * rng.standard_normal(shape.both))
    requests = alike(shape)
    latency, counts = open_loop(rng, shape, Device("flat", 0.1), busy, requests, np.ones(shape.both))
    completed, waited = stop_sums(shape, stops)
    total = np.maximum(np.round(counts + completed), 0.0)
    waits = np.divide(1000.0 * waited, total, out=np.zeros_like(total), where=total > 0)
    latency = np.where(total > 0, latency + waits, 0.0)
    return assembled(shape, components, (latency, total), requests, ill)


def scenarios() -> Iterator[Scenario]:
    """Stops of 2 to 10 s every 5 to 20 minutes, and controls; the detector gets all loads."""
    for windows, collects in product((QUARTER_MINUTES, SECONDS), (False, True)):
        fine = windows is SECONDS
        row = f"stops/{windows.interval_seconds:g}s{'/collecting' if collects else ''}"
        control = StopCase(windows, 8 if fine else 32, collects=collects)
        make = partial(series_of, control)
        yield Scenario(row, "healthy", make, windows, quick=collects and not fine, tries=1 if fine else 4)
        for seconds, period in product((2.0, 5.0, 10.0), (300.0, 600.0, 1200.0)):
            usual = (seconds, period) == (5.0, 600.0)
            if fine and not usual and (seconds, period) not in {(2.0, 1200.0), (10.0, 300.0)}:
                continue
            case = StopCase(windows, 8, seconds, period, collects)
            column = f"{seconds:g} s every {period / 60:g} min"
            make = partial(series_of, case)
            tries = 2 if fine else 4
            yield Scenario(row, column, make, windows, quick=usual and not fine, tries=tries)
