"""The stations of the site, and the load that processes of compute and login nodes make on them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.beacon_site.shape import Shape
from bench.queue_site.hardware import (
    CPU_SERVERS,
    LOCK_SECONDS,
    MDT_SECONDS,
    MDT_SERVERS,
    META,
    OST_SERVERS,
    WRITE,
    client_seconds,
    cpu_seconds,
    net_seconds,
    ost_seconds,
    think_seconds,
)
from bench.queue_site.network import Array, Load


@dataclass(frozen=True, slots=True)
class Row:
    """The processes of one node: `population` requests of `kind` and `bytes_`, in turn to all of `osts`, or
    to `mdts`. `think`: seconds between requests, of 1 MiB. `forwarder`: -1 where the node mounts the file
    system itself. `file`: of the shared file that it writes, -1 if none.
    """

    node: int
    population: int
    kind: int
    bytes_: float
    think: float
    forwarder: int
    osts: tuple[int, ...]
    mdts: tuple[int, ...]
    file: int = -1


@dataclass(frozen=True, slots=True)
class Stations:
    """Places of the stations: forwarders' processors, their links, OSTs, MDTs, then locks of shared files."""

    shape: Shape

    @property
    def links(self) -> slice:
        """Links of the forwarders."""
        return slice(self.shape.forwarders, 2 * self.shape.forwarders)

    @property
    def osts(self) -> slice:
        """OSTs."""
        return slice(self.links.stop, self.links.stop + self.shape.osts)

    @property
    def mdts(self) -> slice:
        """MDTs."""
        return slice(self.osts.stop, self.osts.stop + self.shape.mdts)

    @property
    def locks(self) -> slice:
        """Locks of shared files."""
        return slice(self.mdts.stop, None)

    def load(self, rows: Sequence[Row], stations: Array, nodes: Array) -> Load:
        """The load of `rows` (not empty) when the stations and nodes are slower by these factors."""
        files = sorted({row.file for row in rows} - {-1})
        shape = (len(rows), self.mdts.stop + len(files))
        visits, service = np.zeros(shape), np.zeros(shape)
        s = self.shape
        servers = np.repeat(
            [CPU_SERVERS, 1, OST_SERVERS, MDT_SERVERS], [s.forwarders, s.forwarders, s.osts, s.mdts]
        )
        servers = np.concatenate([servers, np.ones(len(files))])
        for at, row in enumerate(rows):
            f, bytes_ = row.forwarder, row.bytes_
            if f >= 0:
                visits[at, [f, s.forwarders + f]] = 1.0
                service[at, f] = CPU_SERVERS * cpu_seconds(row.kind)
                service[at, s.forwarders + f] = net_seconds(bytes_)
            if row.kind == META:
                visits[at, [self.mdts.start + mdt for mdt in row.mdts]] = 1.0 / len(row.mdts)
                service[at, self.mdts] = MDT_SECONDS
            else:
                visits[at, [self.osts.start + ost for ost in row.osts]] = 1.0 / len(row.osts)
                service[at, self.osts] = ost_seconds(row.kind, bytes_)
            if row.file >= 0 and row.kind == WRITE:
                lock = self.mdts.stop + files.index(row.file)
                visits[at, lock], service[at, lock] = 1.0, LOCK_SECONDS
                servers[lock] = len(row.osts)
        service[:, : self.mdts.stop] *= stations
        return Load(
            population=np.array([float(row.population) for row in rows]),
            think=np.array([think_seconds(row.kind, row.bytes_, row.think) for row in rows]),
            client=np.array([client_seconds(row.bytes_) * nodes[row.node] for row in rows]),
            pool=np.array([row.forwarder for row in rows]),
            visits=visits,
            service=service,
            servers=servers,
        )
