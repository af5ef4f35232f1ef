"""The plan of one seed: the site, how long it runs, and its faults."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.simulation.disk import POLICIES
from bench.simulation.jobs import PlannedJob, planned_jobs
from bench.simulation.processes import EPOCH_NS, SECOND
from bench.simulation.record import Slow
from laggard_aggregator.jobs.rollups.rollup_pass import SETTLE_NS

DISKS = 2
NODES = 3
BATCH_SAMPLES = 3
WINDOW_SAMPLES, SHIFT_SAMPLES = 6, 4
CALM_SAMPLES = 7
"""Samples before the first fault."""

SHAPES = ((2.0, 10, 28), (6.0, 30, 24), (6.0, 30, 28), (6.0, 30, 36), (48.0, 240, 24), (48.0, 240, 32))
"""Factor of the product's periods, sampling interval in seconds, and number of samples."""

PASS_SECONDS = 480.0
"""Between two passes of the aggregator's background task."""
FLUSH_SECONDS = 60.0
"""Longest time that a row waits for the archive's next file, multiplied by the pace."""
WHOLE_SHAPE = (48.0, 240, 32)
"""That of sites with jobs, rollups and mails, which need more than an hour."""

HARMLESS = (
    {"doubled", "aggregator killed", "aggregator restarted", "aggregator lost power"},
    {"doubled", "aggregator's clock set"},
)
"""Sets of faults under which every sample comes in time for its window. An aggregator that starts with a
wrong clock needs some time until the nodes have corrected it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: when it begins, by samples since the start, for how many, whom it concerns, and how much."""

    at: float
    kind: str
    whom: str = ""
    samples: float = 0.0
    amount: float = 0.0
    detail: str = ""

    def __str__(self) -> str:
        parts = [f"{self.at:6.1f}", self.kind, self.whom, self.detail]
        parts += [f"{self.amount:g}"] if self.amount else []
        parts += [f"for {self.samples:.1f} samples"] if self.samples else []
        return " ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a seed decides before the run."""

    seed: int
    pace: float
    interval_seconds: int
    samples: int
    slow: Slow
    faults: tuple[Fault, ...] = ()
    spool_bytes: int = 1 << 20
    journal_bytes: int = 1 << 24
    snapshot_seconds: float = 60.0
    jobs: tuple[PlannedJob, ...] = ()
    """Of a site with jobs, rollups and mails."""

    @property
    def end(self) -> float:
        """Right time at which the last fault may still last, epoch seconds."""
        return EPOCH_NS / SECOND + self.samples * self.interval_seconds

    def seconds_to_settle(self, now: float) -> float:
        """Seconds after right time `now` until rollups, joins, verdicts and mails of all so far are due, by a
        right clock.
        """
        hour_ends = -(-now // 3600) * 3600 + SETTLE_NS / SECOND
        return max(hour_ends - now, self.pace * FLUSH_SECONDS) + 4 * PASS_SECONDS

    @property
    def kinds(self) -> set[str]:
        """Kinds of its faults."""
        return {fault.kind for fault in self.faults}

    @property
    def harmless(self) -> bool:
        """Whether its verdicts are those of an undisturbed run: no window waits long while it is due."""
        return any(self.kinds <= kinds for kinds in HARMLESS) and self.faults == _apart(self.faults)


@dataclass(slots=True)
class _Chance:
    rng: random.Random
    samples: int
    pace: float
    nodes: tuple[str, ...] = field(default_factory=lambda: tuple(f"oss-{n}" for n in range(1, NODES + 1)))

    def when(self) -> float:
        return self.rng.uniform(CALM_SAMPLES, self.samples - 2)

    def node(self) -> str:
        return self.rng.choice(self.nodes)

    def within(self) -> float:
        """Number of disk operations until a kill within one, 0 for a kill between two."""
        return float(self.rng.choice((0, 0, self.rng.randint(1, 30))))


def _agent_killed(c: _Chance) -> Fault:
    return Fault(c.when(), "agent killed", c.node(), c.rng.uniform(0.1, 6), c.within())


def _node_lost_power(c: _Chance) -> Fault:
    return Fault(
        c.when(), "node lost power", c.node(), c.rng.uniform(1, 8), c.within(), c.rng.choice(POLICIES)
    )


def _agent_restarted(c: _Chance) -> Fault:
    return Fault(c.when(), "agent restarted", c.node(), c.rng.uniform(0.3, 3))


def _node_clock(c: _Chance) -> Fault:
    seconds = c.rng.choice((1, -1)) * c.rng.choice((0.4, 2, 20, 300, 4000)) * min(c.pace, 10)
    return Fault(c.when(), "node's clock set", c.node(), 0, seconds)


def _node_full(c: _Chance) -> Fault:
    return Fault(c.when(), "spool's disk full", c.node(), c.rng.uniform(2, 20))


def _node_slow(c: _Chance) -> Fault:
    return Fault(c.when(), "node's disk slow", c.node(), c.rng.uniform(2, 12), 10 ** c.rng.uniform(1, 3.5))


def _aggregator_killed(c: _Chance) -> Fault:
    return Fault(c.when(), "aggregator killed", "", c.rng.uniform(0.05, 4), c.within())


def _aggregator_restarted(c: _Chance) -> Fault:
    return Fault(c.when(), "aggregator restarted", "", c.rng.uniform(0.05, 2))


def _aggregator_power(c: _Chance) -> Fault:
    return Fault(
        c.when(), "aggregator lost power", "", c.rng.uniform(0.2, 5), c.within(), c.rng.choice(POLICIES)
    )


def _aggregator_clock(c: _Chance) -> Fault:
    seconds = c.rng.choice((1, -1)) * c.rng.choice((0.5, 2, 60, 900, 7200, 90 * 86400))
    return Fault(c.when(), "aggregator's clock set", "", c.rng.choice((0, c.rng.uniform(2, 20))), seconds)


def _state_full(c: _Chance) -> Fault:
    return Fault(c.when(), "state's disk full", "", c.rng.uniform(1, 15))


def _archive_full(c: _Chance) -> Fault:
    return Fault(c.when(), "archive's disk full", "", c.rng.uniform(1, 15))


def _aggregator_slow(c: _Chance) -> Fault:
    return Fault(c.when(), "aggregator's disk slow", "", c.rng.uniform(1, 10), 10 ** c.rng.uniform(1, 3))


def _state_bit(c: _Chance) -> Fault:
    return Fault(c.when(), "bit of the state flipped", "", c.rng.uniform(0.2, 3))


def _archive_bit(c: _Chance) -> Fault:
    return Fault(c.when(), "bit of the archive flipped", "", c.rng.uniform(0.2, 3))


def _spool_bit(c: _Chance) -> Fault:
    return Fault(c.when(), "bit of the spool flipped", c.node(), c.rng.uniform(0.5, 4))


def _broker_crashed(c: _Chance) -> Fault:
    kept = c.rng.choice((0.0, c.rng.random(), 1.0))
    return Fault(c.when(), "broker crashed", "", c.rng.uniform(0.1, 12), kept)


def _broker_down(c: _Chance) -> Fault:
    return Fault(c.when(), "broker down", "", c.rng.uniform(4, 20), 1.0)


def _cut(c: _Chance) -> Fault:
    return Fault(c.when(), "connection cut", c.rng.choice((*c.nodes, "mon")), c.rng.uniform(0.05, 12))


def _silent(c: _Chance) -> Fault:
    return Fault(c.when(), "broker silent", c.node(), c.rng.uniform(0.5, 10))


def _lost(c: _Chance) -> Fault:
    return Fault(c.when(), "lost", "", c.rng.uniform(2, 20), c.rng.uniform(0.02, 0.6))


def _doubled(c: _Chance) -> Fault:
    return Fault(c.when(), "doubled", "", c.rng.uniform(2, 40), c.rng.uniform(0.05, 1))


def _delayed(c: _Chance) -> Fault:
    return Fault(c.when(), "delayed", "", c.rng.uniform(2, 30), c.rng.uniform(0.05, 0.8))


def _mail_down(c: _Chance) -> Fault:
    return Fault(c.when(), "mail server down", "", c.rng.uniform(1, 10))


def _mail_unconfirmed(c: _Chance) -> Fault:
    return Fault(c.when(), "mails unconfirmed", "", c.rng.uniform(2, 20), c.rng.uniform(0.2, 0.8))


def _sacct_fails(c: _Chance) -> Fault:
    return Fault(c.when(), "sacct fails", "", c.rng.uniform(1, 8))


def _unconfirmed(c: _Chance) -> Fault:
    return Fault(c.when(), "unconfirmed", "", c.rng.uniform(2, 15), c.rng.uniform(0.05, 0.5))


FAULTS: tuple[Callable[[_Chance], Fault], ...] = (
    _agent_killed,
    _node_lost_power,
    _agent_restarted,
    _node_clock,
    _node_full,
    _node_slow,
    _aggregator_killed,
    _aggregator_restarted,
    _aggregator_power,
    _aggregator_clock,
    _state_full,
    _archive_full,
    _aggregator_slow,
    _state_bit,
    _archive_bit,
    _spool_bit,
    _broker_crashed,
    _broker_down,
    _cut,
    _silent,
    _lost,
    _doubled,
    _delayed,
    _unconfirmed,
)
_OF_WHOLE = (_mail_down, _mail_unconfirmed, _sacct_fails)
_HARMLESS = (
    (_doubled, _aggregator_killed, _aggregator_restarted, _aggregator_power),
    (_doubled, _aggregator_clock),
)


def _apart(faults: Sequence[Fault]) -> tuple[Fault, ...]:
    """The faults without ends of the aggregator that are long, or follow an earlier one soon."""
    kept: list[Fault] = []
    ended = -10.0
    for fault in faults:
        if fault.kind.startswith("aggregator ") and (fault.samples > 2 or fault.at < ended + 10):
            continue
        ended = fault.at if fault.kind.startswith("aggregator ") else ended
        kept.append(fault)
    return tuple(kept)


def plan_of(seed: int) -> Plan:
    """The plan of a seed; every eighth has harmless faults only, every sixteenth jobs, rollups and mails."""
    rng = random.Random(f"plan/{seed}")
    pace, interval, samples = rng.choice(SHAPES)
    whole = seed % 16 == 1
    if whole:
        pace, interval, samples = WHOLE_SHAPE
    chance = _Chance(rng, samples, pace)
    known = _HARMLESS[seed // 8 % len(_HARMLESS)] if seed % 8 == 0 else FAULTS
    kinds = rng.sample(known, min(rng.randint(1, 5), len(known)))
    faults = [rng.choice(kinds)(chance) for _ in range(rng.randint(2, 9))]
    faults += [rng.choice(_OF_WHOLE)(chance) for _ in range(rng.randint(0, 3) if whole else 0)]
    faults.sort(key=lambda fault: fault.at)
    component = f"{chance.node()}/disk{rng.randrange(DISKS)}"
    first = 1_800_000_000 // interval + rng.randint(7, samples // 2)
    return Plan(
        seed=seed,
        pace=pace,
        interval_seconds=interval,
        samples=samples,
        slow=Slow(component, first, first + rng.randint(samples // 4, samples)),
        faults=_apart(faults) if seed % 8 == 0 else tuple(faults),
        spool_bytes=rng.choice((1536, 1 << 20, 1 << 20)),
        journal_bytes=rng.choice((40_000, 1 << 24, 1 << 24)),
        snapshot_seconds=pace * rng.choice((30.0, 60.0, 120.0)),
        jobs=planned_jobs(rng, chance.nodes, samples * interval) if whole else (),
    )
