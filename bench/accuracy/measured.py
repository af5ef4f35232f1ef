"""From recordings to the metrics that detectors compare, with the product's own definitions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.accuracy.simulation.counters import DISK_FIELDS, NET_FIELDS, Counters, Recording
from bench.accuracy.simulation.scenario import Array, BoolArray
from laggard_aggregator.metrics.block import BLOCK
from laggard_aggregator.metrics.definition import Differences, FloatArray, Metric, SourceMetrics

IDLE_BYTES_PER_S = 2.0**16
"""Added to what LUNs move, so that the chatter of an idle server is no anomaly."""


def _retransmits(d: Differences) -> FloatArray:
    """Share of segments sent again, as if a thousand more a second went out with the usual loss of 0.01 %."""
    return (d["RetransSegs"] / d.seconds + 0.1) / (d["OutSegs"] / d.seconds + 1000.0)


def _rate(counter: str) -> Metric:
    return Metric("1/s", +1, (counter,), lambda d: d[counter] / d.seconds)


NET = SourceMetrics(
    source="net",
    defaults=("rx_bytes", "tx_bytes", "retransmits"),
    metrics={
        **{name: _rate(name) for name in ("rx_bytes", "rx_packets", "tx_bytes", "tx_packets")},
        "retransmits": Metric("1", +1, ("RetransSegs", "OutSegs"), _retransmits),
    },
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One source of R runs. `metrics` and `load`: by name (R, C, T), NaN where a reading is missing."""

    source: SourceMetrics
    components: tuple[str, ...]
    metrics: Mapping[str, Array]
    load: Mapping[str, Array]


def measure(recording: Recording, block: Sequence[str], net: Sequence[str]) -> tuple[Measured, ...]:
    """The block metrics of the LUNs and, where there are several, the network metrics of the servers."""
    shape = recording.scenarios[0].shape
    interval = recording.scenarios[0].interval_seconds
    lost = np.repeat(recording.missing, shape.luns_per_server, axis=2)
    found = [_source(BLOCK, shape.lun_names, DISK_FIELDS, recording.disk, lost, interval, block)]
    if shape.servers > 1 and net:
        servers = _source(
            NET, shape.server_names, NET_FIELDS, recording.net, recording.missing, interval, net
        )
        throughput = found[0].load["throughput"]
        moved = throughput.reshape(len(throughput), shape.servers, -1, throughput.shape[-1]).sum(axis=2)
        found.append(_of_what_was_moved(servers, moved))
    return tuple(found)


def _of_what_was_moved(servers: Measured, moved: Array) -> Measured:
    """Traffic for each byte a second that the server's own LUNs moved; `moved` (R, S, T).

    Then a server that has more to do than its peers is like them, and one with foreign traffic is not.
    """
    metrics = {
        name: values if name == "retransmits" else values / (moved + IDLE_BYTES_PER_S)
        for name, values in servers.metrics.items()
    }
    return replace(servers, metrics=metrics)


def _source(
    source: SourceMetrics,
    components: tuple[str, ...],
    names: tuple[str, ...],
    counters: Counters,
    missing: BoolArray,
    interval: float,
    wanted: Sequence[str],
) -> Measured:
    needed, optional = source.counters(wanted)
    columns = [names.index(name) for name in (*needed, *optional)]
    read = counters[..., columns].swapaxes(1, 2)  # (R, C, T, N)
    gone = missing.swapaxes(1, 2)
    # A difference reaches back to the last reading there is, so that a lost one costs resolution only.
    ticks = np.arange(read.shape[2])
    last = np.maximum.accumulate(np.where(gone, -1, ticks), axis=2)
    before = np.concatenate([np.full((*last.shape[:2], 1), -1), last[..., :-1]], axis=2)
    taken = np.take_along_axis(read, np.maximum(before, 0)[..., None], axis=2)
    rises = read - np.where(before[..., None] < 0, 0, taken)
    told = ~gone & (rises >= 0).all(axis=3)
    seconds = np.where(told, (ticks - before) * interval, interval)
    differences = Differences((*needed, *optional), rises.reshape(-1, len(columns)), seconds.reshape(-1))

    def derived(metric: Metric) -> Array:
        values = metric.derive(differences).reshape(told.shape)
        return np.where(told, values, np.nan)

    return Measured(
        source,
        components,
        {name: derived(source.metrics[name]) for name in wanted},
        {name: derived(metric) for name, metric in source.load.items()},
    )
