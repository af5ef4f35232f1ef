"""What the `fnprofile` collector costs, beside the perf tool: `python -m bench.fnprofile`.

CPU seconds of the agent's process that samples all CPUs, kept running for some time, and of `perf record`
for the same time, `perf script` and `perf report` on its file; on an idle machine, with two busy programs,
and with programs that start and end all the time. CPU is the scheduler's own count over all threads.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from bench.machine import machine
from laggard_agent.collectors.fnprofile.collector import Fnprofile, FnprofileSettings
from laggard_agent.collectors.interface import Context, Roots
from laggard_common.wire.codec import Row

_BURN = "while True: sum(i * i for i in range(1000))"
_FORK = "while :; do /bin/true; done"
LOADS = {
    "idle": [],
    "2 busy": [[sys.executable, "-c", _BURN]] * 2,
    "a shell that starts programs": [["/bin/sh", "-c", _FORK]],
}


@contextmanager
def loaded(commands: list[list[str]]) -> Iterator[None]:
    """While it lasts these programs run."""
    running = [subprocess.Popen(command) for command in commands]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def own(seconds: int) -> tuple[float, float, int]:
    """CPU ms a second, samples a second and resident KiB that sampling adds."""
    before = _resident_kib()
    collector = Fnprofile(FnprofileSettings(), Context(Roots(), time.time_ns, time.monotonic_ns))
    list(collector.read())
    _settle(collector)
    *_, reading = collector.read()
    samples, cpu, started = _samples(reading.rows[0]), time.process_time(), time.monotonic()
    for _ in range(seconds):
        time.sleep(1)
        *_, reading = collector.read()
    wall = time.monotonic() - started
    cost = (time.process_time() - cpu) / wall * 1000
    resident = _resident_kib() - before
    collector.close()
    return cost, (_samples(reading.rows[0]) - samples) / wall, resident


def _settle(collector: Fnprofile) -> None:
    """Long enough for the tables of symbols, which are made once, and the first vectors."""
    for _ in range(15):
        time.sleep(1)
        list(collector.read())


def perf(seconds: int) -> dict[str, float]:
    """CPU ms a second of sampling, and of each way to read the samples."""
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/perf.data"
        record = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "997", "-a", "-o", file]
        costs = {"record": _children([*record, "--", "sleep", str(seconds)])}
        costs["script"] = _children(["perf", "script", "-i", file, "-F", "comm,ip,sym,dso"])
        costs["report"] = _children(["perf", "report", "-i", file, "--stdio", "-s", "comm,dso,sym"])
    return {what: cpu / seconds * 1000 for what, cpu in costs.items()}


def _children(command: list[str]) -> float:
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _samples(row: Row) -> int:
    return int(row[6] or 0)


def _resident_kib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=20)
    seconds = parser.parse_args().seconds
    print("| load | samples a second | fnprofile | resident, MiB | perf record | perf script | perf report |")
    print("|---|---|---|---|---|---|---|")
    for name, commands in LOADS.items():
        with loaded(commands):
            cost, samples, resident = own(seconds)
            row = f"| {name} | {samples:.0f} | {cost:.1f} | {resident / 1024:.0f}"
            if shutil.which("perf"):
                costs = perf(seconds)
                row += "".join(f" | {cpu:.1f}" for cpu in costs.values())
            print(f"{row} |", flush=True)
    print(
        f"\nCPU, ms a second, at 997 Hz on {os.cpu_count()} CPUs; {machine()}; load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
