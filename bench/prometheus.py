"""`laggard diagnose --prometheus` on a real Prometheus server: `python -m bench.prometheus`.

--hosts hosts with 12 disks each, scraped every 60 s for --hours hours, in blocks that promtool writes. Three
disks are slow (3 and 2 times from half time on, 1.5 times all the time), an exporter restarts, another is not
scraped for an hour. Prints time, memory and verdicts; exits with 1 when other disks are named than the three.
Needs prometheus and promtool.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.machine import machine
from tests.support.builders.prometheus_blocks import Exported, Slow, serving

HOUR = 3600.0
DISKS = 12


def main() -> int:
    """Prints the figures; 1 when the verdicts are others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=64, help="default %(default)s")
    parser.add_argument("--hours", type=float, default=24.0, help="default %(default)s")
    options = parser.parse_args()
    end = time.time() // 7200 * 7200 - 4 * HOUR
    start = end - options.hours * HOUR
    at = start + options.hours * HOUR / 2
    last = options.hosts - 1
    exported = Exported(
        start,
        end,
        hosts=options.hosts,
        disks=DISKS,
        scrape_seconds=60.0,
        slow=(Slow(0, 3, 3.0, at), Slow(last // 2, 7, 2.0, at), Slow(last, 0, 1.5, start)),
        restarts={1: at},
        gaps={2: (at, at + HOUR)},
    )
    wanted = {"oss0/sdd", f"oss{last // 2}/sdh", f"oss{last}/sda"}
    with tempfile.TemporaryDirectory(prefix="laggard-bench-") as folder:
        began = time.monotonic()
        with serving(exported, Path(folder)) as url:
            made = time.monotonic()
            span = [f"--from={start:.0f}", f"--to={end:.0f}", "--json"]
            command = [sys.executable, "-m", "laggard_aggregator.cli.main", "diagnose", "--prometheus", url]
            child = subprocess.Popen([*command, *span], stdout=subprocess.PIPE, text=True)
            assert child.stdout is not None
            records = [json.loads(line) for line in child.stdout]
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            judged = time.monotonic()
    named = {record["component"]: record for record in records if record.get("straggler")}
    cpu = used.ru_utime + used.ru_stime
    print(f"{options.hosts} hosts, {options.hosts * DISKS} disks, {options.hours:g} h of scrapes of 60 s")
    print(f"blocks written and served after {made - began:.0f} s")
    memory = used.ru_maxrss / 1024
    print(f"judged after {judged - made:.1f} s: {cpu:.1f} s of CPU, {memory:.0f} MiB")
    for name, record in sorted(named.items()):
        print(f"{name}: {record['severity']:.2f} times")
    print(f"{len(named)} named, {len(wanted - named.keys())} missed, {len(named.keys() - wanted)} others")
    print(machine("numpy"))
    return int(child.returncode not in (0, 1) or named.keys() != wanted)


if __name__ == "__main__":
    sys.exit(main())
