"""Devices that serve one request at a time, and the requests that loads ask of them."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

KIB = 1024
MIB = 1024 * KIB

UNLUCKY_SHARE = 0.01
"""The share of requests that the fault `tail` stalls."""


@dataclass(frozen=True, slots=True)
class StorageDevice:
    """Costs of a request (an overhead that varies, bytes at a steady rate), and the cache of written data.

    With `reordering`, overhead falls as requests wait, for the device chooses the nearest:
    overhead / (1 + reordering log(1 + backlog / mean overhead)).
    """

    read_overhead_ms: float
    write_overhead_ms: float
    read_bytes_per_ms: float
    write_bytes_per_ms: float
    overhead_spread: Literal["seek", "flash"]
    cache_bytes: float = 0.0
    drain_bytes_per_ms: float = 0.0
    reordering: float = 0.0


DISK = StorageDevice(7.0, 5.5, 170e3, 160e3, "seek")
"""A disk of 7,200 turns a minute."""

REORDERING_DISK = replace(DISK, reordering=0.3)

CACHED_DISK = replace(REORDERING_DISK, cache_bytes=64e6, drain_bytes_per_ms=30e3)
"""Such a disk behind a controller that acknowledges writes from memory until 64 MB are dirty."""

NVME = StorageDevice(0.08, 0.025, 800e3, 500e3, "flash")


@dataclass(frozen=True, slots=True)
class RequestMix:
    """Request sizes in bytes, each as frequent as the others, and the share of reads."""

    sizes: tuple[int, ...]
    read_share: float

    def mean_service_ms(self, device: StorageDevice) -> float:
        """The mean time in service on a healthy device, ms."""
        size = sum(self.sizes) / len(self.sizes)
        read = device.read_overhead_ms + size / device.read_bytes_per_ms
        write = device.write_overhead_ms + size / device.write_bytes_per_ms
        return self.read_share * read + (1 - self.read_share) * write


@dataclass(frozen=True, slots=True)
class Demands:
    """Requests before their times are known, arrays of one length.

    `size` in bytes; `service_ms` on a healthy device; `unlucky` marks those that a member with `tail` stalls.
    """

    size: Floats
    is_read: NDArray[np.bool_]
    service_ms: Floats
    unlucky: NDArray[np.bool_]


def draw(generator: np.random.Generator, device: StorageDevice, mix: RequestMix, count: int) -> Demands:
    """Returns `count` random requests of `mix`."""
    size = generator.choice(np.array(mix.sizes, np.float64), count)
    is_read = generator.random(count) < mix.read_share
    overhead = np.where(is_read, device.read_overhead_ms, device.write_overhead_ms)
    if device.overhead_spread == "seek":
        overhead *= generator.uniform(0.2, 1.8, count)
    else:
        overhead *= 0.6 + 0.4 * generator.exponential(1.0, count)
    transfer = size / np.where(is_read, device.read_bytes_per_ms, device.write_bytes_per_ms)
    return Demands(size, is_read, overhead + transfer, generator.random(count) < UNLUCKY_SHARE)
