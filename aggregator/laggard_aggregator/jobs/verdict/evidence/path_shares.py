"""Shares of a job's bytes that components carried, by the names that alarms have for them.

A server that many jobs use at once and that moved far more than its peers is busy, not slow: its long
latencies are those of its load, and it is no straggler on the job's path.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Final

from laggard_aggregator.jobs.index.reader import Row
from laggard_aggregator.jobs.join.volumes import SERVER, targets

_BUSY: Final = 2.0
"""Times the median volume of the other servers."""
_LEAST_PEERS: Final = 2


def names(component: str, node: str) -> set[str]:
    """Names by which a component of a job and one of an alarm are the same: its target, or both in full."""
    return targets(component) or {component, f"{node}/{component}"}


Place = tuple[str, str, str]
"""Layer, node and name of a component."""


def carried_shares(components: Iterable[Row]) -> dict[str, float]:
    """Share of the bytes of its layer by each name of a component of a job, of busy ones none."""
    rows = list(components)
    moved, busy = _volumes(rows), busy_servers(rows)
    of_layer: dict[str, float] = defaultdict(float)
    for (layer, _, _), volume in moved.items():
        of_layer[layer] += volume
    shares: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for key, volume in moved.items():
        layer, node, component = key
        if key in busy:
            continue
        for name in names(component, node):
            shares[name][layer] += volume / max(of_layer[layer], 1.0)
    return {name: max(by_layer.values()) for name, by_layer in shares.items()}


def busy_servers(components: Iterable[Row]) -> set[Place]:
    """Servers shared with other jobs that moved far more than the job's others: busy, not slow."""
    rows = list(components)
    moved = _volumes(rows)
    shared = {_place(row) for row in rows if row["shared"] and row["bytes"]}
    return {key for key in shared if _is_busy(key, moved)}


def _place(row: Row) -> Place:
    return row["layer"], row["node"], row["component"]


def _volumes(rows: Iterable[Row]) -> dict[Place, float]:
    moved: dict[Place, float] = defaultdict(float)
    for row in rows:
        moved[_place(row)] += row["bytes"] or 0.0
    return moved


def _is_busy(key: Place, moved: Mapping[Place, float]) -> bool:
    layer = key[0]
    others = [volume for other, volume in moved.items() if other[0] == layer and other != key]
    return layer == SERVER and len(others) >= _LEAST_PEERS and moved[key] > _BUSY * median(others)
