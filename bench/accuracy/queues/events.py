"""Closed loads and write-back caches, event by event, beside the same open requests."""

import heapq
import random
from array import array
from collections.abc import Iterator
from itertools import chain
from math import log1p
from typing import NamedTuple

import numpy as np

from bench.accuracy.queues.device import StorageDevice, draw
from bench.accuracy.queues.fault import QueueFault
from bench.accuracy.queues.load import ClosedLoad, LoadPlan
from bench.accuracy.queues.requests import ServedRequests, open_requests

CACHED_MS = (0.025, 0.125)
"""Time of a write that the cache takes, ms, uniform."""

DIRTY_READ_FACTOR = 1.3
"""How much longer a read takes while the device writes its cache back."""

DRAWN_AT_ONCE = 20_000
"""Requests of a closed load whose chances are drawn together."""

READ_AT_ONCE = 200_000
"""Open requests that are Python objects at a time, to bound memory."""


class Demand(NamedTuple):
    """One request: `pick` of a device among the load's members, bytes, and ms on a healthy device."""

    pick: int
    size: float
    is_read: bool
    service_ms: float
    unlucky: bool


class QueueingDevices:
    """The state of all devices, and the requests they have served."""

    def __init__(self, plan: LoadPlan, fault: QueueFault, chance: random.Random) -> None:
        self._device = plan.device
        self._fault = fault
        self._chance = chance
        self._free_ms = [0.0] * plan.members
        self._dirty_bytes = [0.0] * plan.members
        self._dirty_at_ms = [0.0] * plan.members
        # Arrival, completion, size, 1 for a read: four numbers a request.
        self.served = [array("d") for _ in range(plan.members)]

    def serve(self, member: int, arrival_ms: float, demand: Demand) -> float:
        """Returns when a request is complete, ms. Requests come in order of arrival."""
        size, service_ms, device = demand.size, demand.service_ms, self._device
        start_ms = max(arrival_ms, self._free_ms[member])
        if device.reordering and start_ms > arrival_ms:
            service_ms = _reordered(device, demand, start_ms - arrival_ms)
        if member in self._fault.members:
            service_ms *= self._fault.factor(member, arrival_ms)
            if demand.unlucky:
                service_ms += self._fault.stall_ms(member, arrival_ms)
        if device.cache_bytes:
            drain = device.drain_bytes_per_ms / self._fault.factor(member, arrival_ms)
            drained = (arrival_ms - self._dirty_at_ms[member]) * drain
            dirty = max(0.0, self._dirty_bytes[member] - drained)
            cached = not demand.is_read and dirty + size < device.cache_bytes
            self._dirty_bytes[member] = dirty + size if cached else dirty
            self._dirty_at_ms[member] = arrival_ms
            if cached:
                completion_ms = arrival_ms + self._chance.uniform(*CACHED_MS)
                self.served[member].extend((arrival_ms, completion_ms, size, 0.0))
                return completion_ms
            if dirty > 0 and demand.is_read:
                service_ms *= DIRTY_READ_FACTOR
        completion_ms = start_ms + service_ms
        self._free_ms[member] = completion_ms
        self.served[member].extend((arrival_ms, completion_ms, size, demand.is_read))
        return completion_ms


def _reordered(device: StorageDevice, demand: Demand, backlog_ms: float) -> float:
    """Returns the service time of a request that waits for `backlog_ms`, ms."""
    if demand.is_read:
        mean_ms, transfer_ms = device.read_overhead_ms, demand.size / device.read_bytes_per_ms
    else:
        mean_ms, transfer_ms = device.write_overhead_ms, demand.size / device.write_bytes_per_ms
    overhead_ms = demand.service_ms - transfer_ms
    return transfer_ms + overhead_ms / (1 + device.reordering * log1p(backlog_ms / mean_ms))


class Operations:
    """What the threads of a closed load ask for next."""

    def __init__(self, load: ClosedLoad, device: StorageDevice, generator: np.random.Generator) -> None:
        self.load = load
        self.demands = self._endless(device, generator)

    def _endless(self, device: StorageDevice, generator: np.random.Generator) -> Iterator[Demand]:
        while True:
            demands = draw(generator, device, self.load.mix, DRAWN_AT_ONCE)
            picks = generator.integers(len(self.load.members), size=DRAWN_AT_ONCE)
            yield from map(
                Demand,
                picks.tolist(),
                demands.size.tolist(),
                demands.is_read.tolist(),
                demands.service_ms.tolist(),
                demands.unlucky.tolist(),
            )

    def run(self, devices: QueueingDevices, start_ms: float, turn: int) -> float:
        """Returns when an operation's last request is complete, ms; `turn` counts the thread's requests."""
        members, last_ms = self.load.members, start_ms
        for part in range(self.load.width):
            demand = next(self.demands)
            index = (turn + part) % len(members) if self.load.striped else demand.pick
            last_ms = max(last_ms, devices.serve(members[index], start_ms, demand))
        return last_ms


def serve_events(plan: LoadPlan, fault: QueueFault, seed: tuple[int, ...]) -> Iterator[ServedRequests]:
    """Yields the requests of each device, of any plan."""
    chance = random.Random(repr(seed))
    devices = QueueingDevices(plan, fault, chance)
    operations = [
        Operations(load, plan.device, np.random.default_rng([*seed, plan.members + k]))
        for k, load in enumerate(plan.closed_loads)
    ]
    # Time of the next operation, thread, its load, its turn. The thread orders equal times.
    waiting: list[tuple[float, int, int, int]] = []
    for k, load in enumerate(plan.closed_loads):
        for _ in range(load.threads):
            start_ms = load.begin_s * 1e3 + chance.uniform(0, 5e3)
            waiting.append((start_ms, len(waiting), k, chance.randrange(len(load.members))))
    heapq.heapify(waiting)
    never = (plan.seconds * 1e3, -1, Demand(0, 0.0, False, 0.0, False))
    for arrival_ms, member, demand in chain(_merged(plan, seed), [never]):
        while waiting and waiting[0][0] <= arrival_ms:
            start_ms, thread, k, turn = waiting[0]
            load = plan.closed_loads[k]
            if start_ms >= load.end_s * 1e3:
                heapq.heappop(waiting)
                continue
            last_ms = operations[k].run(devices, start_ms, turn)
            next_ms = last_ms + chance.expovariate(1 / load.think_ms)
            heapq.heapreplace(waiting, (next_ms, thread, k, turn + load.width))
        if member >= 0:
            devices.serve(member, arrival_ms, demand)
    for rows in devices.served:
        table = np.frombuffer(rows, np.float64).reshape(-1, 4) if rows else np.zeros((0, 4))
        yield ServedRequests(table[:, 0], table[:, 1], table[:, 2], table[:, 3] > 0)


def _merged(plan: LoadPlan, seed: tuple[int, ...]) -> Iterator[tuple[float, int, Demand]]:
    """Yields arrival (ms), member and demand of all devices' open requests in order of arrival."""
    requests = [
        open_requests(plan, member, np.random.default_rng([*seed, member])) for member in range(plan.members)
    ]
    members = np.repeat(np.arange(plan.members), [part.arrival_ms.size for part in requests])
    arrival_ms = np.concatenate([part.arrival_ms for part in requests])
    size = np.concatenate([part.demands.size for part in requests])
    is_read = np.concatenate([part.demands.is_read for part in requests])
    service_ms = np.concatenate([part.demands.service_ms for part in requests])
    unlucky = np.concatenate([part.demands.unlucky for part in requests])
    order = np.argsort(arrival_ms, kind="stable")
    for begin in range(0, order.size, READ_AT_ONCE):
        some = order[begin : begin + READ_AT_ONCE]
        demands = map(
            Demand,
            members[some].tolist(),
            size[some].tolist(),
            is_read[some].tolist(),
            service_ms[some].tolist(),
            unlucky[some].tolist(),
        )
        yield from zip(arrival_ms[some].tolist(), members[some].tolist(), demands, strict=True)
