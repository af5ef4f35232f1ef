"""Steady state of a closed queueing network, by approximate mean value analysis."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_TOLERANCE = 3e-5
_MOST_ROUNDS = 400


@dataclass(frozen=True, slots=True)
class Load:
    """The customers: a class is one client node with a fixed number of requests, each always somewhere.

    Of C classes and S stations. `population`, `think`, `client`, `pool`: shape (C,); `think` and `client` in
    seconds, `client` at the node's own station, `pool` the forwarder whose threads it needs, -1 without.
    `visits`, `service`: shape (C, S), visits of a request to a station and seconds of each. `servers`: (S,).
    """

    population: Array
    think: Array
    client: Array
    pool: NDArray[np.int_]
    visits: Array
    service: Array
    servers: Array


@dataclass(frozen=True, slots=True)
class Steady:
    """Requests a second (C,), seconds at the node (C,), of waiting for a thread (C,), of a visit (C, S)."""

    rate: Array
    at_client: Array
    waiting: Array
    visit: Array

    def holding(self, load: Load) -> Array:
        """Seconds that a request holds its thread, (C,)."""
        return np.asarray((load.visits * self.visit).sum(axis=1))


def solve(load: Load, threads: int, before: Steady | None = None) -> Steady:
    """The steady state: Schweitzer's approximation, first come first served.

    A station with m servers is one that is m times as fast, and a delay of the rest (Seidmann). A thread is
    held while its request is at any station of the network (a layered network): arrivals see the requests
    that wait, and all threads busy as often as in M/M/m (Sakasegawa). `before` may be a solution of the same
    classes, or a guess, to begin with.
    """
    n = load.population
    queued = load.service / load.servers
    delay = load.service - queued
    pooled = load.pool >= 0
    pools = np.eye(int(load.pool.max(initial=-1)) + 1)[load.pool] * pooled[:, None] if pooled.any() else None
    others = (n - 1.0) / n
    if before is None:
        at_client, waiting, visit = load.client, np.zeros_like(n), load.service
    else:
        waiting = before.waiting
        at_client, visit = np.maximum(before.at_client, load.client), np.maximum(before.visit, load.service)
    rate = n / (load.think + at_client + waiting + (load.visits * visit).sum(axis=1))
    for _ in range(_MOST_ROUNDS):
        there = rate[:, None] * load.visits * (visit - delay)
        ahead = (queued * there).sum(axis=0) - queued * there / n[:, None]
        visit = (visit + load.service + ahead) / 2
        at_client = (at_client + load.client * (1.0 + others * rate * at_client)) / 2
        holding = (load.visits * visit).sum(axis=1)
        if pools is not None:
            passing = np.maximum(rate @ pools, 1e-12)
            busy = (rate * holding) @ pools
            full = np.minimum(busy / threads, 1.0) ** (np.sqrt(2.0 * (threads + 1)) - 1.0)
            in_line = pools @ ((rate * waiting) @ pools) - rate * waiting / n
            a_departure = pools @ (busy / passing / threads)
            waiting = (waiting + pooled * a_departure * (pools @ full + in_line)) / 2
        now = n / (load.think + at_client + waiting + holding)
        change = np.abs(now / rate - 1.0).max()
        rate = now
        if change < _TOLERANCE:
            break
    return Steady(rate, at_client, waiting, visit)
