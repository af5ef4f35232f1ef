"""The trace logs of the compute nodes' LWFS clients, folded as an agent folds them and sent in parts."""

from dataclasses import dataclass, field

import numpy as np

from bench.beacon_site.shape import FS, OPERATIONS, START_SECONDS, node_name
from bench.beacon_site.simulate import READ, Outcome, Simulation
from laggard_common.wire.trace_document import TraceDocument
from laggard_common.wire.trace_records import Folded

PART_SECONDS = 30
"""A log is sent in parts of this time, as agents do, so that a record is never longer."""
_NAMES = {"open": "open", "close": "close", "getattr": "stat"}


@dataclass(slots=True)
class _Log:
    position: int = 0
    moved: dict[str, int] = field(default_factory=dict)  # bytes of each file, or of each rank's part


class Traces:
    """Follows a simulation: `follow` after each second; `parts` gives what was not sent yet."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        n = simulation.shape.nodes
        self._sent = np.zeros((n, 5))
        self._seen = np.zeros((n, 5))
        self._first, self._last = np.full((n, 5), np.nan), np.zeros((n, 5))
        self._logs: dict[tuple[int, int], _Log] = {}
        self._runs: dict[int, Outcome] = {}
        self._ready: list[tuple[str, TraceDocument]] = []

    def follow(self) -> None:
        """Looks at the latest second."""
        s = self._simulation
        n = s.shape.nodes
        now = np.concatenate([s.counters.node_requests[:n], s.counters.node_operations[:n]], axis=1)
        moved = now > self._seen + 1e-9
        begin = s.now - 1.0
        self._first = np.where(moved & np.isnan(self._first), begin, self._first)
        self._last = np.where(moved, begin + s.busy_share[:n, None], self._last)
        self._seen = now
        if s.now % PART_SECONDS == 0 or self._has_changed():
            self._cut()
        for lane in range(2 * s.shape.forwarders):
            outcome = s.running(lane)
            if outcome is not None:
                self._runs[lane] = outcome

    def parts(self) -> list[tuple[str, TraceDocument]]:
        """Documents since the last call, with the names of their nodes."""
        ready, self._ready = self._ready, []
        return ready

    def _has_changed(self) -> bool:
        """Whether a run has ended or begun in the latest second, so that its records do not mix."""
        s = self._simulation
        return any(s.running(lane) is not run for lane, run in self._runs.items())

    def _cut(self) -> None:
        """Ends all records that are under way."""
        whole = np.floor(self._seen + 1e-6)
        counts = (whole - self._sent).astype(int)
        for node in np.flatnonzero(counts.any(axis=1)).tolist():
            outcome = self._runs.get(node // self._simulation.shape.nodes_per_lane)
            if outcome is None:
                outcome = self._simulation.running(node // self._simulation.shape.nodes_per_lane)
            assert outcome is not None
            self._document(node, outcome, counts[node])
        self._sent = np.maximum(whole, self._sent)
        self._first[counts.any(axis=1)] = np.nan

    def _document(
        self, node: int, outcome: Outcome, counts: "np.ndarray[tuple[int], np.dtype[np.int_]]"
    ) -> None:
        log = self._logs.setdefault((outcome.run.number, node), _Log())
        records: list[Folded] = []
        for kind, count in enumerate(counts.tolist()):
            if count > 0:
                times = self._times(node, kind)
                records += (
                    self._data(node, outcome, log, kind, count, times)
                    if kind < 2
                    else [self._metadata(node, outcome, kind - 2, count, times)]
                )
        records.sort(key=lambda record: record.first_ns)
        name = f"/var/log/iotrace/{outcome.run.number}/lwfs.trace"
        end = log.position + 90 * len(records)
        document = TraceDocument(str(outcome.run.number), name, 1, log.position, end, records)
        log.position = end
        self._ready.append((node_name(node), document))

    def _times(self, node: int, kind: int) -> tuple[int, int]:
        first = float(self._first[node, kind])
        last = float(self._last[node, kind])
        if np.isnan(first):  # a request that was begun in the part before
            first = last
        return tuple(round((START_SECONDS + at) * 1e9) for at in (first, max(first, last)))  # type: ignore[return-value]

    def _data(
        self, node: int, outcome: Outcome, log: _Log, kind: int, count: int, times: tuple[int, int]
    ) -> list[Folded]:
        """A record of each process; of one shared file each has a stretch of its own."""
        application = self._simulation.application(outcome.run)
        size = self._simulation.request_bytes(node)
        operation = "read" if kind == READ else "write"
        cycle = next(p.cycle for p in reversed(outcome.phases) if p.kind == operation)
        shared = application.shared_file and operation == "write"
        per_process, more = divmod(count, application.processes)
        records = []
        for process in range(application.processes):
            mine = per_process + (process < more)
            if not mine:
                continue
            rank = (node - outcome.nodes.start) * application.processes + process
            folder = f"/{FS}/{application.user}/{outcome.run.number}"
            path = f"{folder}/{operation}.{cycle}" + ("" if shared else f".{rank:05d}")
            key = f"{path}:{rank}"
            moved = log.moved.get(key, 0)
            log.moved[key] = moved + mine * size
            offset = moved + (rank << 40 if shared else 0)
            descriptor = f"{4000 + process}:7"
            records.append(
                Folded(node_name(node), operation, descriptor, offset, size, mine, times[0], times[1], path)
            )
        return records

    def _metadata(self, node: int, outcome: Outcome, at: int, count: int, times: tuple[int, int]) -> Folded:
        application = self._simulation.application(outcome.run)
        path = f"/{FS}/{application.user}/{outcome.run.number}/input"
        name = _NAMES[OPERATIONS[at]]
        span = times if count > 1 else (times[0], times[0])
        return Folded(node_name(node), name, f"4000:{8 + at}", None, 0, count, *span, path)
