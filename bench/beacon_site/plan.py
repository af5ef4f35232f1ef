"""Who runs where and when, and what is made slow: drawn before anything runs, from one seed.

Each lane begins one run a wave. After the waves of the warm-up, in which every application gets its history,
one or two causes are injected a wave, each with a run that it is meant for. Others on its path are slowed
too; `truth` tells them by a second simulation without causes.
"""

import math
import random
from dataclasses import dataclass, field, replace

from bench.beacon_site.shape import MIB, Hardware, Shape

KINDS = (
    "slow OST",
    "slow forwarder",
    "N-1 neighbour",
    "metadata flood of a job",
    "metadata flood of a login node",
    "IOPS neighbour",
    "own request size",
    "own mode",
    "slow compute node",
)
_PART = {
    "slow OST": "data",
    "slow forwarder": "data",
    "N-1 neighbour": "data",
    "IOPS neighbour": "data",
    "metadata flood of a job": "metadata",
    "metadata flood of a login node": "metadata",
    "own request size": "job",
    "own mode": "job",
    "slow compute node": "job",
}
"""Of the site, on which a kind acts."""
_LASTING = {"slow OST": 2, "slow forwarder": 2}
"""Waves, where not one."""


@dataclass(frozen=True, slots=True)
class Application:
    """What a run does: `cycles` times compute, then metadata operations, then data, on each node."""

    name: str
    user: str
    account: str
    mdt: int
    cycles: int
    compute_seconds: float
    metadata_operations: int = 32
    read_bytes: int = 0
    written_bytes: int = 0
    reads_once: bool = False
    request_bytes: int = MIB
    processes: int = 2
    shared_file: bool = False
    stripes: int = 4


@dataclass(frozen=True, slots=True)
class Run:
    """One job. `lane` is half a forwarder. `wave`: in which it begins, `delay` seconds later.

    `noisy`: it is there only to slow others, and left out without causes. `usual`: as it runs without causes,
    where its own change is the cause.
    """

    number: int
    application: Application
    lane: int
    wave: int
    delay: float
    osts: tuple[int, ...]
    volume: float = 1.0
    noisy: bool = False
    usual: Application | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause that was injected. `target`: number of the OST, forwarder, node or MDT that is slow or loaded;
    `run`: number of the job that is the cause, or whose own change it is; `victim`: the run that it is for.
    `first` to `last`: its waves. `factor`: times slower; `login`, `processes`: of a flooding login node.
    """

    kind: str
    victim: int
    first: int
    last: int
    target: int | None = None
    run: int | None = None
    factor: float = 1.0
    processes: int = 0
    login: int | None = None


@dataclass(slots=True)
class Plan:
    """Runs in the order of their numbers, and causes."""

    shape: Shape
    seed: int
    waves: int
    runs: list[Run] = field(default_factory=list)
    causes: list[Cause] = field(default_factory=list)


def applications(shape: Shape) -> tuple[Application, ...]:
    """The applications with a history."""
    scale = shape.wave_seconds / 1500
    cycles = max(round(5 * math.sqrt(scale)), 3)
    compute = 100.0 * scale * 5 / cycles
    stretch = scale * 5 / cycles
    gib = round(1024 * MIB * stretch)
    files = round(90_000 * stretch)

    def made(name: str, user: str, mdt: int, **kinds: object) -> Application:
        return Application(name, user, f"p_{user}", mdt, cycles, compute, **kinds)  # type: ignore[arg-type]

    return (
        made("wrf", "ann", 0, written_bytes=8 * gib),
        made("cfd", "bo", 1, written_bytes=6 * gib, read_bytes=6 * gib, reads_once=True),
        made("qcd", "cy", 0, written_bytes=4 * gib, read_bytes=4 * gib),
        made("cesm", "dee", 1, written_bytes=7 * gib, stripes=3),
        made("genome", "ed", 0, read_bytes=2 * gib, metadata_operations=files),
        made("train", "flo", 1, read_bytes=3 * gib, metadata_operations=files),
    )


def make_plan(shape: Shape, seed: int, parts: Hardware) -> Plan:
    """The plan of a site; the same seed gives the same plan."""
    drawn = random.Random(seed)
    usual = applications(shape)
    pairs = _paired(shape, drawn)
    plan = Plan(shape, seed, shape.warm_up_waves + len(pairs) + 1)
    lanes = 2 * (shape.forwarders - 1)
    for wave in range(plan.waves):
        order = [usual[i % len(usual)] for i in range(lanes)]
        drawn.shuffle(order)
        begun = {lane: _run(plan, drawn, order[lane], lane, wave) for lane in range(lanes)}
        at = wave - shape.warm_up_waves
        kinds = pairs[at] if 0 <= at < len(pairs) else ()
        quiet = any(kind in ("IOPS neighbour", "metadata flood of a job") for kind in kinds)
        taken: set[int] = set()
        for kind in kinds:
            _inject(plan, drawn, parts, kind, begun, taken)
        if not quiet and drawn.random() < 0.75:
            begun[lanes] = _run(plan, drawn, _shared_file_job(shape, parts), lanes, wave)
        plan.runs += [begun[lane] for lane in sorted(begun)]
    plan.runs.sort(key=lambda run: run.number)
    return plan


def _paired(shape: Shape, drawn: random.Random) -> list[tuple[str, ...]]:
    """Kinds of the waves after the warm-up, each kind `repeats` times: two at once of different parts of the
    site, and while a component stays slow for a second wave none that acts on the same parts.
    """
    left = [kind for kind in KINDS for _ in range(shape.repeats)]
    drawn.shuffle(left)
    waves: list[tuple[str, ...]] = []
    busy: set[str] = set()
    while left:
        wave: list[str] = []
        for kind in list(left):
            parts = {_PART[other] for other in wave} | busy
            if len(wave) < 2 and not (_PART[kind] in parts and _PART[kind] != "job"):
                wave.append(kind)
                left.remove(kind)
        waves.append(tuple(wave))
        busy = {"data"} if any(kind in _LASTING for kind in wave) else set()
    return waves


def _run(
    plan: Plan, drawn: random.Random, application: Application, lane: int, wave: int, **changes: object
) -> Run:
    number = 1000 + 64 * wave + lane
    osts = tuple(sorted(drawn.sample(range(plan.shape.osts), application.stripes)))
    volume = drawn.uniform(0.95, 1.05)
    made = Run(number, application, lane, wave, drawn.uniform(5.0, 90.0), osts, volume)
    return replace(made, **changes)  # type: ignore[arg-type]


def _inject(
    plan: Plan, drawn: random.Random, parts: Hardware, kind: str, begun: dict[int, Run], taken: set[int]
) -> None:
    """Adds a cause of `kind` to the plan, for a run of this wave whose forwarder is not `taken`."""
    shape = plan.shape
    by_metadata = "metadata" in kind
    lane, victim = drawn.choice(
        [
            (lane, run)
            for lane, run in begun.items()
            if lane // 2 not in taken
            and lane < 2 * (shape.forwarders - 1)
            and (run.application.metadata_operations > 1000) == by_metadata
        ]
    )
    taken.add(lane // 2)
    wave, noisy_lane = victim.wave, 2 * shape.forwarders - 1
    cause = Cause(kind, victim.number, wave, wave + _LASTING.get(kind, 1) - 1)
    application = victim.application
    if kind == "slow OST":
        cause = replace(cause, target=drawn.choice(victim.osts), factor=drawn.uniform(5.0, 8.0))
    elif kind == "slow forwarder":
        cause = replace(cause, target=lane // 2, factor=drawn.uniform(14.0, 22.0))
    elif kind == "slow compute node":
        node = lane * shape.nodes_per_lane + drawn.randrange(shape.nodes_per_lane)
        cause = replace(cause, target=node, factor=drawn.uniform(7.0, 12.0))
    elif kind == "N-1 neighbour":
        other = _run(plan, drawn, _shared_file_job(shape, parts), lane ^ 1, wave, delay=2.0, noisy=True)
        begun[lane ^ 1] = other
        cause = replace(cause, target=lane // 2, run=other.number)
    elif kind == "IOPS neighbour":
        loaded = victim.osts[:2]
        job = _iops_job(shape, parts, len(loaded))
        other = _run(plan, drawn, job, noisy_lane, wave, delay=2.0, noisy=True, osts=loaded)
        begun[noisy_lane] = other
        cause = replace(cause, run=other.number)
    elif kind == "metadata flood of a job":
        job = _flood_job(shape, parts, application.mdt)
        other = _run(plan, drawn, job, noisy_lane, wave, delay=2.0, noisy=True)
        begun[noisy_lane] = other
        cause = replace(cause, target=application.mdt, run=other.number)
    elif kind == "metadata flood of a login node":
        login = drawn.randrange(shape.logins)
        cause = replace(cause, target=application.mdt, login=login, processes=7 * parts.mdt_slots)
    else:
        changed = (
            replace(application, shared_file=True)
            if kind == "own mode"
            else replace(application, request_bytes=application.request_bytes // 4)
        )
        begun[lane] = replace(victim, application=changed, usual=application)
        cause = replace(cause, run=victim.number)
    plan.causes.append(cause)


def _long(shape: Shape) -> tuple[int, float]:
    """Cycles and seconds between them of a job that is at its files for a whole wave."""
    return max(shape.wave_seconds // 190, 4), 5.0


def _shared_file_job(shape: Shape, parts: Hardware) -> Application:
    cycles, pause = _long(shape)
    processes = math.ceil(1.18 * parts.forwarder_threads / shape.nodes_per_lane)
    lock = parts.lock * math.sqrt(processes * shape.nodes_per_lane)
    per_node = round(145 * processes / (lock + 2 * parts.ost)) * MIB // 4
    return Application(
        "nbody", "gus", "p_gus", 0, cycles, pause, written_bytes=per_node, request_bytes=MIB // 4,
        processes=processes, shared_file=True,
    )  # fmt: skip


def _iops_job(shape: Shape, parts: Hardware, osts: int) -> Application:
    cycles, pause = _long(shape)
    processes = math.ceil(7.5 * parts.ost_slots * osts / shape.nodes_per_lane)
    requests = 150 * osts * parts.ost_slots / parts.ost / shape.nodes_per_lane
    return Application(
        "kvscan", "hal", "p_hal", 0, cycles, pause, read_bytes=round(requests) * 4096, request_bytes=4096,
        processes=processes, stripes=osts,
    )  # fmt: skip


def _flood_job(shape: Shape, parts: Hardware, mdt: int) -> Application:
    cycles, pause = _long(shape)
    processes = math.ceil(7.5 * parts.mdt_slots / shape.nodes_per_lane)
    operations = round(145 * parts.mdt_slots / parts.mdt / shape.nodes_per_lane)
    return Application(
        "dndc", "ida", "p_ida", mdt, cycles, pause, metadata_operations=operations, processes=processes
    )
