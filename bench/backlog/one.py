"""An hour's backlog of one server beside live data: real agent, mosquitto and aggregator."""

import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.agent import FakeProc
from bench.agent_cost.cost import cpu_ns
from bench.backlog.watch import Seen, messages, verdicts
from bench.hostile_clients.site import SLOW, Site
from laggard_agent.collectors.interface import Roots
from laggard_agent.collectors.registry import make_collector
from laggard_agent.settings import DEFAULT_COLLECTORS
from laggard_common.clock import SystemClock
from tests.support.filled_spool import SECOND, FilledSpool

NODE = "mds-1"
DEVICES = 64
MOST_SECONDS = 600.0
KEPT = '[state]\ndirectory = "{0}/state"\n[archive]\ndirectory = "{0}/archive"\n'


def table(outage_seconds: int) -> tuple[list[str], bool]:
    """The lines of a table in Markdown, and whether everything came in, once, within five minutes.

    The spool is filled by the agent's own collectors, batchers and spool, a reading for each second of the
    outage; then the agent starts, goes on with its streams, and samples every second while that comes in.
    """
    with TemporaryDirectory() as folder:
        here = Path(folder)
        proc = FakeProc(here / "proc", DEVICES, DEVICES)
        spool = here / "spool"
        given, spooled = _outage(proc, spool, outage_seconds)
        site, seen = Site(here, tls=False, more=KEPT.format(here)), Seen()
        with site.running():
            site.until("the alarm", lambda: site.alarms() == [f"{SLOW}/sda"])
            before = site.figures()
            with verdicts(site, seen), messages(site, NODE, given, seen):
                began = time.monotonic()
                with site.process(_agent(site, proc.root, spool), "agent") as agent:
                    while not _all_in(seen, given) and time.monotonic() < began + MOST_SECONDS:
                        proc.run(1.0)
                    took, spent = time.monotonic() - began, cpu_ns(agent.pid) / 1e9
                    proc.run(15.0)
            after = site.figures()
    whole = all(set(range(count)) <= set(seen.seqs.get(key, ())) for key, count in given.items())
    twice = sum(len(seqs) - len(set(seqs)) for seqs in seen.seqs.values())
    counted = {
        name: after[f"laggard_{name}_total"] - before[f"laggard_{name}_total"]
        for name in ("gaps", "duplicates")
    }
    good = whole and not any(counted.values()) and took < 300 and seen.alarms_stood and max(seen.lags) < 5
    ticks = seen.backlog or [0]
    lines = [
        "| outage | spooled | in after | samples a message, median (least) | agent's CPU | sent twice "
        "| gaps, duplicates | live batches published after their last sample, worst "
        "| windows judged late by | alarm |",
        "|---|---|---|---|---|---|---|---|---|---|",
        f"| {outage_seconds:,} s | {spooled / 2**20:.1f} MiB, {sum(given.values()):,} batches | {took:.0f} s "
        f"| {statistics.median(ticks):.0f} ({min(ticks)}), {len(ticks)} messages | {spent:.1f} s | {twice} "
        f"| {counted['gaps']:.0f}, {counted['duplicates']:.0f} | {max(seen.live_seconds):.1f} s "
        f"| {max(seen.lags):.1f} s | {'stood' if seen.alarms_stood else 'CHANGED'} |",
    ]
    return lines, good


def _all_in(seen: Seen, given: dict[tuple[bytes, str], int]) -> bool:
    return all(seen.acknowledged.get(key, -1) >= count - 1 for key, count in given.items())


def _outage(proc: FakeProc, spool: Path, seconds: int) -> tuple[dict[tuple[bytes, str], int], int]:
    """By stream and source how many batches wait, and in how many bytes."""
    clock = SystemClock()
    roots = Roots(proc.root, None)
    collectors = [make_collector(name, {}, roots, clock.wall_ns, clock) for name in DEFAULT_COLLECTORS]
    filled = FilledSpool(spool, NODE, 5)
    start = time.time_ns() // SECOND - seconds
    for at in range(seconds):
        proc.advance()
        for collector in collectors:
            for reading in collector.read():
                filled.add((start + at) * SECOND, reading)
    return filled.close(), filled.bytes


def _agent(site: Site, proc: Path, spool: Path) -> list[str]:
    config = site.folder / "agent.toml"
    config.write_text(
        f'node = "{NODE}"\nrole = "metadata"\n[mqtt]\nport = {site.port}\n[spool]\ndirectory = "{spool}"\n'
    )
    return [sys.executable, "-m", "laggard_agent", "--config", str(config), "--procfs", str(proc)]
