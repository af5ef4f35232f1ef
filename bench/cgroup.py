"""CPU time of the collector `cgroup` a sample: `python -m bench.cgroup` (root for real control groups).

Makes control groups named like Slurm's in the trees of v1, or in a scope of v2, with a process each; that of
a busy job writes 4 KiB to a device five times a second. The collector samples once a second, as an agent
does: a process that wakes up once a second finds cold caches. The control groups are removed at the end.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

from bench.machine import machine
from laggard_agent.collectors.cgroup.collector import Cgroup, CgroupSettings
from laggard_agent.collectors.interface import Context, Roots

ROOT = Path("/sys/fs/cgroup")
V1 = ("freezer", "memory", "cpuacct", "blkio")
BUSY = """
import mmap, os, sys, time
page = mmap.mmap(-1, 4096)
file = os.open(sys.argv[1], os.O_WRONLY | os.O_DIRECT)
os.pwrite(file, page, 4096 * int(sys.argv[2]))
while True:
    time.sleep(0.2 if sys.argv[3] == "busy" else 1000)
    os.pwrite(file, page, 4096 * int(sys.argv[2]))
"""


def folders(jobs: int) -> Iterator[list[Path]]:
    """The folders of each job: one in v2, one a controller in v1."""
    name = f"slurm_bench{os.getpid()}"
    v1 = [ROOT / controller for controller in V1 if (ROOT / controller / "cgroup.procs").exists()]
    for job in range(1, jobs + 1):
        if v1:
            yield [tree / name / f"uid_{1000 + job % 5}" / f"job_{job}" for tree in v1]
        else:
            yield [ROOT / "system.slice" / f"bench{os.getpid()}_slurmstepd.scope" / f"job_{job}"]


@contextmanager
def loop_device(mib: int) -> Iterator[str]:
    """A loop device whose I/O the kernel counts (v1 does so once a limit was set)."""
    with NamedTemporaryFile(dir="/var/tmp") as file:
        file.truncate(mib * 2**20)
        command = ["losetup", "--find", "--show", file.name]
        device = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        number = (Path("/sys/block") / device.removeprefix("/dev/") / "dev").read_text().strip()
        limit = ROOT / "blkio/blkio.throttle.read_bps_device"
        for value in (2**40, 0) if limit.exists() else ():
            limit.write_text(f"{number} {value}")
        try:
            yield device
        finally:
            subprocess.run(["losetup", "--detach", device], check=True)


@contextmanager
def running(jobs: int, device: str, every: int) -> Iterator[None]:
    """Control groups of `jobs` jobs, each with a process."""
    with ExitStack() as stack:
        for number, paths in enumerate(folders(jobs)):
            stack.enter_context(made(paths))
            kind = "idle" if number % every else "busy"
            process = subprocess.Popen([sys.executable, "-S", "-c", BUSY, device, str(number), kind])
            stack.callback(process.wait)
            stack.callback(process.kill)
            for path in paths:
                (path / "cgroup.procs").write_text(str(process.pid))
        yield


@contextmanager
def made(paths: Sequence[Path]) -> Iterator[None]:
    """The folders of a job while the context lasts."""
    with ExitStack() as stack:
        for path in paths:
            path.mkdir(parents=True)
            stack.callback(_remove, path)
        yield


def _remove(path: Path) -> None:
    while path.name.startswith(("job_", "uid_", "slurm_bench")) or path.name.endswith("slurmstepd.scope"):
        try:
            path.rmdir()
        except OSError:  # others of its folders are there yet
            return
        path = path.parent


def measure(jobs: int, every: int, samples: int) -> list[float]:
    """CPU milliseconds of each sample."""
    with loop_device(8) as device, running(jobs, device, every):
        settings = CgroupSettings(include=(device.removeprefix("/dev/"),))
        collector = Cgroup(settings, Context(Roots(), time.time_ns, time.monotonic_ns))
        took = []
        for _ in range(samples + 1):
            time.sleep(1)
            started = time.thread_time()
            readings = {reading.source: reading for reading in collector.read()}
            took.append((time.thread_time() - started) * 1e3)
        counted = sum(bool(row[4]) for row in (readings["cgroup"].rows if jobs else ()))
        assert counted == jobs, f"{counted} jobs with bytes"
    return took[1:]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=20)
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("bench.cgroup: control groups need root")
    print("| jobs | of them busy | ms a sample, min / median / max | of a core at one a second |")
    print("|---|---|---|---|")
    for jobs, every in ((0, 1), (10, 1), (50, 5), (50, 1), (200, 5)):
        took = measure(jobs, every, options.samples)
        least, median, most = min(took), statistics.median(took), max(took)
        busy = len(range(0, jobs, every))
        print(f"| {jobs} | {busy} | {least:.2f} / {median:.2f} / {most:.2f} | {median / 10:.3f} % |")
    print(f"\n{machine()}")


if __name__ == "__main__":
    main()
