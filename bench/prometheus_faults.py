"""The same faults by agents and by Prometheus: `python -m bench.prometheus_faults`.

One set of kernel counters, in whole requests, sectors and milliseconds, goes both ways through the product:
as /proc/diskstats of 16 hosts through the collector, its batches and the machine, and as node_exporter's
series, scraped at times of their own, through a real Prometheus and `[[prometheus]]` into another machine.
Sixteen disks of each of eight models are peers; of seven models one disk has a fault of its kind from a
third of the time on. Prints alarms and the windows' F1 of both; exits with 1 where the alarms differ or the
F1 differ by more than 0.01. Needs prometheus and promtool.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.diskstats_agents import DiskstatsAgent
from bench.machine import machine
from tests.support.builders.prometheus_blocks import serving
from tests.support.live_scrapes import LiveScrapes, live_scrapes

HOUR = 3600.0
STEP_SECONDS = 5.0
SCRAPE_SECONDS = 15.0
HOSTS, DISKS = 16, 8
FAULTS = (
    "3 times",
    "1.5 times",
    "1.3 times",
    "3 times for 5 of 15 min",
    "stops of 5 s every 2 min",
    "writes 2 times",
    "3 times, load by jobs",
    "none",
)
"""By model. Its disks are those of two hosts; the fault is of the first of the second host."""
MOST_APART = 0.01
READ_MS, WRITE_MS = 5.0, 4.0
SECTORS = 128

Counters = NDArray[np.int64]
FIELDS = ("rd_ios", "rd_merges", "rd_sectors", "rd_ms", "wr_ios", "wr_merges", "wr_sectors", "wr_ms")
"""Of /proc/diskstats, before those of the queue."""
EXPORTED = {
    "reads_completed": (0, 1.0),
    "read_bytes": (2, 512.0),
    "read_time_seconds": (3, 1e-3),
    "writes_completed": (4, 1.0),
    "written_bytes": (6, 512.0),
    "write_time_seconds": (7, 1e-3),
    "io_time_seconds": (9, 1e-3),
    "io_time_weighted_seconds": (10, 1e-3),
}


def model_of(host: int) -> int:
    """The place in FAULTS of a host's disks."""
    return host // 2


def ill_disk(model: int) -> tuple[int, int]:
    """Host and disk with the fault of a model."""
    return 2 * model + 1, 0


@dataclass(frozen=True)
class Kernels:
    """Counters of all disks every STEP_SECONDS from `start` to `end`; faults begin at `since`."""

    start: float
    end: float
    since: float
    seed: int
    known: str = "node_disk_info"

    @property
    def times(self) -> NDArray[np.float64]:
        """Times of the counters (T,)."""
        return np.arange(self.start, self.end, STEP_SECONDS)

    def counters(self) -> Counters:
        """As /proc/diskstats has them: (HOSTS, DISKS, 11, T)."""
        random, times = np.random.default_rng(self.seed), self.times
        shape = (HOSTS, DISKS, times.size)
        rate = random.uniform(20, 60, shape[:2])[..., None] * (
            1 + 0.4 * np.sin(2 * np.pi * times / (2 * HOUR))
        )
        job = FAULTS.index("3 times, load by jobs")
        busy = np.repeat(random.random((HOSTS, DISKS, times.size // 60 + 1)) < 0.3, 60, axis=2)[
            ..., : times.size
        ]
        by_jobs = np.arange(HOSTS) // 2 == job
        rate[by_jobs] = np.where(busy[by_jobs], 80.0, 2.0)
        slow_reads, slow_writes, stopped = np.ones(shape), np.ones(shape), np.zeros(shape, dtype=bool)
        after = times - self.since
        for model, fault in enumerate(FAULTS):
            place = ill_disk(model)
            on = after >= 0
            if fault.startswith("stops"):
                stopped[place] = on & (after % 120 < STEP_SECONDS)
            elif fault == "writes 2 times":
                slow_writes[place][on] = 2.0
            elif fault != "none":
                on &= (after % 900 < 300) if "5 of 15" in fault else on
                slow_reads[place][on] = slow_writes[place][on] = float(fault.split()[0])
        reads = random.poisson(0.6 * rate * STEP_SECONDS)
        writes = random.poisson(0.4 * rate * STEP_SECONDS)
        noise = np.exp(random.normal(0, 0.08, shape) + random.normal(0, 0.04, (HOSTS, 1, times.size)))
        # Requests of a step in which the disk stops wait for half of it on average.
        waits = np.where(stopped, 500 * STEP_SECONDS, 0.0)
        read_ms = reads * (READ_MS * noise * slow_reads + waits)
        write_ms = writes * (WRITE_MS * noise * slow_writes + waits)
        busy_ms = np.minimum(0.3 * (read_ms + write_ms), 1000 * STEP_SECONDS)
        none = np.zeros(shape)
        rises = [reads, none, reads * SECTORS, read_ms, writes, none, writes * SECTORS, write_ms, none]
        rises += [busy_ms, read_ms + write_ms]
        counters = np.stack(rises, axis=2).cumsum(axis=-1)
        return np.asarray(np.floor(counters), dtype=np.int64)

    def lines(self) -> Iterator[str]:
        """What node_exporters tell of them, as OpenMetrics text with times."""
        counters, times = self.counters(), self.times
        for name, (field, unit) in EXPORTED.items():
            yield f"# TYPE node_disk_{name} counter\n"
            for host, disk in np.ndindex(HOSTS, DISKS):
                scraped = np.arange(self.start, self.end - SCRAPE_SECONDS, SCRAPE_SECONDS)
                scraped = scraped + SCRAPE_SECONDS * (host + 0.3) / HOSTS
                values = np.floor(np.interp(scraped, times, counters[host, disk, field])) * unit
                for at, value in zip(scraped.tolist(), values.tolist(), strict=True):
                    yield f"node_disk_{name}_total{labels(host, disk)} {value:.3f} {at:.3f}\n"
        yield "# TYPE node_disk_info gauge\n"
        for host, disk in np.ndindex(HOSTS, DISKS):
            more = f',model="X{model_of(host)}",rotational="1"}}'
            for at in times[::12].tolist():
                yield f"node_disk_info{labels(host, disk)[:-1]}{more} 1 {at:.3f}\n"
        yield "# EOF\n"


def labels(host: int, disk: int) -> str:
    """The labels of a disk's series."""
    return f'{{instance="oss{host}:9100",job="storage",device="sd{chr(ord("a") + disk)}"}}'


def judge_agents(live: LiveScrapes, kernels: Kernels, folder: Path) -> None:
    """Judges the counters as agents sample them, at the ticks of SCRAPE_SECONDS."""
    agents = [
        DiskstatsAgent(
            f"oss{host}",
            [f"X{model_of(host)}"] * DISKS,
            folder / str(host),
            round(SCRAPE_SECONDS * 1e9),
            lambda: live.clock.ns,
        )
        for host in range(HOSTS)
    ]
    counters, times = kernels.counters(), kernels.times
    for step in range(0, times.size, round(SCRAPE_SECONDS / STEP_SECONDS)):
        tick_ns = round(float(times[step]) * 1e9)
        live.clock.ns = tick_ns
        messages = [
            message
            for host, agent in enumerate(agents)
            for message in agent.sample(tick_ns, counters[host, :, :, step].tolist())
        ]
        live.deliver(float(times[step]), messages)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Times of the first alarms by component, and the windows' F1."""

    raised: dict[str, float]
    f1: float


def outcome(live: LiveScrapes, since: float) -> Outcome:
    """How a machine judged. Windows over `since` are nobody's."""
    ill = {name(model) for model, fault in enumerate(FAULTS) if fault != "none"}
    true = found = both = 0
    for component, begins, ends, anomalous in live.windows:
        if not (begins < since < ends and component in ill):
            is_slow = component in ill and begins >= since
            true, found, both = true + is_slow, found + anomalous, both + (is_slow and anomalous)
    raised: dict[str, float] = {}
    for at, event in live.events:
        if event.kind == "raised":
            raised.setdefault(event.alarm.component, at)
    return Outcome(raised, 2 * both / (true + found))


def name(model: int) -> str:
    """The component with the fault of a model."""
    host, disk = ill_disk(model)
    return f"oss{host}/sd{chr(ord('a') + disk)}"


def main() -> int:
    """Prints the figures; 1 when the ways differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--hours", type=float, default=6.0, help="default %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="default %(default)s")
    options = parser.parse_args()
    end = time.time() // 7200 * 7200 - 4 * HOUR
    start = end - options.hours * HOUR
    kernels = Kernels(start, end, start + options.hours * HOUR / 3, options.seed)
    with tempfile.TemporaryDirectory(prefix="laggard-bench-") as folder:
        with serving(kernels, Path(folder)) as url:
            scraped = live_scrapes(url, start + 60)
            scraped.run(end)
        sampled = live_scrapes("http://127.0.0.1:1", start)
        judge_agents(sampled, kernels, Path(folder) / "agents")
    ways = {"agents": outcome(sampled, kernels.since), "Prometheus": outcome(scraped, kernels.since)}
    models, disks = len(FAULTS), HOSTS * DISKS
    print(f"{HOSTS} hosts, {disks} disks of {models} models, {options.hours:g} h, seed {options.seed}")
    for model, fault in enumerate(FAULTS):
        delays = [
            f"{(of.raised[name(model)] - kernels.since) / 60:.1f} min" if name(model) in of.raised else "-"
            for of in ways.values()
        ]
        print(f"{fault}: alarm by agents {delays[0]}, by Prometheus {delays[1]}")
    ill = {name(model) for model, fault in enumerate(FAULTS) if fault != "none"}
    for way, of in ways.items():
        others = sorted(of.raised.keys() - ill) or "none"
        print(f"{way}: windows' F1 {of.f1:.4f}; others with an alarm: {others}")
    print(machine("numpy"))
    by_agents, by_scrapes = ways.values()
    differ = by_agents.raised.keys() != by_scrapes.raised.keys()
    return int(differ or abs(by_agents.f1 - by_scrapes.f1) > MOST_APART)


if __name__ == "__main__":
    sys.exit(main())
