"""Thirty days of a pair's scrapes in a real Prometheus: `python -m bench.prometheus_month --blocks DIR`.

DIR gets the blocks of `bench.scraped_month` (64 hosts, 768 disks, two replicas, a scrape a minute; 2.6 GB, an
hour) unless it has them; they reach a few hours beyond now. Then, on one server:

- `laggard init` and `laggard diagnose` over all days,
- the daemon as `init` configured it, whose state ends three hours ago: it reads the backlog, and the server
  scrapes its `/metrics`, so that the alarms come back into it,
- a machine that polls around the time at which each disk became slow, with a clock that does not wait, beside
  one that judges the same counters from agents.

Prints time, memory, names and delays; exits with 1 when others than the three are named. Needs prometheus and
promtool.
"""

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import numpy as np

from bench.diskstats_agents import DiskstatsAgent
from bench.machine import machine
from bench.scraped_month import (
    BUSY_SHARE,
    DISKS,
    HOUR,
    MINUTE,
    PIECE_SECONDS,
    READ_BYTES,
    READ_TIME,
    READS,
    SCRAPE_SECONDS,
    WRITE_TIME,
    WRITES,
    WRITTEN_BYTES,
    Floats,
    Month,
    SlowDisk,
    write_month,
)
from laggard_aggregator.prometheus.server import PrometheusServer
from laggard_aggregator.settings.aggregator import AggregatorSettings
from laggard_common import config
from tests.support.live_scrapes import LiveScrapes
from tests.support.ports import free_port, is_listening
from tests.support.processes import run_command, running
from tests.support.wait import wait_until

COMMAND = [sys.executable, "-m", "laggard_aggregator.cli.main"]
DAEMON = "from laggard_aggregator.cli.daemon import main; sys.exit(main(sys.argv[1:]))"
AWAY_SECONDS = 3 * HOUR
BEFORE_SECONDS, AFTER_SECONDS = 1.5 * HOUR, 2 * HOUR
DAEMON_SECONDS = 1200.0


@contextmanager
def prometheus(data: Path, folder: Path, target: int) -> Iterator[str]:
    """The URL of a server with the blocks in `data`, which scrapes the port `target`."""
    targets = f'[{{targets: ["127.0.0.1:{target}"]}}]'
    scrape = f"  - {{job_name: laggard, scrape_interval: 5s, static_configs: {targets}}}"
    settings = folder / "prometheus.yml"
    # The blocks reach beyond now, and a head takes nothing from before them.
    storage = "storage: {tsdb: {out_of_order_time_window: 48h}}"
    settings.write_text(f"{storage}\nscrape_configs:\n{scrape}\n")
    port = free_port()
    command = [
        "prometheus",
        f"--config.file={settings}",
        f"--storage.tsdb.path={data}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--storage.tsdb.retention.time=100y",
        f"--storage.tsdb.max-block-duration={PIECE_SECONDS / HOUR:.0f}h",
    ]
    with running(command, folder / "prometheus.log"):
        wait_until(lambda: is_listening(port), "prometheus")
        server = PrometheusServer(f"http://127.0.0.1:{port}")
        wait_until(lambda: server.instant("count(node_disk_info)", time.time()), "the blocks")
        yield server.url


def diagnose(url: str, start: float) -> set[str]:
    """Those that `laggard diagnose` names in all days until now; prints its cost."""
    began = time.monotonic()
    command = [*COMMAND, "diagnose", "--prometheus", url, f"--from={start:.0f}", "--json"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    records = [json.loads(line) for line in child.stdout]
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    named = {one["component"]: one["severity"] for one in records if one.get("straggler")}
    cpu, memory = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    took = time.monotonic() - began
    print(f"diagnose: {took:.0f} s, {cpu:.0f} s of CPU, {memory:.0f} MiB, exit code {child.returncode}")
    print(f"  named: {', '.join(f'{name} {factor:.2f} times' for name, factor in sorted(named.items()))}")
    return set(named)


def daemon(url: str, settings: Path, folder: Path, port: int, wanted: set[str]) -> set[str]:
    """The components whose alarms the server has from the daemon's `/metrics`, once it has all `wanted`.

    The daemon first runs with a clock that is AWAY_SECONDS behind, until it has read a scrape interval.
    """
    text = settings.read_text().replace("[[prometheus]]", f"[[prometheus]]\nbacklog_seconds = {4 * HOUR:.0f}")
    settings.write_text(f'{text}\n[http]\nlisten = "127.0.0.1:{port}"\n')
    server = PrometheusServer(url)
    behind = f"SystemClock.wall_ns = staticmethod(lambda: time.time_ns() - {round(AWAY_SECONDS * 1e9)})"
    earlier = f"import sys, time; from laggard_common.clock import SystemClock; {behind}; {DAEMON}"
    log = folder / "daemon.log"
    with running([sys.executable, "-c", earlier, "--config", settings], log):
        wait_until(lambda: is_ready(port), "the first scrape")
        time.sleep(SCRAPE_SECONDS)
    began = time.monotonic()
    alarms: set[str] = set()
    with running([sys.executable, "-c", f"import sys; {DAEMON}", "--config", settings], log):
        while alarms != wanted and time.monotonic() - began < DAEMON_SECONDS:
            time.sleep(5)
            found = server.instant("laggard_alarm_active == 1", time.time())
            alarms = {one.labels["component"] for one in found}
    took = time.monotonic() - began
    told = ", ".join(sorted(alarms)) or "none"
    print(f"daemon: {took:.0f} s after its start the server has its alarms of {told}")
    return alarms


def is_ready(port: int) -> bool:
    """Whether the daemon at a port has polled."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == http.client.OK)
    except OSError:
        return False


def delays_of(live: LiveScrapes, since: float) -> dict[str, float]:
    """Minutes from `since` to the first alarm of each component."""
    found: dict[str, float] = {}
    for at, event in live.events:
        if event.kind == "raised":
            found.setdefault(event.alarm.component, (at - since) / MINUTE)
    return found


def by_agents(live: LiveScrapes, month: Month, ill: SlowDisk, folder: Path) -> None:
    """Judges the counters around the disk's begin from agents that sample once a minute."""
    first, last = ill.begin - BEFORE_SECONDS, ill.begin + AFTER_SECONDS
    interval_ns = round(SCRAPE_SECONDS * 1e9)
    nodes = range(month.hosts)
    agents = [
        DiskstatsAgent(f"oss{host}", ["X1"] * DISKS, folder / str(host), interval_ns, lambda: live.clock.ns)
        for host in nodes
    ]
    for begin, counters in month.counters():
        for step in range(counters.shape[-1] - 1):
            at = begin + step * SCRAPE_SECONDS
            if first <= at < last:
                live.clock.ns = round(at * 1e9)
                rows = kernel_rows(counters[..., step])
                tick_ns = round(at * 1e9)
                sampled = (agents[host].sample(tick_ns, rows[host]) for host in nodes)
                live.deliver(at, chain.from_iterable(sampled))
        if begin + PIECE_SECONDS >= last:
            return


def kernel_rows(counters: Floats) -> Sequence[Sequence[Sequence[int]]]:
    """Rows of /proc/diskstats (hosts, disks, 11) of counters (4, hosts, disks)."""
    reads, writes = counters[READS], counters[WRITES]
    read_ms, write_ms = 1000 * counters[READ_TIME], 1000 * counters[WRITE_TIME]
    none = np.zeros(reads.shape)
    sectors = [reads * READ_BYTES / 512, writes * WRITTEN_BYTES / 512]
    columns = [reads, none, sectors[0], read_ms, writes, none, sectors[1], write_ms, none]
    columns += [BUSY_SHARE * (read_ms + write_ms), read_ms + write_ms]
    rows: Sequence[Sequence[Sequence[int]]] = np.floor(np.stack(columns, axis=-1)).astype(np.int64).tolist()
    return rows


def main() -> int:
    """Prints the figures; 1 when the verdicts are others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--blocks", type=Path, required=True, metavar="DIR")
    parser.add_argument("--pieces", type=int, default=40, help="of 18 h (default %(default)s: 30 days)")
    parser.add_argument("--only", choices=("diagnose", "daemon", "delays"), help="a part alone")
    options = parser.parse_args()
    mark = options.blocks / "end"
    if not mark.exists():
        end = ((time.time() + 6 * HOUR) // PIECE_SECONDS + 1) * PIECE_SECONDS
        write_month(Month(end, options.pieces), options.blocks / "data")
        mark.write_text(f"{end:.0f}\n")
    month = Month(float(mark.read_text()), options.pieces)
    wanted = {one.name for one in month.slow}
    right = True
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="laggard-bench-") as name:
        folder = Path(name)
        with prometheus(options.blocks / "data", folder, port) as url:
            settings = folder / "aggregator.toml"
            told = run_command([*COMMAND, "init", "--prometheus", url, "-o", settings]).stdout
            print("init:", next(line for line in told.splitlines() if line.startswith("node_exporter")))
            table = config.load(AggregatorSettings, settings)
            if options.only in (None, "diagnose"):
                right &= diagnose(url, month.start) == wanted
            if options.only in (None, "daemon"):
                right &= daemon(url, settings, folder, port, wanted) == wanted
            for ill in month.slow if options.only in (None, "delays") else ():
                known = {one.name for one in month.slow if one.begin <= ill.begin}
                scraped, sampled = (LiveScrapes(table, ill.begin - BEFORE_SECONDS) for _ in range(2))
                scraped.run(ill.begin + AFTER_SECONDS)
                by_agents(sampled, Month(month.end, options.pieces), ill, folder / f"agents-{ill.host}")
                ways = [delays_of(live, ill.begin) for live in (scraped, sampled)]
                found = [f"{way[ill.name]:.1f} min" if ill.name in way else "none" for way in ways]
                others = sorted({other for way in ways for other in way} - known)
                print(f"{ill.name}, {ill.factor:g} times: {found[0]} by Prometheus, {found[1]} by agents")
                series = scraped.input.view.series
                print(f"  others: {', '.join(others) or 'none'}; {series} series in an answer")
                right &= all(ill.name in way and way.keys() <= known for way in ways)
    print(machine("numpy"))
    return int(not right)


if __name__ == "__main__":
    sys.exit(main())
