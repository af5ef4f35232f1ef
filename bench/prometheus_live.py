"""The daemon's judgement of a Prometheus server, beside agents': `python -m bench.prometheus_live`.

--hosts hosts with 12 disks each, scraped every 15 s for --hours hours at different times, in blocks that
promtool writes. Three disks are slow (3, 2 and 1.5 times from a third of the time on), an exporter is not
scraped for a quarter of an hour. The `[[prometheus]]` input polls as the daemon does, with a clock that does
not wait, and the machine judges; then the same counters, as agents read them every 15 s, are judged. Prints
alarms with their delays, window F1 of both, CPU time of a poll with its share of the 15 s, and memory. Exits
with 1 when other disks are named than the three, or the F1 differ by more than 0.01. Needs prometheus and
promtool.
"""

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.machine import machine
from laggard_aggregator.prometheus.compare_map import load_map
from laggard_aggregator.prometheus.scrapes import ScrapedComponent, ScrapedReading
from tests.support.builders.prometheus_blocks import Exported, Slow, serving
from tests.support.live_scrapes import LiveScrapes, live_scrapes

HOUR = 3600.0
DISKS = 12
SCRAPE_SECONDS = 15.0
MOST_APART = 0.01


def main() -> int:
    """Prints the figures; 1 when the verdicts are others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=104, help="default %(default)s: 9,984 counters")
    parser.add_argument("--hours", type=float, default=3.0, help="default %(default)s")
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
    sampled = live_scrapes("http://127.0.0.1:1", start + 60)
    judge_samples(sampled, exported)
    print(
        f"{options.hosts} hosts, {options.hosts * DISKS} disks, {series} series in an answer, {polls} polls"
    )
    print(f"{used / polls:.3f} s of CPU a poll: {used / polls / SCRAPE_SECONDS:.3f} cores; {memory:.0f} MiB")
    wanted = {f"oss{one.host}/sd{chr(ord('a') + one.disk)}" for one in slow}
    f1 = {}
    for name, live in (("prometheus", scraped), ("agents", sampled)):
        f1[name] = window_f1(live, wanted, since)
        raised = {event.alarm.component: at for at, event in live.events if event.kind == "raised"}
        delays = ", ".join(f"{c} after {(raised[c] - since) / 60:.1f} min" for c in sorted(raised))
        print(f"{name}: window F1 {f1[name]:.4f}, {len(wanted - raised.keys())} missed, alarms: {delays}")
    print(machine("numpy"))
    named = all(set(live.raised) == wanted for live in (scraped, sampled))
    return int(not named or abs(f1["prometheus"] - f1["agents"]) > MOST_APART)


def judge_samples(live: LiveScrapes, exported: Exported) -> None:
    """Judges the counters as agents sample them, at the times of the grid, without gap."""
    source = load_map("node_exporter").sources[0]
    increases = exported.increases()
    counters = {f"{name}_total": rises.cumsum(axis=2) for name, rises in increases.items()}
    known = [one for one in source.fields if all(name in counters for name in one.counters)]

    def readings(step: int) -> Iterator[ScrapedReading]:
        for host, disk in np.ndindex(exported.hosts, exported.disks):
            values = {
                one.name: round(
                    sum(float(counters[name][host, disk, step]) for name in one.counters) * one.scale
                )
                for one in known
            }
            component = ScrapedComponent(
                f"oss{host}", f"sd{chr(ord('a') + disk)}", (("model", "X1"), ("rotational", "1"))
            )
            in_order = tuple(values.get(one.name) for one in source.fields)
            yield ScrapedReading(component, float(exported.times[step]), in_order)

    for step in range(int(60 // SCRAPE_SECONDS), exported.times.size):
        live.sample(float(exported.times[step]), readings(step))


def window_f1(live: LiveScrapes, wanted: set[str], since: float) -> float:
    """F1 of the anomalous windows; true are those of `wanted` that lie after `since` as a whole."""
    true = found = both = 0
    for component, begins, ends, anomalous in live.windows:
        if begins < since < ends and component in wanted:
            continue
        is_slow = component in wanted and begins >= since
        true, found, both = true + is_slow, found + anomalous, both + (is_slow and anomalous)
    return 2 * both / (true + found) if true + found else 1.0


if __name__ == "__main__":
    sys.exit(main())
