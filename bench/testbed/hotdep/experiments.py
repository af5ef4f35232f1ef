"""The faults: what is done to one peer, which metric has to blame it, and what has to be named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from bench.testbed.gluster.experiments import source_of
from bench.testbed.hotdep.peers import Peer
from bench.testbed.luns import disk_hog, process

CONTROL = "control"


@dataclass(frozen=True, slots=True)
class Experiment:
    """One kind of run. `apply` does `fault` while its context lasts.

    `source` and `metric` have to blame the peer, and one of `names`, beginnings of `program/image/function`,
    has to be among the functions that the alarm names.
    """

    fault: str
    apply: Callable[[Peer], AbstractContextManager[None]]
    source: str = ""
    metric: str = ""
    names: tuple[str, ...] = ()

    def right(self, peer: Peer, alarm: Mapping[str, Any]) -> bool:
        """Return whether an alarm is the one that has to come."""
        expected = (self.source, self.metric, "node", peer.name)
        return (source_of(alarm), alarm["metric"], alarm["level"], alarm["component"]) == expected

    def explained(self, peer: Peer, alarm: Mapping[str, Any]) -> bool:
        """Return whether an alarm is on the faulty peer or on its disk."""
        return bool(self.source) and alarm["component"] in (peer.name, peer.disk)

    def named(self, alarm: Mapping[str, Any]) -> bool:
        """Return whether an alarm's causes name the rogue process or the blocking call."""
        return any(cause["name"].startswith(self.names) for cause in alarm["causes"])


@contextmanager
def _cpu_hog(peer: Peer) -> Iterator[None]:
    """Keep a process busy on the peer, in the CPU time that its server has, too."""
    with process(peer.command("sha256sum", "/dev/zero")):
        yield


EXPERIMENTS: Mapping[str, Experiment] = {
    CONTROL: Experiment("none", lambda _: nullcontext()),
    "disk": Experiment(
        "a disk-hog: dd reads the peer's disk in direct requests of 256 MB",
        lambda peer: disk_hog(peer.lun, within=peer.command()),
        "fntrace",
        "time",
        ("ioserver/ioserver/storage_read", "ioserver/ioserver/storage_write", "dd/"),
    ),
    "cpu": Experiment(
        "a CPU hog: sha256sum of /dev/zero on the peer, in its server's share of a core",
        _cpu_hog,
        "fnprofile",
        "samples",
        ("sha256sum/",),
    ),
}
