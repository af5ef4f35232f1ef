"""Joins counters with jobs: one scan of the archive serves all jobs that are due.

The result of a job is a pure function of its last revision, of who else had its nodes, and of the rows that
the archive has of its time: neither their order nor the jobs it is joined with matter.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.archive.table import tables_of
from laggard_aggregator.detect.interface import FloatArray, IntArray
from laggard_aggregator.jobs.join.accounts import SECOND_NS, JobAccount, JoinedJob
from laggard_aggregator.jobs.join.active_times import Active, ActiveTimes, Moves, TimedMoves
from laggard_aggregator.jobs.join.client_traces import ClientTraces
from laggard_aggregator.jobs.join.membership import FREE, Membership, NodeNames, Occupation, behind
from laggard_aggregator.jobs.join.server_jobs import JobIdFormat, ServerJobs
from laggard_aggregator.jobs.join.volume_servers import VolumeServers
from laggard_aggregator.jobs.join.volumes import CLIENT, FORWARDER, SERVER, SOURCES, VolumeFields, amounts
from laggard_aggregator.jobs.records.hostlist import short_name
from laggard_aggregator.jobs.rollups.counter_slices import MOST_GAP_NS, CounterSlices
from laggard_aggregator.jobs.rollups.increments import IncrementStream
from laggard_aggregator.jobs.rollups.series60 import PassStoppedError

STEP_NS = 10 * SECOND_NS
"""Slices are multiples of this, as long as memory allows."""


@dataclass(slots=True)
class Conserved:
    """Bytes of a scan by READ and WRITTEN: each is in exactly one of these, or unknown."""

    job: FloatArray = field(default_factory=lambda: np.zeros(2))
    shared: FloatArray = field(default_factory=lambda: np.zeros(2))
    free: FloatArray = field(default_factory=lambda: np.zeros(2))


class _Wanted(Container[str]):
    """Nodes of the archive that may be one of some nodes of the scheduler."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self._short = frozenset(map(short_name, nodes))

    def __contains__(self, node: object) -> bool:
        return isinstance(node, str) and short_name(node) in self._short


class Join:
    """Accounts of `jobs`. `others`: occupations of the same nodes by other jobs, numbered from `len(jobs)`
    on.

    `served_by`: the forwarder of each node that has one. `format_`: of the site's Lustre job ids, None
    without them. `conserved`: of the clients.
    """

    def __init__(
        self,
        directory: Path,
        site: str,
        jobs: Sequence[JoinedJob],
        others: Sequence[Occupation] = (),
        *,
        format_: JobIdFormat | None = None,
        served_by: Mapping[str, str] | None = None,
    ) -> None:
        self._directory, self._site, self._jobs = directory, site, jobs
        own = [Occupation(at, *held) for at, job in enumerate(jobs) for held in job.held]
        every = [*own, *others]
        self._served_by = served_by or {}
        self._forwarders = frozenset(self._served_by.values())
        self._start_ns = min(job.start_ns for job in jobs)
        self._end_ns = max(job.end_ns for job in jobs)
        on_forwarders = behind(every, self._served_by)
        self._volumes = VolumeServers(directory, site, self._start_ns, self._end_ns)
        on_volumes = self._volumes.behind(every)
        self._membership = Membership([*every, *on_forwarders, *on_volumes], self._start_ns - 2 * MOST_GAP_NS)
        self._nodes = sorted({occupation.node for occupation in (*every, *on_forwarders)})
        self._names = NodeNames(self._nodes)
        self._format = format_
        self.accounts = [JobAccount(job) for job in jobs]
        self.conserved = Conserved()

    def run(self, go_on: Callable[[], bool] = lambda: True) -> list[JobAccount]:
        """Scans the archive. Raises ArchiveError, and PassStoppedError once `go_on()` is false."""
        for counters in tables_of(self._directory, "counters"):
            fields = SOURCES.get(counters.source)
            if fields is None or counters.site != self._site:
                continue
            slices = CounterSlices(self._directory, counters.source, counters.site)
            if not fields.by_job:
                self._scan(slices, fields, go_on)
            elif self._format is not None:
                ServerJobs(slices, fields, self._format, self.accounts).run(go_on)
        ClientTraces(self._directory, self._site, self.accounts).run(go_on)
        return self.accounts

    def _scan(self, slices: CounterSlices, fields: VolumeFields, go_on: Callable[[], bool]) -> None:
        wanted = None if fields.of_volume else _Wanted(self._nodes)
        increments, times = IncrementStream(), ActiveTimes()
        after = self._start_ns - MOST_GAP_NS
        for until in slices.ends(after, self._end_ns + MOST_GAP_NS, STEP_NS):
            if not go_on():
                raise PassStoppedError
            rises = increments.add(slices.read(after, until, wanted), until)
            moved = amounts(fields, rises)
            if moved.known.any():
                every = np.concatenate([moved.moved, moved.operations, moved.latency])
                moves = Moves(rises.component, rises.before_ns, rises.read_ns, every).only(moved.known)
                self._add(slices, fields, times.add(moves))
            after = until
        if (rest := times.rest()) is not None:
            self._add(slices, fields, rest)

    def _add(self, slices: CounterSlices, fields: VolumeFields, timed: TimedMoves) -> None:
        keys = slices.components.keys
        named = [
            self._volumes.place_of(node, name) if fields.of_volume else self._names.of(node)
            for node, name in keys
        ]
        number = np.array([self._membership.number(node) for node in named], dtype=np.int64)
        layers = np.array([self._layer_of(node, fields) for node, _ in keys])
        component = timed.moves.component
        if not component.size:
            return
        before, read = timed.moves.before_ns, timed.moves.read_ns
        pieces = self._membership.divide(number[component], before - fields.age_ns, read)
        fresh = ((read - before) / (read - before + fields.age_ns))[pieces.row]
        every = timed.moves.amounts[:, pieces.row]
        parts = np.floor(every * pieces.share[:, 1]) - np.floor(every * pieces.share[:, 0])
        parts = np.vstack([parts, np.floor((pieces.end_ns - pieces.start_ns) * fresh)])
        active = timed.within(pieces.row, pieces.start_ns, pieces.end_ns, fields.age_ns)
        component = component[pieces.row]
        order = np.argsort(pieces.state, kind="stable")
        bounds = np.flatnonzero(np.diff(pieces.state[order], prepend=-1))
        for first, last in zip(bounds.tolist(), [*bounds[1:].tolist(), order.size], strict=True):
            at = order[first:last]
            state = int(pieces.state[at[0]])
            jobs = self._membership.jobs_of[state]
            total = parts[:2, at[layers[component[at]] == CLIENT]].sum(axis=1)
            if state == FREE:
                self.conserved.free += total
            elif len(jobs) > 1:
                self.conserved.shared += total
            else:
                self.conserved.job += total
            for job in jobs:
                if job < len(self._jobs):
                    self._to_job(
                        slices,
                        fields,
                        job,
                        component=component[at],
                        layers=layers[component[at]],
                        times=(pieces.start_ns[at], pieces.end_ns[at]),
                        active=active.only(at),
                        parts=parts[:, at],
                        shared=len(jobs) > 1,
                    )

    def _layer_of(self, node: str, fields: VolumeFields) -> str:
        on_forwarder = fields.layer == CLIENT and self._names.of(node) in self._forwarders
        return FORWARDER if on_forwarder else fields.layer

    def _to_job(
        self,
        slices: CounterSlices,
        fields: VolumeFields,
        job: int,
        *,
        component: IntArray,
        layers: NDArray[np.str_],
        times: tuple[IntArray, IntArray],
        active: Active,
        parts: FloatArray,
        shared: bool,
    ) -> None:
        account = self.accounts[job]
        for layer in (CLIENT, FORWARDER, SERVER):
            chosen = layers == layer
            if not chosen.any():
                continue
            begin, end = times[0][chosen], times[1][chosen]
            if layer != CLIENT:
                account.held(layer, begin, end, shared=shared)
            if not shared:
                account.note_intervals(layer, begin, end)
                account.add(layer, active.only(chosen), parts[:3, chosen])
                if layer == CLIENT:
                    account.observe(begin, end, parts[-1, chosen])
                elif layer == SERVER:
                    account.read_until(layer, int(end.max()))
            unique, inverse = np.unique(component[chosen], return_inverse=True)
            for place, sums in enumerate(_sums(parts[:, chosen], inverse, unique.size)):
                node, name = slices.components.keys[int(unique[place])]
                mine = account.components[layer, self._names.of(node), name, shared]
                mine.sums += sums
                mine.time_scale = fields.time_scale


def _sums(parts: FloatArray, group: IntArray, count: int) -> FloatArray:
    """Sums (count, rows) of the columns of each group."""
    sums = np.zeros((count, parts.shape[0]))
    for at in range(parts.shape[0]):
        sums[:, at] = np.bincount(group, parts[at], count)
    return sums
