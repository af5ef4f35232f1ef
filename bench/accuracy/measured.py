"""From recordings to the metrics that detectors compare, with the product's own definitions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.accuracy.simulation.counters import DISK_FIELDS, NET_FIELDS, Counters, Recording
from bench.accuracy.simulation.scenario import Array, BoolArray
from laggard_aggregator.metrics.block import BLOCK
from laggard_aggregator.metrics.definition import Differences, Metric, SourceMetrics


def _rate(counter: str) -> Metric:
    return Metric("1/s", +1, (counter,), lambda d: d[counter] / d.seconds)


NET = SourceMetrics(
    source="net",
    defaults=("rx_bytes", "tx_bytes", "retransmits"),
    metrics={
        **{name: _rate(name) for name in ("rx_bytes", "rx_packets", "tx_bytes", "tx_packets")},
        # One more a second than there are: their ratio must mean something where there are hardly any.
        "retransmits": Metric("segments/s", 1, ("RetransSegs",), lambda d: d["RetransSegs"] / d.seconds + 1),
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
    of_luns = np.repeat(recording.missing, shape.luns_per_server, axis=2)
    found = [_source(BLOCK, shape.lun_names, DISK_FIELDS, recording.disk, of_luns, interval, block)]
    if shape.servers > 1 and net:
        servers = _source(
            NET, shape.server_names, NET_FIELDS, recording.net, recording.missing, interval, net
        )
        # A server's traffic is held against what its own LUNs moved.
        moved = (
            found[0]
            .load["throughput"]
            .reshape(len(recording.scenarios), shape.servers, -1, recording.scenarios[0].samples)
        )
        found.append(replace(servers, load={"throughput": moved.sum(axis=2)}))
    return tuple(found)


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
