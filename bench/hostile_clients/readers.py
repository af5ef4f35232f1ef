"""What those who read over HTTP do to ingest and memory: `python -m bench.hostile_clients.readers`.

    python -m bench.hostile_clients.readers [--nodes 12000] [--seconds 40] [--embedded]

Each node sends the samples of a disk, five a message; a third of the disks is slow. With a real broker, the
embedded one on request. Attacks: connections that ask for one path again and again, and connections that
ask once and never read. *Samples*: accepted a second; *late*: samples that came after their window; *lag*:
the longest of windows; *health*: the longest answer of `/healthz`; memory: resident, of the aggregator,
before, at most, and 40 s after, when the connections of those that never read are still open.
"""

import argparse
import contextlib
import itertools
import multiprocessing
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.hostile_clients.site import FIELDS, OPEN, Site
from bench.machine import machine
from laggard_common import wire
from laggard_common.wire import Envelope, Kind, codec, topics
from laggard_common.wire.schema import Component, Field, Schema
from tests.support.hostile_client import connected, publication
from tests.support.shipped_brokers import program

SECOND = 1_000_000_000
TICKS = 5
SLOW_ONE_IN = 3
WARM_UP_SECONDS = 30.0
AFTER_SECONDS = 40.0
ATTACKS = (
    ("nothing", "", 0, True),
    ("60 x /api/v1/stragglers", "/api/v1/stragglers", 60, True),
    ("60 x /api/v1/alarms", "/api/v1/alarms", 60, True),
    ("60 x /metrics", "/metrics", 60, True),
    ("110 x /metrics/nodes, never read", "/metrics/nodes", 110, False),
)
COUNTED = ("laggard_samples_total", "laggard_late_samples_total")


class ReadSite(Site):
    """Broker and aggregator alone."""

    def __init__(self, folder: Path, *, embedded: bool) -> None:
        super().__init__(folder, tls=False)
        self._embedded = embedded

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Both while the body runs."""
        broker = f'[mqtt]\nhost = "127.0.0.1"\nport = {self.port}\n{"embedded = true" * self._embedded}\n'
        (self.folder / "aggregator.toml").write_text(
            f'site = "site"\n{broker}[http]\nlisten = "127.0.0.1:{self.http}"\n'
            "[detect]\ninterval_seconds = 1.0\nwindow_samples = 20\nshift_samples = 10\nconfirm = 2\n"
        )
        command = [sys.executable, "-P", "-m", "laggard_aggregator.cli.daemon", "--config"]
        with contextlib.ExitStack() as stack:
            if not self._embedded:
                config = self.folder / "mosquitto.conf"
                config.write_text(OPEN.format(port=self.port, host=self.host))
                stack.enter_context(self.process([program("mosquitto"), "-c", str(config)], "mosquitto"))
            self.aggregator: subprocess.Popen[bytes] = stack.enter_context(
                self.process([*command, str(self.folder / "aggregator.toml")], "aggregator")
            )
            self.until("the aggregator", lambda: self.figures().get("laggard_ready") == 1)
            yield


def send(port: int, nodes: int) -> None:
    """Sends the samples of `nodes` until the process is ended, each message by its time."""
    link = connected(port, "bench-readers", None, "127.0.0.1")
    fields = tuple(map(Field, FIELDS))
    names = [f"node-{at:05}" for at in range(nodes)]
    for name in names:
        one = Schema(name, "diskstats", b"h" * 16, 1, SECOND, TICKS, fields, (Component("wwn", "sda"),))
        topic = topics.schema_topic("site", "storage", name, "diskstats")
        link.sendall(publication(topic, wire.encode_schema(one)))
    encoder = codec.Encoder()
    start = time.time_ns() // SECOND
    for second in itertools.count():
        time.sleep(max(start + second + 1 - time.time(), 0.0))
        packets = bytearray()
        of_shape: dict[tuple[int, int], bytes] = {}
        for at in range(second % TICKS, nodes, TICKS):
            seq = second // TICKS
            shape = (at % 97, at % SLOW_ONE_IN)
            if shape not in of_shape:
                rows = [[_row(seq * TICKS + tick + 1, *shape)] for tick in range(TICKS)]
                of_shape[shape] = encoder.encode([0], rows, [0] * TICKS)
            envelope = Envelope(
                *(Kind.COUNTERS, names[at], "diskstats", b"h" * 16, seq, 1),
                *((start + second - TICKS + 1) * SECOND, SECOND, TICKS, codec.DELTA_ZSTD, of_shape[shape]),
            )
            topic = topics.data_topic("site", "storage", names[at], "diskstats")
            packets += publication(topic, wire.encode_envelope(envelope))
        link.sendall(packets)


def _row(t: int, jitter: int, slow: int) -> list[int]:
    ms = 500 * t * (4 if slow == 0 else 1) + t * (17 * jitter + 29) % 60
    return [100 * t, 12800 * t, ms, 0, 0, 0, ms, ms]


def ask(http: int, path: str, count: int, reads: bool) -> None:
    """Keeps `count` connections asking until the process is ended."""
    request = f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode()
    if not reads:
        links = [socket.create_connection(("127.0.0.1", http)) for _ in range(count)]
        for link in links:
            link.sendall(request)
        time.sleep(3600)
    import threading  # noqa: PLC0415 - of this process alone

    def loop() -> None:
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{http}{path}", timeout=60).read()

    for _ in range(count - 1):
        threading.Thread(target=loop, daemon=True).start()
    loop()


@contextlib.contextmanager
def process(target: object, *arguments: object) -> Iterator[BaseProcess]:
    """A process of its own while the body runs."""
    made = multiprocessing.get_context("spawn").Process(target=target, args=arguments)  # type: ignore[arg-type]
    made.start()
    try:
        yield made
    finally:
        made.terminate()
        made.join()


def row(site: ReadSite, attack: tuple[str, str, int, bool], seconds: float) -> str:
    """A line of the table."""
    name, path, count, reads = attack
    before, begun = site.figures(), time.monotonic()
    memory = [site.resident_mib()]
    lag = health = 0.0
    with contextlib.ExitStack() as stack:
        if count:
            stack.enter_context(process(ask, site.http, path, count, reads))
        while time.monotonic() - begun < seconds + AFTER_SECONDS * (not reads):
            asked = time.monotonic()
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{site.http}/healthz", timeout=60).read()
            health = max(health, time.monotonic() - asked)
            memory.append(site.resident_mib())
            if len(memory) % 8 == 0:
                lag = max(lag, site.figures().get("laggard_window_lag_seconds", 0.0))
            time.sleep(0.5)
        after = memory[-1]
        now, took = site.figures(), time.monotonic() - begun
    lag = max(lag, now.get("laggard_window_lag_seconds", 0.0))
    samples, late = (now.get(each, 0) - before.get(each, 0) for each in COUNTED)
    return (
        f"| {name} | {samples / took:,.0f} | {late:,.0f} | {lag:.1f} | {health:.2f} "
        f"| {memory[0]:.0f} | {max(memory):.0f} | {after:.0f} |"
    )


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=12_000)
    parser.add_argument("--seconds", type=float, default=40.0, help="of each attack")
    parser.add_argument("--embedded", action="store_true", help="with the embedded broker")
    options = parser.parse_args()
    print(machine("uvicorn", "starlette"))
    print("\n| attack | samples/s | late | lag, s | health, s | before, MiB | most, MiB | after, MiB |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    with TemporaryDirectory() as folder:
        site = ReadSite(Path(folder), embedded=options.embedded)
        with site.running(), process(send, site.port, options.nodes):
            site.until(
                "all nodes",
                lambda: site.figures().get("laggard_samples_total", 0) > options.nodes * 10,
            )
            time.sleep(WARM_UP_SECONDS)
            for attack in ATTACKS:
                print(row(site, attack, options.seconds), flush=True)
                time.sleep(WARM_UP_SECONDS / 3)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
