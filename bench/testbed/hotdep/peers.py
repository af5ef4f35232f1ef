"""The peers: I/O servers (`server.c`), each with a disk and control groups of its own, and their client."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.testbed.gluster.cluster import until
from bench.testbed.groups import control_groups, within
from bench.testbed.luns import CannotRunError, Lun, TestbedError, free_loops, loop_luns, process, run

HERE = Path(__file__).parent
NATIVE = Path(__file__).parents[3] / "native"
LUN_BYTES = 128 << 20
LUN_CAP = 40_000_000
FILE_BYTES = 32 << 20
FIRST_PORT = 3334
CLIENT_THREADS = 4
THINK_MS = 60
QUOTA_US = 20_000
PERIOD_US = 100_000
START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Peer:
    """A node with one I/O server.

    `profiled`, `limited`: the control groups of its processes, for perf events and for CPU time. `tables`:
    where its traced functions are counted.
    """

    name: str
    port: int
    lun: Lun
    profiled: Path
    limited: Path
    tables: Path

    @property
    def disk(self) -> str:
        """What the aggregator calls its disk."""
        return f"{self.name}/{self.lun.sampled}"

    def command(self, *command: str) -> list[str]:
        """Return the command line that runs `command` on this node, within its CPU time."""
        return _leashed(within([self.profiled, self.limited], command))

    def agent(self, *command: str) -> list[str]:
        """Return the command line that runs an agent on this node; its CPU time is not limited."""
        return _leashed(within([self.profiled], command))


@dataclass(frozen=True, slots=True)
class Service:
    """The peers at work. `check` raises TestbedError when one of them, or the client, has ended."""

    peers: tuple[Peer, ...]
    log: Path
    check: Callable[[], None]

    def stripe_ms(self, start: float, end: float) -> float:
        """Return how long a stripe took on average between two times (epoch s), ms; 0 without any."""
        said = (
            line.split() for line in self.log.read_text().splitlines(keepends=True) if line.endswith("\n")
        )
        seconds = [(int(n), float(ms)) for at, n, ms in said if start < float(at) <= end]
        count = sum(n for n, _ in seconds)
        return sum(n * ms for n, ms in seconds) / count if count else 0.0


@contextmanager
def service(count: int, scratch: Path) -> Iterator[Service]:
    """Yield `count` peers with a client at work on all of them.

    `scratch` takes the disks' files, the programs and logs. Raises CannotRunError when something lacks, else
    TestbedError.
    """
    for tool in ("gcc", "make", "dd", "sha256sum"):
        if shutil.which(tool) is None:
            raise CannotRunError(f"{tool} is not installed (packages gcc, libc6-dev, make, coreutils)")
    limits, profiles = _cpu_root(), perf_root()
    names = [f"io-{number + 1}" for number in range(count)]
    server, client = _build(scratch)
    with ExitStack() as stack:
        luns = stack.enter_context(loop_luns(count, scratch, LUN_BYTES, LUN_CAP, free_loops()))
        limited = stack.enter_context(control_groups(limits, names))
        profiled = stack.enter_context(control_groups(profiles, names))
        tables = stack.enter_context(_memory(scratch / "tables"))
        peers = []
        for number, (name, lun) in enumerate(zip(names, luns, strict=True)):
            (limited[name] / "cpu.cfs_period_us").write_text(f"{PERIOD_US}\n")
            (limited[name] / "cpu.cfs_quota_us").write_text(f"{QUOTA_US}\n")
            (tables / name).mkdir()
            peers.append(Peer(name, FIRST_PORT + number, lun, profiled[name], limited[name], tables / name))
        logs = {}
        for peer in peers:
            command = ["env", f"LAGGARD_TRACE_DIR={peer.tables}", str(server), str(peer.port)]
            file = [str(peer.lun.mount / "strips"), str(FILE_BYTES)]
            log = scratch / f"{peer.name}-server.log"
            logs[log] = stack.enter_context(process(peer.command(*command, *file), log))

        def check() -> None:
            for log, started in logs.items():
                if started.poll() is not None:
                    said = log.read_text(errors="replace").strip().splitlines()[-1:]
                    raise TestbedError(f"{log.stem} ended with {started.returncode}: {''.join(said)}")

        def listening() -> bool:
            check()
            ports = {line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]}
            return all(f"0100007F:{peer.port:04X}" in ports for peer in peers)

        until("the I/O servers", listening, START_SECONDS)
        log = scratch / "client.log"
        load = [str(CLIENT_THREADS), str(THINK_MS), str(FILE_BYTES), *(str(peer.port) for peer in peers)]
        logs[log] = stack.enter_context(process(_leashed([str(client), *load]), log))
        yield Service(tuple(peers), log, check)


def perf_root() -> Path:
    """Return where control groups for perf events are. Raises CannotRunError where there are none."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, kind, options, *_ = line.split()
        if kind == "cgroup2" or (kind == "cgroup" and "perf_event" in options.split(",")):
            return Path(mount)
    raise CannotRunError("no control groups for perf events: neither cgroup2 nor v1's perf_event is mounted")


def _cpu_root() -> Path:
    root = Path("/sys/fs/cgroup/cpu")
    if os.geteuid() != 0:
        raise CannotRunError("control groups, loop devices and perf events need root")
    if not root.is_dir():
        raise CannotRunError(f"no cgroup v1 cpu controller at {root}")
    return root


def _build(folder: Path) -> tuple[Path, Path]:
    """Return the server, instrumented and linked with liblaggardtrace.so, and the client."""
    run("make", "-s", "-C", str(NATIVE), f"BUILD={folder}")
    server, client = folder / "ioserver", folder / "ioclient"
    gcc = ["gcc", "-O2", "-g", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pthread"]
    traced = ["-finstrument-functions", "-L", str(folder), f"-Wl,-rpath,{folder}"]
    run(*gcc, *traced, str(HERE / "server.c"), "-o", str(server), "-llaggardtrace")
    run(*gcc, str(HERE / "client.c"), "-o", str(client))
    return server, client


@contextmanager
def _memory(folder: Path) -> Iterator[Path]:
    """Yield a folder that is in memory."""
    folder.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        run("umount", str(folder))


def _leashed(command: Sequence[str]) -> list[str]:
    return ["setpriv", "--pdeathsig=KILL", *command]
