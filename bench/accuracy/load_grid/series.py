"""One peer group's series, and its making from load, service, queueing, noise and faults."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.accuracy.load_grid.device import CONSTANT, CURVES, Array, Random, Service, mean_of_requests, noise
from bench.accuracy.load_grid.load import Shape

EPOCH = 1_794_009_600
"""Begin of every series: a midnight UTC."""
UNLIMITED = 0.97
"""Highest utilisation of a device; more requests than fit are not served."""
UNIT_SPREAD = 0.03
"""Log-deviation of healthy units' service times from each other."""


@dataclass(frozen=True, slots=True)
class Episode:
    """A fault of `component` from `begin` to `end` (seconds since EPOCH), `factor` times slower."""

    component: str
    begin: float
    end: float
    factor: float


@dataclass(frozen=True, slots=True)
class Part:
    """All components whose `attribute` has that `value` are slow together; seconds since EPOCH."""

    attribute: str
    value: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Series:
    """T intervals of C components.

    `latency` (C, T): ms, the mean of an interval's requests, 0 without I/O. `load` (C, T) by name:
    `operations` (requests completed in the interval), `throughput` (bytes/s), `request_bytes` (mean size, 0
    without I/O), `read_share` (0-1, 0 without I/O). `attributes`: by name (server, model, pool), the value of
    each component that has one. `ill`: components with a fault of their own; `slow_parts` are told as wholes,
    and no member of them is to be named alone.
    """

    components: tuple[str, ...]
    interval_seconds: float
    latency: Array
    load: Mapping[str, Array]
    ill: tuple[Episode, ...] = ()
    attributes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    slow_parts: tuple[Part, ...] = ()

    @property
    def times(self) -> Array:
        """Ends of the intervals, epoch seconds (T,)."""
        ends: Array = EPOCH + self.interval_seconds * np.arange(1, self.latency.shape[1] + 1)
        return ends

    def columns(self, begin: float, end: float) -> slice:
        """The intervals that begin between two times, seconds since EPOCH."""
        first, last = (round(seconds / self.interval_seconds) for seconds in (begin, end))
        return slice(first, last)


@dataclass(frozen=True, slots=True)
class Device:
    """The properties that the members of a group share.

    `noise`: log-deviation of the mean of an interval; `wandering`: share of its variance that is correlated
    over five minutes. `spread`: log-deviation of units from each other.
    """

    curve: str = "flat"
    noise: float = 0.1
    wandering: float = 0.0
    spread: float = UNIT_SPREAD


@dataclass(frozen=True, slots=True)
class Requests:
    """The kind of requests (C, T): mean bytes, share of reads 0-1, mean service time of a standard unit."""

    request_bytes: Array
    read_share: Array
    seconds: Array


def requests_of(service: Service, request_bytes: Array, read_share: Array) -> Requests:
    """Requests of one size and share of reads in each interval (C, T)."""
    return Requests(request_bytes, read_share, service.seconds(request_bytes, read_share))


def alike(
    shape: Shape, service: Service = CONSTANT, request_bytes: float = 65536.0, read_share: float = 0.5
) -> Requests:
    """Requests that are the same everywhere and always."""
    return requests_of(service, np.full(shape.both, request_bytes), np.full(shape.both, read_share))


def names(members: int) -> tuple[str, ...]:
    """`d00`, `d01`, ..."""
    return tuple(f"d{member:02d}" for member in range(members))


def episode_factors(components: Sequence[str], shape: Shape, ill: Sequence[Episode]) -> Array:
    """Factors (C, T) of all faults, 1 where there is none."""
    factors = np.ones(shape.both)
    for fault in ill:
        first, last = (round(shape.steps(seconds)) for seconds in (fault.begin, fault.end))
        factors[components.index(fault.component), first:last] *= fault.factor
    return factors


def open_loop(
    rng: Random,
    shape: Shape,
    device: Device,
    busy: Array,
    requests: Requests,
    factors: Array,
    service_factors: Array | None = None,
    scale: Array | None = None,
) -> tuple[Array, Array]:
    """Latency in ms and operations (C, T) of requests that arrive whatever the latency.

    `busy` (C, T): utilisation of a standard healthy unit, 0 without I/O. `factors` multiply latency and leave
    the queue as it is (a slow path). `service_factors` multiply the time that a request occupies the device,
    and so its utilisation; beyond UNLIMITED requests are not served. `scale` (C, 1): service times of classes
    of devices in multiples of the standard. The healthy units' spread leaves the queue as it is: at 90 % a
    unit whose service takes 6 % longer would wait 2.3 times as long, and no longer be like its peers.
    """
    standard = requests.seconds
    units = np.exp(device.spread * rng.standard_normal((shape.members, 1)))
    slower = np.ones(shape.both) if scale is None else scale * np.ones(shape.both)
    if service_factors is not None:
        slower = slower * service_factors
    offered = busy * slower
    used = np.minimum(offered, UNLIMITED)
    served = np.divide(used, offered, out=np.ones_like(offered), where=offered > 0)
    counts = rng.poisson(busy / standard * shape.interval_seconds * served).astype(np.float64)
    expected = standard * units * slower * CURVES[device.curve](used) * factors
    latency = 1000.0 * expected * mean_of_requests(rng, counts)
    return latency * noise(rng, shape.both, device.noise, device.wandering, shape.steps(300.0)), counts


def closed_loop(
    rng: Random, shape: Shape, device: Device, depth: Array, requests: Requests, factors: Array
) -> tuple[Array, Array]:
    """Latency in ms and operations (C, T) of `depth` requests in flight: operations = depth * time / latency.

    The curve is taken at depth / (depth + 1), which for `mm1` is the exact utilisation.
    """
    standard = requests.seconds
    units = np.exp(device.spread * rng.standard_normal((shape.members, 1)))
    expected = standard * units * CURVES[device.curve](depth / (depth + 1.0)) * factors
    expected = expected * noise(rng, shape.both, device.noise, device.wandering, shape.steps(300.0))
    counts = np.floor(depth * shape.interval_seconds / expected + rng.random(shape.both))
    latency = np.where(counts > 0, 1000.0 * expected, 0.0)
    return latency, counts


def assembled(
    shape: Shape,
    components: tuple[str, ...],
    latency_and_counts: tuple[Array, Array],
    requests: Requests,
    ill: Sequence[Episode] = (),
    attributes: Mapping[str, Mapping[str, str]] | None = None,
    slow_parts: tuple[Part, ...] = (),
) -> Series:
    """The series of one group."""
    latency, counts = latency_and_counts
    active = counts > 0
    load = {
        "operations": counts,
        "throughput": counts * requests.request_bytes / shape.interval_seconds,
        "request_bytes": np.where(active, requests.request_bytes, 0.0),
        "read_share": np.where(active, requests.read_share, 0.0),
    }
    known = {} if attributes is None else attributes
    return Series(components, shape.interval_seconds, latency, load, tuple(ill), known, slow_parts)
