"""What floods, one after another, do to the memory of one aggregator: does each add something, or none?

    python -m bench.hostile_clients.floods [--floods 8] [--seconds 1]

One node of the site that has a certificate sends as fast as the broker takes it: messages that are none, then
batches that are all right. The aggregator has an archive and a journal. *Before*, *after*: resident memory,
medians of the last seconds before the flood and before the next one; *most*: in between.
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.hostile_clients.site import SLOW, Site, publications_of
from bench.machine import machine
from laggard_common.wire import topics
from tests.support.hostile_client import connected, flood, garbage

WARM_UP_SECONDS = 60.0
PAUSE_SECONDS = 12.0
LAST_SECONDS = 4.0
EVIL = "evil"
MORE = """\
[archive]
directory = "{folder}/archive"
[state]
directory = "{folder}/state"
snapshot_seconds = 5.0
"""


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--floods", type=int, default=8, help="how many of each kind")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each goes on")
    options = parser.parse_args()
    print(machine("aiomqtt", "msgpack"))
    print("\n| flood | messages | dropped | before, MiB | most, MiB | after, MiB |")
    print("|---|---:|---:|---:|---:|---:|", flush=True)
    with TemporaryDirectory() as folder:
        site = Site(Path(folder), tls=True, more=MORE.format(folder=folder))
        with site.running():
            site.until("the alarm", lambda: site.alarms() == [f"{SLOW}/sda"])
            after = watched(site, WARM_UP_SECONDS)[-1]
            for name, packets in (
                ("malformed", garbage(topics.data_topic("site", "storage", EVIL, "diskstats"))),
                ("good batches", publications_of(EVIL)),
            ):
                for number in range(1, options.floods + 1):
                    after = row(site, f"{name} {number}", packets, options.seconds, after)
    return 0


def row(site: Site, name: str, packets: Iterator[bytes], seconds: float, before_mib: float) -> float:
    """Floods once, and prints a line; the memory afterwards, MiB."""
    dropped = site.figures()["laggard_queue_dropped_messages_total"]
    with connected(site.port, EVIL, site.context(EVIL)) as link:
        sent = flood(link, packets, seconds)
    seen = watched(site, PAUSE_SECONDS)
    dropped = site.figures()["laggard_queue_dropped_messages_total"] - dropped
    print(
        f"| {name} | {sent:,} | {dropped:,.0f} | {before_mib:.1f} | {max(seen):.1f} | {seen[-1]:.1f} |",
        flush=True,
    )
    return seen[-1]


def watched(site: Site, seconds: float) -> list[float]:
    """Resident memory read ten times a second for so long, MiB; the last one is the median of the end."""
    seen: list[float] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        seen.append(site.resident_mib())
        time.sleep(0.1)
    return [*seen, statistics.median(seen[-round(10 * LAST_SECONDS) :])]


if __name__ == "__main__":
    raise SystemExit(main())
