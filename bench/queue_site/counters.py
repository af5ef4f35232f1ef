"""Counters of all nodes as their agents read them, and the folded traces of the LWFS clients."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from bench.beacon_site.shape import (
    FS,
    START_SECONDS,
    Shape,
    forwarder_name,
    login_name,
    mdt_name,
    node_name,
    ost_name,
)
from bench.beacon_site.tables import Table
from bench.queue_site.hardware import META, READ, WRITE
from bench.queue_site.network import Array, Load, Steady
from bench.queue_site.simulate import Doing, Simulation
from laggard_common.wire.schema import Component, Field, FieldKind
from laggard_common.wire.trace_document import TraceDocument
from laggard_common.wire.trace_records import Folded

OPERATIONS = {"open": 0.25, "close": 0.25, "getattr": 0.5}
CUT_SECONDS = 30
_BOUNDS = np.array([3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1])


class Counted:
    """Adds up what passes each component; the last axis of all: read, write, metadata.

    `node`: compute, then login nodes. `forwarder`. `path`: (forwarders, then login nodes; OSTs, then MDTs).
    `target`: (OSTs, then MDTs). Of each `number`, `bytes_`, `seconds`, and of some `waited`.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        sources, targets = shape.forwarders + shape.logins, shape.osts + shape.mdts
        self.node = np.zeros((3, shape.nodes + shape.logins, 3))
        self.forwarder = np.zeros((4, shape.forwarders, 3))
        self.path = np.zeros((3, sources, targets, 3))
        self.locks = np.zeros((2, sources, targets))
        self.target = np.zeros((4, targets, 3))

    def follow(self, simulation: Simulation, _begin: int, dt: float, load: Load, steady: Steady) -> None:
        """Adds a stretch of time."""
        s, places = self.shape, simulation.stations
        rows = simulation.rows
        kind, size = np.array([r.kind for r in rows]), np.array([float(r.bytes_) for r in rows])
        node = np.array([r.node for r in rows])
        source = np.array(
            [r.forwarder if r.forwarder >= 0 else s.forwarders + r.node - s.nodes for r in rows]
        )
        done = steady.rate * dt
        holding = steady.holding(load)
        _add(
            self.node, (slice(None), node, kind), _of(done, size, holding + steady.at_client + steady.waiting)
        )
        behind = load.pool >= 0
        sums = np.stack([*_of(done, size, holding), done * steady.waiting])
        _add(self.forwarder, (slice(None), load.pool[behind], kind[behind]), sums[:, behind])
        on = slice(places.osts.start, places.mdts.stop)
        visits, there = done[:, None] * load.visits[:, on], steady.visit[:, on]
        link = (load.visits[:, places.links] * steady.visit[:, places.links]).sum(axis=1)
        sums = np.stack([visits, visits * size[:, None], visits * (there + link[:, None])])
        targets = np.arange(s.osts + s.mdts)
        _add(self.path, (slice(None), source[:, None], targets, kind[:, None]), sums)
        sums = np.stack(
            [visits, visits * size[:, None], visits * there, visits * (there - load.service[:, on])]
        )
        _add(self.target, (slice(None), targets, kind[:, None]), sums)
        locked = load.visits[:, places.locks].sum(axis=1)
        waits = (load.visits[:, places.locks] * steady.visit[:, places.locks]).sum(axis=1)
        sums = np.stack([visits * locked[:, None], visits * waits[:, None]])
        _add(self.locks, (slice(None), source), sums)


def _add(into: Array, where: Any, values: Array) -> None:
    """Adds to each place as often as it is named."""
    np.add.at(into, where, values)


def _of(done: Array, size: Array, seconds: Array) -> Array:
    return np.stack([done, done * size, done * seconds])


def tables(c: Counted, *, of_compute: bool) -> list[Table]:
    """All sources. `of_compute`: those of the compute nodes' mounts too."""
    s = c.shape
    n, f = s.nodes, s.forwarders
    computes, logins = [node_name(i) for i in range(n)], [login_name(i) for i in range(s.logins)]
    forwarders = [forwarder_name(i) for i in range(f)]
    osses, mdses = [f"oss-{i + 1}" for i in range(s.servers)], [f"mds-{i + 1}" for i in range(s.mdts)]
    osts, mdts = [ost_name(i) for i in range(s.osts)], [mdt_name(i) for i in range(s.mdts)]
    k = s.targets_per_server
    mount = [Component(FS, f"{FS}-ffff9a02", (("fs", FS),))]
    llite = _pairs("read_bytes", "write_bytes", "read", "write", *OPERATIONS)
    osc = _pairs("req_waittime", "read_bytes", "write_bytes", "ost_read", "ost_write", "ldlm_extent_enqueue")
    mdc = _pairs("req_waittime", "mds_close", "mds_getattr")
    made = [
        _table("lustre_llite", "compute", logins, llite, mount, lambda: _mounts(c.node[:, n:])),
        _table("lustre_llite", "forwarding", forwarders, llite, mount, lambda: _mounts(c.forwarder)),
        _table("lwfs", "forwarding", forwarders, [], [Component("lwfs", "lwfs")], _Lwfs(c).values),
    ]
    if of_compute:
        made.append(_table("lustre_llite", "compute", computes, llite, mount, lambda: _mounts(c.node[:, :n])))
    for role, nodes, at in (("forwarding", forwarders, slice(0, f)), ("compute", logins, slice(f, None))):
        made += [
            _table("lustre_osc", role, nodes, osc, [_seen(t, "osc") for t in osts], partial(_oscs, c, at)),
            _table("lustre_mdc", role, nodes, mdc, [_seen(t, "mdc") for t in mdts], partial(_mdcs, c, at)),
        ]
    ost = _pairs("read_bytes", "write_bytes", "read", "write")
    of_osts, of_mdts = [_target(name) for name in osts], [_target(name) for name in mdts]
    made += [
        _table("lustre_ost", "storage", osses, ost, of_osts, lambda: _osts(c).reshape(s.servers, k, -1)),
        _table("lustre_mdt", "metadata", mdses, _pairs(*OPERATIONS), of_mdts, lambda: _mdts(c)[:, None]),
        _table(
            "lustre_oss_service", "storage", osses, _pairs("req_waittime"),
            [Component("ost_io", "ost_io", (("service", "ost_io"),))],
            lambda: _waits(c.target[:, : s.osts]).reshape(s.servers, k, 2).sum(axis=1)[:, None],
        ),
        _table(
            "lustre_mds_service", "metadata", mdses, _pairs("req_waittime"),
            [Component("mdt", "mdt", (("service", "mdt"),))], lambda: _waits(c.target[:, s.osts :])[:, None],
        ),
    ]  # fmt: skip
    return made


def _table(
    source: str, role: str, nodes: list[str], fields: list[Field], components: Sequence[Component],
    values: Callable[[], Array],
) -> Table:  # fmt: skip
    """A source of nodes that have the same components, or as many each, in the order of the nodes."""
    count = values().shape[1]
    parts = [tuple(components[at : at + count]) for at in range(0, len(components), count)]
    return Table(
        source, role, tuple(nodes), tuple(fields or _Lwfs.fields()),
        tuple(parts if len(parts) == len(nodes) else parts * len(nodes)),
        lambda: np.rint(values()).astype(np.int64),
    )  # fmt: skip


def _pairs(*names: str) -> list[Field]:
    return [
        Field(
            f"{name}_{part}", unit="1" if part == "samples" else "bytes" if name.endswith("bytes") else "us"
        )
        for name in names
        for part in ("samples", "sum")
    ]


def _target(name: str) -> Component:
    return Component(name, name, (("scope", "site"), ("fs", FS), ("target", name.split("-")[1])))


def _seen(name: str, end: str) -> Component:
    return Component(f"{name}-{end}", f"{name}-{end}-ffff9a02", (("fs", FS), ("target", name.split("-")[1])))


def _data(sums: Array) -> list[Array]:
    """Samples and sums of bytes read and written, then of reads and writes."""
    number, bytes_, seconds = sums[0], sums[1], 1e6 * sums[2]
    pairs = [(number[..., k], what[..., k]) for what in (bytes_, seconds) for k in (READ, WRITE)]
    return [column for pair in pairs for column in pair]


def _operations(sums: Array) -> list[Array]:
    return [share * part[..., META] for share in OPERATIONS.values() for part in (sums[0], 1e6 * sums[2])]


def _mounts(sums: Array) -> Array:
    return np.stack([*_data(sums), *_operations(sums)], axis=-1)[:, None]


def _oscs(c: Counted, at: slice) -> Array:
    sums, locks = c.path[:, at, : c.shape.osts], c.locks[:, at, : c.shape.osts]
    number, seconds = sums[0].sum(axis=-1) + locks[0], sums[2].sum(axis=-1) + locks[1]
    return np.stack([number, 1e6 * seconds, *_data(sums), locks[0], 1e6 * locks[1]], axis=-1)


def _mdcs(c: Counted, at: slice) -> Array:
    sums = c.path[:, at, c.shape.osts :]
    close, getattr_ = _operations(sums)[2:4], _operations(sums)[4:6]
    return np.stack([sums[0, ..., META], 1e6 * sums[2, ..., META], *close, *getattr_], axis=-1)


def _osts(c: Counted) -> Array:
    return np.stack(_data(c.target[:, : c.shape.osts]), axis=-1)


def _mdts(c: Counted) -> Array:
    return np.stack(_operations(c.target[:, c.shape.osts :]), axis=-1)


def _waits(sums: Array) -> Array:
    return np.stack([sums[0].sum(axis=-1), 1e6 * sums[3].sum(axis=-1)], axis=-1)


class _Lwfs:
    """Histograms of execution and waiting, exponential about the mean of each interval, and queue lengths."""

    def __init__(self, c: Counted) -> None:
        self._c = c
        self._before = c.forwarder.copy()
        self._counts = np.zeros((c.shape.forwarders, 3, 2, 8))
        self._queue = np.zeros((c.shape.forwarders, 2))

    @staticmethod
    def fields() -> list[Field]:
        """Of the source."""
        names = [
            f"{kind}_{part}_{n}"
            for kind in ("read", "write", "meta")
            for part in ("exe", "wait")
            for n in range(8)
        ]
        return [
            *(Field(name, FieldKind.HISTOGRAM) for name in names),
            Field("queue_samples"),
            Field("queue_length_sum"),
        ]

    def values(self) -> Array:
        """The counters now."""
        step, self._before = self._c.forwarder - self._before, self._c.forwarder.copy()
        number = np.maximum(step[0], 1e-12)
        for part, seconds in enumerate((step[2], step[3])):
            above = np.exp(-_BOUNDS / np.maximum(seconds / number, 1e-9)[..., None])
            edges = np.concatenate(
                [np.ones((*number.shape, 1)), above, np.zeros((*number.shape, 1))], axis=-1
            )
            self._counts[:, :, part] -= step[0][..., None] * np.diff(edges, axis=-1)
        traced = step[0].sum(axis=1) / 1000
        waiting = step[3].sum(axis=1) / self._c.shape.interval_seconds
        self._queue += np.column_stack([traced, traced * waiting])
        return np.concatenate([self._counts.reshape(len(traced), -1), self._queue], axis=1)[:, None]


@dataclass(slots=True)
class Traces:
    """Records of the LWFS clients, folded by process. Tell it of each end of a phase, and every
    `CUT_SECONDS`; `parts` gives documents that were not sent yet, with the names of their nodes.
    """

    ready: list[tuple[str, TraceDocument]] = field(default_factory=list)
    _sent: dict[tuple[int, int], tuple[int, int, int]] = field(default_factory=dict)  # phase, requests, until
    _logs: dict[tuple[int, int], int] = field(default_factory=dict)

    def parts(self) -> list[tuple[str, TraceDocument]]:
        """Documents since the last call."""
        ready, self.ready = self.ready, []
        return ready

    def cut(self, simulation: Simulation) -> None:
        """Ends the records of all runs in a phase."""
        for doing in simulation.doing:
            if doing.left.any():
                self.end(doing, simulation.now)

    def end(self, doing: Doing, now: int) -> None:
        """Ends the records of one run."""
        for at, node in enumerate(doing.run.nodes):
            phase, sent, since = self._sent.get((doing.run.number, node), (-1, 0, 0))
            if phase != doing.at:
                phase, sent, since = doing.at, 0, doing.began
            total = int(doing.asked[at] - doing.left[at] + 1e-6)
            last = min(float(now), doing.ended[at]) if doing.left[at] == 0 else float(now)
            if total > sent:
                self._document(doing, node, at, (sent, total), (float(since), last))
                self._sent[doing.run.number, node] = (phase, total, now)

    def _document(
        self, doing: Doing, node: int, at: int, requests: tuple[int, int], times: tuple[float, float]
    ) -> None:
        run, phase = doing.run, doing.phase
        q = run.program.processes
        first, last = (round((START_SECONDS + t) * 1e9) for t in times)
        folder = f"/{FS}/{run.program.name}/{run.number}"
        records: list[Folded] = []
        for process in range(q):
            before, after = ((n + q - 1 - process) // q for n in requests)
            if after == before:
                continue
            rank = at * q + process
            if phase.kind == META:
                for name, share in zip(("open", "close", "stat"), OPERATIONS.values(), strict=True):
                    count = int(after * share) - int(before * share)
                    if count:
                        path = f"{folder}/tree/{rank}"
                        records.append(
                            Folded(
                                node_name(node), name, f"{900 + process}:5", None, 0, count, first, last, path
                            )
                        )
                continue
            name, size = ("read", "write")[phase.kind], phase.bytes_
            shared = phase.kind == WRITE and run.shared(usual=False)
            path = f"{folder}/{'all' if shared else rank}.{name}.{doing.at}"
            offset = before * size + (rank << 38 if shared else 0)
            records.append(
                Folded(
                    node_name(node),
                    name,
                    f"{900 + process}:{6 + doing.at}",
                    offset,
                    size,
                    after - before,
                    first,
                    last,
                    path,
                )
            )
        if not records:
            return
        start = self._logs.get((run.number, node), 0)
        end = self._logs[run.number, node] = start + 100 * len(records)
        log = f"/var/log/iotrace/{run.number}/lwfs.trace"
        self.ready.append((node_name(node), TraceDocument(str(run.number), log, 1, start, end, records)))
