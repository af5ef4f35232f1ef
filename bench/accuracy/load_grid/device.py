"""A device: time that its requests need, queueing, and noise of the mean of an interval."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Random = np.random.Generator

MOST_BUSY = 0.9
"""Highest utilisation that load brings; 1 / (1 - u) is 10 there."""


def _flat(u: Array) -> Array:
    return np.ones_like(u)


def _mm1(u: Array) -> Array:
    return 1.0 / (1.0 - u)


def _saturating(u: Array) -> Array:
    return 1.0 + 2.0 * u / (u + 0.25)


def _merging(u: Array) -> Array:
    return 1.0 / (1.0 + 1.5 * u)


def _knee(u: Array) -> Array:
    return 1.0 + u**8 / (1.0 - u)


CURVES: Mapping[str, Callable[[Array], Array]] = {
    "flat": _flat,
    "mm1": _mm1,
    "saturating": _saturating,
    "merging": _merging,
    "knee": _knee,
}
"""Latency over utilisation (0-0.97), in multiples of the service time.

flat: none; mm1: one server's queue, 10 times at 0.9; saturating: steep at first and 2.6 times at 0.9;
merging: the more load, the less time a request takes, 0.43 times at 0.9; knee: flat up to the capacity of
several servers.
"""


@dataclass(frozen=True, slots=True)
class Service:
    """Seconds that a request occupies a device: `fixed` and `per_byte`, apart for reads and writes."""

    read_fixed: float = 0.006
    read_per_byte: float = 0.0
    write_fixed: float = 0.006
    write_per_byte: float = 0.0

    def seconds(self, request_bytes: Array, read_share: Array) -> Array:
        """The mean over requests of that size and share of reads."""
        read = self.read_fixed + self.read_per_byte * request_bytes
        write = self.write_fixed + self.write_per_byte * request_bytes
        return read_share * read + (1.0 - read_share) * write


CONSTANT = Service()
"""6 ms a request, whatever it is."""
DISK = Service(0.004, 1 / 150e6, 0.003, 1 / 90e6)
"""A disk: 4 ms and 150 MB/s for reads, 3 ms (a cache) and 90 MB/s for writes."""
FLASH = Service(0.0004, 1 / 900e6, 0.0008, 1 / 400e6)
"""Flash: 0.4 ms and 900 MB/s for reads, 0.8 ms and 400 MB/s for writes."""


def wander(rng: Random, shape: tuple[int, int], steps: float) -> Array:
    """Noise of variance 1 that is correlated over about `steps` samples (autoregressive); (C, T)."""
    keep = float(np.exp(-1.0 / steps))
    values = rng.standard_normal(shape)
    values[:, 1:] *= np.sqrt(1.0 - keep**2)
    for t in range(1, shape[1]):
        values[:, t] += keep * values[:, t - 1]
    return values


def noise(rng: Random, shape: tuple[int, int], sigma: float, wandering: float, steps: float) -> Array:
    """Lognormal factors with median 1 and log-deviation `sigma`.

    `wandering`: share of the variance that is correlated over `steps` samples; the rest is white.
    """
    logs = np.sqrt(1.0 - wandering) * rng.standard_normal(shape)
    if wandering:
        logs += np.sqrt(wandering) * wander(rng, shape, steps)
    factors: Array = np.exp(sigma * logs)
    return factors


def mean_of_requests(rng: Random, requests: Array) -> Array:
    """The mean time of `requests` requests in multiples of its expectation, their times exponential.

    0 where there is no request.
    """
    safe = np.maximum(requests, 1.0)
    means: Array = np.where(requests > 0, rng.gamma(safe) / safe, 0.0)
    return means
