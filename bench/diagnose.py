"""Memory and CPU time of `laggard diagnose` over a large CSV: `python -m bench.diagnose`.

A file of --rows samples (time, disk, throughput, latency) is judged in a process of its own. The arrays of a
file are 28 bytes a row: time, disk, throughput and latency. Exits with 1 when the process needs more than
--most above them.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.machine import machine
from tests.support.builders import csv_files

ROW_BYTES = 28
MB = 10**6


def main() -> int:
    """Prints one line; 1 when the process needs too much memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000, help="default %(default)s")
    parser.add_argument("--most", type=int, default=300, help="MB above the arrays (default %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="laggard-bench-") as folder:
        path = csv_files.large(Path(folder, "large.csv"), options.rows)
        command = [sys.executable, "-m", "laggard_aggregator.cli.main", "diagnose", str(path)]
        child = subprocess.Popen([*command, "--load", "throughput"], stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    peak, arrays = used.ru_maxrss * 1024 / MB, ROW_BYTES * options.rows / MB
    seconds = used.ru_utime + used.ru_stime
    above = f"{peak - arrays:.0f} above the arrays' {arrays:.0f}"
    print(f"{options.rows:,} rows: {peak:.0f} MB, {above}; {seconds:.1f} s CPU")
    print(machine("numpy", "pyarrow"))
    return int(child.returncode != 0 or peak - arrays > options.most)


if __name__ == "__main__":
    sys.exit(main())
