"""What runs at the site: programs, their runs, and causes that are injected."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bench.beacon_site.shape import MIB, Shape
from bench.queue_site.hardware import (
    LOCK_SECONDS,
    META,
    MINUTE,
    NODES_A_HALF,
    OST_SERVERS,
    READ,
    THREADS,
    WRITE,
    Noise,
    Size,
    client_seconds,
    ost_seconds,
    shape_of,
)
from bench.queue_site.network import solve
from bench.queue_site.stations import Row, Stations

INJECTED = (
    "slow OST", "slow forwarder", "slow node", "N-1 neighbour", "N-1 elsewhere", "bytes neighbour",
    "IOPS neighbour", "metadata flood", "login flood", "flood elsewhere", "own size", "own mode",
)  # fmt: skip
"""Those "elsewhere" are innocent: the N-1 job is behind another forwarder, the flood is on another MDT."""
HISTORY_RUNS = 8
FIRST_JOB = 50_001
KIB = 1024


@dataclass(frozen=True, slots=True)
class Phase:
    """`requests` of each node, with `bytes_` each; 0 of metadata."""

    kind: int
    bytes_: int
    requests: int


@dataclass(frozen=True, slots=True)
class Program:
    """`phases` of a run, `gap` seconds apart; `halves` of a forwarder's nodes, `processes` a node."""

    name: str
    halves: int
    processes: int
    phases: tuple[Phase, ...]
    gap: int
    think: float
    think_meta: float
    stripes: int
    mdt: int
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """One run. `change`: "size" or "mode", where it does otherwise than its program's other runs.

    `spread`: of its volume, and each node's beside it.
    """

    number: int
    program: Program
    start: int
    nodes: tuple[int, ...]
    osts: tuple[int, ...]
    spread: tuple[float, ...]
    change: str = ""

    def shared(self, usual: bool) -> bool:
        """Whether its processes write one file."""
        return self.program.shared or (self.change == "mode" and not usual)

    def phases(self, usual: bool) -> tuple[Phase, ...]:
        """Its phases, or those without its change."""
        if self.change != "size" or usual:
            return self.program.phases
        return tuple(
            p if p.kind == META else replace(p, bytes_=p.bytes_ // 4, requests=4 * p.requests)
            for p in self.program.phases
        )


@dataclass(frozen=True, slots=True)
class Fault:
    """A component that is slower by `factor` ("ost", "forwarder", "node"), or a login node with `factor`
    processes that do metadata operations on `mdt` ("login").
    """

    kind: str
    target: int
    factor: float
    start: int
    end: int
    mdt: int = -1


@dataclass(slots=True)
class Plan:
    """`injected`: kind by the number of the run that it is meant for."""

    shape: Shape
    noise: Noise
    seconds: int
    runs: list[Run] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    injected: dict[int, str] = field(default_factory=dict)


def make_plan(size: Size, seed: int) -> Plan:
    """The plan of a seed."""
    rng = random.Random(seed)
    shape = shape_of(size, rng)
    seconds = size.hours * 3600
    plan = Plan(shape, Noise(shape, seconds // MINUTE + 60, seed), seconds)
    _Planner(plan, size, rng).make()
    return plan


def usual_rates(shape: Shape, program: Program) -> dict[int, float]:
    """Requests a second of a node by kind, when the program is alone on nominal hardware."""
    return {at: _rate(shape, program, phase) for at, phase in enumerate(program.phases)}


def _rate(shape: Shape, program: Program, phase: Phase) -> float:
    rows = [
        Row(
            node, program.processes, phase.kind, phase.bytes_,
            program.think_meta if phase.kind == META else program.think, 0,
            tuple(range(program.stripes)), (0,), 1 if program.shared else -1,
        )
        for node in range(NODES_A_HALF * program.halves)
    ]  # fmt: skip
    stations = Stations(shape)
    load = stations.load(rows, np.ones(stations.mdts.stop), np.ones(shape.nodes))
    return float(solve(load, THREADS).rate[0])


class _Planner:
    def __init__(self, plan: Plan, size: Size, rng: random.Random) -> None:
        self.plan, self.size, self.rng = plan, size, rng
        self.programs = [self._program(n) for n in range(size.programs)]
        self.slot = size.slot_minutes * 60

    def make(self) -> None:
        """Runs for a history first, then slots of time with injected causes and some with none."""
        slots = self.plan.seconds // self.slot
        warm = max(HISTORY_RUNS * sum(p.halves for p in self.programs) // self.plan.shape.forwarders, 2)
        history = [program for program in self.programs for _ in range(HISTORY_RUNS)]
        self.rng.shuffle(history)
        kinds = [kind for kind in INJECTED for _ in range(self.size.repeats)]
        self.rng.shuffle(kinds)
        later = slots - 1 - warm
        for slot in range(slots - 1):
            free = self._places()
            osts = self._osts()
            if slot < warm:
                for program in _share(history, warm, slot):
                    self._run(program, slot, free, self._draw(program))
                continue
            for kind in _share(kinds, later, slot - warm):
                self._episode(kind, slot, free, osts)
            for _ in range(self.rng.choice((0, 1, 1, 2))):
                program = self.rng.choice(self.programs)
                self._run(program, slot, free, self._draw(program))
        self.plan.runs.sort(key=lambda run: run.start)

    def _program(self, number: int) -> Program:
        rng, shape = self.rng, self.plan.shape
        does = ("write", "both", "files", "read")[number % 4]
        processes, halves = rng.choice((3, 4, 6)), rng.choice((1, 1, 2))
        written, read = rng.choice((MIB // 2, MIB, 2 * MIB)), rng.choice((MIB // 4, MIB // 2, MIB))
        stripes = rng.choice((2, 3, 4))
        main = (READ, read) if does == "read" else (WRITE, written)
        capacity = OST_SERVERS * stripes / ost_seconds(*main)
        customers = NODES_A_HALF * halves * processes
        think = max(customers / (0.4 * capacity) - 0.010, 0.003) / (0.3 + 0.7 * main[1] / MIB)
        cycle = {
            "write": (Phase(WRITE, written, 0),),
            "read": (Phase(READ, read, 0),),
            "both": (Phase(READ, read, 0), Phase(WRITE, written, 0)),
            "files": (Phase(META, 0, 0), Phase(WRITE, written, 0)),
        }[does]
        cycles = rng.choice((4, 5, 6)) if len(cycle) == 1 else rng.choice((3, 4))
        program = Program(
            f"{('cfd', 'climate', 'genome', 'qcd')[number % 4]}{number}", halves, processes, cycle * cycles,
            rng.randrange(40, 90), think, rng.uniform(0.006, 0.012), stripes, rng.randrange(shape.mdts),
        )  # fmt: skip
        return self._sized(program, does)

    def _sized(self, program: Program, does: str) -> Program:
        """Phases that take as long as drawn when the program is alone; of "files" metadata take most."""
        seconds = {kind: self.rng.uniform(30, 60) for kind in (READ, WRITE, META)}
        if does == "files":
            seconds = {META: self.rng.uniform(50, 70), WRITE: self.rng.uniform(12, 18)}
        rates = usual_rates(self.plan.shape, program)
        phases = tuple(
            replace(phase, requests=max(round(rates[at] * seconds[phase.kind]), 10))
            for at, phase in enumerate(program.phases)
        )
        return replace(program, phases=phases)

    def _places(self) -> list[int]:
        halves = list(range(2 * self.plan.shape.forwarders))
        self.rng.shuffle(halves)
        return halves

    def _osts(self) -> list[int]:
        osts = list(range(self.plan.shape.osts))
        self.rng.shuffle(osts)
        return osts

    def _draw(self, program: Program) -> tuple[int, ...]:
        return tuple(self.rng.sample(range(self.plan.shape.osts), program.stripes))

    def _run(
        self, program: Program, slot: int, free: list[int], osts: tuple[int, ...],
        forwarders: Sequence[int] | None = None, start: int | None = None, change: str = "",
    ) -> Run | None:  # fmt: skip
        """A run on free nodes, of these forwarders if any are named; None where there is no room."""
        halves = [h for h in free if forwarders is None or h // 2 in forwarders][: program.halves]
        if len(halves) < program.halves:
            return None
        for half in halves:
            free.remove(half)
        nodes = tuple(n for h in sorted(halves) for n in range(NODES_A_HALF * h, NODES_A_HALF * (h + 1)))
        volume = self.rng.gauss(1.0, 0.02)
        spread = tuple(volume * self.rng.gauss(1.0, 0.01) for _ in nodes)
        start = slot * self.slot + self.rng.randrange(30, 300) if start is None else start
        number = FIRST_JOB + len(self.plan.runs)
        self.plan.runs.append(Run(number, program, start, nodes, osts, spread, change))
        return self.plan.runs[-1]

    def _episode(self, kind: str, slot: int, free: list[int], osts: list[int]) -> None:
        """A victim and what is injected for it."""
        rng, shape = self.rng, self.plan.shape
        program = self._victim_of(kind)
        if program is None:
            return
        mine = tuple(osts.pop() if osts else rng.randrange(shape.osts) for _ in range(program.stripes))
        mine = mine if len(set(mine)) == len(mine) else self._draw(program)
        change = {"own size": "size", "own mode": "mode"}.get(kind, "")
        if kind == "N-1 neighbour":
            room = [f for f in range(shape.forwarders) if {2 * f, 2 * f + 1} <= set(free)]
            victim = self._run(program, slot, free, mine, rng.sample(room, 1)) if room else None
        else:
            victim = self._run(program, slot, free, mine, change=change)
        if victim is None:
            return
        self.plan.injected[victim.number] = kind
        begin, end = victim.start - rng.randrange(0, 25), (slot + 1) * self.slot
        behind = sorted({node // (2 * NODES_A_HALF) for node in victim.nodes})
        others = [f for f in range(shape.forwarders) if f not in behind]
        elsewhere = tuple(o for o in range(shape.osts) if o not in mine)
        if kind == "slow OST":
            self._fault("ost", rng.choice(mine), rng.uniform(5, 9), begin, end)
        elif kind == "slow forwarder":
            for_all = rng.choice(behind)
            self._fault("forwarder", for_all, rng.uniform(4, 12), begin, end)
        elif kind == "slow node":
            used = max(
                rate * client_seconds(program.phases[at].bytes_)
                for at, rate in usual_rates(shape, program).items()
            )
            self._fault("node", rng.choice(victim.nodes), rng.uniform(1.8, 4) / used, begin, end)
        elif kind == "login flood":
            login = rng.randrange(shape.logins)
            self._fault("login", login, rng.choice((128, 192)), begin, end, program.mdt)
        elif kind in ("N-1 neighbour", "N-1 elsewhere"):
            at = behind if kind == "N-1 neighbour" else others
            self._hog(
                slot,
                free,
                victim,
                (WRITE, MIB // 4),
                rng.choice((14, 18, 24)),
                at,
                tuple(rng.sample(elsewhere, 2)),
                shared=True,
            )
        elif kind == "bytes neighbour":
            self._hog(slot, free, victim, (WRITE, 4 * MIB), rng.choice((5, 8)), others, mine)
        elif kind == "IOPS neighbour":
            self._hog(slot, free, victim, (READ, 8 * KIB), 24, others, mine, halves=2)
        elif kind in ("metadata flood", "flood elsewhere"):
            mdt = program.mdt if kind == "metadata flood" else (program.mdt + 1) % shape.mdts
            self._hog(slot, free, victim, (META, 0), 32, others, self._draw(program), mdt)

    def _victim_of(self, kind: str) -> Program | None:
        """A program that such a cause can hold up."""
        meta = kind in ("metadata flood", "login flood", "flood elsewhere")
        fit = [p for p in self.programs if (p.phases[0].kind == META) == meta]
        if kind in ("N-1 neighbour", "slow forwarder"):
            fit = [p for p in fit if p.halves == 1]
        if kind == "own mode":
            fit = [p for p in fit if all(phase.kind == WRITE for phase in p.phases)]
            fit = sorted(fit, key=self._locked)[-1:]
        return self.rng.choice(fit) if fit else None

    def _locked(self, program: Program) -> float:
        """How busy locks would be if its writes went to one file."""
        nodes = NODES_A_HALF * program.halves
        return usual_rates(self.plan.shape, program)[0] * nodes * LOCK_SECONDS / program.stripes

    def _fault(self, kind: str, target: int, factor: float, start: int, end: int, mdt: int = -1) -> None:
        self.plan.faults.append(Fault(kind, target, factor, start, end, mdt))

    def _hog(
        self, slot: int, free: list[int], victim: Run, does: tuple[int, int], processes: int,
        forwarders: Sequence[int], osts: tuple[int, ...], mdt: int = 0, *,
        shared: bool = False, halves: int = 1,
    ) -> None:  # fmt: skip
        """A job that does nothing but one kind of request, through most of the victim's time."""
        name = {READ: "scan", META: "stat-storm", WRITE: "append" if shared else "dump"}[does[0]]
        program = Program(
            f"{name}{mdt}{len(osts)}",
            halves,
            processes,
            (Phase(*does, 0),) * 3,
            5,
            0.002,
            0.002,
            len(osts),
            mdt,
            shared,
        )
        rate = usual_rates(self.plan.shape, program)[0]
        most = (slot + 1) * self.slot - victim.start - 60
        phase = Phase(*does, round(rate * min(most, 1200) / 3))
        self._run(replace(program, phases=(phase,) * 3), slot, free, osts, forwarders, victim.start + 3)


def _share(things: Sequence[Program] | Sequence[str], parts: int, part: int) -> Iterator[Any]:
    """The things of one of so many parts, as evenly as can be."""
    return iter(things[len(things) * part // parts : len(things) * (part + 1) // parts])
