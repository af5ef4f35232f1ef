"""The peers: I/O servers (`server.c`), each with a disk and control groups of its own, and their client."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.testbed.groups import control_groups, within
from bench.testbed.luns import CannotRunError, Lun, free_loops, loop_luns, process, run
from bench.testbed.running import Running, until
from laggard_agent.collectors.fnprofile import perf

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


class Service(Running):
    """The peers and their client at work. `log`: what the client says."""

    def __init__(self, peers: Iterable[Peer], log: Path) -> None:
        super().__init__()
        self.peers = tuple(peers)
        self._log = log

    def stripe_ms(self, start: float, end: float) -> float:
        """Return how long a stripe took on average between two times (epoch s), ms; 0 without any."""
        said = (
            line.split() for line in self._log.read_text().splitlines(keepends=True) if line.endswith("\n")
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
    server, client = _build(scratch)
    log = scratch / "client.log"
    with ExitStack() as stack:
        made = Service(_nodes(stack, count, scratch), log)
        for peer in made.peers:
            command = ["env", f"LAGGARD_TRACE_DIR={peer.tables}", str(server), str(peer.port)]
            file = [str(peer.lun.mount / "strips"), str(FILE_BYTES)]
            said = scratch / f"{peer.name}-server.log"
            made.add(stack.enter_context(process(peer.command(*command, *file), said)), said)

        def listening() -> bool:
            made.check()
            ports = {line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]}
            return all(f"0100007F:{peer.port:04X}" in ports for peer in made.peers)

        until("the I/O servers", listening, START_SECONDS)
        load = [str(CLIENT_THREADS), str(THINK_MS), str(FILE_BYTES), *(str(peer.port) for peer in made.peers)]
        made.add(stack.enter_context(process(_leashed([str(client), *load]), log)), log)
        yield made


def _nodes(stack: ExitStack, count: int, scratch: Path) -> Iterator[Peer]:
    """Yield peers, with everything that makes them nodes of their own; `stack` takes the undoing."""
    limits, profiles = _cpu_root(), _perf_root()
    names = [f"io-{number + 1}" for number in range(count)]
    luns = stack.enter_context(loop_luns(count, scratch, LUN_BYTES, LUN_CAP, free_loops()))
    limited = stack.enter_context(control_groups(limits, names))
    profiled = stack.enter_context(control_groups(profiles, names))
    tables = stack.enter_context(_memory(scratch / "tables"))
    for number, (name, lun) in enumerate(zip(names, luns, strict=True)):
        quota = limited[name] / "cpu.cfs_quota_us"
        if not quota.exists():
            raise CannotRunError("the kernel has no CFS quota (CONFIG_CFS_BANDWIDTH)")
        (limited[name] / "cpu.cfs_period_us").write_text(f"{PERIOD_US}\n")
        quota.write_text(f"{QUOTA_US}\n")
        (tables / name).mkdir()
        yield Peer(name, FIRST_PORT + number, lun, profiled[name], limited[name], tables / name)


def _perf_root() -> Path:
    """Return where control groups for perf events are. Raises CannotRunError where none can be sampled."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, kind, options, *_ = line.split()
        if kind == "cgroup2" or (kind == "cgroup" and "perf_event" in options.split(",")):
            try:
                os.close(perf.open_event(replace(perf.clock_event(997), cgroup=mount), 0))
            except OSError as exc:
                raise CannotRunError(str(perf.refusal(exc, Path("/proc")))) from exc
            return Path(mount)
    raise CannotRunError("no control groups for perf events: neither cgroup2 nor v1's perf_event is mounted")


def _cpu_root() -> Path:
    root = Path("/sys/fs/cgroup/cpu")
    if os.geteuid() != 0:
        raise CannotRunError("control groups, loop devices and perf events need root")
    if not (root / "cpu.shares").exists():
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
