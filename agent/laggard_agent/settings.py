"""agent.toml as one frozen object, and the roots of the trees that collectors read."""

import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from laggard_common.config import between, checked, distinct, each, network, one_of, regex, topic_level
from laggard_common.mqtt.settings import MqttSettings
from laggard_common.wire.limits import MAX_COMPONENTS, MAX_TICKS
from laggard_common.wire.topics import ROLES, is_level

COLLECTORS = (
    "diskstats",
    "net",
    "host",
    "lustre",
    "gluster",
    "lwfs",
    "infiniband",
    "fnprofile",
    "fntrace",
)
DEFAULT_COLLECTORS = ("diskstats", "net", "host")


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """`[spool]`: where batches wait for their acknowledgement, and how much of it may be held."""

    directory: Path = Path("/var/lib/laggard/spool")
    max_bytes: int = field(default=256 * 1024 * 1024, metadata=checked(between(1024 * 1024)))
    acknowledge: str = field(default="aggregator", metadata=checked(one_of(("aggregator", "broker"))))


@dataclass(frozen=True, slots=True)
class DiskstatsSettings:
    """`[diskstats]`: regular expressions on kernel names; what `include` names is taken whatever it is."""

    include: tuple[str, ...] = field(default=(), metadata=checked(each(regex())))
    exclude: tuple[str, ...] = field(default=(), metadata=checked(each(regex())))


@dataclass(frozen=True, slots=True)
class NetSettings:
    """`[net]`: regular expressions on interface names; an empty `include` means all.

    `destinations`: networks within which TCP is counted by remote address.
    """

    include: tuple[str, ...] = field(default=(), metadata=checked(each(regex())))
    exclude: tuple[str, ...] = field(
        default=("lo", "veth.*", "docker.*", "br-.*", "virbr.*", "cali.*", "tap.*", "ifb.*", "dummy.*"),
        metadata=checked(each(regex())),
    )
    destinations: tuple[str, ...] = field(default=(), metadata=checked(each(network())))
    most_destinations: int = field(default=1024, metadata=checked(between(1, MAX_COMPONENTS)))


@dataclass(frozen=True, slots=True)
class LustreSettings:
    """`[lustre]`: whether the statistics of jobs are read, and how many of a node at most."""

    job_stats: bool = False
    max_job_entries: int = field(default=8192, metadata=checked(between(1, MAX_COMPONENTS)))


@dataclass(frozen=True, slots=True)
class GlusterSettings:
    """`[gluster]`: glusterd's folder, and how old the dump of a process that ended is."""

    directory: Path = Path("/var/lib/glusterd")
    stale_seconds: float = field(default=60.0, metadata=checked(between(1)))


@dataclass(frozen=True, slots=True)
class LwfsSettings:
    """`[lwfs]`: the log of the forwarding server."""

    log: Path = Path("/var/log/lwfs/etc-lwfs-lwfsd.vol.log")


@dataclass(frozen=True, slots=True)
class InfinibandSettings:
    """`[infiniband]`: whether the counters of the device's own driver are read, beside those of all ports."""

    hw_counters: bool = True


@dataclass(frozen=True, slots=True)
class FnprofileSettings:
    """`[fnprofile]`: how often each CPU is sampled and a vector made; how many functions have a row.

    `cgroup`: the folder of a control group; only what runs in it is sampled. Empty: everything is.
    """

    frequency_hz: float = field(default=997.0, metadata=checked(between(1, 10_000)))
    vector_seconds: float = field(default=10.0, metadata=checked(between(0.1, 3600)))
    max_functions: int = field(default=4096, metadata=checked(between(16, MAX_COMPONENTS // 2)))
    event: str = field(default="auto", metadata=checked(one_of(("auto", "cpu-clock", "cycles"))))
    cgroup: str = ""


@dataclass(frozen=True, slots=True)
class FntraceSettings:
    """`[fntrace]`: where traced processes put their tables, and how many functions have a row."""

    directory: Path = Path("/dev/shm/laggard")  # noqa: S108 - the library's own default
    max_functions: int = field(default=1024, metadata=checked(between(1, 4096)))


def _host_name() -> str:
    return socket.gethostname()


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """All of agent.toml."""

    site: str = field(default="site", metadata=checked(topic_level()))
    node: str = field(default_factory=_host_name, metadata=checked(topic_level()))
    role: str = field(default="storage", metadata=checked(one_of(ROLES)))
    interval_seconds: float = field(default=1.0, metadata=checked(between(0.05, 3600)))
    batch_samples: int = field(default=10, metadata=checked(between(1, MAX_TICKS)))
    collectors: tuple[str, ...] = field(
        default=DEFAULT_COLLECTORS, metadata=checked(distinct(), each(one_of(COLLECTORS)))
    )
    mqtt: MqttSettings = field(default_factory=MqttSettings)
    spool: SpoolSettings = field(default_factory=SpoolSettings)
    diskstats: DiskstatsSettings = field(default_factory=DiskstatsSettings)
    net: NetSettings = field(default_factory=NetSettings)
    lustre: LustreSettings = field(default_factory=LustreSettings)
    gluster: GlusterSettings = field(default_factory=GlusterSettings)
    lwfs: LwfsSettings = field(default_factory=LwfsSettings)
    infiniband: InfinibandSettings = field(default_factory=InfinibandSettings)
    fnprofile: FnprofileSettings = field(default_factory=FnprofileSettings)
    fntrace: FntraceSettings = field(default_factory=FntraceSettings)

    def problems(self) -> Iterator[tuple[str, str]]:
        """A default that does not fit: the name of this host."""
        if not is_level(self.node):
            yield "node", f"the host's name {self.node!r} cannot stand in a topic, so this must be set"

    @property
    def interval_ns(self) -> int:
        """The sampling interval in whole nanoseconds."""
        return round(self.interval_seconds * 1e9)


@dataclass(frozen=True, slots=True)
class Roots:
    """The trees that collectors read. `sysfs` None: /proc is foreign, so nothing of this host filters it.

    `lctl_dump`: a saved output of `lctl get_param` that stands for Lustre's trees.
    """

    procfs: Path = Path("/proc")
    sysfs: Path | None = Path("/sys")
    debugfs: Path | None = Path("/sys/kernel/debug")
    lctl_dump: Path | None = None
