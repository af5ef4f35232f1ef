"""The hardware of the site: what a request costs where, in seconds. Chosen for latencies of milliseconds."""

import random
from dataclasses import dataclass

import numpy as np

from bench.beacon_site.shape import MIB, Shape
from bench.queue_site.network import Array

READ, WRITE, META = 0, 1, 2
KINDS = ("read", "write", "metadata")
NODES_A_HALF = 5
THREADS = 64
"""Of a forwarder."""
CPU_SERVERS, OST_SERVERS, MDT_SERVERS = 4, 4, 8
MINUTE = 60
_NOISE = 0.04
"""Standard deviation of a station's service time from minute to minute, and from station to station."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much of a site. `hours`: its time; `repeats`: injected runs of each kind; `programs`: ordinary."""

    hours: int
    slot_minutes: int
    programs: int
    repeats: int
    interval_seconds: int


SIZES = {
    "tiny": Size(hours=3, slot_minutes=30, programs=3, repeats=1, interval_seconds=10),
    "quick": Size(hours=24, slot_minutes=30, programs=9, repeats=4, interval_seconds=10),
    "default": Size(hours=48, slot_minutes=30, programs=10, repeats=8, interval_seconds=10),
}


def shape_of(size: Size, rng: random.Random) -> Shape:
    """Six to eight forwarders with ten compute nodes each, twelve or sixteen OSTs."""
    return Shape(
        forwarders=rng.choice((6, 7, 8)),
        nodes_per_lane=NODES_A_HALF,
        logins=4,
        servers=4,
        targets_per_server=rng.choice((3, 4)),
        interval_seconds=size.interval_seconds,
        batch_seconds=24 * size.interval_seconds,
    )


def client_seconds(bytes_: float) -> float:
    """At the compute node's own station."""
    return 0.1e-3 + bytes_ / 3e9


def cpu_seconds(kind: int) -> float:
    """Of a forwarder's processor, which has several."""
    return 0.2e-3 if kind == META else 0.4e-3


def net_seconds(bytes_: float) -> float:
    """Of a forwarder's link to the servers."""
    return 0.02e-3 + bytes_ / 2.5e9


def ost_seconds(kind: int, bytes_: float) -> float:
    """Of an OST's disks, which serve `OST_SERVERS` at once."""
    return OST_SERVERS * ((0.9e-3 if kind == WRITE else 0.8e-3) + bytes_ / 800e6)


MDT_SECONDS = MDT_SERVERS * 0.15e-3
LOCK_SECONDS = 6e-3
"""A write to a file that others write too: the lock of its stripe comes back from another client first."""


def think_seconds(kind: int, bytes_: float, of_mib: float) -> float:
    """Between requests of a process: it makes or uses the data."""
    return of_mib if kind == META else of_mib * (0.3 + 0.7 * bytes_ / MIB)


class Noise:
    """Service times of stations beside the nominal ones: minute by minute, the same for every simulation."""

    def __init__(self, shape: Shape, minutes: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        stations = 2 * shape.forwarders + shape.osts + shape.mdts
        self._static = np.exp(_NOISE * rng.standard_normal(stations))
        self._moving = np.exp(_NOISE * rng.standard_normal((minutes, stations)))
        self.node = np.exp(_NOISE * rng.standard_normal(shape.nodes + shape.logins))

    def stations(self, second: int) -> Array:
        """Factors of all forwarders' processors and links, OSTs and MDTs."""
        return np.asarray(self._static * self._moving[min(second // MINUTE, len(self._moving) - 1)])
