"""Series of jobs with known phases, one row a second. Shares nothing with the analysis.

Each kind draws lengths, levels, noise, floors and pauses from wide ranges. A phase covers the rows in
which its program moves data; the floor is the background that goes on all the time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Span = tuple[int, int]
MIB = 2.0**20


@dataclass(slots=True)
class GeneratedJob:
    """One job: rows, amounts and true spans by direction. NaN: the row is missing.

    `unseen`: spans of which a third of the rows or more are missing; to find them is neither right nor wrong.
    """

    kind: str
    rows: int
    amounts: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    spans: dict[str, list[Span]] = field(default_factory=dict)
    unseen: dict[str, list[Span]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for direction in ("read", "write", "metadata"):
            self.amounts[direction] = np.zeros(self.rows)
            self.spans[direction] = []
            self.unseen[direction] = []

    def add(self, direction: str, first: int, shape: NDArray[np.float64]) -> None:
        """Adds a phase of `shape` at row `first`."""
        self.amounts[direction][first : first + shape.size] += shape
        self.spans[direction].append((first, first + shape.size))


Rng = np.random.Generator


def log_uniform(rng: Rng, low: float, high: float) -> float:
    """A number between `low` and `high`, each factor equally likely."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def noise(rng: Rng, length: int, spread: float) -> NDArray[np.float64]:
    """Multiplicative noise of mean 1, partly correlated from row to row, white, gamma or normal."""
    form = rng.integers(3)
    if form == 0:
        return np.maximum(1 + spread * rng.standard_normal(length), 0.05)
    if form == 1:
        return rng.gamma(1 / spread**2, spread**2, length) + 0.02
    steps = rng.standard_normal(length) * spread
    for i in range(1, length):
        steps[i] = 0.7 * steps[i - 1] + 0.71 * steps[i]
    return np.exp(steps - spread**2 / 2)


def burst(rng: Rng, length: int, level: float, spread: float) -> NDArray[np.float64]:
    """A plateau whose first and last rows are partly filled."""
    shape = level * noise(rng, length, spread)
    shape[0] *= rng.uniform(0.3, 1)
    shape[-1] *= rng.uniform(0.3, 1)
    return shape


def floor(rng: Rng, rows: int, level: float) -> NDArray[np.float64]:
    """Background: steady, gamma, sparse blips, or a slow drift around `level`."""
    form = rng.integers(4)
    if form == 0:
        return np.maximum(level * (1 + 0.3 * rng.standard_normal(rows)), 0)
    if form == 1:
        return rng.gamma(1.0, level, rows)
    if form == 2:
        return np.where(rng.random(rows) < rng.uniform(0.02, 0.3), rng.gamma(2.0, level, rows), 0.0)
    drift = 1 + 0.5 * np.sin(np.linspace(0, rng.uniform(2, 9), rows) + rng.uniform(0, 6))
    return level * drift * rng.gamma(4.0, 0.25, rows)


def checkpoint(rng: Rng) -> GeneratedJob:
    """Bursts of writes at a period, after an input phase."""
    length = int(log_uniform(rng, 6, 120))
    period = length + int(log_uniform(rng, 20, 900))
    count = int(rng.integers(3, 20))
    job = GeneratedJob("checkpoints", 120 + period * count)
    level, spread = log_uniform(rng, 5, 20_000) * MIB, rng.uniform(0.05, 0.5)
    job.add("read", int(rng.integers(2, 20)), burst(rng, int(rng.integers(10, 60)), level * 0.5, 0.2))
    for i in range(count):
        first = 100 + i * period + int(rng.integers(0, max((period - length) // 4, 1)))
        job.add(
            "write",
            first,
            burst(rng, max(int(length * rng.uniform(0.8, 1.25)), 3), level * rng.uniform(0.6, 1.4), spread),
        )
    return job


def streaming(rng: Rng) -> GeneratedJob:
    """One to three long phases with correlated noise and stalls of a second or two."""
    job = GeneratedJob("streaming", int(log_uniform(rng, 900, 8000)))
    count = int(rng.integers(1, 4))
    part = job.rows // count
    level = log_uniform(rng, 1, 5000) * MIB
    for i in range(count):
        length = int(part * rng.uniform(0.3, 0.85))
        first = i * part + int(rng.integers(10, max(part - length - 10, 11)))
        shape = burst(rng, length, level * rng.uniform(0.3, 1), rng.uniform(0.1, 0.6))
        for at in rng.integers(1, length - 3, int(rng.integers(0, 1 + length // 100))):
            shape[at : at + int(rng.integers(1, 3))] = 0
        job.add(str(rng.choice(["read", "write"])), first, shape)
    return job


def ramps(rng: Rng) -> GeneratedJob:
    """Phases that rise or fall over a part of their length, straight or bent."""
    count = int(rng.integers(2, 9))
    length = int(log_uniform(rng, 30, 300))
    part = length + int(log_uniform(rng, 30, 300))
    job = GeneratedJob("ramps", 50 + count * part)
    level, spread = log_uniform(rng, 20, 5000) * MIB, rng.uniform(0.05, 0.3)
    floor_level = level * log_uniform(rng, 1e-4, 5e-3)
    for i in range(count):
        envelope = np.ones(length)
        bend = rng.uniform(0.6, 1.6)
        if rise := int(length * rng.choice([0, 0.2, 0.5, 1.0])):
            envelope[:rise] *= (np.arange(1, rise + 1) / rise) ** bend
        elif fall := int(length * rng.choice([0.2, 0.5])):
            envelope[-fall:] *= (np.arange(fall, 0, -1) / fall) ** bend
        first = 30 + i * part + int(rng.integers(0, part - length - 10))
        job.add("write", first, level * envelope * noise(rng, length, spread))
    if rng.random() < 0.5:
        job.amounts["write"] += floor(rng, job.rows, floor_level)
    return job


def floors(rng: Rng) -> GeneratedJob:
    """Bursts above a background of up to a fifth of their level; the other direction is background alone."""
    length = int(log_uniform(rng, 8, 200))
    part = length + int(log_uniform(rng, 20, 400))
    count = int(rng.integers(2, 15))
    job = GeneratedJob("noise floors", 60 + count * part)
    level = log_uniform(rng, 10, 10_000) * MIB
    ratio = log_uniform(rng, 1e-3, 0.2)
    for i in range(count):
        first = 40 + i * part + int(rng.integers(0, part - length - 8))
        job.add("write", first, burst(rng, length, level * rng.uniform(0.7, 1.5), rng.uniform(0.05, 0.4)))
    job.amounts["write"] += floor(rng, job.rows, level * ratio)
    job.amounts["read"] += floor(rng, job.rows, min(level * log_uniform(rng, 1e-4, 5e-3), 0.2 * MIB))
    job.amounts["metadata"] += rng.poisson(rng.uniform(0.1, 5), job.rows)
    return job


def many_short(rng: Rng) -> GeneratedJob:
    """Tens to hundreds of phases of 3 to 10 s, with pauses of 5 s and more."""
    count = int(rng.integers(20, 200))
    job = GeneratedJob("many short", count * 40 + 60)
    direction = str(rng.choice(["read", "write"]))
    level, spread = log_uniform(rng, 5, 5000) * MIB, rng.uniform(0.05, 0.5)
    longest, pause = int(rng.integers(4, 11)), int(rng.integers(5, 20))
    at = 20
    for _ in range(count):
        length = int(rng.integers(3, longest + 1))
        job.add(direction, at, burst(rng, length, level * rng.uniform(0.5, 1.5), spread))
        at += length + pause + int(rng.integers(0, 10))
    job.amounts = {name: values[: at + 10] for name, values in job.amounts.items()}
    job.rows = at + 10
    if rng.random() < 0.4:
        job.amounts[direction] += floor(rng, job.rows, level * log_uniform(rng, 1e-3, 0.03))
    return job


def overlapping(rng: Rng) -> GeneratedJob:
    """Phases of reading and writing at the same time, at their own levels."""
    job = GeneratedJob("overlapping", int(rng.integers(600, 4000)))
    for direction in ("read", "write"):
        level, at = log_uniform(rng, 5, 5000) * MIB, int(rng.integers(5, 60))
        while True:
            length = int(log_uniform(rng, 10, 300))
            if at + length > job.rows - 5:
                break
            job.add(direction, at, burst(rng, length, level * rng.uniform(0.4, 2), rng.uniform(0.05, 0.5)))
            at += length + int(log_uniform(rng, 12, 200))
        if rng.random() < 0.5:
            job.amounts[direction] += floor(rng, job.rows, level * log_uniform(rng, 1e-4, 0.02))
    return job


def storms(rng: Rng) -> GeneratedJob:
    """Metadata operations in storms above a background of a few a second."""
    count = int(rng.integers(1, 15))
    job = GeneratedJob("metadata storms", 100 + count * int(rng.integers(80, 600)))
    part = (job.rows - 60) // count
    background = log_uniform(rng, 0.2, 20)
    level = max(log_uniform(rng, 50, 10_000), background * 12)
    for i in range(count):
        length = int(log_uniform(rng, 5, max(part * 0.7, 6)))
        first = 30 + i * part + int(rng.integers(0, max(part - length - 8, 1)))
        rate = level * rng.uniform(0.5, 1.5) * noise(rng, length, rng.uniform(0.05, 0.4))
        job.add("metadata", first, rng.poisson(rate).astype(np.float64))
    job.amounts["metadata"] += rng.poisson(background, job.rows)
    return job


def levels(rng: Rng) -> GeneratedJob:
    """Phases of one job at levels up to thirty times apart."""
    job = GeneratedJob("different levels", int(rng.integers(800, 5000)))
    top, at = log_uniform(rng, 100, 10_000) * MIB, int(rng.integers(5, 60))
    while True:
        length = int(log_uniform(rng, 8, 250))
        if at + length > job.rows - 5:
            break
        job.add("read", at, burst(rng, length, top * log_uniform(rng, 1 / 30, 1), rng.uniform(0.05, 0.4)))
        at += length + int(log_uniform(rng, 15, 250))
    return job


def buffered(rng: Rng) -> GeneratedJob:
    """Phases in which the page cache writes back every second row, so that rows alternate."""
    job = GeneratedJob("write-back", int(rng.integers(600, 4000)))
    level, at = log_uniform(rng, 5, 2000) * MIB, int(rng.integers(5, 60))
    while True:
        length = int(log_uniform(rng, 16, 200))
        if at + length > job.rows - 5:
            break
        shape = burst(rng, length, level, 0.2)
        shape[1::2] *= rng.uniform(0.0, 0.2)
        shape[-1] = level
        job.add("write", at, shape)
        at += length + int(log_uniform(rng, 20, 200))
    return job


KINDS: tuple[Callable[[Rng], GeneratedJob], ...] = (
    checkpoint, streaming, ramps, floors, many_short, overlapping, storms, levels, buffered,
)  # fmt: skip


def with_gaps(rng: Rng, job: GeneratedJob, share: float) -> GeneratedJob:
    """A copy in which `share` of the rows are missing, single ones or stretches of up to 10.

    Phases of which a third of the rows or more are missing are no truth: nobody can see their edges.
    """
    missing = np.zeros(job.rows, np.bool_)
    longest = int(rng.choice([1, 3, 10]))
    while missing.mean() < share:
        first = int(rng.integers(0, job.rows))
        missing[first : first + int(rng.integers(1, longest + 1))] = True
    gapped = GeneratedJob(job.kind, job.rows)
    for name, spans in job.spans.items():
        for first, past in spans:
            seen = missing[first:past].mean() < 1 / 3
            (gapped.spans if seen else gapped.unseen)[name].append((first, past))
    gapped.amounts = {name: np.where(missing, np.nan, values) for name, values in job.amounts.items()}
    return gapped
