"""The experiments: what is done to the cluster, and which alarms are then right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from bench.testbed.gluster.cluster import Brick, Cluster
from bench.testbed.gluster.faults import cpu_quota, packet_loss
from bench.testbed.hosts import Host
from bench.testbed.luns import throttled

THROTTLED_BYTES_PER_SECOND = 400_000
QUOTA_US = 1000
LOSS_PERCENT = 5
CONTROL = "control"


@dataclass(frozen=True, slots=True)
class Target:
    """Where the fault is: a brick, and the server that it is on."""

    brick: Brick
    host: Host


Judge = Callable[[Target, Mapping[str, Any]], bool]


@dataclass(frozen=True, slots=True)
class Experiment:
    """One kind of run. `jobs`: the load; `fault`: for people; `apply`: does it while its context lasts.

    `whole_server`: the fault is the server's, not the brick's. `right` tells of an alarm whether it is the
    one that has to come, `explained` whether it is at the faulty place. What is neither is a false positive.
    `level`: of the located cause.
    """

    jobs: tuple[str, ...]
    fault: str
    apply: Callable[[Cluster, Target], AbstractContextManager[None]]
    whole_server: bool
    right: Judge
    explained: Judge
    level: str = ""

    def causes(self, target: Target) -> set[tuple[str, str]]:
        """Return the located causes that are right, level and component: an address stands for its server."""
        if self.level == "lun":
            return {("lun", target.brick.disk)}
        return {(self.level, target.host.name), (self.level, target.host.address)} if self.level else set()

    def place(self, target: Target) -> str:
        """Return what the faulty place is called, nothing in the run without a fault."""
        if self is EXPERIMENTS[CONTROL]:
            return ""
        return target.host.name if self.whole_server else target.brick.component


def source_of(alarm: Mapping[str, Any]) -> str:
    """Return the source of an alarm's group; automatic groups are called role/source/what they share."""
    return str(alarm["group"]).split("/")[1]


def _never(_target: Target, _alarm: Mapping[str, Any]) -> bool:
    return False


def _is(source: str, level: str, component: Callable[[Target], str]) -> Judge:
    """Return whether an alarm is on `component`, of this level and from this source."""

    def right(target: Target, alarm: Mapping[str, Any]) -> bool:
        return (source_of(alarm), alarm["level"], alarm["component"]) == (source, level, component(target))

    return right


def _to_server(target: Target, alarm: Mapping[str, Any]) -> bool:
    """Whether an alarm is on what a client sends to the faulty server."""
    return source_of(alarm) == "tcp_destination" and str(alarm["component"]).endswith(
        f"/{target.host.address}"
    )


def _at_server(target: Target, alarm: Mapping[str, Any]) -> bool:
    """Whether an alarm is on the faulty server, on anything of it, or on the way to it."""
    return str(alarm["component"]).split("/")[0] == target.host.name or _to_server(target, alarm)


def _throttle(_made: Cluster, target: Target) -> AbstractContextManager[None]:
    return throttled(target.brick.lun, THROTTLED_BYTES_PER_SECOND)


def _quota(made: Cluster, target: Target) -> AbstractContextManager[None]:
    return cpu_quota(made.quotas[target.host.name], QUOTA_US)


def _loss(_made: Cluster, target: Target) -> AbstractContextManager[None]:
    return packet_loss(target.host, LOSS_PERCENT)


EXPERIMENTS: Mapping[str, Experiment] = {
    CONTROL: Experiment(
        ("read", "write"), "none", lambda _made, _target: nullcontext(), False, _never, _never
    ),
    "brick": Experiment(
        ("read", "write"),
        f"the disk of one brick capped at {THROTTLED_BYTES_PER_SECOND / 1e6:g} MB/s each way",
        _throttle,
        False,
        _is("gluster_brick", "component", lambda target: target.brick.component),
        _is("diskstats", "component", lambda target: target.brick.disk),
        "lun",
    ),
    "quota": Experiment(
        ("read", "write"),
        f"GlusterFS of one server gets {QUOTA_US / 1000:g} % of a core",
        _quota,
        True,
        _is("gluster_brick", "node", lambda target: target.host.name),
        _at_server,
        "server",
    ),
    "loss-read": Experiment(
        ("read",),
        f"{LOSS_PERCENT} % of the packets into one server lost, clients read",
        _loss,
        True,
        _is("tcp", "component", lambda target: f"{target.host.name}/tcp"),
        _at_server,
        "network",
    ),
    "loss-write": Experiment(
        ("write",),
        f"{LOSS_PERCENT} % of the packets into one server lost, clients write",
        _loss,
        True,
        _to_server,
        _at_server,
        "network",
    ),
}
