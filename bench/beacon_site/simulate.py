"""The site second by second: closed-loop clients, queues at forwarders, OSTs and MDTs, and all counters.

A node has as many requests under way as its job has processes. A request takes the client's own time, waits
for one of the forwarder's threads, and holds it until the OST or MDT has answered. Stations serve a fixed
number of requests at once; their waits are those at which clients, which only go on when they are served,
offer 97 % of the capacity, and below that the approximation of Sakasegawa for many servers. What a node moves
is booked at once at node, forwarder, OST and MDT, so bytes and operations are the same at all of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bench.beacon_site.plan import Application, Cause, Plan, Run
from bench.beacon_site.shape import OPERATION_SHARES, Hardware, Shape

Array = NDArray[np.float64]
FULL = 0.97
"""Share of a station's capacity beyond which it is not used."""
READ, WRITE = 0, 1
_SWEEPS = 3
_SHARES = np.array(OPERATION_SHARES)
_WHOLE = 0.99
"""Share of a second's capacity from which on the second counts for a peak."""
_FACTOR_CHANGE = 0.9
"""Correlation of the noise of one second with that of the next."""


@dataclass(slots=True)
class Counters:
    """Cumulative counters as arrays; times in seconds, directions and operations in the last axis."""

    node_bytes: Array
    node_requests: Array
    node_seconds: Array
    node_operations: Array
    node_operation_seconds: Array
    forwarder_bytes: Array
    forwarder_requests: Array
    forwarder_seconds: Array
    forwarder_wait_seconds: Array
    forwarder_operations: Array
    forwarder_operation_seconds: Array
    osc_bytes: Array
    osc_requests: Array
    osc_seconds: Array
    mdc_operations: Array
    mdc_seconds: Array
    ost_wait_seconds: Array
    mdt_wait_seconds: Array
    ost_seconds: Array
    mdt_seconds: Array


def _counters(nodes: int, forwarders: int, osts: int, mdts: int) -> Counters:
    z = np.zeros
    return Counters(
        z((nodes, 2)), z((nodes, 2)), z((nodes, 2)), z((nodes, 3)), z((nodes, 3)),
        z((forwarders, 2)), z((forwarders, 2)), z((forwarders, 2)), z((forwarders, 3)),
        z((forwarders, 3)), z((forwarders, 3)),
        z((forwarders, osts, 2)), z((forwarders, osts, 2)), z((forwarders, osts, 2)),
        z((forwarders, mdts, 3)), z((forwarders, mdts, 3)),
        z((osts, 2)), z((mdts, 3)), z((osts, 2)), z((mdts, 3)),
    )  # fmt: skip


@dataclass(slots=True)
class Phase:
    """I/O of a run without a pause, s since the site's begin. `kind`: `read`, `write` or `metadata`."""

    kind: str
    start: float
    end: float = 0.0
    amount: float = 0.0
    cycle: int = 0
    peak: float = 0.0


@dataclass(slots=True)
class Outcome:
    """What a run did: its times and phases, and the volume by OST and direction."""

    run: Run
    nodes: range
    start: int
    end: float = 0.0
    phases: list[Phase] = field(default_factory=list)
    by_ost: Array = field(default_factory=lambda: np.zeros(0))
    request_bytes: int = 1

    @property
    def io_seconds(self) -> float:
        """Time in its phases."""
        return sum(phase.end - phase.start for phase in self.phases)


@dataclass(slots=True)
class _Active:
    outcome: Outcome
    steps: list[tuple[str, float]]
    at: int = -1
    until: float = 0.0
    cycle: int = 0


class Simulation:
    """Runs of a plan, with its causes or without. `step` is one second; `counters` are up to now."""

    def __init__(self, plan: Plan, parts: Hardware, *, with_causes: bool = True) -> None:
        shape = plan.shape
        self.plan, self.shape, self.parts, self.with_causes = plan, shape, parts, with_causes
        self.now = 0
        self.outcomes: dict[int, Outcome] = {}
        self._noise = np.random.default_rng([plan.seed, 1])
        self._computing = np.random.default_rng([plan.seed, 2])
        self._compute_scale: dict[int, Array] = {
            run.number: self._computing.uniform(0.93, 1.07, 64) for run in plan.runs
        }
        self.clients = shape.nodes + shape.logins
        self.mounts = shape.forwarders + shape.logins  # a login node mounts the file system itself
        n, m = self.clients, self.mounts
        self.forwarder_of = np.concatenate(
            [np.arange(shape.nodes) // (2 * shape.nodes_per_lane), shape.forwarders + np.arange(shape.logins)]
        )
        self._to_mount = (self.forwarder_of == np.arange(m)[:, None]).astype(float)
        self.counters = _counters(n, m, shape.osts, shape.mdts)
        self._bytes_left, self._operations_left = np.zeros(n), np.zeros(n)
        self._size, self._processes = np.ones(n), np.zeros(n)
        self._direction = np.zeros(n, dtype=int)
        self._lock, self._mdt_of = np.zeros(n), np.zeros(n, dtype=int)
        self._weights = np.zeros((n, shape.osts))
        self._ost_wait, self._mdt_wait, self._forwarder_wait = (
            np.zeros(shape.osts), np.zeros(shape.mdts), np.zeros(m),
        )  # fmt: skip
        self._logs = [np.zeros(k) for k in (n, m, shape.osts, shape.mdts)]
        self._waiting: dict[int, list[Run]] = {}
        for run in sorted(plan.runs, key=lambda run: run.number):
            if with_causes or not run.noisy:
                self._waiting.setdefault(run.lane, []).append(run)
        self._active: dict[int, _Active] = {}
        self._free_at: dict[int, float] = {}
        self.busy_share = np.zeros(n)
        """Of the last second, in which each client had requests under way."""

    def running(self, lane: int) -> Outcome | None:
        """The run of a lane."""
        active = self._active.get(lane)
        return None if active is None else active.outcome

    def request_bytes(self, node: int) -> int:
        """Of the latest phase of data of a node."""
        return int(self._size[node])

    def application(self, run: Run) -> Application:
        """As `run` runs it here."""
        return run.application if self.with_causes or run.usual is None else run.usual

    @property
    def over(self) -> bool:
        """Whether every run has ended."""
        return not self._active and not any(self._waiting.values())

    def step(self) -> None:
        """One second."""
        self._begin_runs()
        for lane in list(self._active):
            self._advance(lane)
        self._load_logins()
        self._serve()
        self.now += 1

    def _begin_runs(self) -> None:
        for lane, waiting in self._waiting.items():
            if lane in self._active or not waiting:
                continue
            run = waiting[0]
            planned = run.wave * self.shape.wave_seconds + run.delay
            if self.now >= max(planned, self._free_at.get(lane, 0.0)):
                waiting.pop(0)
                first = lane * self.shape.nodes_per_lane
                nodes = range(first, first + self.shape.nodes_per_lane)
                application = self.application(run)
                outcome = Outcome(run, nodes, self.now)
                outcome.by_ost = np.zeros((self.shape.osts, 2))
                outcome.request_bytes = application.request_bytes
                self.outcomes[run.number] = outcome
                self._active[lane] = _Active(outcome, _steps(application))

    def _advance(self, lane: int) -> None:
        """Begins the next step of a run whose nodes are all done with the one before."""
        active = self._active[lane]
        outcome, nodes = active.outcome, slice(active.outcome.nodes.start, active.outcome.nodes.stop)
        if self._bytes_left[nodes].any() or self._operations_left[nodes].any() or self.now < active.until:
            return
        active.at += 1
        if active.at == len(active.steps):
            outcome.end = float(self.now)
            self._free_at[lane] = self.now + 30.0
            del self._active[lane]
            return
        kind, amount = active.steps[active.at]
        application = self.application(outcome.run)
        if kind == "compute":
            scale = self._compute_scale[outcome.run.number][active.cycle % 64]
            active.cycle += 1
            active.until = self.now + max(round(amount * scale), 1)
            return
        amount *= outcome.run.volume
        self._processes[nodes] = application.processes
        outcome.phases.append(Phase(kind, float(self.now), cycle=active.cycle))
        if kind == "metadata":
            self._operations_left[nodes] = (
                max(round(amount / 4 / application.processes), 1) * 4 * application.processes
            )
            self._mdt_of[nodes] = application.mdt
        else:
            share = application.request_bytes * application.processes
            self._bytes_left[nodes] = max(round(amount / share), 1) * share
            self._size[nodes] = application.request_bytes
            self._direction[nodes] = READ if kind == "read" else WRITE
            writers = application.processes * len(outcome.nodes)
            shared = application.shared_file and kind == "write"
            self._lock[nodes] = self.parts.lock * np.sqrt(writers) if shared else 0.0
            self._weights[nodes] = 0.0
            self._weights[nodes, list(outcome.run.osts)] = 1.0 / len(outcome.run.osts)

    def _load_logins(self) -> None:
        """Login nodes look at a few files now and then, and one of them floods while its cause lasts."""
        for login in range(self.shape.logins):
            node = self.shape.nodes + login
            self._processes[node], self._mdt_of[node] = 1, login % self.shape.mdts
            self._operations_left[node] = 4.0 if self.now % 10 == 0 else 0.0
        for cause in self._present("metadata flood of a login node"):
            assert cause.login is not None
            assert cause.target is not None
            node = self.shape.nodes + cause.login
            self._processes[node], self._mdt_of[node] = cause.processes, cause.target
            self._operations_left[node] = 1e9

    def _present(self, kind: str) -> Iterator[Cause]:
        """The causes of a kind that are there now."""
        for cause in self.plan.causes if self.with_causes else ():
            if cause.kind == kind and cause_begin(cause, self.shape) <= self.now < cause_end(
                cause, self.shape
            ):
                yield cause

    def _factors(self) -> tuple[Array, Array, Array, Array]:
        """Times that nodes, mounts, OSTs and MDTs are slower now than in the mean."""
        noise = self.parts.noise
        change = noise * np.sqrt(1 - _FACTOR_CHANGE**2)
        self._logs = [
            _FACTOR_CHANGE * logs + change * self._noise.standard_normal(len(logs)) for logs in self._logs
        ]
        node, mount, ost, mdt = (np.exp(logs) for logs in self._logs)
        for kind, factors in (("slow OST", ost), ("slow forwarder", mount), ("slow compute node", node)):
            for cause in self._present(kind):
                factors[cause.target] *= cause.factor
        return node, mount, ost, mdt

    def _serve(self) -> None:
        """What all clients get in this second, into the counters; arrays are of those that want anything."""
        p = self.parts
        node, mount, ost, mdt = self._factors()
        at = np.flatnonzero((self._bytes_left > 0) | (self._operations_left > 0))
        f, size, mdt_of = self.forwarder_of[at], self._size[at], self._mdt_of[at]
        data, metadata = self._bytes_left[at] > 0, self._operations_left[at] > 0
        is_forwarder = np.arange(self.mounts) < self.shape.forwarders
        network = (p.network * mount)[f]
        service = (p.ost + size / p.ost_bytes_per_second)[:, None] * ost
        mdt_service = p.mdt * mdt
        threads = np.where(is_forwarder, p.forwarder_threads, 1e9)
        think = np.where(data, p.think, p.think_metadata) * node[at]
        own = np.where(data, p.forwarder, p.forwarder_metadata) * (mount * is_forwarder)[f] + network
        own += self._lock[at] * data
        at_ost, on_mdt = self._weights[at] * data[:, None], np.eye(self.shape.mdts)[mdt_of]
        to_mount = self._to_mount[:, at]
        busy_ost = at_ost * service
        served = busy_ost.sum(axis=1) + mdt_service[mdt_of] * metadata
        for _ in range(_SWEEPS):
            held = own + served + at_ost @ self._ost_wait + (on_mdt @ self._mdt_wait) * metadata
            latency = think + self._forwarder_wait[f] + held
            rate = self._processes[at] / latency
            _settle(self._ost_wait, rate @ busy_ost, rate @ at_ost, p.ost_slots)
            by_mdt = (rate * metadata) @ on_mdt
            _settle(self._mdt_wait, by_mdt * mdt_service, by_mdt, p.mdt_slots)
            _settle(self._forwarder_wait, to_mount @ (rate * held), to_mount @ rate, threads)
        at_mdt = (mdt_service + self._mdt_wait)[mdt_of]
        self._book(at, rate, latency, held, service, at_mdt, network)

    def _book(
        self,
        at: NDArray[np.intp],
        rate: Array,
        latency: Array,
        held: Array,
        service: Array,
        by_mdt: Array,
        network: Array,
    ) -> None:
        c, n, size = self.counters, len(self._size), self._size[at]
        data, metadata = self._bytes_left[at] > 0, self._operations_left[at] > 0
        requests = np.where(data, np.minimum(rate, self._bytes_left[at] / size), 0.0)
        operations = np.where(metadata, np.minimum(rate, self._operations_left[at]), 0.0)
        moved = requests * size
        rates, all_moved, all_operations = (np.zeros(n) for _ in range(3))
        rates[at], all_moved[at], all_operations[at] = rate, moved, operations
        self.busy_share = np.zeros(n)
        self.busy_share[at] = (requests + operations) / rate
        self._follow_phases(rates, all_moved, all_operations)
        self._book_data(at, requests, latency, held, service, network)
        if operations.any():
            to_mount, mdts = self._to_mount[:, at], self.shape.mdts
            by_class = operations[:, None] * _SHARES
            c.node_operations[at] += by_class
            c.node_operation_seconds[at] += by_class * latency[:, None]
            c.forwarder_operations += to_mount @ by_class
            c.forwarder_operation_seconds += to_mount @ (by_class * held[:, None])
            c.forwarder_wait_seconds[:, 2] += (to_mount @ operations) * self._forwarder_wait
            on = (self._mdt_of[at, None] == np.arange(mdts))[:, :, None] * by_class[:, None, :]
            c.mdc_operations += (to_mount @ on.reshape(len(at), -1)).reshape(-1, mdts, 3)
            on_seconds = on * (by_mdt + network)[:, None, None]
            c.mdc_seconds += (to_mount @ on_seconds.reshape(len(at), -1)).reshape(-1, mdts, 3)
            c.mdt_seconds += (on * by_mdt[:, None, None]).sum(axis=0)
            c.mdt_wait_seconds += on.sum(axis=0) * self._mdt_wait[:, None]
        self._bytes_left = np.where(self._bytes_left - all_moved < 0.5, 0.0, self._bytes_left - all_moved)
        left = self._operations_left - all_operations
        self._operations_left = np.where(left < 0.5, 0.0, left)

    def _book_data(
        self,
        at: NDArray[np.intp],
        requests: Array,
        latency: Array,
        held: Array,
        service: Array,
        network: Array,
    ) -> None:
        c = self.counters
        there = service + self._ost_wait
        for way in (READ, WRITE):
            own = np.flatnonzero((requests > 0) & (self._direction[at] == way))
            if not own.size:
                continue
            mine, asked = at[own], requests[own]
            to_mount, size = self._to_mount[:, mine], self._size[mine]
            c.node_bytes[mine, way] += asked * size
            c.node_requests[mine, way] += asked
            c.node_seconds[mine, way] += asked * latency[own]
            c.forwarder_bytes[:, way] += to_mount @ (asked * size)
            c.forwarder_requests[:, way] += to_mount @ asked
            c.forwarder_seconds[:, way] += to_mount @ (asked * held[own])
            c.forwarder_wait_seconds[:, way] += (to_mount @ asked) * self._forwarder_wait
            split = asked[:, None] * self._weights[mine]
            c.osc_requests[:, :, way] += to_mount @ split
            c.osc_bytes[:, :, way] += to_mount @ (split * size[:, None])
            c.osc_seconds[:, :, way] += to_mount @ (split * (there[own] + network[own, None]))
            c.ost_seconds[:, way] += (split * there[own]).sum(axis=0)
            c.ost_wait_seconds[:, way] += split.sum(axis=0) * self._ost_wait

    def _follow_phases(self, rate: Array, moved: Array, operations: Array) -> None:
        for active in self._active.values():
            outcome = active.outcome
            nodes = slice(outcome.nodes.start, outcome.nodes.stop)
            amount = moved[nodes] + operations[nodes]
            if not amount.any():
                continue
            phase = outcome.phases[-1]
            some = amount > 0
            unit = self._size[nodes][some] if phase.kind != "metadata" else 1.0
            busy = float((amount[some] / (rate[nodes][some] * unit)).max())
            phase.end = self.now + min(busy, 1.0)
            phase.amount += float(amount.sum())
            if busy > _WHOLE:
                phase.peak = max(phase.peak, float(amount.sum()))
            if phase.kind != "metadata":
                way = READ if phase.kind == "read" else WRITE
                outcome.by_ost[:, way] += moved[nodes].sum() * self._weights[nodes.start]


def _settle(wait: Array, busy: Array, rate: Array, slots: float | Array) -> None:
    """Moves the waits of stations towards those that their clients' rates go with.

    `busy`: requests that would be served at once, the mean number; `rate`: requests a second.
    """
    service = np.divide(busy, rate, out=np.zeros_like(busy), where=rate > 0)
    used = busy / slots
    below = np.minimum(used, FULL)
    queued = below ** (np.sqrt(2 * (slots + np.float64(1))) - 1) / (slots * (1 - below)) * service
    full = (wait + service) * used / FULL - service
    target = np.maximum(queued, full)
    wait += 0.5 * (np.where(rate > 0, target, 0.0) - wait)


def cause_begin(cause: Cause, shape: Shape) -> int:
    """Second of the site at which a cause begins."""
    return cause.first * shape.wave_seconds


def cause_end(cause: Cause, shape: Shape) -> int:
    """Second of the site at which a cause ends."""
    return (cause.last + 1) * shape.wave_seconds - 10


def _steps(application: Application) -> list[tuple[str, float]]:
    """Kinds and amounts a node: compute, then metadata operations, then data, in each cycle."""
    found: list[tuple[str, float]] = []
    for cycle in range(application.cycles):
        found.append(("compute", application.compute_seconds))
        if application.metadata_operations:
            found.append(("metadata", application.metadata_operations))
        if application.read_bytes and (cycle == 0 or not application.reads_once):
            found.append(("read", application.read_bytes))
        if application.written_bytes and (cycle > 0 or not application.reads_once):
            found.append(("write", application.written_bytes))
    return [*found, ("compute", 10.0)]
