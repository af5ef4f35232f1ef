"""Requests of a device: arrivals of open loads, and when a device that serves in order completes them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.accuracy.queues.device import Demands, Floats, draw
from bench.accuracy.queues.fault import QueueFault
from bench.accuracy.queues.load import LoadPlan, OpenLoad


@dataclass(frozen=True, slots=True)
class ServedRequests:
    """Requests of one device in order of arrival, arrays of one length; times in ms, sizes in bytes."""

    arrival_ms: Floats
    completion_ms: Floats
    size: Floats
    is_read: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class OpenRequests:
    """Requests of open loads at one device in order of arrival, and all that chance decides about them."""

    arrival_ms: Floats
    demands: Demands


def open_requests(plan: LoadPlan, member: int, generator: np.random.Generator) -> OpenRequests:
    """Returns all requests of the plan's open loads at a member."""
    parts = [
        OpenRequests(arrival_ms, draw(generator, plan.device, load.mix, arrival_ms.size))
        for load in plan.open_loads
        if member in load.members
        for arrival_ms in [_arrivals(load, load.members.index(member), generator)]
    ]
    if not parts:
        nothing = np.zeros(0)
        return OpenRequests(nothing, Demands(nothing, nothing > 0, nothing, nothing > 0))
    arrival_ms = np.concatenate([part.arrival_ms for part in parts])
    order = np.argsort(arrival_ms, kind="stable")
    demands = Demands(
        np.concatenate([part.demands.size for part in parts])[order],
        np.concatenate([part.demands.is_read for part in parts])[order],
        np.concatenate([part.demands.service_ms for part in parts])[order],
        np.concatenate([part.demands.unlucky for part in parts])[order],
    )
    return OpenRequests(arrival_ms[order], demands)


def _arrivals(load: OpenLoad, index: int, generator: np.random.Generator) -> Floats:
    """Returns a Poisson process at the load's member `index` within its periods, ms, not sorted."""
    rate = load.rates_per_s[index]
    counts = [generator.poisson(rate * (end - begin)) for begin, end in load.periods_s]
    times = [
        generator.uniform(begin, end, count)
        for count, (begin, end) in zip(counts, load.periods_s, strict=True)
    ]
    return np.concatenate(times) * 1e3


def completions(arrival_ms: Floats, service_ms: Floats) -> Floats:
    """Returns when a device that serves in order completes each request, ms.

    Lindley's recursion, completion[k] = max(arrival[k], completion[k - 1]) + service[k], as a cumulative sum
    of service and the running maximum of the arrivals less the service before them.
    """
    served = np.cumsum(service_ms)
    idle_until: Floats = np.maximum.accumulate(arrival_ms - (served - service_ms))
    return served + idle_until


def serve_open(plan: LoadPlan, fault: QueueFault, seed: tuple[int, ...]) -> Iterator[ServedRequests]:
    """Yields the requests of each device in turn, for plans of open loads alone and without caches."""
    for member in range(plan.members):
        requests = open_requests(plan, member, np.random.default_rng([*seed, member]))
        service_ms = fault.service_ms(member, requests.arrival_ms, requests.demands)
        yield ServedRequests(
            requests.arrival_ms,
            completions(requests.arrival_ms, service_ms),
            requests.demands.size,
            requests.demands.is_read,
        )
