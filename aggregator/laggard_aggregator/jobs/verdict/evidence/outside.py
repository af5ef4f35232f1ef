"""Loads of nodes without a job, such as login nodes, on components that are slow for a job.

They are known by their own clients' counters: RPCs to MDTs and OSTs (`lustre_mdc`, `lustre_osc`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from laggard_aggregator.jobs.access.queries import MANY_OPERATIONS, rounded
from laggard_aggregator.jobs.join.volumes import targets
from laggard_aggregator.jobs.records.hostlist import short_name
from laggard_aggregator.jobs.verdict.analysis.causes import Neighbour
from laggard_aggregator.jobs.verdict.evidence.minute_sums import Rollups, Times, hull
from laggard_aggregator.jobs.verdict.evidence.neighbours import PathState
from laggard_aggregator.jobs.verdict.evidence.path_parts import MOVED, OPERATIONS, REQUESTS
from laggard_aggregator.jobs.verdict.evidence.target_shares import MDT, OST, USES

_SOURCES: Final = {
    MDT: (*USES[MDT], OPERATIONS, "metadata operations a second"),
    OST: (*USES[OST], REQUESTS, "requests a second"),
}
_LEAST_PART: Final = 0.5
"""Of the load of all such nodes together, which one must have to be named."""
_MOST_NODES: Final = 4


@dataclass(frozen=True, slots=True)
class OutsideLoad:
    """`evidence`, whose `job` is the name of the node, and the same in words."""

    evidence: Neighbour
    text: str


@dataclass(frozen=True, slots=True)
class OutsideLoads:
    """Loads by the archive in `directory`. `had_job`: whether a node had a job between two times."""

    directory: Path
    had_job: Callable[[str, float, float], bool]

    def evidence(
        self, path: PathState, spans: Sequence[Times], earlier: Sequence[Sequence[Times]]
    ) -> Iterator[OutsideLoad]:
        """Yields evidence for each slower OST and MDT of a path. Raises ArchiveError."""
        for part in path.parts.values():
            if part.kind not in _SOURCES:
                continue
            source, fields, unit, words = _SOURCES[part.kind]
            slowdown = path.slowdown((part.name, unit))
            if not slowdown >= MOVED:
                continue
            now = self._rates(source, fields, part.name, spans)
            heaviest = sorted(now, key=lambda node: -now[node])[:_MOST_NODES]
            free = [node for node in heaviest if self._is_free(node, path, spans)]
            if not free or now[free[0]] < max(MANY_OPERATIONS, _LEAST_PART * sum(now[node] for node in free)):
                continue
            node = free[0]
            before = [self._rates(source, fields, part.name, run).get(node, 0.0) for run in earlier]
            usual = float(np.median(before)) if before else 0.0
            rise = f"{rounded(now[node] / usual)} times its usual load" if usual else "usually without load"
            load = f"{rounded(now[node])} {words} on {part.name}"
            text = (
                f"{part.name} was {slowdown:.1f} times slower than usual: "
                f"{node}, which has no job, ran with {load}, {rise}"
            )
            evidence = Neighbour(
                node,
                part.name,
                unit,
                now[node],
                0.0,
                np.array(before),
                slowdown=slowdown,
                by_chance=part.by_chance,
            )
            yield OutsideLoad(evidence, text)

    def _is_free(self, node: str, path: PathState, spans: Sequence[Times]) -> bool:
        if short_name(node) in path.forwarders:
            return False
        return not any(self.had_job(node, *span) for span in spans)

    def _rates(
        self, source: str, fields: tuple[str, ...], target: str, spans: Sequence[Times]
    ) -> dict[str, float]:
        """Requests a second of each node to a target."""

        def named(node: str, name: str) -> str | None:
            return node if target in targets(name) else None

        sums = Rollups(source, fields, named).read(self.directory, *hull(spans))
        if sums is None:
            return {}
        counts, seconds = sums.during(spans)
        rates = counts.sum(axis=0) / max(seconds, 1.0)
        return dict(zip(sums.names, rates.tolist(), strict=True))
