"""Bytes of jobs by the collector `cgroup`, held against fio's own: `python -m bench.cgroup_bytes` (root).

Jobs run side by side in control groups named like Slurm's, each with a fio that reads or writes its own part
of a device by requests of its own size. The collector samples once a second. As Slurm's step daemon does, a
process outlives the application, here until the last sample: what is moved after it is in no row.
Exit 1 when a job's bytes are more than 1 % off, 2 without root.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.cgroup import folders, loop_device, made
from bench.machine import machine
from laggard_agent.collectors.cgroup.collector import Cgroup, CgroupSettings
from laggard_agent.collectors.interface import Context, Roots

LIMIT = 0.01
PART_MIB = 48
BOUND_SECONDS = 120.0
KINDS = ("read", "write", "randread", "randwrite", "randrw")
JOIN = """
while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 1; shift; done
shift
"$@" && touch "$0" && cat
"""


def fio(device: str, number: int, paths: Sequence[Path], chance: random.Random, report: Path) -> list[str]:
    """The command line of a job, which joins its control groups first and ends when its input does."""
    options = {
        "name": f"job{number}",
        "filename": device,
        "offset": f"{number * PART_MIB}m",
        "size": f"{chance.randint(8, PART_MIB)}m",
        "rw": chance.choice(KINDS),
        "bs": f"{2 ** chance.randint(12, 20)}",
        "rate_iops": "2000",
        "direct": "1",
        "ioengine": "psync",
        "randseed": str(chance.randrange(2**31)),
        "output": str(report),
        "output-format": "json",
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    return ["sh", "-c", JOIN, str(_end(report)), *map(str, paths), "--", "fio", *words]


def counted(collector: Cgroup) -> dict[str, tuple[int, int]]:
    """Bytes read and written by job, of one sample; jobs of others on this machine are left out."""
    (reading,) = [each for each in collector.read() if each.source == "cgroup"]
    names = [each.name for each in reading.fields]
    read, written = names.index("read_bytes"), names.index("written_bytes")
    rows = zip((each.id.rpartition("/") for each in reading.components), reading.rows, strict=True)
    return {
        job: (int(row[read] or 0), int(row[written] or 0))
        for (node, _, job), row in rows
        if not node or node == f"bench{os.getpid()}"
    }


def measure(jobs: int, seed: int) -> list[tuple[str, tuple[int, int], tuple[int, int]]]:
    """Name, true and counted bytes (read, written) of each job."""
    chance = random.Random(seed)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory()))
        device = stack.enter_context(loop_device(jobs * PART_MIB))
        settings = CgroupSettings(include=(device.removeprefix("/dev/"),))
        collector = Cgroup(settings, Context(Roots(), time.time_ns, time.monotonic_ns))
        started = []
        reports = [scratch / f"{number}.json" for number in range(jobs)]
        for number, paths in enumerate(folders(jobs)):
            stack.enter_context(made(paths))
            command = fio(device, number, paths, chance, reports[number])
            started.append(subprocess.Popen(command, stdin=subprocess.PIPE))
            stack.callback(started[-1].wait)
            stack.callback(started[-1].kill)
        until = time.monotonic() + BOUND_SECONDS
        seen: dict[str, tuple[int, int]] = {}
        while not all(_end(each).exists() for each in reports) and time.monotonic() < until:
            seen |= counted(collector)
            time.sleep(1)
        seen |= counted(collector)
        for each in started:
            each.communicate(timeout=BOUND_SECONDS)
        assert not any(each.returncode for each in started), "fio failed"
        return [(str(number), _true(each), seen[str(number)]) for number, each in enumerate(reports, start=1)]


def _end(report: Path) -> Path:
    """The file that a job makes when its fio has ended well."""
    return report.with_suffix(".end")


def _true(report: Path) -> tuple[int, int]:
    (job,) = json.loads(report.read_text())["jobs"]
    return job["read"]["io_bytes"], job["write"]["io_bytes"]


def main() -> int:
    """Prints the table; 1 when a job's bytes are too far off."""
    parser = argparse.ArgumentParser(prog="python -m bench.cgroup_bytes", description=__doc__)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("fio") is None:
        print("bench.cgroup_bytes: needs root and fio", file=sys.stderr)
        return 2
    found = measure(options.jobs, options.seed)
    print("| job | read, counted | written, counted | off by |\n|---|---|---|---|")
    worst = 0.0
    for name, true, seen in found:
        off = sum(abs(a - b) for a, b in zip(true, seen, strict=True)) / sum(true)
        worst = max(worst, off)
        cells = " | ".join(f"{a:,}, {b:,}" for a, b in zip(true, seen, strict=True))
        print(f"| {name} | {cells} | {off:.3%} |")
    print(f"\n{machine()}; seed {options.seed}; at most {worst:.3%} off")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
