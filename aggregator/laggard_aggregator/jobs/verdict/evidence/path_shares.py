"""Shares of a job's bytes that components carried, by the names that alarms have for them.

A server that many jobs use at once and that moved far more than its peers is busy, not slow: its long
latencies are those of its load, and it is no straggler on the job's path.
"""

from collections import defaultdict
from collections.abc import Iterable
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


def carried_shares(components: Iterable[Row]) -> dict[str, float]:
    """Share of the bytes of its layer by each name of a component of a job, of busy ones none."""
    moved: dict[tuple[str, str, str], float] = defaultdict(float)
    shared: set[tuple[str, str, str]] = set()
    of_layer: dict[str, float] = defaultdict(float)
    for row in components:
        key, volume = (row["layer"], row["node"], row["component"]), row["bytes"] or 0.0
        moved[key] += volume
        of_layer[row["layer"]] += volume
        if row["shared"] and volume:
            shared.add(key)
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for key, volume in moved.items():
        layer, node, component = key
        if key in shared and _is_busy(key, moved):
            continue
        for name in names(component, node):
            found[name][layer] += volume / max(of_layer[layer], 1.0)
    return {name: max(by_layer.values()) for name, by_layer in found.items()}


def _is_busy(key: tuple[str, str, str], moved: dict[tuple[str, str, str], float]) -> bool:
    layer = key[0]
    others = [volume for other, volume in moved.items() if other[0] == layer and other != key]
    return layer == SERVER and len(others) >= _LEAST_PEERS and moved[key] > _BUSY * median(others)
