"""From recordings to the metrics that detectors compare, with the product's own definitions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.accuracy.simulation.counters import DISK_FIELDS, NET_FIELDS, Counters, Recording
from bench.accuracy.simulation.scenario import Array, BoolArray
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.metrics.block import BLOCK
from laggard_aggregator.metrics.definition import Differences, Metric, SourceMetrics
from laggard_aggregator.metrics.sums import JoinedMetrics, joined, summed
from laggard_aggregator.metrics.tcp import TCP
from laggard_aggregator.metrics.traffic import SERVER

NETWORK = (TCP, SERVER)
_FIELDS = {"diskstats": DISK_FIELDS, "net": NET_FIELDS, "tcp": NET_FIELDS}
_SHIFT = DetectSettings().shift_samples


@dataclass(frozen=True, slots=True)
class Measured:
    """One source of R runs. `metrics` and `load`: by name (R, C, T), NaN where a reading is missing."""

    source: SourceMetrics
    components: tuple[str, ...]
    metrics: Mapping[str, Array]
    load: Mapping[str, Array]


def measure(recording: Recording, block: Sequence[str], *, network: bool = True) -> tuple[Measured, ...]:
    """The block metrics of the LUNs and, where there are several servers, the default ones of NETWORK."""
    shape = recording.scenarios[0].shape
    found = [_of_luns(recording, block)]
    if shape.servers > 1 and network:
        found += [_of_servers(recording, source) for source in NETWORK]
    return tuple(found)


def _of_luns(recording: Recording, wanted: Sequence[str]) -> Measured:
    columns, load = BLOCK.kept(wanted)
    rises = _Rises(recording, "diskstats")
    return Measured(
        BLOCK,
        recording.scenarios[0].shape.lun_names,
        {name: rises.derived(metric) for name, metric in columns.items()},
        {name: rises.derived(metric) for name, metric in load.items()},
    )


def _of_servers(recording: Recording, source: JoinedMetrics) -> Measured:
    """As the product's store makes it of one run's counters, for all runs."""
    scenario = recording.scenarios[0]
    shape, wanted = scenario.shape, source.defaults
    kept, _ = source.kept(wanted)
    rises = {part: _Rises(recording, part) for part in source.parts}
    runs = []
    for run in range(len(recording.scenarios)):
        amounts = {}
        for part, counters in source.parts.items():
            sums = shape.server_of if part == "diskstats" else np.arange(shape.servers)
            for name in counters:
                amounts[name] = summed(rises[part].derived(kept[name])[run], sums, shape.servers)
        columns, _ = joined(source, wanted, amounts, scenario.interval_seconds)
        runs.append({name: source.metrics[name].values(name, columns, _SHIFT) for name in wanted})
    metrics = {name: np.stack([one[name] for one in runs]) for name in wanted}
    return Measured(source, tuple(f"{name}/{source.source}" for name in shape.server_names), metrics, {})


class _Rises:
    """How much the counters of one source rose from reading to reading, (R, C, T)."""

    def __init__(self, recording: Recording, source: str) -> None:
        scenario = recording.scenarios[0]
        counters: Counters = recording.disk if source == "diskstats" else recording.net
        missing: BoolArray = recording.missing
        if source == "diskstats":
            missing = np.repeat(missing, scenario.shape.luns_per_server, axis=2)
        read = counters.swapaxes(1, 2)  # (R, C, T, N)
        gone = missing.swapaxes(1, 2)
        # A difference reaches back to the last reading there is, so that a lost one costs resolution only.
        ticks = np.arange(read.shape[2])
        last = np.maximum.accumulate(np.where(gone, -1, ticks), axis=2)
        before = np.concatenate([np.full((*last.shape[:2], 1), -1), last[..., :-1]], axis=2)
        taken = np.take_along_axis(read, np.maximum(before, 0)[..., None], axis=2)
        rises = read - np.where(before[..., None] < 0, 0, taken)
        interval = scenario.interval_seconds
        gauges = [at for at, name in enumerate(_FIELDS[source]) if name == "in_flight"]
        self._told = ~gone & (np.delete(rises, gauges, axis=3) >= 0).all(axis=3)
        seconds = np.where(self._told, (ticks - before) * interval, interval)
        width = len(_FIELDS[source])
        self._differences = Differences(_FIELDS[source], rises.reshape(-1, width), seconds.reshape(-1))

    def derived(self, metric: Metric) -> Array:
        """What `metric` makes of them, (R, C, T)."""
        values = metric.derive(self._differences).reshape(self._told.shape)
        return np.where(self._told, values, np.nan)
