"""Latencies of the components on a job's path in its slow phases, against earlier runs and against peers.

The path goes from the job's nodes over forwarders to OSTs and MDTs. A component that waits for a slower one
behind it is not slow itself: a forwarder is judged by the rest of its slowdown that its targets leave, and so
is a compute node.

A forwarder's mount times the requests of all jobs behind it. Where these are of another size than usual its
slowdown lies between that of a request and that of a byte: the job's own requests, as its nodes time them,
tell which. A request may also wait for one of the forwarder's threads, which other requests hold: the queue
of its LWFS server, as long as requests met it, tells for how long.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np

from laggard_aggregator.detect.interface import BoolArray, FloatArray
from laggard_aggregator.jobs.join.volumes import FORWARDER, SOURCES, targets
from laggard_aggregator.jobs.records.hostlist import short_name
from laggard_aggregator.jobs.verdict.analysis.cause_ranking import surprise
from laggard_aggregator.jobs.verdict.evidence.minute_sums import (
    MinuteSums,
    Named,
    NamedSpan,
    Rollups,
    Times,
    hull,
)
from laggard_aggregator.jobs.verdict.evidence.target_shares import MDT, OST

BYTES, REQUESTS, OPERATIONS = "bytes", "requests", "operations"
MOVED: Final = 1.3
"""Times the usual latency, below which a component is not slower."""
SLOW: Final = 1.5
"""Times the usual latency, and times that of its peers, from which it is slow itself."""
_LEAST_REQUESTS: Final = 20.0
_LEAST_PEERS: Final = 2
_SPREAD: Final = 0.2
"""Usual spread of the log of a component's mean latency from run to run."""
_OF_INNER: Final = 0.7
"""Share of a slowdown of a forwarder or node from which an equally slow target explains it."""
_AS_MUCH: Final = 0.8
"""Share of a load from which a peer counts as having as much."""
_LOADS: Final = ((BYTES, REQUESTS), (OPERATIONS,))
"""Units of which a peer must have as much, all of one line: requests cost time, and so do their bytes."""
_OF_SLOW: Final = 0.2
"""Share of a component's slowdown below which a peer whose own is not known for sure is healthy beside it."""
_DIRECTIONS: Final = {"read": slice(0, 1), "write": slice(1, 2), "metadata": slice(2, None)}


@dataclass(frozen=True, slots=True)
class RunPath:
    """Path of a run and its phases by direction: names of forwarders, OSTs and MDTs, and of its nodes."""

    spans: Mapping[str, Sequence[Times]]
    parts: Mapping[str, frozenset[str]]
    nodes: frozenset[str] = frozenset()

    def during(self, direction: str) -> Sequence[Times]:
        """Its phases of a direction; of metadata all where none is of metadata alone."""
        return self.spans.get(direction) or (self.every if direction == "metadata" else [])

    @property
    def every(self) -> list[Times]:
        """All its phases."""
        return [span for spans in self.spans.values() for span in spans]

    @property
    def hull(self) -> Times:
        """Start of its first phase and end of its last one."""
        return hull(self.every)


@dataclass(frozen=True, slots=True)
class PathPart:
    """A component on the path.

    `slowdowns`: its latency as a multiple of the usual, by direction, those known. `beyond_peers`: the
    largest of them as a multiple of its peers', NaN with too few. `by_chance`: chance of that slowdown.
    `earlier`: its own slowdown in the phases of each earlier run, also one that did not use it; NaN: unknown.
    `unmoved`: its peers that were not slower under as much load; `innocent_loads`: the units of that load.
    `is_seen`: only the job's clients tell, no server.
    """

    name: str
    kind: str
    slowdowns: Mapping[str, float]
    beyond_peers: float
    by_chance: float
    unmoved: frozenset[str] = frozenset()
    earlier: tuple[float, ...] = ()
    innocent_loads: frozenset[str] = frozenset()
    is_seen: bool = False

    @property
    def worst(self) -> tuple[str, float]:
        """The direction with the largest slowdown, and that."""
        return max(self.slowdowns.items(), key=lambda item: item[1])

    @property
    def is_slow(self) -> bool:
        """Whether it is slower than it was, and than its peers where there are any."""
        return self.worst[1] >= SLOW and not self.beyond_peers < SLOW


@dataclass(frozen=True, slots=True)
class _Layer:
    """Counters of components of a kind: (count, time, bytes) of reads and writes, (count, time) of others."""

    name: str
    kind: str
    source: str
    moves: tuple[tuple[str, str, str], ...] = ()
    metadata: tuple[tuple[str, str], ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """Counts of all operations, their times, bytes read and bytes written."""
        every = [*(self.moves or [("", "", "")] * 2), *self.metadata]
        counts, times = (tuple(columns[place] for columns in every) for place in (0, 1))
        return (*counts, *times, *(columns[2] for columns in (self.moves or [("", "", "")] * 2)))


def _metadata(source: str) -> tuple[tuple[str, str], ...]:
    return tuple((counter, counter.removesuffix("samples") + "sum") for counter in SOURCES[source].metadata)


_OSTS: Final = _Layer(
    "OSTs",
    OST,
    "lustre_ost",
    tuple((f"{d}_samples", f"{d}_sum", f"{d}_bytes_sum") for d in ("read", "write")),
)
_RPCS: Final = _Layer(
    "RPCs",
    OST,
    "lustre_osc",
    tuple((f"ost_{d}_samples", f"ost_{d}_sum", f"{d}_bytes_sum") for d in ("read", "write")),
)
_MDTS: Final = _Layer("MDTs", MDT, "lustre_mdt", metadata=_metadata("lustre_job_mdt"))
_MOUNTS: Final = _Layer(
    "mounts",
    FORWARDER,
    "lustre_llite",
    tuple((f"{d}_bytes_samples", f"{d}_sum", f"{d}_bytes_sum") for d in ("read", "write")),
    _metadata("lustre_llite"),
)
_OWN_MOUNTS: Final = replace(_MOUNTS, name="own mounts")
"""Those of the job's own nodes, by the forwarder that they are behind."""
_QUEUE: Final = ("queue_samples", "queue_length_sum")
"""Counters of an LWFS server: how often its queue was looked at, and the sum of the lengths."""


@dataclass(frozen=True, slots=True)
class _Served:
    """Of C components in some time: `count`, `micros` (K, C) of K operations, `moved` (2, C) bytes."""

    names: tuple[str, ...]
    count: FloatArray
    micros: FloatArray
    moved: FloatArray
    seconds: float

    def only(self, names: Collection[str]) -> "_Served":
        """Those of some names, added up."""
        rows = [at for at, name in enumerate(self.names) if name in names]
        count, micros, moved = (
            every[:, rows].sum(axis=1, keepdims=True) for every in (self.count, self.micros, self.moved)
        )
        return _Served(("",), count, micros, moved, self.seconds)

    def aligned(self, names: Sequence[str]) -> "_Served":
        """Those of `names` in their order; nothing was served by one that is missing."""
        place = {name: at for at, name in enumerate(self.names)}
        rows = np.array([place.get(name, -1) for name in names])
        count, micros, moved = (
            np.where(rows >= 0, every[:, rows], 0.0) for every in (self.count, self.micros, self.moved)
        )
        return _Served(tuple(names), count, micros, moved, self.seconds)

    def latencies(self, direction: str) -> tuple[FloatArray, FloatArray]:
        """Times of an operation (k, C) and of a byte (C,) in us, NaN with too few operations or no times."""
        own = _DIRECTIONS[direction]
        count, micros = self.count[own], self.micros[own]
        known = (micros > 0) & (count > 0)
        enough = count.sum(axis=0) >= _LEAST_REQUESTS
        per_operation = np.where(known & enough, micros / np.where(known, count, 1.0), np.nan)
        if direction == "metadata":
            return per_operation, np.full(count.shape[1], np.nan)
        moved = self.moved[own][0]
        filled = (moved > 0) & known[0] & enough
        return per_operation, np.where(filled, micros[0] / np.where(filled, moved, 1.0), np.nan)

    def slowdown(self, direction: str, usual: tuple[FloatArray, FloatArray]) -> FloatArray:
        """Latency as a multiple of the usual (C,), NaN where unknown, at the least.

        Of reads and writes both an operation and a byte must take longer: larger requests alone are not
        slower.
        """
        return self.slowdowns(direction, usual)[0]

    def slowdowns(
        self, direction: str, usual: tuple[FloatArray, FloatArray]
    ) -> tuple[FloatArray, FloatArray]:
        """Latency as a multiple of the usual at the least and at the most, (C,) each, NaN where unknown.

        Times of operations are held against the same number of each at its usual time. Reads and writes of
        another size than the usual lie between the multiple of an operation and that of a byte.
        """
        own = _DIRECTIONS[direction]
        per_operation, per_byte = self.latencies(direction)
        both = np.isfinite(per_operation) & np.isfinite(usual[0])
        count = np.where(both, self.count[own], 0.0)
        expected = (count * np.where(both, usual[0], 0.0)).sum(axis=0)
        took = (count * np.where(both, per_operation, 0.0)).sum(axis=0)
        times = np.where(expected > 0, took / np.where(expected > 0, expected, 1.0), np.nan)
        if direction == "metadata":
            return times, times
        of_bytes = per_byte / usual[1]
        return np.fmin(times, of_bytes), np.fmax(times, of_bytes)

    def load(self, unit: str) -> FloatArray:
        """Load (C,) a second."""
        if unit == BYTES:
            sums = self.moved.sum(axis=0)
        else:
            sums = self.count[:2].sum(axis=0) if unit == REQUESTS else self.count[2:].sum(axis=0)
        loads: FloatArray = sums / max(self.seconds, 1.0)
        return loads


@dataclass(frozen=True, slots=True)
class _LayerInRun:
    """Sums of a layer's components in a run, and of the queues before forwarders, None where unknown."""

    path: RunPath
    sums: MinuteSums
    queues: MinuteSums | None = None

    def served(self, layer: _Layer, direction: str) -> _Served:
        """Requests of its components in the run's phases of a direction, and their times."""
        spans = self.path.during(direction)
        values, seconds = self.sums.during(spans)
        operations = 2 + len(layer.metadata)
        count, micros = values[:operations], values[operations : 2 * operations]
        if self.queues is not None:
            micros = micros + count * _waits(self.sums.names, count, self.queues, spans)
        return _Served(self.sums.names, count, micros, values[-2:], seconds)


@dataclass(frozen=True, slots=True)
class _LayerCompared:
    """C components of a layer in one direction. `mine` (C,): slowdowns as the job's own requests had them.

    `factors`, `most` (C,): against the own usual latency of each, at the least and at the most. `of_earlier`
    (R, C): in the R earlier runs. `past`: of the paths of those that are known.
    """

    direction: str
    served: _Served
    mine: FloatArray
    factors: FloatArray
    most: FloatArray
    of_earlier: FloatArray
    past: FloatArray

    def others(self, at: int) -> FloatArray:
        """Slowdowns of the peers of a component, those known."""
        rest = np.delete(self.factors, at)
        return rest[np.isfinite(rest)]

    def by_chance(self, at: int) -> float:
        """Chance of the slowdown of a component."""
        spread = np.concatenate([self.past, self.others(at)])
        return float(np.exp(-max(surprise(float(self.mine[at]), spread, _SPREAD)[1], 0.0)))

    def as_loaded(self, at: int) -> Iterator[tuple[tuple[str, ...], list[str]]]:
        """Yields units of which healthy peers of a component had as much, with their names."""
        healthy = (self.factors < MOVED) & (self.most < max(MOVED, _OF_SLOW * self.mine[at]))
        return _as_loaded(self.served, at, healthy)


@dataclass(slots=True)
class PathParts:
    """Reads the latencies of paths from the archive in `directory`. `forwarders`: all those of the site.

    `served_by`: the forwarder of each node that has one. `past`: the slowdown (R,) of each component, also of
    others than those on the path, in the phases of each of the R earlier runs that were read; NaN: unknown.
    """

    directory: Path
    forwarders: frozenset[str]
    served_by: Mapping[str, str]
    past: dict[str, FloatArray] = field(default_factory=dict)
    _rpcs: dict[str, dict[str, float]] = field(default_factory=dict)
    """Slowdowns of RPCs to each OST by direction, as the job's clients see them."""
    _short: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._short = {short_name(name): name for name in self.forwarders}

    def of(self, now: RunPath, earlier: Sequence[RunPath], directions: Collection[str]) -> list[PathPart]:
        """The components on a path whose latency in phases of `directions` is known. Raises ArchiveError."""
        rpcs = {part.name: part for part in self._of(_RPCS, now, earlier, directions)}
        of_targets = [
            *self._of(_OSTS, now, earlier, directions, rpcs),
            *self._of(_MDTS, now, earlier, directions),
        ]
        by_name = {part.name: part for part in of_targets}
        for part in _seen(rpcs.values()):
            by_name.setdefault(part.name, part)
        mounts: list[PathPart] = []
        if now.parts.get(FORWARDER):
            own = {part.name: part for part in self._of(_OWN_MOUNTS, now, earlier, directions)}
            mounts = self._of(_MOUNTS, now, earlier, directions, own)
        return [*by_name.values(), *(_beyond(part, by_name.values()) for part in mounts)]

    def seen_by_others(self, target: str, direction: str, node: str, now: RunPath) -> float:
        """How much slower an OST was than other OSTs for all clients but a node, NaN if none used it.

        Raises ArchiveError.
        """

        def named(client: str, name: str) -> str | None:
            own = targets(name)
            return own.pop() if short_name(client) != short_name(node) and len(own) == 1 else None

        asked = [NamedSpan(now.hull, named)]
        (sums,) = Rollups(_RPCS.source, _RPCS.fields).read(self.directory, asked)
        if sums is None or target not in sums.names:
            return np.nan
        served = _LayerInRun(now, sums).served(_RPCS, direction)
        slowdowns = served.slowdown(direction, _of_peers(served, direction))
        return float(slowdowns[served.names.index(target)])

    def _of(
        self,
        layer: _Layer,
        now: RunPath,
        earlier: Sequence[RunPath],
        directions: Collection[str],
        seen: Mapping[str, PathPart] = MappingProxyType({}),
    ) -> list[PathPart]:
        """The components of a layer. `seen`: the same by the job's own requests alone, where known."""
        runs = self._runs(layer, [now, *earlier])
        own = now.parts.get(layer.kind) or frozenset()
        if runs[0] is None:
            return []
        compared = [
            self._compared(layer, direction, runs, own, seen)
            for direction in directions
            if (layer.metadata if direction == "metadata" else layer.moves)
        ]
        parts = []
        for at, name in enumerate(runs[0].sums.names):
            known = [one for one in compared if np.isfinite(one.mine[at])]
            if name in own and known:
                parts.append(_part(layer.kind, name, at, known))
        return parts

    def _compared(
        self,
        layer: _Layer,
        direction: str,
        runs: Sequence[_LayerInRun | None],
        own: frozenset[str],
        seen: Mapping[str, PathPart],
    ) -> _LayerCompared:
        """The components of a layer in a direction, in the first of `runs` and against the others.

        `own`: those on the job's path.
        """
        now, *earlier = runs
        assert now is not None
        known = [at for at, run in enumerate(earlier) if run is not None]
        before = [run for run in earlier if run is not None]
        served, history = now.served(layer, direction), [run.served(layer, direction) for run in before]
        of_path = [
            times.only(run.path.parts.get(layer.kind) or own)
            for times, run in zip(history, before, strict=True)
        ]
        usual = _usual(of_path, direction)
        factors, most = _own_slowdowns(served, history, direction)
        if not np.isfinite(usual[0]).any():
            usual = _of_peers(served, direction)
            factors, most = served.slowdowns(direction, usual)
        of_earlier = np.full((len(earlier), len(served.names)), np.nan)
        of_earlier[known] = _earlier_slowdowns(served.names, history, direction)
        self._remember(served.names, of_earlier)
        if layer == _RPCS:
            self._rpcs[direction] = dict(zip(served.names, factors.tolist(), strict=True))
        own_view = _seen_as(served.names, direction, seen) / self._on_the_way(layer, served, most, direction)
        mine = _within(*served.slowdowns(direction, usual), own_view)
        past = np.array([float(times.slowdown(direction, usual)[0]) for times in of_path])
        return _LayerCompared(direction, served, mine, factors, most, of_earlier, past[np.isfinite(past)])

    def _on_the_way(
        self, layer: _Layer, served: _Served, most: FloatArray, direction: str
    ) -> FloatArray | float:
        """How much slower RPCs to each OST (C,) became before they reached it, NaN where unknown.

        By the median of its peers: a slow forwarder slows RPCs to all OSTs, by more than these became slower
        at `most` (C,). 1 of other layers.
        """
        if layer != _OSTS:
            return 1.0
        rpcs = self._rpcs.get(direction, {})
        beyond = np.array([rpcs.get(name, np.nan) for name in served.names]) / most
        peers = [np.delete(beyond, at) for at in range(len(beyond))]
        return np.array([max(float(np.nanmedian(p)), 1.0) if np.isfinite(p).any() else np.nan for p in peers])

    def _remember(self, names: Sequence[str], slowdowns: FloatArray) -> None:
        """Keeps slowdowns (R, C) of earlier runs, of several directions the largest."""
        for name, own in zip(names, slowdowns.T, strict=True):
            self.past[name] = np.fmax(self.past[name], own) if name in self.past else own

    def _runs(self, layer: _Layer, runs: Sequence[RunPath]) -> list[_LayerInRun | None]:
        """The layer in each run, None without any sums.

        Queues before forwarders count where they are known of all runs.
        """
        sums = self._sums(layer, runs)
        queues: list[MinuteSums | None] = [None for _ in runs]
        if layer == _MOUNTS:
            asked = [NamedSpan(run.hull, self._named(layer, run)) for run in runs]
            read = Rollups("lwfs", _QUEUE, frozenset(self._short)).read(self.directory, asked)
            if not any(own and queue is None for own, queue in zip(sums, read, strict=True)):
                queues = read
        return [
            None if own is None else _LayerInRun(run, own, queue)
            for run, own, queue in zip(runs, sums, queues, strict=True)
        ]

    def _sums(self, layer: _Layer, runs: Sequence[RunPath]) -> list[MinuteSums | None]:
        """The sums of each run, None without any."""
        nodes: frozenset[str] | None = None
        if layer == _MOUNTS:
            nodes = frozenset(self._short)
        elif layer == _OWN_MOUNTS:
            nodes = frozenset(short_name(node) for run in runs for node in run.nodes)
        elif layer == _RPCS:
            nodes = frozenset().union(*map(_clients, runs))
        if nodes is not None and not nodes:
            return [None for _ in runs]
        asked = [NamedSpan(run.hull, self._named(layer, run)) for run in runs]
        return Rollups(layer.source, layer.fields, nodes).read(self.directory, asked)

    def _named(self, layer: _Layer, run: RunPath) -> Named:
        """Gives rows of a layer their component, in the time of a run."""
        if layer == _MOUNTS:
            return lambda node, _name: self._short.get(short_name(node))
        if layer == _OWN_MOUNTS:
            behind = {short_name(node): self.served_by.get(node) for node in run.nodes}
            return lambda node, _name: behind.get(short_name(node))
        seen_by = _clients(run) if layer == _RPCS else None

        def named(node: str, name: str) -> str | None:
            target = targets(name)
            is_seen = seen_by is None or short_name(node) in seen_by
            return target.pop() if is_seen and len(target) == 1 else None

        return named


def _seen(rpcs: Iterable[PathPart]) -> Iterator[PathPart]:
    """OSTs as the job's clients see them, for servers that tell nothing: each against the others.

    A slow forwarder makes all of its OSTs look slow, so an OST is as slow as it is beyond those.
    """
    for part in rpcs:
        if np.isfinite(part.beyond_peers):
            beyond = part.beyond_peers
            yield replace(part, slowdowns={part.worst[0]: beyond}, is_seen=True)


def _clients(run: RunPath) -> frozenset[str]:
    """Short names of the nodes and forwarders of a run."""
    return frozenset(map(short_name, (*run.nodes, *run.parts.get(FORWARDER, ()))))


def _beyond(forwarder: PathPart, behind: Collection[PathPart]) -> PathPart:
    """A forwarder; not slower in directions in which a target behind it is about as slow."""
    slowdowns = {
        direction: 1.0 if waits_for_target(direction, slowdown, behind) else slowdown
        for direction, slowdown in forwarder.slowdowns.items()
    }
    return replace(forwarder, slowdowns=slowdowns)


def waits_for_target(direction: str, slowdown: float, behind: Iterable[PathPart]) -> bool:
    """Whether an OST or MDT behind a component that is slower is about as slow in that direction."""
    targets_behind = (part for part in behind if part.kind != FORWARDER)
    inner = max((part.slowdowns.get(direction, 1.0) for part in targets_behind), default=1.0)
    return inner >= max(MOVED, _OF_INNER * slowdown)


def _as_loaded(served: _Served, at: int, healthy: BoolArray) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yields units of which healthy (C,) peers of a component had as much, with their names."""
    peers = healthy.copy()
    peers[at] = False
    for units in _LOADS:
        loads = np.array([served.load(unit) for unit in units])
        alike = (loads >= _AS_MUCH * loads[:, [at]]).all(axis=0) & peers
        if loads[:, at].any() and alike.any():
            yield units, np.array(served.names)[alike].tolist()


def _seen_as(names: Sequence[str], direction: str, seen: Mapping[str, PathPart]) -> FloatArray:
    """Slowdown (C,) of components in a direction as the job's own requests had it, NaN where unknown."""
    return np.array(
        [seen[name].slowdowns.get(direction, np.nan) if name in seen else np.nan for name in names]
    )


def _within(least: FloatArray, most: FloatArray, seen: FloatArray) -> FloatArray:
    """The slowdown that was seen, within the least and the most; the least where none was."""
    slowdowns: FloatArray = np.where(np.isfinite(seen), np.clip(seen, least, most), least)
    return slowdowns


def _waits(names: Sequence[str], count: FloatArray, queues: MinuteSums, spans: Sequence[Times]) -> FloatArray:
    """Time (C,) in us that a request waited for a thread of its forwarder, by Little's law.

    It is the mean queue, as requests met it, by all `count` (K, C) requests a second.
    """
    (samples, lengths), seconds = queues.during(spans)
    mean = np.divide(lengths, samples, out=np.zeros_like(lengths), where=samples > 0)
    of_name = dict(zip(queues.names, mean.tolist(), strict=True))
    waiting = 1e6 * seconds * np.array([of_name.get(name, 0.0) for name in names])
    total = count.sum(axis=0)
    waits: FloatArray = np.where(total > 0, waiting / np.where(total > 0, total, 1.0), 0.0)
    return waits


def _part(kind: str, name: str, at: int, known: Sequence[_LayerCompared]) -> PathPart:
    """A component, by the directions in which its slowdown is known."""
    worst = max(known, key=lambda one: float(one.mine[at]))
    rest, slowdown = worst.others(at), float(worst.mine[at])
    beyond = slowdown / max(float(np.median(rest)), 1.0) if rest.size >= _LEAST_PEERS else np.nan
    alike = [loaded for one in known for loaded in one.as_loaded(at)]
    return PathPart(
        name,
        kind,
        {one.direction: float(one.mine[at]) for one in known},
        beyond,
        worst.by_chance(at),
        unmoved=frozenset(peer for _, peers in alike for peer in peers),
        earlier=tuple(worst.of_earlier[:, at].tolist()),
        innocent_loads=frozenset(unit for units, _ in alike for unit in units),
    )


def _usual(runs: Sequence[_Served], direction: str) -> tuple[FloatArray, FloatArray]:
    """Median latencies over earlier runs, by component: of an operation (k, C) and of a byte (C,)."""
    known = [run.latencies(direction) for run in runs]
    if not known:
        return np.full((1, 1), np.nan), np.full(1, np.nan)
    return _median([of_call for of_call, _ in known]), _median([of_byte for _, of_byte in known])


def _own_slowdowns(now: _Served, history: Sequence[_Served], direction: str) -> tuple[FloatArray, FloatArray]:
    """Least and most slowdown (C,) of each component against its own median in phases of earlier runs."""
    usual = _usual([served.aligned(now.names) for served in history], direction)
    return now.slowdowns(direction, usual)


def _earlier_slowdowns(names: Sequence[str], history: Sequence[_Served], direction: str) -> FloatArray:
    """Least slowdown (R, C) of components in the phases of R earlier runs against their own median."""
    own = [served.aligned(names) for served in history]
    usual = _usual(own, direction)
    slowdowns: FloatArray = np.array([served.slowdown(direction, usual) for served in own])
    return slowdowns.reshape(len(own), len(names))


def _of_peers(now: _Served, direction: str) -> tuple[FloatArray, FloatArray]:
    """Median latencies over the components at the same time."""
    per_operation, per_byte = now.latencies(direction)
    return _median(list(per_operation.T[:, :, None])), _median(list(per_byte[:, None]))


def _median(values: Sequence[FloatArray]) -> FloatArray:
    """Median over the first axis, NaN where none is known."""
    stacked = np.stack(values)
    medians: FloatArray = np.full(stacked.shape[1:], np.nan)
    known = np.isfinite(stacked).any(axis=0)
    medians[known] = np.nanmedian(stacked[:, known], axis=0)
    return medians
