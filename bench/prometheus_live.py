"""The cost of judging a Prometheus server: `python -m bench.prometheus_live`.

--hosts hosts with 12 disks each, scraped every 15 s for --hours hours at different times, in blocks of a
real server; with --pair twice, as by a pair of servers. Three disks are slow (3, 2 and 1.5 times from a
third of the time on), an exporter is not scraped for a quarter of an hour. The `[[prometheus]]` input polls
as the daemon does, with a clock that does not wait, and the machine judges. Prints alarms with their
delays, CPU time of a poll with its share of the 15 s, and memory. Exits with 1 when other disks are named
than the three. Needs prometheus and promtool.
"""

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

from bench.machine import machine
from tests.support.builders.prometheus_blocks import Exported, Slow, serving
from tests.support.live_scrapes import live_scrapes

HOUR = 3600.0
DISKS = 12
SCRAPE_SECONDS = 15.0


def main() -> int:
    """Prints the figures; 1 when the verdicts are others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=104, help="default %(default)s: 9,984 counters")
    parser.add_argument("--hours", type=float, default=3.0, help="default %(default)s")
    parser.add_argument("--pair", action="store_true", help="two replicas of each series")
    options = parser.parse_args()
    end = time.time() // 7200 * 7200 - 4 * HOUR
    start = end - options.hours * HOUR
    since = start + options.hours * HOUR / 3
    last = options.hosts - 1
    slow = (Slow(0, 3, 3.0, since), Slow(last // 2, 7, 2.0, since), Slow(last, 0, 1.5, since))
    exported = Exported(
        start,
        end,
        hosts=options.hosts,
        disks=DISKS,
        scrape_seconds=SCRAPE_SECONDS,
        slow=slow,
        gaps={2: (since, since + HOUR / 4)},
        replicas=("a", "b") if options.pair else ("",),
        spread=True,
    )
    with (
        tempfile.TemporaryDirectory(prefix="laggard-bench-") as folder,
        serving(exported, Path(folder)) as url,
    ):
        began = time.process_time()
        scraped = live_scrapes(url, start + 60)
        scraped.run(end)
        used = time.process_time() - began
    polls, series = scraped.input.view.polls, scraped.input.view.series
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{options.hosts} hosts, {options.hosts * DISKS} disks, {series} series in an answer, {polls} polls"
    )
    print(f"{used / polls:.3f} s of CPU a poll: {used / polls / SCRAPE_SECONDS:.3f} cores; {memory:.0f} MiB")
    wanted = {f"oss{one.host}/sd{chr(ord('a') + one.disk)}" for one in slow}
    raised = {event.alarm.component: at for at, event in scraped.events if event.kind == "raised"}
    delays = ", ".join(f"{c} after {(raised[c] - since) / 60:.1f} min" for c in sorted(raised))
    print(f"{len(wanted - raised.keys())} missed, alarms: {delays}")
    print(machine("numpy"))
    return int(raised.keys() != wanted)


if __name__ == "__main__":
    sys.exit(main())
