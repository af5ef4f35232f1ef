"""Interval map of nodes: whose counters an increment is.

At each moment a node is *free*, has one job, or is *shared* by several; counters of that time are said to be
shared and never split between jobs. An increment over several of these in turn, at the edges of jobs, is
divided in proportion to their time; free time counts only where there is nothing else, so that a job shorter
than an interval keeps its bytes.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from laggard_aggregator.detect.interface import FloatArray, IntArray
from laggard_aggregator.jobs.records.hostlist import short_name

_TIME_BITS = 43
_TIME_MOST = 2**_TIME_BITS - 1  # us: 101 days
FREE = 0
"""Number of the state without a job."""


@dataclass(frozen=True, slots=True)
class Occupation:
    """A job on a node: `job` is any number, times in ns; `end_ns` is that of the scan while the job runs."""

    job: int
    node: str
    start_ns: int
    end_ns: int


class NodeNames:
    """Names of the archive's nodes by those of the scheduler.

    The same name, or else the only one that is the same without domain and case.
    """

    def __init__(self, known: Iterable[str]) -> None:
        self._known = frozenset(known)
        self._short: dict[str, list[str]] = defaultdict(list)
        for name in sorted(self._known):
            self._short[short_name(name)].append(name)

    def of(self, node: str) -> str:
        """The archive's name of a node; the scheduler's own where none, or several, are like it."""
        if node in self._known:
            return node
        alike = self._short.get(short_name(node), [])
        return alike[0] if len(alike) == 1 else node


@dataclass(frozen=True, slots=True)
class DividedIncrements:
    """P parts of increments: `row` (P,) of the increment, `state` (P,), `share` (P, 2): from and to, as parts
    of the increment in 0 to 1, `start_ns`, `end_ns` (P,): time of the piece."""

    row: IntArray
    state: IntArray
    share: FloatArray
    start_ns: IntArray
    end_ns: IntArray


class _Piece(NamedTuple):
    """A part of the increment in `row`, from the share `low` to `high` of it, in one state."""

    row: int
    state: int
    low: float
    high: float
    begin_ns: int
    end_ns: int


@dataclass(slots=True)
class Membership:
    """Who had which node when. `jobs_of[state]`: the jobs of each state: none, one, or several."""

    occupations: Iterable[Occupation]
    origin_ns: int
    jobs_of: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    _node: dict[str, int] = field(default_factory=dict)
    _keys: IntArray = field(init=False)
    _states: IntArray = field(init=False)
    _times: IntArray = field(init=False)

    def __post_init__(self) -> None:
        by_node: dict[str, list[Occupation]] = defaultdict(list)
        for occupation in self.occupations:
            if occupation.end_ns > occupation.start_ns:
                by_node[occupation.node].append(occupation)
        states: dict[tuple[int, ...], int] = {(): FREE}
        keys, key_states, times = [], [], []
        for number, (node, held) in enumerate(sorted(by_node.items())):
            self._node[node] = number
            for at_ns, jobs in _segments(held):
                keys.append((number << _TIME_BITS) + self._offset(at_ns))
                times.append(at_ns)
                if jobs not in states:
                    states[jobs] = len(states)
                    self.jobs_of.append(jobs)
                key_states.append(states[jobs])
        self._keys, self._states = np.array(keys, dtype=np.int64), np.array(key_states, dtype=np.int64)
        self._times = np.array(times, dtype=np.int64)

    def divide(self, nodes: IntArray, from_ns: IntArray, to_ns: IntArray) -> DividedIncrements:
        """The pieces of increments by state. `nodes`: as `number` gives, -1 for nodes without any job."""
        if not self._keys.size:
            nodes = np.full(nodes.size, -1, dtype=np.int64)
        base = np.maximum(nodes, 0) << _TIME_BITS
        first = np.searchsorted(self._keys, base + self._clipped(from_ns), side="right") - 1
        last = np.searchsorted(self._keys, base + self._clipped(to_ns), side="left") - 1
        last = np.maximum(first, last)
        within = (first == last) | (nodes < 0)
        row = np.flatnonzero(within)
        states = np.where(nodes[row] < 0, FREE, self._states[first[row]] if self._states.size else FREE)
        whole = np.tile(np.array([0.0, 1.0]), (row.size, 1))
        edges = [
            piece
            for at in np.flatnonzero(~within).tolist()
            for piece in self._pieces(at, int(first[at]), int(last[at]), int(from_ns[at]), int(to_ns[at]))
        ]
        if not edges:
            return DividedIncrements(row, states, whole, from_ns[row], to_ns[row])
        others, state, low, high, begin, end = (np.array(column) for column in zip(*edges, strict=True))
        return DividedIncrements(
            np.concatenate([row, others]),
            np.concatenate([states, state]),
            np.concatenate([whole, np.stack([low, high], axis=1)]),
            np.concatenate([from_ns[row], begin]),
            np.concatenate([to_ns[row], end]),
        )

    def number(self, node: str) -> int:
        """Number of a node, -1 for one without jobs."""
        return self._node.get(node, -1)

    def _pieces(self, row: int, first: int, last: int, from_ns: int, to_ns: int) -> list[_Piece]:
        bounds = [from_ns, *self._times[first + 1 : last + 1].tolist(), to_ns]
        spans = [
            (int(state), max(begin, from_ns), min(end, to_ns))
            for state, (begin, end) in zip(
                self._states[first : last + 1].tolist(), pairwise(bounds), strict=True
            )
        ]
        if any(state != FREE and end > begin for state, begin, end in spans):
            spans = [span for span in spans if span[0] != FREE]
        every = sum(max(end - begin, 0) for _, begin, end in spans)
        pieces, passed = [], 0
        for state, begin, end in spans:
            if end > begin:
                share = passed / every, (passed + end - begin) / every
                pieces.append(_Piece(row, state, *share, begin, end))
                passed += end - begin
        return pieces

    def _offset(self, at_ns: int) -> int:
        return int(min(max((at_ns - self.origin_ns) // 1000, 0), _TIME_MOST))

    def _clipped(self, at_ns: IntArray) -> IntArray:
        clipped: IntArray = np.clip((at_ns - self.origin_ns) // 1000, 0, _TIME_MOST)
        return clipped


def _segments(held: Iterable[Occupation]) -> list[tuple[int, tuple[int, ...]]]:
    """Times from which on a node has certain jobs, from the beginning of time on."""
    events: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for occupation in held:
        events[occupation.start_ns].append((1, occupation.job))
        events[occupation.end_ns].append((-1, occupation.job))
    now: dict[int, int] = defaultdict(int)
    segments: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    for at_ns in sorted(events):
        for change, job in events[at_ns]:
            now[job] += change
        jobs = tuple(sorted(job for job, count in now.items() if count > 0))
        if jobs != segments[-1][1]:
            segments.append((at_ns, jobs))
    return segments


def behind(occupations: Iterable[Occupation], served_by: Mapping[str, str]) -> list[Occupation]:
    """The jobs on forwarders, from those on the nodes that each serves: one job alone, or shared."""
    return [
        Occupation(occupation.job, served_by[occupation.node], occupation.start_ns, occupation.end_ns)
        for occupation in occupations
        if occupation.node in served_by
    ]
