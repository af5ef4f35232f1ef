"""The path of a job's I/O by its results: its nodes, forwarders, OSTs and MDTs, and their shares."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from laggard_aggregator.jobs.index.reader import Row
from laggard_aggregator.jobs.join.volumes import CLIENT, FORWARDER, is_ost, targets
from laggard_aggregator.jobs.verdict.analysis.phases import Phase, timed
from laggard_aggregator.jobs.verdict.evidence.minute_sums import Times
from laggard_aggregator.jobs.verdict.evidence.path_parts import RunPath
from laggard_aggregator.jobs.verdict.evidence.target_shares import MDT, OST, TargetShares

_OF_LOSS: Final = 0.25
"""Share of the largest time lost in a direction; a direction that lost less is not slow."""


def run_path(
    components: Sequence[Row], phases: Iterable[Phase], served_by: Mapping[str, str], shares: TargetShares
) -> RunPath:
    """The path of a run with these rows of `job_components`; by `shares` where they name no target."""
    spans: dict[str, list[Times]] = defaultdict(list)
    for phase in phases:
        spans[phase.direction].append((phase.start, phase.end))
    nodes = frozenset(row["node"] for row in components if row["layer"] == CLIENT)
    used = {target for row in components for target in targets(row["component"])}
    osts = frozenset(filter(is_ost, used))
    parts = {
        OST: osts or frozenset(shares.get(OST, ())),
        MDT: frozenset(used - osts) or frozenset(shares.get(MDT, ())),
        FORWARDER: forwarders_of(components, served_by),
    }
    return RunPath(dict(spans), parts, nodes)


def forwarders_of(components: Sequence[Row], served_by: Mapping[str, str]) -> frozenset[str]:
    """The forwarders of a job with these rows of `job_components`."""
    forwarders = {row["node"] for row in components if row["layer"] == FORWARDER}
    nodes = {row["node"] for row in components if row["layer"] == CLIENT}
    return frozenset(forwarders | {served_by[node] for node in nodes if node in served_by})


def part_shares(components: Iterable[Row], served_by: Mapping[str, str]) -> dict[str, float]:
    """Share of the job's operations, or bytes, that each forwarder, OST and MDT of its path had."""
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in components:
        amount = (row["operations"] if row["direction"] == "metadata" else row["bytes"]) or 0.0
        for target in targets(row["component"]):
            sums["metadata" if row["direction"] == "metadata" else "bytes"][target] += amount
        forwarder = served_by.get(row["node"]) if row["layer"] == CLIENT else None
        if forwarder is not None and row["direction"] != "metadata":
            sums["forwarder"][forwarder] += amount
    return {
        name: amount / total
        for of_kind in sums.values()
        if (total := sum(of_kind.values()))
        for name, amount in of_kind.items()
    }


def slow_directions(phases: Sequence[Phase], earlier: Sequence[Sequence[Phase]]) -> list[str]:
    """The directions whose phases lost most of the time, beside earlier runs with the same volume."""
    lost: dict[str, float] = {}
    for direction in sorted({phase.direction for phase in timed(phases)}):
        seconds, amount = _sums(phases, direction)
        before = [_sums(run, direction) for run in earlier]
        known = [(took, moved) for took, moved in before if took > 0 and moved > 0]
        if known:
            usual = float(np.median([took for took, _ in known]))
            volume = float(np.median([moved for _, moved in known]))
            lost[direction] = seconds - usual * amount / volume
        else:
            lost[direction] = seconds
    most = max(lost.values())
    return [direction for direction, loss in lost.items() if loss >= min(_OF_LOSS * most, most)]


def _sums(phases: Iterable[Phase], direction: str) -> Times:
    """Busy seconds and amount of the phases of a direction."""
    own = [phase for phase in phases if phase.direction == direction]
    return sum(phase.busy_seconds for phase in own), sum(phase.amount for phase in own)
