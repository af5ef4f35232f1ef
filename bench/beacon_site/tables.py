"""The counters of each node as its agent would read them: sources, fields, components and their values."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.beacon_site.shape import (
    FS,
    OPERATIONS,
    Shape,
    forwarder_name,
    login_name,
    mdt_name,
    node_name,
    ost_name,
)
from bench.beacon_site.simulate import READ, WRITE, Array, Counters, Simulation
from laggard_common.wire.schema import Component, Field, FieldKind

US = 1e6
Values = NDArray[np.int64]
_LWFS_BOUNDS = np.array([1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1])
"""Of the eight buckets of an LWFS server's latencies; the real ones are not published."""


@dataclass(frozen=True, slots=True)
class Table:
    """One source on several nodes with the same fields.

    `values` gives shape (nodes, components of a node, fields). `components`: of each node.
    """

    source: str
    role: str
    nodes: tuple[str, ...]
    fields: tuple[Field, ...]
    components: tuple[tuple[Component, ...], ...]
    values: Callable[[], Values]


def tables(simulation: Simulation, *, compute_counters: bool) -> list[Table]:
    """All sources of the site. `compute_counters`: those of the mounts of compute nodes too."""
    s, c = simulation.shape, simulation.counters
    computes = tuple(map(node_name, range(s.nodes)))
    forwarders = tuple(map(forwarder_name, range(s.forwarders)))
    logins = tuple(map(login_name, range(s.logins)))
    servers = tuple(f"oss-{n + 1}" for n in range(s.servers))
    masters = tuple(f"mds-{n + 1}" for n in range(s.mdts))
    mount = (Component(FS, f"{FS}-ffff8801", (("fs", FS),)),)
    made: list[Table] = []
    if compute_counters:
        made.append(_llite("compute", computes, mount, lambda: _node_mounts(c, slice(0, s.nodes))))
    made.append(_llite("compute", logins, mount, lambda: _node_mounts(c, slice(s.nodes, None))))
    first, rest = slice(0, s.forwarders), slice(s.forwarders, None)
    made.append(_llite("forwarding", forwarders, mount, lambda: _forwarder_mounts(c, first)))
    for role, nodes, part in (("forwarding", forwarders, first), ("compute", logins, rest)):
        made += [_osc(role, nodes, s, c, part), _mdc(role, nodes, s, c, part)]
    made.append(_lwfs(forwarders, simulation))
    made += [_ost(servers, s, c), _oss_service(servers, s, c), _mdt(masters, c), _mds_service(masters, c)]
    return made


def _counters(*names: str) -> tuple[Field, ...]:
    units = {"bytes_sum": "bytes", "_sum": "us"}
    return tuple(
        Field(name, unit=next((unit for end, unit in units.items() if name.endswith(end)), "1"))
        for name in names
    )


def _pairs(*names: str) -> list[str]:
    return [f"{name}_{part}" for name in names for part in ("samples", "sum")]


def _whole(*columns: Array) -> Values:
    """Columns of one shape as the last axis, rounded."""
    return np.rint(np.stack(columns, axis=-1)).astype(np.int64)


def _llite(
    role: str, nodes: tuple[str, ...], mount: tuple[Component, ...], values: Callable[[], Values]
) -> Table:
    fields = _counters(*_pairs("read_bytes", "write_bytes", "read", "write", *OPERATIONS))
    return Table("lustre_llite", role, nodes, fields, (mount,) * len(nodes), values)


def _mounts(bytes_: Array, requests: Array, seconds: Array, operations: Array, spent: Array) -> Values:
    columns: list[Array] = []
    for way in (READ, WRITE):
        columns += [requests[:, way], bytes_[:, way]]
    for way in (READ, WRITE):
        columns += [requests[:, way], US * seconds[:, way]]
    for at in range(len(OPERATIONS)):
        columns += [operations[:, at], US * spent[:, at]]
    return _whole(*columns)[:, None, :]


def _node_mounts(c: Counters, part: slice) -> Values:
    parts = (c.node_bytes, c.node_requests, c.node_seconds, c.node_operations, c.node_operation_seconds)
    return _mounts(*(array[part] for array in parts))


def _forwarder_mounts(c: Counters, part: slice) -> Values:
    parts = (
        c.forwarder_bytes, c.forwarder_requests, c.forwarder_seconds, c.forwarder_operations,
        c.forwarder_operation_seconds,
    )  # fmt: skip
    return _mounts(*(array[part] for array in parts))


def _targets(names: list[str], end: str) -> tuple[Component, ...]:
    return tuple(
        Component(f"{name}-{end}", f"{name}-{end}-ffff8801", (("fs", FS), ("target", name.split("-")[1])))
        for name in names
    )


def _osc(role: str, nodes: tuple[str, ...], s: Shape, c: Counters, part: slice) -> Table:
    fields = _counters(*_pairs("req_waittime", "read_bytes", "write_bytes", "ost_read", "ost_write"))

    def values() -> Values:
        requests, spent = c.osc_requests[part], US * c.osc_seconds[part]
        columns = [requests.sum(axis=-1), spent.sum(axis=-1)]
        for way in (READ, WRITE):
            columns += [requests[..., way], c.osc_bytes[part][..., way]]
        for way in (READ, WRITE):
            columns += [requests[..., way], spent[..., way]]
        return _whole(*columns)

    seen = _targets([ost_name(n) for n in range(s.osts)], "osc")
    return Table("lustre_osc", role, nodes, fields, (seen,) * len(nodes), values)


def _mdc(role: str, nodes: tuple[str, ...], s: Shape, c: Counters, part: slice) -> Table:
    fields = _counters(*_pairs("req_waittime", "mds_close", "mds_getattr"))

    def values() -> Values:
        operations, spent = c.mdc_operations[part], US * c.mdc_seconds[part]
        columns = [operations.sum(axis=-1), spent.sum(axis=-1)]
        for at in (1, 2):
            columns += [operations[..., at], spent[..., at]]
        return _whole(*columns)

    seen = _targets([mdt_name(n) for n in range(s.mdts)], "mdc")
    return Table("lustre_mdc", role, nodes, fields, (seen,) * len(nodes), values)


def _target(name: str) -> Component:
    return Component(name, name, (("scope", "site"), ("fs", FS), ("target", name.split("-")[1])))


def _ost(servers: tuple[str, ...], s: Shape, c: Counters) -> Table:
    fields = _counters(*_pairs("read_bytes", "write_bytes", "read", "write"))

    def values() -> Values:
        columns: list[Array] = []
        requests = c.osc_requests.sum(axis=0)
        for way in (READ, WRITE):
            columns += [requests[:, way], c.osc_bytes.sum(axis=0)[:, way]]
        for way in (READ, WRITE):
            columns += [requests[:, way], US * c.ost_seconds[:, way]]
        return _whole(*columns).reshape(s.servers, s.targets_per_server, -1)

    names = [ost_name(n) for n in range(s.osts)]
    k = s.targets_per_server
    components = tuple(tuple(map(_target, names[k * n : k * n + k])) for n in range(s.servers))
    return Table("lustre_ost", "storage", servers, fields, components, values)


def _oss_service(servers: tuple[str, ...], s: Shape, c: Counters) -> Table:
    service = (Component("ost_io", "ost_io", (("service", "ost_io"),)),)

    def values() -> Values:
        requests = c.osc_requests.sum(axis=(0, 2)).reshape(s.servers, -1).sum(axis=1)
        waited = c.ost_wait_seconds.sum(axis=1).reshape(s.servers, -1).sum(axis=1)
        return _whole(requests, US * waited)[:, None, :]

    return Table(
        "lustre_oss_service", "storage", servers, _counters(*_pairs("req_waittime")),
        (service,) * len(servers), values,
    )  # fmt: skip


def _mdt(masters: tuple[str, ...], c: Counters) -> Table:
    def values() -> Values:
        operations, columns = c.mdc_operations.sum(axis=0), []
        for at in range(len(OPERATIONS)):
            columns += [operations[:, at], US * c.mdt_seconds[:, at]]
        return _whole(*columns)[:, None, :]

    components = tuple((_target(mdt_name(n)),) for n in range(len(masters)))
    return Table("lustre_mdt", "metadata", masters, _counters(*_pairs(*OPERATIONS)), components, values)


def _mds_service(masters: tuple[str, ...], c: Counters) -> Table:
    service = (Component("mdt", "mdt", (("service", "mdt"),)),)

    def values() -> Values:
        operations = c.mdc_operations.sum(axis=(0, 2))
        return _whole(operations, US * c.mdt_wait_seconds.sum(axis=1))[:, None, :]

    return Table(
        "lustre_mds_service", "metadata", masters, _counters(*_pairs("req_waittime")),
        (service,) * len(masters), values,
    )  # fmt: skip


def _lwfs(forwarders: tuple[str, ...], simulation: Simulation) -> Table:
    kinds = ("read", "write", "meta")
    names = [f"{kind}_{part}_{n}" for kind in kinds for part in ("exe", "wait") for n in range(8)]
    fields = (
        *(Field(name, FieldKind.HISTOGRAM) for name in names),
        Field("queue_samples"),
        Field("queue_length_sum"),
    )
    servers = _LwfsServers(simulation)
    component = (Component("lwfs", "lwfs"),)
    return Table("lwfs", "forwarding", forwarders, fields, (component,) * len(forwarders), servers.values)


class _LwfsServers:
    """Histograms of execution and waiting times, exponential around the mean of each interval."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation, self._at = simulation, 0
        k = simulation.shape.forwarders
        self._counts, self._queue = np.zeros((k, 3, 2, 8)), np.zeros((k, 2))
        self._before = np.zeros((3, k, 3))

    def values(self) -> Values:
        """The counters now, (forwarders, 1, fields)."""
        c, k = self._simulation.counters, self._simulation.shape.forwarders
        requests = np.column_stack([c.forwarder_requests, c.forwarder_operations.sum(axis=1)])[:k]
        held = np.column_stack([c.forwarder_seconds, c.forwarder_operation_seconds.sum(axis=1)])[:k]
        now = np.stack([requests, held, c.forwarder_wait_seconds[:k]])
        served, *spent = now - self._before
        self._before = now
        for part, seconds in enumerate(spent):
            mean = np.divide(seconds, served, out=np.full_like(served, 1e-9), where=served > 0)
            mean = np.maximum(mean, 1e-9)
            below = 1.0 - np.exp(-_LWFS_BOUNDS / mean[..., None])
            edges = np.concatenate([np.zeros((k, 3, 1)), below, np.ones((k, 3, 1))], axis=-1)
            self._counts[:, :, part] += served[..., None] * np.diff(edges, axis=-1)
        passed = max(self._simulation.now - self._at, 1)
        self._at = self._simulation.now
        sampled = served.sum(axis=1) / 1000
        self._queue += np.column_stack([sampled, sampled * spent[1].sum(axis=1) / passed])
        return _whole(*np.concatenate([self._counts.reshape(k, -1), self._queue], axis=1).T)[:, None, :]
