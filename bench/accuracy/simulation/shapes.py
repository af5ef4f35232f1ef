"""How many servers and LUNs there are, and what they share."""

import re
from dataclasses import dataclass
from string import ascii_lowercase

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.groups.topology import Branch, Topology

IntArray = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Shape:
    """`servers` with `luns_per_server` LUNs each; LUN l belongs to server l // luns_per_server.

    `controllers`: 0, or how many RAID controllers share the LUNs, two to a couplet. `link_bytes_per_s`: each
    server's network, each way. There is one client a LUN.
    """

    name: str
    servers: int
    luns_per_server: int
    link_bytes_per_s: float
    controllers: int = 0

    @property
    def luns(self) -> int:
        """How many LUNs there are, L."""
        return self.servers * self.luns_per_server

    @property
    def server_of(self) -> IntArray:
        """The server of each LUN (L,)."""
        return np.repeat(np.arange(self.servers), self.luns_per_server)

    @property
    def controller_of(self) -> IntArray:
        """The controller of each LUN (L,): within a couplet, LUNs alternate between its two controllers."""
        couplets = max(self.controllers // 2, 1)
        couplet = np.arange(self.luns) * couplets // self.luns
        return 2 * couplet + np.arange(self.luns) % 2

    @property
    def topology(self) -> Topology:
        """What the product is told: the LUNs of controllers and couplets; servers are in the names."""
        if not self.controllers:
            return Topology()
        names, controller = np.array(self.lun_names), self.controller_of
        return Topology(
            [
                Branch(
                    "|".join(map(re.escape, names[controller == c])),
                    {"controller": f"controller-{c + 1}", "couplet": f"couplet-{c // 2 + 1}"},
                )
                for c in range(self.controllers)
            ]
        )

    @property
    def server_names(self) -> tuple[str, ...]:
        """oss-01, oss-02, ..."""
        return tuple(f"oss-{s + 1:02}" for s in range(self.servers))

    @property
    def client_names(self) -> tuple[str, ...]:
        """node-01, node-02, ..."""
        return tuple(f"node-{c + 1:02}" for c in range(self.luns))

    @property
    def ost_names(self) -> tuple[str, ...]:
        """The OST on each LUN: scratch-OST0000, scratch-OST0001, ..."""
        return tuple(f"scratch-OST{ost:04x}" for ost in range(self.luns))

    @property
    def lun_names(self) -> tuple[str, ...]:
        """oss-01/sda, oss-01/sdb, ..."""
        devices = ascii_lowercase[: self.luns_per_server]
        return tuple(f"{server}/sd{letter}" for server in self.server_names for letter in devices)


GIGABIT = 112e6
"""What TCP gets out of gigabit Ethernet, bytes per second."""

SHAPES = {
    shape.name: shape
    for shape in (
        Shape("pvfs", 10, 1, GIGABIT),  # the HotDep paper's
        Shape("pvfs-2", 10, 2, 2 * GIGABIT),
        Shape("jbod-12", 1, 12, 10 * GIGABIT),
        Shape("couplets", 4, 6, 10 * GIGABIT, controllers=4),
    )
}
