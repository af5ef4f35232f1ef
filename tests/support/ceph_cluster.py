"""A Ceph cluster of one monitor, one manager and a few OSDs, on loopback and in one folder. Needs root.

Authentication is off. OSDs are BlueStore on loop devices over sparse files, without the page cache.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.ports import free_port, is_listening
from tests.support.processes import run_command, started
from tests.support.wait import wait_until

PROGRAMS = ("ceph", "ceph-mon", "ceph-osd", "losetup", "monmaptool", "rados")
FSID = "5c1e8c1a-7a0f-4f5e-9a55-0a6f3c1b2d4e"


def is_installed() -> bool:
    """Whether all programs are there."""
    return all(shutil.which(name) for name in PROGRAMS)


@dataclass(frozen=True)
class CephCluster:
    """A running cluster; by number of the OSDs `osd_pids` and `devices`, their loop devices."""

    folder: Path
    osd_pids: Sequence[int]
    devices: Sequence[Path]

    @property
    def sockets(self) -> Path:
        """The folder of the admin sockets."""
        return self.folder / "run"

    def ceph(self, *arguments: str) -> str:
        """The output of `ceph`, repeated while the young monitor denies it."""
        command = ["ceph", "-c", self.folder / "ceph.conf", *arguments]
        output: list[str] = []

        def has_answered() -> bool:
            ended = run_command(command, check=False)
            output[:] = [ended.stdout]
            return ended.returncode == 0

        wait_until(has_answered, " ".join(arguments))
        return output[0]


@contextmanager
def ceph_cluster(folder: Path, osds: int) -> Iterator[CephCluster]:
    """The cluster, once all OSDs are up, with the pool `bench` of three replicas (fewer with fewer OSDs)."""
    port = free_port()
    lines = {
        "fsid": FSID,
        "mon_host": f"127.0.0.1:{port}",
        "mon_initial_members": "a",
        **dict.fromkeys(("auth_cluster_required", "auth_service_required", "auth_client_required"), "none"),
        "run_dir": folder / "run",
        "admin_socket": f"{folder}/run/$cluster-$name.asok",
        "log_file": f"{folder}/$name.log",
        "mon_data": folder / "mon",
        "osd_data": f"{folder}/osd$id",
        "mgr_data": folder / "mgr",
        "osd_objectstore": "bluestore",
        "bluestore_default_buffered_read": "false",
        "osd_memory_target": 939_524_096,
        "osd_crush_chooseleaf_type": 0,
        "osd_pool_default_size": min(osds, 3),
        "mon_allow_pool_size_one": "true",
        "ms_bind_msgr2": "false",
        "public_addr": "127.0.0.1",
    }
    configuration = folder / "ceph.conf"
    configuration.write_text("[global]\n" + "".join(f"{key} = {value}\n" for key, value in lines.items()))
    for name in ("run", "mon", "mgr", *(f"osd{number}" for number in range(osds))):
        (folder / name).mkdir()
    monmap = folder / "monmap"
    address = f"[v1:127.0.0.1:{port}]"
    run_command(["monmaptool", "--create", "--addv", "a", address, "--fsid", FSID, monmap])
    run_command(["ceph-mon", "-c", configuration, "--mkfs", "-i", "a", "--monmap", monmap])
    with ExitStack() as stack:
        output = stack.enter_context((folder / "output").open("w"))

        def run(*command: object) -> int:
            process = started([str(word) for word in command], stdout=output, stderr=output)
            return stack.enter_context(process).pid

        run("ceph-mon", "-c", configuration, "-i", "a", "-f")
        pids: list[int] = []
        devices = [stack.enter_context(_loop_device(folder / f"device{number}")) for number in range(osds)]
        cluster = CephCluster(folder, pids, devices)
        wait_until((folder / "run" / "ceph-mon.a.asok").exists, "the monitor")
        for number in range(osds):
            cluster.ceph("osd", "create")
            (folder / f"osd{number}" / "block").symlink_to(devices[number])
            run_command(["ceph-osd", "-c", configuration, "-i", str(number), "--mkfs"])
            # A monmap from the monitor's configuration has no fsid: a young OSD would be denied by chance.
            pids.append(run("ceph-osd", "--no-mon-config", "-c", configuration, "-i", number, "-f"))
        up = f"{osds} osds: {osds} up"
        wait_until(lambda: up in cluster.ceph("-s"), up)
        cluster.ceph("osd", "pool", "create", "bench", "32", "32", "replicated")
        yield cluster


@contextmanager
def exporter(cluster: CephCluster) -> Iterator[int]:
    """The port at which the manager's module `prometheus` answers, while the block lasts."""
    port = free_port()
    command = ["ceph-mgr", "-c", cluster.folder / "ceph.conf", "-i", "x", "-f"]
    with (
        (cluster.folder / "mgr.output").open("w") as output,
        started(command, stdout=output, stderr=output),
    ):
        # The options of its modules are known once a manager has come.
        for name, value in (("server_addr", "127.0.0.1"), ("server_port", port)):
            cluster.ceph("config", "set", "mgr", f"mgr/prometheus/{name}", str(value))
        cluster.ceph("mgr", "module", "enable", "prometheus")
        wait_until(lambda: is_listening(port), "the manager's exporter")
        yield port


@contextmanager
def _loop_device(file: Path) -> Iterator[Path]:
    """A loop device over a sparse file of 4 GiB, while the block lasts."""
    with file.open("wb") as image:
        image.truncate(4 * 1024**3)
    command = ["losetup", "--find", "--show", "--direct-io=on", file]
    device = run_command(command).stdout.strip()
    try:
        yield Path(device)
    finally:
        run_command(["losetup", "--detach", device])
