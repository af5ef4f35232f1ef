"""The faults: the HotDep paper's six, and what else makes a LUN, a controller or a server slow."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bench.accuracy.simulation.scenario import Conditions, Guests, Scenario
from bench.accuracy.simulation.workloads import SEQUENTIAL_BYTES_PER_S

Span = slice
Apply = Callable[[Conditions, Scenario, Span, np.random.Generator], None]

RECEIVED, SENT = 0, 1
LOSS = 0.05


@dataclass(frozen=True, slots=True)
class Fault:
    """`apply` changes the conditions from the fault's first interval to its last, and says who is faulty.

    `level`: what should be blamed: a component (LUN), a controller, or a server, which stands for a network
    path too.
    """

    name: str
    level: str
    apply: Apply


def _one(conditions: Conditions, scenario: Scenario) -> tuple[int, int]:
    """A LUN and its server: a different one for each seed, as in the paper."""
    lun = scenario.seed % scenario.shape.luns
    conditions.faulty[lun] = True
    return lun, int(scenario.shape.server_of[lun])


def _disk_hog(c: Conditions, s: Scenario, span: Span, rng: np.random.Generator) -> None:
    lun, _ = _one(c, s)
    share = rng.uniform(0.5, 0.65)  # of the disk's time, that dd gets
    c.service[span, lun] /= 1 - share
    c.hog_read[span, lun] = share * SEQUENTIAL_BYTES_PER_S


def _disk_busy(c: Conditions, s: Scenario, span: Span, rng: np.random.Generator) -> None:
    lun, _ = _one(c, s)
    c.service[span, lun] *= rng.uniform(1.8, 2.6)
    c.sgm[span, lun] = True


def _network_hog(way: int) -> Apply:
    def apply(c: Conditions, s: Scenario, span: Span, rng: np.random.Generator) -> None:  # noqa: ARG001
        _, server = _one(c, s)
        c.hog_net[span, server, way] = True
        c.link[span, server, way] *= 1.8

    return apply


def _packet_loss(way: int) -> Apply:
    def apply(c: Conditions, s: Scenario, span: Span, rng: np.random.Generator) -> None:  # noqa: ARG001
        _, server = _one(c, s)
        c.loss[span, server, way] = LOSS

    return apply


def _slow(factor: float) -> Apply:
    def apply(c: Conditions, s: Scenario, span: Span, rng: np.random.Generator) -> None:  # noqa: ARG001
        lun, _ = _one(c, s)
        c.service[span, lun] *= factor

    return apply


def _slow_from_start(c: Conditions, s: Scenario, span: Span, rng: np.random.Generator) -> None:  # noqa: ARG001
    lun, _ = _one(c, s)
    c.service[: span.stop, lun] *= 1.5


def _drift(c: Conditions, s: Scenario, span: Span, rng: np.random.Generator) -> None:
    lun, _ = _one(c, s)
    steps = span.stop - span.start
    c.service[span, lun] *= np.linspace(1.0, rng.uniform(1.8, 2.5), steps)


def _intermittent(c: Conditions, s: Scenario, span: Span, rng: np.random.Generator) -> None:
    lun, _ = _one(c, s)
    at = float(span.start)
    while at < span.stop:
        on = rng.uniform(20.0, 60.0) / s.interval_seconds
        c.service[int(at) : min(int(at + on), span.stop), lun] *= rng.uniform(2.0, 4.0)
        at += on + rng.uniform(10.0, 40.0) / s.interval_seconds


def _rebuild(c: Conditions, s: Scenario, span: Span, rng: np.random.Generator) -> None:
    lun, _ = _one(c, s)
    steps = span.stop - span.start
    wave = 1 + 0.2 * np.sin(2 * np.pi * np.arange(steps) * s.interval_seconds / 50.0)
    c.service[span, lun] *= 1 + (rng.uniform(1.5, 2.2) - 1) * wave


def _failover(c: Conditions, s: Scenario, span: Span, rng: np.random.Generator) -> None:
    failed = s.seed % s.shape.controllers
    c.faulty[:] = s.shape.controller_of == failed
    stall = int(rng.uniform(5.0, 15.0) / s.interval_seconds)
    c.service[span.start : span.start + stall, c.faulty] *= 20.0
    c.service[span.start + stall : span.stop, c.faulty] *= rng.uniform(1.5, 2.5)


def _server_slow(c: Conditions, s: Scenario, span: Span, rng: np.random.Generator) -> None:
    c.faulty[:] = s.shape.server_of == s.seed % s.shape.servers
    c.service[span, c.faulty] *= rng.uniform(1.5, 3.0)


def _server_cpu(c: Conditions, s: Scenario, span: Span, rng: np.random.Generator) -> None:
    _, server = _one(c, s)
    c.server_seconds[span, server] = rng.uniform(0.03, 0.06)


def _several(*factors: float) -> Apply:
    def apply(c: Conditions, s: Scenario, span: Span, rng: np.random.Generator) -> None:
        chosen = rng.permutation(s.shape.luns)[: len(factors)]
        c.faulty[chosen] = True
        c.service[span, chosen] *= np.array(factors)

    return apply


def _none(c: Conditions, s: Scenario, span: Span, rng: np.random.Generator) -> None:
    pass


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("none", "component", _none),
        Fault("disk-hog", "component", _disk_hog),
        Fault("disk-busy", "component", _disk_busy),
        Fault("write-network-hog", "server", _network_hog(RECEIVED)),
        Fault("read-network-hog", "server", _network_hog(SENT)),
        Fault("receive-pktloss", "server", _packet_loss(RECEIVED)),
        Fault("send-pktloss", "server", _packet_loss(SENT)),
        Fault("lun-slow-1.2", "component", _slow(1.2)),
        Fault("lun-slow-1.5", "component", _slow(1.5)),
        Fault("lun-slow-2", "component", _slow(2.0)),
        Fault("lun-slow-4", "component", _slow(4.0)),
        Fault("lun-slow-10", "component", _slow(10.0)),
        Fault("lun-slow-from-start", "component", _slow_from_start),
        Fault("lun-drift", "component", _drift),
        Fault("lun-intermittent", "component", _intermittent),
        Fault("raid-rebuild", "component", _rebuild),
        Fault("controller-failover", "controller", _failover),
        Fault("server-slow", "server", _server_slow),
        Fault("server-cpu", "server", _server_cpu),
        Fault("two-slow", "component", _several(1.6, 1.2)),
        Fault("three-slow", "component", _several(1.5, 2.0, 3.0)),
        Fault("five-slow", "component", _several(1.4, 1.6, 1.8, 2.2, 3.0)),
    )
}


def _hog(in_flight: int) -> Apply:
    """A program on the server that keeps `in_flight` requests at the LUN, counted like the clients'."""

    def apply(c: Conditions, s: Scenario, span: Span, rng: np.random.Generator) -> None:  # noqa: ARG001
        lun, _ = _one(c, s)
        c.guests = Guests(lun, in_flight, 1, 0.0, s.start, s.end, local=True)

    return apply


def _hot(times: float) -> Apply:
    """More clients, each as idle as the workload's: a healthy LUN's load is up to `times` its peers'."""

    def apply(c: Conditions, s: Scenario, span: Span, rng: np.random.Generator) -> None:  # noqa: ARG001
        lun = s.seed % s.shape.luns
        workload = s.workload
        worth = (times - 1.0) * min(workload.stripe, s.shape.luns)  # each LUN serves so many clients' time
        count = int(np.ceil(worth))
        think = workload.think_ms / 1000 * count / worth
        c.guests = Guests(lun, count, workload.requests, think, s.start, s.end, local=False)

    return apply


def _slow_at_times(seconds: float, of_seconds: float) -> Apply:
    """3 times slower for `seconds` of every `of_seconds`."""

    def apply(c: Conditions, s: Scenario, span: Span, rng: np.random.Generator) -> None:
        lun, _ = _one(c, s)
        # Finer than an interval, as spells begin anywhere in it.
        steps = 60
        at = (np.arange((span.stop - span.start) * steps) + 0.5) * s.interval_seconds / steps
        slow = (at + rng.uniform(0.0, of_seconds)) % of_seconds < seconds
        c.service[span, lun] *= 1.0 + 2.0 * slow.reshape(-1, steps).mean(axis=1)

    return apply


def _every_third(c: Conditions, s: Scenario, span: Span, rng: np.random.Generator) -> None:  # noqa: ARG001
    lun, _ = _one(c, s)
    c.service[span.start : span.stop : 3, lun] *= 3.0


CASES = {
    fault.name: fault
    for fault in (
        *(Fault(f"hog-{count}", "component", _hog(count)) for count in (1, 4, 8, 16)),
        *(Fault(f"hot-{times}", "component", _hot(times)) for times in (1.2, 1.45, 2)),
        Fault("20-of-60-s", "component", _slow_at_times(20.0, 60.0)),
        Fault("third-interval", "component", _every_third),
        Fault("5-of-15-min", "component", _slow_at_times(300.0, 900.0)),
    )
}
"""Faults that the papers do not have, and a hot LUN, which is none (`bench.accuracy.cases`)."""


def _client_slow(c: Conditions, s: Scenario, span: Span, rng: np.random.Generator) -> None:
    c.faulty_client = s.seed % s.shape.luns  # one client a LUN
    c.client[span, c.faulty_client] = rng.uniform(1.5, 3.0)


def _server_busy(c: Conditions, s: Scenario, span: Span, rng: np.random.Generator) -> None:
    c.faulty[:] = s.shape.server_of == s.seed % s.shape.servers
    c.work[span, s.seed % s.shape.servers] = rng.uniform(1.5, 3.0)


WITH_TIMES = {
    fault.name: fault
    for fault in (
        Fault("server-busy", "server", _server_busy),
        Fault("client-slow", "client", _client_slow),
    )
}
"""Faults that only show in the times of requests, which `bench.accuracy.levels` alone has."""


def inject(conditions: Conditions, scenario: Scenario, rng: np.random.Generator) -> None:
    """Applies the scenario's fault to `conditions`."""
    fault = (FAULTS | CASES | WITH_TIMES)[scenario.fault]
    conditions.level = fault.level
    first, last = scenario.start / scenario.interval_seconds, scenario.end / scenario.interval_seconds
    fault.apply(conditions, scenario, slice(round(first), round(last)), rng)
