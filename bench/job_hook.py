"""Time that a job waits for the prolog hook: `python -m bench.job_hook`.

Calls `deploy/slurm/laggard-job-hook` one after another while every core has a busy process beside it.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.machine import cores, machine

HOOK = Path(__file__).parents[1] / "deploy/slurm/laggard-job-hook"
JOB = {
    "SLURM_CLUSTER_NAME": "lab",
    "SLURM_SCRIPT_CONTEXT": "prolog_slurmctld",
    "SLURM_JOB_NAME": "run",
    "SLURM_JOB_NODELIST": "node[0001-4096]",
}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1000)
    options = parser.parse_args()
    busy = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(cores())]
    try:
        with TemporaryDirectory() as outbox:
            took = []
            for number in range(options.calls):
                environment = {
                    "PATH": os.environ["PATH"],
                    "LAGGARD_OUTBOX": outbox,
                    **JOB,
                    "SLURM_JOB_ID": str(number),
                }
                started = time.perf_counter()
                subprocess.run([HOOK], env=environment, check=True)
                took.append((time.perf_counter() - started) * 1e3)
            deadline = time.monotonic() + 30
            while len(list(Path(outbox).glob("*.jobs"))) < options.calls and time.monotonic() < deadline:
                time.sleep(0.1)
            written = len(list(Path(outbox).glob("*.jobs")))
    finally:
        for process in busy:
            process.kill()
            process.wait()
    cuts = statistics.quantiles(took, n=100)
    print("| calls | documents | ms a call, median | p99 | most |\n|---|---|---|---|---|")
    print(f"| {len(took)} | {written} | {cuts[49]:.1f} | {cuts[98]:.1f} | {max(took):.1f} |")
    print(f"\n{machine()}")


if __name__ == "__main__":
    main()
