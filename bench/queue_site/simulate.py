"""The site in time: the network is solved again whenever its load changes, and each minute."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from bench.queue_site.hardware import KINDS, META, MINUTE, NODES_A_HALF, THREADS
from bench.queue_site.network import Array, Load, Steady, solve
from bench.queue_site.plan import Fault, Phase, Plan, Run
from bench.queue_site.stations import Row, Stations

Key = tuple[str, int]
""" "run" and its number, "fault" and its place in the plan, "own" and the number of a run that changed."""
_BACKGROUND = 0.5  # seconds between operations of a login node


@dataclass(slots=True)
class Doing:
    """A run under way: `left` requests of each node in the phase that began at `began`, 0 between phases.

    `seconds` and `spans` of the phases so far; `ended` of each node in the last one.
    """

    run: Run
    phases: tuple[Phase, ...]
    at: int = -1
    began: int = 0
    left: Array = field(default_factory=lambda: np.zeros(0))
    asked: Array = field(default_factory=lambda: np.zeros(0))
    ended: Array = field(default_factory=lambda: np.zeros(0))
    wakes: int = 0
    spans: list[tuple[int, int, float]] = field(default_factory=list)

    @property
    def phase(self) -> Phase:
        """The phase under way, or the last one."""
        return self.phases[self.at]

    @property
    def io_seconds(self) -> float:
        """Time in phases."""
        return sum(end - begin for _, begin, end in self.spans)

    def copy(self) -> "Doing":
        """The same, apart."""
        arrays = (self.left.copy(), self.asked, self.ended.copy())
        return Doing(self.run, self.phases, self.at, self.began, *arrays, self.wakes, list(self.spans))


@dataclass(frozen=True, slots=True)
class Done:
    """A run that has ended. `spans`: kind, begin and end of each phase."""

    run: Run
    end: int
    spans: tuple[tuple[int, int, float], ...]

    @property
    def io_seconds(self) -> float:
        """Time in phases."""
        return sum(end - begin for _, begin, end in self.spans)

    def seconds(self, kind: int) -> float:
        """Time in phases of a kind."""
        return sum(end - begin for did, begin, end in self.spans if did == kind)


Follower = Callable[["Simulation", int, float, Load, Steady], None]
"""Sees each stretch of time: its begin and length, the load and its steady state."""


class Simulation:
    """`without`: what is left out of the plan. `starts`: when runs begin, where that is known; else as soon
    as planned and their nodes are free.
    """

    def __init__(self, plan: Plan, without: frozenset[Key] = frozenset()) -> None:
        self.plan, self.without = plan, without
        self.stations = Stations(plan.shape)
        self.now = 0
        self.doing: list[Doing] = []
        self.done: dict[int, Done] = {}
        self.started: dict[int, int] = {}
        self.waiting = [run for run in plan.runs if ("run", run.number) not in without]
        self.faults = [f for at, f in enumerate(plan.faults) if ("fault", at) not in without]
        self.rows: list[Row] = []
        self.owners: list[tuple[Doing | None, int]] = []
        self.follower: Follower | None = None
        self.phase_ended: Callable[[Doing], None] | None = None
        self._steady: Steady | None = None
        self._load: Load | None = None
        self._dirty = True

    def resumed(self, without: frozenset[Key], starts: dict[int, int]) -> "Simulation":
        """A copy that goes on from now without some things; runs begin as in `starts`."""
        plan = self.plan
        copy = Simulation(plan, self.without | without)
        copy.now, copy.started = self.now, dict(starts)
        copy.doing = [d.copy() for d in self.doing]
        still = {run.number for run in self.waiting}
        copy.waiting = [run for run in copy.waiting if run.number in still]
        return copy

    @property
    def over(self) -> bool:
        """Whether all runs have ended."""
        return not self.doing and not self.waiting

    def advance(self, until: int) -> None:
        """Goes on to a second."""
        while self.now < until:
            self._begin()
            if self._dirty or self.now % MINUTE == 0:
                self._solve()
            self._go(min(until, self._next()))

    def _begin(self) -> None:
        busy = {node for doing in self.doing for node in doing.run.nodes}
        for run in list(self.waiting):
            if run.start > self.now:
                break
            known = self.started.get(run.number)
            if (known is None and busy & set(run.nodes)) or (known is not None and known > self.now):
                continue
            self.waiting.remove(run)
            self.started[run.number] = self.now
            busy |= set(run.nodes)
            usual = ("own", run.number) in self.without
            self.doing.append(Doing(run, run.phases(usual), wakes=self.now + run.program.gap))
        for doing in self.doing:
            if not doing.left.any() and doing.wakes <= self.now and doing.at + 1 < len(doing.phases):
                doing.at += 1
                doing.began = self.now
                doing.asked = np.rint(doing.phase.requests * np.array(doing.run.spread))
                doing.left = doing.asked.copy()
                doing.ended = np.zeros(len(doing.left))
                self._dirty = True
        for fault in self.faults:
            self._dirty |= self.now in (fault.start, fault.end)

    def _acts(self) -> list[Fault]:
        return [f for f in self.faults if f.start <= self.now < f.end]

    def _solve(self) -> None:
        """Rows of all nodes that do something, and the steady state."""
        shape, plan = self.plan.shape, self.plan
        stations, nodes = plan.noise.stations(self.now), plan.noise.node.copy()
        rows: list[Row] = []
        owners: list[tuple[Doing | None, int]] = []
        for fault in self._acts():
            if fault.kind == "ost":
                stations[self.stations.osts.start + fault.target] *= fault.factor
            elif fault.kind == "forwarder":
                stations[fault.target] *= fault.factor
                stations[shape.forwarders + fault.target] *= fault.factor
            elif fault.kind == "node":
                nodes[fault.target] *= fault.factor
            else:
                node = shape.nodes + fault.target
                rows.append(Row(node, int(fault.factor), META, 0, 0.001, -1, (), (fault.mdt,)))
                owners.append((None, node))
        for node in range(shape.nodes, shape.nodes + shape.logins):
            if node not in {row.node for row in rows}:
                rows.append(Row(node, 1, META, 0, _BACKGROUND, -1, (), tuple(range(shape.mdts))))
                owners.append((None, node))
        for doing in self.doing:
            run, program, phase = doing.run, doing.run.program, doing.phase
            file = run.number if run.shared(("own", run.number) in self.without) else -1
            think = program.think_meta if phase.kind == META else program.think
            for at in np.flatnonzero(doing.left).tolist():
                node = run.nodes[at]
                forwarder = node // (2 * NODES_A_HALF)
                rows.append(
                    Row(
                        node, program.processes, phase.kind, phase.bytes_, think, forwarder,
                        run.osts, (program.mdt,), file,
                    )
                )  # fmt: skip
                owners.append((doing, at))
        load = self.stations.load(rows, stations, nodes)
        self._steady = solve(load, THREADS, self._guess(rows, load))
        self.rows, self.owners, self._load = rows, owners, load
        self._dirty = False

    def _guess(self, rows: list[Row], load: Load) -> Steady:
        """The steady state before, of nodes that go on doing the same."""
        rate, at_client, waiting, visit = (
            load.think * 0,
            load.client.copy(),
            load.think * 0,
            load.service.copy(),
        )
        if self._steady is not None:
            before = {(row.node, row.kind): at for at, row in enumerate(self.rows)}
            for at, row in enumerate(rows):
                if (was := before.get((row.node, row.kind))) is not None:
                    at_client[at], waiting[at] = self._steady.at_client[was], self._steady.waiting[was]
                    visit[at, : self.stations.mdts.stop] = self._steady.visit[was, : self.stations.mdts.stop]
        return Steady(rate, at_client, waiting, visit)

    def _next(self) -> int:
        """The next second at which something may change."""
        assert self._steady is not None
        times = [(self.now // MINUTE + 1) * MINUTE]
        for (doing, at), rate in zip(self.owners, self._steady.rate.tolist(), strict=True):
            if doing is not None:
                times.append(self.now + max(math.ceil(doing.left[at] / rate), 1))
        times += [max(d.wakes, self.now + 1) for d in self.doing if not d.left.any()]
        times += [max(self.started.get(r.number, r.start), self.now + 1) for r in self.waiting]
        times += [t for f in self.faults for t in (f.start, f.end) if t > self.now]
        return min(times)

    def _go(self, until: int) -> None:
        assert self._steady is not None
        assert self._load is not None
        begin, dt = self.now, float(until - self.now)
        rate = self._steady.rate
        share = np.ones(len(rate))
        for place, (doing, at) in enumerate(self.owners):
            if doing is None:
                continue
            moved = rate[place] * dt
            if moved >= doing.left[at] - 1e-9:
                share[place] = doing.left[at] / moved
                doing.left[at] = 0.0
                doing.ended[at] = begin + share[place] * dt
                self._dirty = True
            else:
                doing.left[at] -= moved
        self.now = until
        if self.follower is not None:
            self.follower(self, begin, dt, self._load, Steady(rate * share, *_times(self._steady)))
        for doing in list(self.doing):
            if doing.at >= 0 and len(doing.spans) == doing.at and not doing.left.any():
                self._end_phase(doing)

    def _end_phase(self, doing: Doing) -> None:
        end = float(doing.ended.max())
        doing.spans.append((doing.phase.kind, doing.began, end))
        doing.wakes = self.now + doing.run.program.gap
        if self.phase_ended is not None:
            self.phase_ended(doing)
        if doing.at + 1 == len(doing.phases):
            self.doing.remove(doing)
            self.done[doing.run.number] = Done(doing.run, self.now + 5, tuple(doing.spans))


def _times(steady: Steady) -> tuple[Array, Array, Array]:
    return steady.at_client, steady.waiting, steady.visit


@dataclass(frozen=True, slots=True)
class Past:
    """The site as planned, with copies of it at each moment from which something can be left out."""

    plan: Plan
    done: dict[int, Done]
    started: dict[int, int]
    moments: dict[int, Simulation]

    def onset(self, key: Key) -> int:
        """The second at which `key` begins to act."""
        return self.plan.faults[key[1]].start if key[0] == "fault" else self.started[key[1]]

    def io_seconds(self, without: frozenset[Key], runs: set[int]) -> dict[int, float]:
        """Time in phases of some runs, without some things."""
        at = max(second for second in self.moments if second <= min(map(self.onset, without)))
        simulation = self.moments[at].resumed(without, self.started)
        under_way = {doing.run.number for doing in simulation.doing} | {
            run.number for run in simulation.waiting
        }
        while not runs & under_way <= simulation.done.keys():
            simulation.advance(simulation.now + MINUTE)
        return {run: (simulation.done if run in under_way else self.done)[run].io_seconds for run in runs}


def keep_moments(simulation: Simulation, moments: dict[int, Simulation], until: int) -> None:
    """Advances to a second, with copies at the times at which runs are due or faults begin."""
    plan = simulation.plan
    times = {run.start for run in simulation.waiting} | {fault.start for fault in plan.faults}
    for second in sorted(t for t in times if simulation.now < t < until):
        simulation.advance(second)
        moments[second] = simulation.resumed(frozenset(), simulation.started)
    simulation.advance(until)


__all__ = ["KINDS", "Doing", "Done", "Past", "Simulation", "keep_moments"]
