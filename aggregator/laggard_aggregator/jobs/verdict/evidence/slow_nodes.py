"""Nodes of a job whose clients had longer waits than those of its other nodes, by its `job_components`.

Traces have no latencies: nodes that are known by them are compared by the time in which they moved something.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from laggard_aggregator.jobs.index.reader import Row
from laggard_aggregator.jobs.join.client_traces import COMPONENT as TRACED
from laggard_aggregator.jobs.join.volumes import CLIENT
from laggard_aggregator.jobs.verdict.evidence.path_parts import SLOW, PathPart, waits_for_target
from laggard_aggregator.jobs.verdict.evidence.slow_parts import SlowPart

NODE: Final = "node"
_LEAST_OTHERS: Final = 2
_LEAST_REQUESTS: Final = 20.0
_VERBS: Final = {"read": "reads", "write": "writes"}


def slow_nodes(
    components: Sequence[Row],
    earlier: Iterable[Sequence[Row]],
    served_by: Mapping[str, str],
    directions: Iterable[str],
    path: Collection[PathPart] = (),
) -> Iterator[SlowPart]:
    """Yields the nodes whose requests took longer than on those behind the same forwarder, known alike.

    They must be as much slower than any node was in most of the `earlier` runs, since one that writes for the
    others always waits longer. A node whose files lie on a slow OST of the `path` waits for that. No node of
    a job with fewer than three nodes behind a forwarder is slow.
    """
    runs = list(earlier)
    for direction in (known for known in directions if known in _VERBS):
        usual = [max(_factors(run, direction, served_by).values(), default=1.0) for run in runs]
        least = SLOW * max(float(np.median(usual)) if usual else 1.0, 1.0)
        factors = _factors(components, direction, served_by)
        total = sum(moved for _, _, moved in _waits(components, direction).values())
        for node, factor in factors.items():
            if factor >= least and not waits_for_target(direction, factor, path):
                _, _, moved = _waits(components, direction)[node]
                others = f"the {len(factors) - 1} other nodes of the job"
                text = f"its {_VERBS[direction]} took {factor:.1f} times as long as on {others}"
                share = moved / max(total, 1.0)
                yield SlowPart(node, NODE, factor, len(factors) - 1, share, text, direction)


def _factors(components: Sequence[Row], direction: str, served_by: Mapping[str, str]) -> dict[str, float]:
    """Mean wait of each node as a multiple of the median of the others behind its forwarder."""
    traced = {row["node"] for row in components if row["component"] == TRACED}
    groups: dict[tuple[str | None, bool], dict[str, float]] = defaultdict(dict)
    for node, (seconds, count, _) in _waits(components, direction).items():
        groups[served_by.get(node), node in traced][node] = seconds / count
    return {
        node: wait / float(np.median(others))
        for group in groups.values()
        for node, wait in group.items()
        if len(others := [other for name, other in group.items() if name != node]) >= _LEAST_OTHERS
    }


def _waits(components: Sequence[Row], direction: str) -> dict[str, tuple[float, float, float]]:
    """Seconds waited, requests and bytes by node, of nodes with enough requests whose time is known."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for row in components:
        if row["layer"] != CLIENT or row["direction"] != direction:
            continue
        seconds = row["busy_seconds"] if row["component"] == TRACED else row["latency_seconds"]
        if seconds:
            own = sums[row["node"]]
            own[0] += seconds
            own[1] += row["operations"] or 0.0
            own[2] += row["bytes"] or 0.0
    return {node: (own[0], own[1], own[2]) for node, own in sums.items() if own[1] >= _LEAST_REQUESTS}
