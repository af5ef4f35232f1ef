"""GlusterFS on hosts of its own: servers with bricks on fake LUNs, one volume, clients that mount it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.testbed.groups import control_groups, within
from bench.testbed.hosts import Host, host, own_namespaces
from bench.testbed.luns import CannotRunError, Lun, TestbedError, free_loops, loop_luns, run
from bench.testbed.running import until

VOLUME = "data"
MOUNT = Path("/srv/mnt")
"""Where the volume is, on each client."""
LUN_BYTES = 512 << 20
LUN_CAP = 40_000_000
SERVER_NUMBER = 11
CLIENT_NUMBER = 101
FILES_A_BRICK = 8
"""So many files are tried for each brick until every brick has what it needs."""

# What caches or reorders is off, so that each request of an application is one of a brick.
OPTIONS = {
    **dict.fromkeys(
        (
            *("performance.io-cache", "performance.quick-read", "performance.read-ahead"),
            *("performance.write-behind", "performance.stat-prefetch", "performance.open-behind"),
            *("performance.readdir-ahead", "performance.client-io-threads", "network.remote-dio"),
        ),
        "off",
    ),
    "performance.strict-o-direct": "on",
    "diagnostics.latency-measurement": "on",
    "diagnostics.count-fop-hits": "on",
    "diagnostics.stats-dump-format": "json",
    "diagnostics.stats-dump-interval": "1",
}


@dataclass(frozen=True, slots=True)
class Brick:
    """A brick: its server's name, the folder below /srv that its LUN is mounted on there, the LUN."""

    server: str
    folder: str
    lun: Lun

    @property
    def path(self) -> str:
        """The brick as its server knows it."""
        return f"/srv/{self.folder}/data"

    @property
    def component(self) -> str:
        """What the aggregator calls it."""
        return f"{self.server}/{self.path}"

    @property
    def disk(self) -> str:
        """What the aggregator calls the disk below it."""
        return f"{self.server}/{self.lun.sampled}"

    @property
    def files(self) -> Path:
        """Its folder as this process sees it."""
        return self.lun.mount / "data"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A started and mounted volume. `quotas`: the cpu cgroup of each server's GlusterFS, by its name."""

    servers: tuple[Host, ...]
    clients: tuple[Host, ...]
    bricks: tuple[Brick, ...]
    quotas: dict[str, Path]

    def bricks_of(self, server: str) -> tuple[Brick, ...]:
        """Return the bricks of a server."""
        return tuple(brick for brick in self.bricks if brick.server == server)


@contextmanager
def cluster(servers: int, bricks_each: int, clients: int, scratch: Path) -> Iterator[Cluster]:
    """Yield a cluster of `servers` with `bricks_each` and `clients` that mount it.

    `scratch` takes the LUNs' files and all logs. Moves this process into namespaces of its own. Raises
    CannotRunError when something that it takes is not there, else TestbedError.
    """
    for tool in ("glusterd", "glusterfsd", "gluster", "glusterfs"):
        if shutil.which(tool) is None:
            raise CannotRunError(f"{tool} is not installed (package glusterfs-server)")
    if not Path("/dev/fuse").exists():
        raise CannotRunError("no /dev/fuse: clients cannot mount the volume")
    own_namespaces()
    with ExitStack() as stack:
        count = servers * bricks_each
        luns = stack.enter_context(loop_luns(count, scratch, LUN_BYTES, LUN_CAP, free_loops()))
        bricks = tuple(
            Brick(f"gl-{lun.index // bricks_each + 1}", f"b{lun.index % bricks_each}", lun) for lun in luns
        )
        names = list(dict.fromkeys(brick.server for brick in bricks))
        quotas = stack.enter_context(_cpu_groups(names))
        made = []
        for number, name in enumerate(names):
            log = scratch / f"{name}.log"
            folders = [(brick.lun.mount, brick.folder) for brick in bricks if brick.server == name]
            made.append(stack.enter_context(host(name, SERVER_NUMBER + number, log, folders)))
            glusterd = within([quotas[name]], ["glusterd", "--log-level", "WARNING"])
            run(*made[-1].command(*glusterd))  # ends with its host
        _make_volume(made, bricks)
        attached = [stack.enter_context(_client(number, made[0], scratch)) for number in range(clients)]
        yield Cluster(tuple(made), tuple(attached), bricks, quotas)


def spread_files(made: Cluster, client: Host, prefix: str, each: int) -> dict[Brick, list[str]]:
    """Return the names of `each` empty files a brick, which `client` made; the volume places them by name."""
    inside = mounted(client)
    names = [f"{prefix}-{n}" for n in range(each * FILES_A_BRICK * len(made.bricks))]
    for name in names:
        (inside / name).touch()
    files: dict[Brick, list[str]] = {}
    for brick in made.bricks:
        here = [name for name in names if (brick.files / name).exists()]
        if len(here) < each:
            raise TestbedError(f"the volume put {len(here)} of {len(names)} files on {brick.component}")
        files[brick] = here[:each]
    for name in set(names) - {name for chosen in files.values() for name in chosen}:
        (inside / name).unlink()
    return files


def mounted(client: Host) -> Path:
    """Return the volume as `client` has it mounted, seen from this process."""
    return Path(f"/proc/{client.pid}/root") / MOUNT.relative_to("/")


@contextmanager
def _client(number: int, server: Host, logs: Path) -> Iterator[Host]:
    name = f"cl-{number + 1}"
    with host(name, CLIENT_NUMBER + number, logs / f"{name}.log") as made:
        run(*made.command("mkdir", str(MOUNT)))
        mount = ["glusterfs", f"--volfile-server={server.address}", f"--volfile-id={VOLUME}"]
        run(*made.command(*mount, "--log-level=WARNING", "--direct-io-mode=enable", str(MOUNT)))
        until(f"the mount of {made.name}", lambda: mounted(made).is_mount())
        yield made


def _make_volume(servers: Sequence[Host], bricks: Sequence[Brick]) -> None:
    """Make one pool of all servers, and of their bricks a distributed volume that is started."""
    first, *others = servers
    address = {each.name: each.address for each in servers}

    def gluster(*arguments: str, on: Host = first) -> str:
        return run(*on.command("gluster", "--mode=script", *arguments))

    def connected(server: Host) -> int:
        """How many servers, itself included, a server is connected to; 0 while glusterd does not answer."""
        try:
            return gluster("pool", "list", on=server).count("Connected")
        except TestbedError:
            return 0

    until("glusterd of every server", lambda: all(map(connected, servers)))
    for each in others:
        gluster("peer", "probe", each.address)
    until("one pool", lambda: all(connected(each) == len(servers) for each in servers))
    places = [f"{address[brick.server]}:{brick.path}" for brick in bricks]
    gluster("volume", "create", VOLUME, "transport", "tcp", *places, "force")
    gluster("volume", "set", VOLUME, *(word for option in OPTIONS.items() for word in option))
    gluster("volume", "start", VOLUME)


@contextmanager
def _cpu_groups(names: Sequence[str]) -> Iterator[dict[str, Path]]:
    """Yield a cgroup of v1's cpu controller for each name; they are removed at the end."""
    root = Path("/sys/fs/cgroup/cpu")
    if not (root / "cpu.cfs_quota_us").exists() and not (root / "cpu.shares").exists():
        raise CannotRunError("no cgroup v1 cpu controller at /sys/fs/cgroup/cpu")
    with control_groups(root, names) as groups:
        if not all((group / "cpu.cfs_quota_us").exists() for group in groups.values()):
            raise CannotRunError("the kernel has no CFS quota (CONFIG_CFS_BANDWIDTH)")
        yield groups
