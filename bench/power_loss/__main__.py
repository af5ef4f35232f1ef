"""Cuts the power at many moments of a run of state, archive, decisions, mail.db and spool, and starts again.

    python -m bench.power_loss [--points 1000] [--steps 40] [--seed 1]

A library between the programs and the kernel records every change below a folder. Changes that were not
synced may be lost. Each moment is tried with one of disk.POLICIES. Needs a C compiler. Exit status 1 when
anything that was acknowledged is missing, or a start fails.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from bench.machine import machine
from bench.power_loss.check import last_promises, problems
from bench.power_loss.disk import POLICIES, Disk, operations

_RECORDER = Path(__file__).with_name("recorder.c")


def record(folder: Path, steps: int) -> Path:
    """Runs the workload below `folder`; the log of its changes."""
    library, log = folder / "recorder.so", folder / "log"
    compiler = os.environ.get("CC", "cc")
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(_RECORDER), "-ldl", "-pthread"]
    subprocess.run(command, check=True)
    disk = folder / "disk"
    for name in ("state", "archive", "spool"):
        (disk / name).mkdir(parents=True)
    recorded = {"LD_PRELOAD": str(library), "RECORDED_FOLDER": str(disk), "RECORDED_LOG": str(log)}
    work = [sys.executable, "-m", "bench.power_loss.workload", str(disk), str(steps)]
    subprocess.run(work, check=True, env={**os.environ, **recorded})
    return log


def try_points(folder: Path, log: Path, points: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Tries `points` moments of the log; their number by policy, and the faults found."""
    rng = random.Random(seed)
    done = list(operations(log))
    disk, promised = Disk(folder / "disk"), b""
    for name in ("state", "archive", "spool"):  # made before, and synced
        disk.make(name)
    chosen = sorted(rng.sample(range(len(done)), min(points, len(done))))
    tried, wrong, appended, handle = Counter[str](), list[str](), 0, -1
    at = 0
    for number, point in enumerate(chosen):
        for each in done[at : point + 1]:
            if each.kind == "O" and each.path.endswith("/promised"):
                handle = each.handle
            elif each.kind == "W" and each.handle == handle:
                promised += each.data
            disk.apply(each)
        at = point + 1
        policy = POLICIES[number % len(POLICIES)]
        image = folder / "image"
        disk.write(image, policy, rng)
        appended = promised.count(b'["acked"') + 1
        for problem in problems(image, last_promises(promised), appended):
            wrong.append(f"after operation {point} of {len(done)}, {policy}: {problem}")
        shutil.rmtree(image)
        tried[policy] += 1
    return tried, wrong


def main() -> int:
    """Prints the number of moments that were tried, and the faults found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=1000, help="moments")
    parser.add_argument("--steps", type=int, default=40, help="of the run, five seconds each")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(machine("pyarrow"), flush=True)
    folder = Path(tempfile.mkdtemp(prefix="laggard-power-"))
    began = time.monotonic()
    log = record(folder, options.steps)
    tried, wrong = try_points(folder, log, options.points, options.seed)
    seconds = time.monotonic() - began
    print(f"{sum(tried.values())} moments ({', '.join(f'{n} {name}' for name, n in tried.items())})", end="")
    print(f" in {seconds:.0f} s: {len(wrong)} problems")
    for each in wrong[:40]:
        print(f"PROBLEM {each}")
    if wrong:
        print(f"the run is in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
