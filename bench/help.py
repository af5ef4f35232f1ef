"""CPU seconds of `--help` of every command: `python -m bench.help`.

Each is the least user and system time of several child processes. Exits with 1 when one takes longer than
--most.
"""

import argparse
import os
import subprocess
import sys

from bench.machine import machine
from laggard_aggregator.cli.main import COMMANDS

PROGRAMS = {
    "laggard": "laggard_aggregator.cli.main",
    "laggard-aggregator": "laggard_aggregator.cli.daemon",
    "laggard-agent": "laggard_agent",
}


def cpu_seconds(command: list[str]) -> float:
    """User and system time of one run."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {child.returncode}")
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Prints a line for each command; 1 when one is slow."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="of each command (default %(default)s)")
    parser.add_argument("--most", type=float, default=0.3, help="CPU seconds (default %(default)s)")
    options = parser.parse_args()
    calls = [(program,) for program in PROGRAMS] + [("laggard", each.name) for each in COMMANDS]
    slow = False
    for program, *words in calls:
        command = [sys.executable, "-m", PROGRAMS[program], *words, "--help"]
        least = min(cpu_seconds(command) for _ in range(options.runs))
        slow |= least > options.most
        print(f"{' '.join([program, *words]):20} {least:.3f} s", flush=True)
    print(machine())
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
