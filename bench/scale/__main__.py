"""One machine carries a whole site: agents, mosquitto and one aggregator beside each other.

    python -m bench.scale                          all of TaihuLight, ten minutes
    python -m bench.scale --nodes 5000 --minutes 2
    python -m bench.scale --burst 5000             so many agents publish in one instant, by TLS

A load generator plays every agent of Sunway TaihuLight (40,960 compute nodes with 8 counters, 288 forwarding
and 288 storage servers with 64 disks x 17 counters, 2 metadata servers), or of a smaller site in the same
proportions: one sample a second, every counter rising in every sample; batches, phases, statuses and schemas
as the agents make them; a stream and seqs of its own for each node. As many nodes as the machine has file
descriptors for have a connection of their own, the others share 32. mosquitto runs with the shipped
configuration and ACL, but without TLS (with it for --burst), the aggregator with journal and snapshots.

The table has a line a minute. msg/s: batches and statuses; late: how long after its moment a batch was sent
at most; backlog: messages sent and not yet taken in; lag: laggard_window_lag_most_seconds, since the start;
snapshot: for how long nothing was taken in for the latest; cores: CPU time by schedstat over time. Lost:
batches that were never acknowledged, by the agents' own count.
"""

import argparse
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.machine import machine
from bench.scale.burst import burst
from bench.scale.fleet import RAMP_SECONDS
from bench.scale.machine_share import Usage, machine_busy_seconds, usage
from bench.scale.player_process import Playing, playing
from bench.scale.shapes import TAIHULIGHT, TICKS, taihulight
from bench.scale.site import Detection, LoadedSite

SPARE_DESCRIPTORS = 1000
PROCESSES = ("generator", "broker", "aggregator")
COME_UP_SECONDS = 300.0
IDLE_SECONDS = 2.0
IDLE_SHARE = 0.1
AFTER_SECONDS = 200.0
AGGREGATOR_STATE_SECONDS = 10.0
COUNTED = (
    "duplicates",
    "gaps",
    "late_samples",
    "future_samples",
    "resets",
    "wire_errors",
    "refused_messages",
)
QUEUES = ("queue_dropped_messages", "archive_returned_batches", "state_failures")


def main() -> int:
    """Prints the table; 1 when anything was lost, duplicated or late."""
    options = parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench.scale: ended from outside"))
    with TemporaryDirectory(prefix="laggard-scale-", dir=options.directory) as folder:
        return burst(Path(folder), options.burst) if options.burst else load(Path(folder), options)


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="bench.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--nodes", type=_count, default=TAIHULIGHT, help="agents (default: %(default)s)")
    made.add_argument("--minutes", type=float, default=10.0, help="how long (default: %(default)s)")
    made.add_argument("--report", type=float, default=60.0, help="seconds a line (default: %(default)s)")
    made.add_argument("--connections", type=_count, help="nodes with a connection of their own")
    made.add_argument("--interval", type=float, default=15.0, help="interval_seconds (default: %(default)s)")
    made.add_argument("--window", type=_count, default=60, help="window_samples (default: %(default)s)")
    made.add_argument("--shift", type=_count, default=4, help="shift_samples (default: %(default)s)")
    made.add_argument("--archive", action="store_true", help="with the Parquet archive")
    made.add_argument("--burst", type=_count, help="instead: so many agents publish in one instant")
    made.add_argument("--directory", type=Path, help="where state and archive go (default: the system's)")
    return made


def load(folder: Path, options: argparse.Namespace) -> int:
    """Plays the site and prints a line a minute, then what became of everything."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    own = min(options.connections or TAIHULIGHT, limit - SPARE_DESCRIPTORS)
    detection = Detection(options.interval, options.window, options.shift)
    site = LoadedSite(folder, detection, archive=options.archive)
    print(machine("numpy", "uvloop", "zstandard"))
    shapes = ", ".join(
        f"{s.nodes:,} {s.role} ({s.components} x {s.fields})" for s in taihulight(options.nodes)
    )
    print(
        f"\n{shapes}; windows of {options.window} x {options.interval:g} s, a new one every "
        f"{options.shift * options.interval:g} s; archive {'on' if options.archive else 'off'}\n"
    )
    with site.running(), playing(site.port, options.nodes, own, options.minutes * 60) as agents:
        pids = {name: process.pid for name, process in site.processes.items()}
        pids["generator"] = agents.process.pid
        began = time.monotonic()
        site.until("the agents", lambda: agents.said["what"] == "up" or agents.over, COME_UP_SECONDS)
        until_idle(pids["aggregator"])
        agents.begin()
        site.until("the first batches", lambda: agents.said["what"] == "playing" or agents.over)
        print(f"up after {time.monotonic() - began:.0f} s\n", flush=True)
        table = Table(site, agents, pids)
        table.print_until_played(options.report)
        site.until("the last acknowledgement", lambda: agents.over, AFTER_SECONDS)
        time.sleep(2 * AGGREGATOR_STATE_SECONDS if options.minutes > 1 else 1)
        code = verdict(site, agents, table.late_before)
        if code:
            print(site.log("aggregator")[-4000:], file=sys.stderr)
        return code


def until_idle(pid: int) -> None:
    """Waits until a process has taken in what there is: nodes that sent no data yet make scrapes long."""
    deadline = time.monotonic() + COME_UP_SECONDS
    spent = IDLE_SHARE + 1.0
    while spent > IDLE_SHARE * IDLE_SECONDS and time.monotonic() < deadline:
        before = usage(pid).cpu_seconds
        time.sleep(IDLE_SECONDS)
        spent = usage(pid).cpu_seconds - before


@dataclass(frozen=True, slots=True)
class Look:
    """CPU and memory of each process, the machine's CPU seconds, the aggregator's figures, the agents'."""

    used: Mapping[str, Usage]
    machine_seconds: float
    figures: Mapping[str, float]
    said: Mapping[str, float]


class Table:
    """The lines of a run."""

    def __init__(self, site: LoadedSite, agents: Playing, pids: dict[str, int]) -> None:
        self._site = site
        self._agents = agents
        self._pids = pids
        self.late_before = 0.0

    def print_until_played(self, seconds: float) -> None:
        """A line every so many seconds, until the agents send no more."""
        print(
            "| s | msg/s sent | samples/s sent | samples/s taken | late | backlog | lag | windows | snapshot "
            "| generator | broker | aggregator | of all | MiB generator, broker, aggregator |"
        )
        print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|", flush=True)
        began = at = time.monotonic()
        before = self._look(Counter())
        while not self._done():
            while not self._done() and time.monotonic() < at + seconds:
                time.sleep(0.2)
            now = time.monotonic()
            after = self._look()
            if at - began < RAMP_SECONDS + 2 * TICKS:
                self.late_before = after.figures["laggard_late_samples_total"]
            if now - at > seconds / 2:
                print(self._line(now - began, now - at, before, after), flush=True)
            at, before = now, after

    def _done(self) -> bool:
        return self._agents.said["what"] != "playing" or self._agents.over

    def _sent(self) -> int:
        said = self._agents.said
        return int(said["batches"] + said["statuses"] + said["schemas"])

    def _look(self, figures: Mapping[str, float] | None = None) -> Look:
        """What there is to see now; `figures` where the aggregator is not to be asked."""
        used = {name: usage(pid) for name, pid in self._pids.items()}
        asked = self._site.figures() if figures is None else figures
        return Look(used, machine_busy_seconds(), asked, dict(self._agents.said))

    def _line(self, at: float, seconds: float, before: Look, after: Look) -> str:
        used = [after.used[name].cpu_seconds - before.used[name].cpu_seconds for name in PROCESSES]
        sent = {name: after.said[name] - before.said[name] for name in ("batches", "statuses", "samples")}
        figures = after.figures
        taken = figures["laggard_samples_total"] - before.figures["laggard_samples_total"]
        cells = [
            f"{at:.0f}",
            f"{(sent['batches'] + sent['statuses']) / seconds:,.0f}",
            f"{sent['samples'] / seconds:,.0f}",
            f"{taken / seconds:,.0f}",
            f"{after.said['late_seconds']:.2f}",
            f"{max(self._sent() - figures['laggard_messages_total'], 0):,.0f}",
            f"{figures['laggard_window_lag_most_seconds']:.2f}",
            f"{figures['laggard_windows_total']:.0f}",
            f"{figures['laggard_snapshot_seconds']:.2f}",
            *(f"{each / seconds:.3f}" for each in used),
            f"{(after.machine_seconds - before.machine_seconds) / seconds:.2f}",
            ", ".join(f"{after.used[name].resident_mib:.0f}" for name in PROCESSES),
        ]
        return f"| {' | '.join(cells)} |"


def verdict(site: LoadedSite, agents: Playing, late_before: float) -> int:
    """Prints what became of every batch; the exit code.

    `late_before`: samples that were late while the site came up: a group begins with its first message, and
    has no place for what is older.
    """
    said, figures = agents.said, site.figures()
    if said["what"] != "over":
        print(f"bench.scale: the agents' process ended with {agents.process.poll()}", file=sys.stderr)
        return 1
    counts = {name: figures.get(f"laggard_{name}_total", 0) for name in (*COUNTED, *QUEUES)}
    messages = said["batches"] + said["statuses"]
    counts["late_samples"] -= late_before
    missed = said["samples"] - figures["laggard_samples_total"]
    lag = figures["laggard_window_lag_most_seconds"]
    print(
        f"\nsent: {said['batches']:,} batches with {said['samples']:,} samples, "
        f"{said['statuses']:,} statuses ({said['bytes'] / 1e6:,.0f} MB); {said['connections']:,} nodes over "
        f"connections of their own: {100 * said['own'] / messages:.0f} % of messages"
    )
    print(
        f"acknowledgements: {said['acknowledgements']:,}; lost: {said['missing']:,} batches; "
        f"samples sent and not taken: {missed:,.0f}; held: {figures['laggard_held_messages']:.0f}"
    )
    print(", ".join(f"{name.replace('_', ' ')}: {n:,.0f}" for name, n in counts.items()))
    print(f"late samples while the site came up: {late_before:,.0f}")
    print(
        f"windows: {figures['laggard_windows_total']:.0f}, at most {lag:.2f} s past the deadline; snapshot "
        f"{figures['laggard_snapshot_bytes'] / 2**20:.0f} MiB, "
        f"journal {figures['laggard_journal_bytes'] / 2**20:.0f} MiB"
    )
    return 1 if said["missing"] or missed or any(counts.values()) or lag > 5 else 0


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("expected 1 or more")
    return number


if __name__ == "__main__":
    sys.exit(main())
