"""Sources declared by their collectors: `compare.toml` in a collector's folder.

A declaration is data, so that the aggregator imports nothing of the agent. Sources whose metrics need a
formula have a module beside this one instead (see `registry`).
"""

import importlib.util
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from laggard_aggregator.metrics.definition import (
    PLACES,
    Compared,
    FunctionMetrics,
    Metric,
    NextStep,
    SourceMetrics,
    amount,
    mean,
    rate,
    transfer_charts,
    transfers,
)
from laggard_aggregator.metrics.shares import Share
from laggard_common.config import load

COLLECTORS = "laggard_agent.collectors"
FILE = "compare.toml"


def _filled(names: Sequence[str], parts: Sequence[str]) -> tuple[str, ...]:
    """`names` with each of `parts` in place of `{}`; unchanged without parts."""
    return tuple(name.replace("{}", part) for part in parts for name in names) if parts else tuple(names)


@dataclass(frozen=True, slots=True)
class MeanTable:
    """A metric: the rise of the counters `sum`, times `scale`, over the rise of the counters `count`.

    With `of`, each of its words stands in place of `{}` in the counters' names.
    """

    name: str
    unit: str
    count: tuple[str, ...]
    sum: tuple[str, ...]
    scale: float = 1.0
    of: tuple[str, ...] = ()

    def metric(self) -> Metric:
        """The metric itself."""
        return mean(self.unit, _filled(self.count, self.of), _filled(self.sum, self.of), self.scale)


@dataclass(frozen=True, slots=True)
class ShareTable:
    """A metric: the share of `trials` that are `events`, see `shares.Share`. `unit` is that of both."""

    name: str
    unit: str
    events: tuple[str, ...]
    trials: tuple[str, ...]
    harmless: float

    def metric(self) -> Share:
        """The metric itself."""
        return Share(amount(self.unit, self.events), amount(self.unit, self.trials), self.harmless)


@dataclass(frozen=True, slots=True)
class LoadTable:
    """The load: counters of reads and writes, operations and bytes, or of `operations` alone.

    With both, `operations` count in place of reads and writes: an OSD does more than its clients ask for.
    """

    operations: tuple[str, ...] = ()
    reads: str = ""
    writes: str = ""
    read_bytes: str = ""
    written_bytes: str = ""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Counters that are missing."""
        transferred = (self.reads, self.writes, self.read_bytes, self.written_bytes)
        if any(transferred) != all(transferred) or not (any(transferred) or self.operations):
            yield "operations", "expected operations, or reads, writes, read_bytes and written_bytes, or both"

    def metrics(self) -> Mapping[str, Metric]:
        """As `SourceMetrics.load`."""
        counted = {"operations": amount("operations", self.operations)} if self.operations else {}
        if not self.reads:
            return counted
        return {**transfers((self.reads, self.writes), (self.read_bytes, self.written_bytes)), **counted}

    def charts(self) -> Mapping[str, Metric]:
        """As `SourceMetrics.charts`."""
        if not self.reads:
            return {"operations": rate("operations/s", self.operations)}
        return transfer_charts((self.reads, self.writes), (self.read_bytes, self.written_bytes))


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A `[[source]]`; names as in SourceMetrics.

    `all_optional`: every counter is; `optional_of`: for `optional`, as `MeanTable.of`. `load_means`: names of
    `mean` that are load too, such as queue lengths.
    """

    name: str
    load: LoadTable
    defaults: tuple[str, ...] = ()
    mean: tuple[MeanTable, ...] = ()
    share: tuple[ShareTable, ...] = ()
    load_means: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    optional_of: tuple[str, ...] = ()
    all_optional: bool = False
    peers: tuple[str, ...] = ()
    one_node: bool = False
    many_groups: bool = False
    roles: tuple[str, ...] = ()
    next_steps: tuple[NextStep, ...] = ()
    place: str = ""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Defaults and loads that are not metrics, and an unknown place."""
        known = [metric.name for metric in self.metrics]
        if len(set(known)) < len(known) or not set(self.defaults) <= set(known):
            yield "defaults", f"expected some of {', '.join(known)}, each once"
        means = [metric.name for metric in self.mean]
        if not set(self.load_means) <= set(means):
            yield "load_means", f"expected some of {', '.join(means)}"
        if self.place not in ("", *PLACES):
            yield "place", f"expected one of {', '.join(PLACES)}"

    @property
    def metrics(self) -> tuple[MeanTable | ShareTable, ...]:
        """Shares, then means."""
        return *self.share, *self.mean

    def source(self) -> SourceMetrics:
        """The metrics of the source."""
        metrics: dict[str, Compared] = {metric.name: metric.metric() for metric in self.metrics}
        under = self.load.metrics()
        optional = _filled(self.optional, self.optional_of)
        if self.all_optional:
            needed = (metric.needs for metric in (*metrics.values(), *under.values()))
            optional = tuple(dict.fromkeys(chain.from_iterable(needed)))
        return SourceMetrics(
            source=self.name,
            defaults=self.defaults,
            metrics=metrics,
            load=under,
            charts={
                **self.load.charts(),
                **{m.name: m.metric() for m in self.mean if m.name in self.load_means},
            },
            optional=optional,
            peers=self.peers,
            one_node=self.one_node,
            many_groups=self.many_groups,
            roles=self.roles,
            next_steps=self.next_steps,
            place=self.place,
        )


@dataclass(frozen=True, slots=True)
class CountTable:
    """A counter that rises where something is wrong, the nouns for its events, and the remedy."""

    field: str
    one: str
    many: str
    advice: str


@dataclass(frozen=True, slots=True)
class ConditionTable:
    """A gauge that is above 0 where something is wrong, a clause that `says` so, and the remedy."""

    field: str
    says: str
    advice: str


@dataclass(frozen=True, slots=True)
class EvidenceTable:
    """An `[[evidence]]`: fields of a source that are shown beside alarms of the node and raise none."""

    source: str
    counts: tuple[CountTable, ...] = ()
    states: tuple[ConditionTable, ...] = ()


@dataclass(frozen=True, slots=True)
class CompareFile:
    """A whole compare.toml."""

    source: tuple[SourceTable, ...] = ()
    evidence: tuple[EvidenceTable, ...] = ()
    functions: tuple[FunctionMetrics, ...] = ()


def declarations() -> Iterable[CompareFile]:
    """The compare.toml of every collector that has one, by the collectors' names. Raises ConfigError."""
    spec = importlib.util.find_spec(COLLECTORS)
    folders = spec.submodule_search_locations if spec else None
    files = (path for folder in folders or () for path in Path(folder).glob(f"*/{FILE}"))
    return [load(CompareFile, path) for path in sorted(files, key=lambda path: path.parent.name)]
