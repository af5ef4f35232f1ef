"""Loads: who asks which members for how much.

An open load sends requests whether or not earlier ones are done (Poisson); the threads of a closed load wait
for their own.
"""

from dataclasses import dataclass, field

import numpy as np

from bench.accuracy.queues.device import (
    CACHED_DISK,
    DISK,
    KIB,
    MIB,
    NVME,
    REORDERING_DISK,
    RequestMix,
    StorageDevice,
)

LOADS = ("common", "jobs", "stripe", "skew", "sizes", "hetero", "nvme", "cache", "closed")

OPEN_USE_LIMIT = 0.5
"""No healthy member is used more by open loads: beyond 1 its queue would grow for ever."""

DEVICES = {
    "nvme": NVME,
    "cache": CACHED_DISK,
    "jobs": REORDERING_DISK,
    "stripe": REORDERING_DISK,
    "closed": REORDERING_DISK,
}
"""The devices of loads that do not run on `DISK`."""

LEAST_THINK_MS = {"jobs": 1.0, "cache": 10.0}
"""Of threads that hardly think; a cache would take millions of requests of theirs."""

SMALL = (4 * KIB, 16 * KIB, 64 * KIB)
SIZES = ((4 * KIB,), (64 * KIB,), (1 * MIB,), (4 * KIB, 64 * KIB, 1 * MIB))
LARGER_SIZES = (*SIZES, (4 * MIB,))


@dataclass(frozen=True, slots=True)
class OpenLoad:
    """Poisson arrivals: `rates_per_s[k]` at `members[k]` within each of the `periods_s` (begin, end)."""

    members: tuple[int, ...]
    rates_per_s: tuple[float, ...]
    mix: RequestMix
    periods_s: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class ClosedLoad:
    """Threads that send `width` requests, wait for the last of them, think (exponential), and repeat.

    A striped load goes round its members; another picks each at random.
    """

    members: tuple[int, ...]
    threads: int
    width: int
    striped: bool
    think_ms: float
    mix: RequestMix
    begin_s: float
    end_s: float


@dataclass(slots=True)
class LoadPlan:
    """All loads on `members` devices of one kind for `seconds`."""

    device: StorageDevice
    members: int
    seconds: int
    open_loads: list[OpenLoad] = field(default_factory=list)
    closed_loads: list[ClosedLoad] = field(default_factory=list)

    @property
    def needs_events(self) -> bool:
        """Whether a request's time depends on more than the requests before it at its device."""
        return bool(self.closed_loads or self.device.cache_bytes or self.device.reordering)

    def open_use(self, member: int, second: float) -> float:
        """The share of time that open loads use a healthy member then."""
        return sum(
            load.rates_per_s[load.members.index(member)] * load.mix.mean_service_ms(self.device) / 1e3
            for load in self.open_loads
            if member in load.members and any(begin <= second < end for begin, end in load.periods_s)
        )

    def add_open(
        self, members: list[int], uses: list[float], mix: RequestMix, *periods: tuple[float, float]
    ) -> None:
        """Adds an open load that uses healthy `members` for the shares `uses` of time."""
        per_s = 1e3 / mix.mean_service_ms(self.device)
        rates = tuple(use * per_s for use in uses)
        self.open_loads.append(OpenLoad(tuple(members), rates, mix, periods or ((0.0, self.seconds),)))


def load_plan(kind: str, members: int, seconds: int, generator: np.random.Generator) -> LoadPlan:
    """Returns the loads of `kind`, one of `LOADS`."""
    device = DEVICES.get(kind, DISK)
    plan = LoadPlan(device, members, seconds)
    everyone = list(range(members))
    if kind == "common":
        plan.add_open(everyone, [0.3] * members, RequestMix((64 * KIB,), 0.6))
    elif kind == "skew":
        uses = 0.55 * generator.uniform(0.1, 1, members) ** 1.2
        plan.add_open(everyone, uses.tolist(), RequestMix((64 * KIB,), 0.6))
    elif kind == "hetero":
        half = members // 2
        plan.add_open(everyone[:half], [0.2] * half, RequestMix((4 * KIB,), 1.0))
        plan.add_open(everyone[half:], [0.25] * (members - half), RequestMix((1 * MIB,), 0.0))
    elif kind == "nvme":
        rates = 10 ** generator.uniform(-1, 1.7, members)
        mix = RequestMix((4 * KIB,), 0.7)
        plan.open_loads.append(OpenLoad(tuple(everyone), tuple(rates.tolist()), mix, ((0.0, seconds),)))
    elif kind == "closed":
        mix = RequestMix((64 * KIB,), 0.6)
        plan.closed_loads.append(ClosedLoad(tuple(everyone), 2 * members, 1, True, 40.0, mix, 0.0, seconds))
    elif kind == "sizes":
        _sizes(plan, generator)
    elif kind == "stripe":
        _stripes(plan, generator)
    else:
        _jobs(plan, generator, LEAST_THINK_MS[kind])
    return plan


def _jobs(plan: LoadPlan, generator: np.random.Generator, least_think_ms: float) -> None:
    """Jobs of minutes to hours, each on an eighth to half of the members, beside a little of everyone's."""
    plan.add_open(list(range(plan.members)), [0.03] * plan.members, RequestMix(SMALL, 0.6))
    begin = generator.exponential(900.0)
    while begin < plan.seconds:
        members = _some(plan.members, float(generator.choice([0.125, 0.25, 0.5])), generator)
        end = min(plan.seconds, begin + generator.exponential(2400.0) + 120.0)
        mix = RequestMix(SIZES[generator.integers(len(SIZES))], float(generator.choice([0.0, 0.5, 0.9, 1.0])))
        use, is_open = generator.uniform(0.05, 0.35), generator.random() < 0.5
        threads, think_ms = (
            len(members) * int(generator.integers(1, 3)),
            float(generator.choice([least_think_ms, 20.0, 60.0])),
        )
        if is_open:
            members = [member for member in members if plan.open_use(member, begin) + use < OPEN_USE_LIMIT]
            plan.add_open(members, [use] * len(members), mix, (begin, end))
        else:
            plan.closed_loads.append(ClosedLoad(tuple(members), threads, 1, False, think_ms, mix, begin, end))
        begin += generator.exponential(900.0)


def _stripes(plan: LoadPlan, generator: np.random.Generator) -> None:
    """Jobs whose every operation waits for the slowest of the members of its stripe."""
    plan.add_open(list(range(plan.members)), [0.03] * plan.members, RequestMix(SMALL, 0.6))
    begin = generator.exponential(1200.0)
    while begin < plan.seconds:
        members = _some(plan.members, float(generator.choice([0.25, 0.5, 1.0])), generator)
        end = min(plan.seconds, begin + generator.exponential(2400.0) + 120.0)
        mix = RequestMix(SIZES[generator.integers(1, 3)], float(generator.choice([0.0, 0.5, 1.0])))
        threads, think_ms = int(generator.choice([1, 2, 4])), float(generator.choice([10.0, 50.0]))
        width = min(len(members), 4)
        plan.closed_loads.append(ClosedLoad(tuple(members), threads, width, True, think_ms, mix, begin, end))
        begin += generator.exponential(1200.0)


def _sizes(plan: LoadPlan, generator: np.random.Generator) -> None:
    """Loads of different request sizes, each on a third of the members, some of them on and off."""
    plan.add_open(list(range(plan.members)), [0.03] * plan.members, RequestMix(SMALL, 0.6))
    for _ in range(max(4, plan.members // 2)):
        members = _some(plan.members, 1 / 3, generator)
        mix = RequestMix(LARGER_SIZES[generator.integers(len(LARGER_SIZES))], generator.random())
        use, on_s = generator.uniform(0.02, 0.12), float(generator.choice([0.0, 600.0, 1800.0]))
        periods = _on_and_off(plan.seconds, on_s, 1200.0, generator) if on_s else []
        plan.add_open(members, [use] * len(members), mix, *periods)


def _some(members: int, share: float, generator: np.random.Generator) -> list[int]:
    """Returns random members, two at least, in random order."""
    return [int(k) for k in generator.choice(members, max(2, int(members * share)), replace=False)]


def _on_and_off(
    seconds: int, on_s: float, off_s: float, generator: np.random.Generator
) -> list[tuple[float, float]]:
    """Returns periods (begin, end) in seconds, their lengths and the pauses between them exponential."""
    periods: list[tuple[float, float]] = []
    begin = 0.0
    while begin < seconds:
        end = min(seconds, begin + generator.exponential(on_s))
        periods.append((begin, end))
        begin = end + generator.exponential(off_s)
    return periods
