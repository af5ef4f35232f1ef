"""Loads of nodes without a job, such as login nodes, on components that are slow for a job.

They are known by their own clients' counters: RPCs to MDTs and OSTs (`lustre_mdc`, `lustre_osc`).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from laggard_aggregator.jobs.access.queries import MANY_OPERATIONS, rounded
from laggard_aggregator.jobs.join.volumes import targets
from laggard_aggregator.jobs.records.hostlist import short_name
from laggard_aggregator.jobs.verdict.analysis.cause_ranking import Neighbour
from laggard_aggregator.jobs.verdict.evidence.minute_sums import NamedSpan, Rollups, Times, hull
from laggard_aggregator.jobs.verdict.evidence.neighbours import PathState
from laggard_aggregator.jobs.verdict.evidence.path_parts import MOVED, OPERATIONS, REQUESTS
from laggard_aggregator.jobs.verdict.evidence.target_shares import MDT, OST, USES

_SOURCES: Final = {
    MDT: (*USES[MDT], OPERATIONS, "metadata operations a second"),
    OST: (*USES[OST], REQUESTS, "requests a second"),
}
_LEAST_PART: Final = 0.5
"""Share of the load of all such nodes that one must have to be named."""
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
        for kind, (source, fields, unit, words) in _SOURCES.items():
            slowdowns = {
                part.name: slowdown
                for part in path.parts.values()
                if part.kind == kind and (slowdown := path.slowdown((part.name, unit))) >= MOVED
            }
            if not slowdowns:
                continue
            (now,) = self._rates(source, fields, slowdowns, [spans])
            heavy = {name: node for name in slowdowns if (node := self._heaviest(now[name], path, spans))}
            if not heavy:
                continue
            nodes = frozenset(map(short_name, heavy.values()))
            before = self._rates(source, fields, heavy, earlier, nodes)
            for name, node in heavy.items():
                load, slowdown = now[name][node], slowdowns[name]
                usual_loads = np.array([rates[name].get(node, 0.0) for rates in before])
                usual = float(np.median(usual_loads)) if before else 0.0
                rise = (
                    f"{rounded(load / usual)} times its usual load" if usual else "which usually has no load"
                )
                text = (
                    f"{name} was {slowdown:.1f} times slower than usual: "
                    f"{node}, which has no job, ran with {rounded(load)} {words} on {name}, {rise}"
                )
                chance = path.by_chance(name)
                evidence = Neighbour(
                    *(node, name, unit, load, 0.0, path.clearing(name, usual_loads, load)),
                    slowdown=slowdown,
                    by_chance=chance,
                )
                yield OutsideLoad(evidence, text)

    def _heaviest(self, rates: Mapping[str, float], path: PathState, spans: Sequence[Times]) -> str | None:
        """The node without a job that has most of the load of all such nodes, if it is a load at all."""
        heaviest = sorted(rates, key=lambda node: -rates[node])[:_MOST_NODES]
        free = [node for node in heaviest if self._is_free(node, path, spans)]
        if not free or rates[free[0]] < max(MANY_OPERATIONS, _LEAST_PART * sum(rates[node] for node in free)):
            return None
        return free[0]

    def _is_free(self, node: str, path: PathState, spans: Sequence[Times]) -> bool:
        if short_name(node) in path.forwarders:
            return False
        return not any(self.had_job(node, *span) for span in spans)

    def _rates(
        self,
        source: str,
        fields: tuple[str, ...],
        wanted: Collection[str],
        runs: Sequence[Sequence[Times]],
        nodes: frozenset[str] | None = None,
    ) -> list[dict[str, dict[str, float]]]:
        """Requests a second to each target by node, in the spans of each of `runs`.

        `nodes`: short names, None for all.
        """

        def named(node: str, name: str) -> str | None:
            own = targets(name).intersection(wanted)
            return f"{own.pop()} {node}" if len(own) == 1 else None

        asked = [NamedSpan(hull(spans), named) for spans in runs]
        rates_of = []
        for spans, sums in zip(runs, Rollups(source, fields, nodes).read(self.directory, asked), strict=True):
            rates: dict[str, dict[str, float]] = {target: {} for target in wanted}
            if sums is not None:
                counts, seconds = sums.during(spans)
                means = (counts.sum(axis=0) / max(seconds, 1.0)).tolist()
                for name, rate in zip(sums.names, means, strict=True):
                    target, _, node = name.partition(" ")
                    rates[target][node] = rate
            rates_of.append(rates)
        return rates_of
