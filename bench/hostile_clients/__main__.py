"""What strangers and a compromised node get, and what it does to honest nodes' verdicts.

    python -m bench.hostile_clients [--seconds 20] [--names 1000000] [--without-limits]

Needs root: broker and aggregator, the honest nodes, and the strangers each have a network namespace, and the
shipped limits (deploy/nftables) are in force at the broker. Six honest storage servers are sampled once a
second; one of them is slow, and an alarm stands for it. Each attack goes on beside that. `tried`: what the
attacker's socket took; `backlog`: how long the broker then still handed on what it had queued; `lag`: the
longest `laggard_window_lag_seconds` seen meanwhile; `on time`: the fewest of the six honest servers that were
in a window when it was judged, as what comes late is not; memory: resident, of the aggregator, before, after.
The names go to the shipped broker first, which leaves nobody a name but its own, then to one without rules.

With --without-limits the floods are tried again with the limits taken away, which is told and not judged.
"""

import argparse
import contextlib
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.chaos.host import problem
from bench.hostile_clients.site import NODES, SLOW, Site, publications_of
from bench.machine import machine
from laggard_common import wire
from laggard_common.wire import Envelope, Kind
from tests.support.hostile_client import connected, flood, garbage, monster, publication
from tests.support.namespaces import BROKER, Network
from tests.support.shipped_brokers import Authority

TRIES = 20
MONSTER_BYTES = 100_000_000
NAMES_SECONDS = 600.0
AFTER_SECONDS = 12.0
MOST_LAG_SECONDS = 5.0
DRAIN_SECONDS = 300.0
QUIET_MESSAGES = 50.0  # of a second, of six nodes
COUNTED = (
    "laggard_wire_errors_total",
    "laggard_refused_messages_total",
    "laggard_queue_dropped_messages_total",
    "laggard_late_samples_total",
)


class Attacked(Site):
    """The site with honest nodes and strangers in namespaces of `network`."""

    def __init__(self, folder: Path, network: Network, *, tls: bool) -> None:
        super().__init__(folder, tls=tls, host=BROKER, nodes=lambda: network.inside("nodes"))
        self.port = 8883 if tls else 1883
        self.network = network

    @contextlib.contextmanager
    def attacked(self) -> "Iterator[Attacked]":
        """Everything runs while the body does, and the alarm stands."""
        with self.network.inside("site"), self.running():
            self.until("the alarm", lambda: self.alarms() == [f"{SLOW}/sda"])
            yield self

    def stranger(self, name: str, context: ssl.SSLContext | None) -> socket.socket:
        """A stranger's connection. Raises OSError when it is not let in."""
        with self.network.inside("strangers"):
            return connected(self.port, name, context, self.host)

    def evil(self) -> socket.socket:
        """The connection of a node that has a certificate, where there are certificates."""
        return self.stranger("evil", self.context("evil"))


def main() -> int:
    """Prints the table; 1 when an honest node's verdict changed or a stranger was let in."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each flood goes on")
    parser.add_argument("--names", type=int, default=1_000_000, help="how many node names")
    parser.add_argument("--without-limits", action="store_true", help="floods without the limits too")
    options = parser.parse_args()
    why = problem()
    if why is not None:
        raise SystemExit(f"bench.hostile_clients: {why}")
    print(machine("aiomqtt", "msgpack"))
    print(
        "\n| attack | tried | outcome | counted | alarms after | backlog | lag | on time "
        "| memory before, after |"
    )
    print("|---|---:|---|---|---|---:|---:|---:|---:|", flush=True)
    right = True
    network = Network()
    seconds, names = options.seconds, options.names
    with network.made():
        network.limit()
        with TemporaryDirectory() as folder, Attacked(Path(folder), network, tls=True).attacked() as site:
            for what, context in contexts(site).items():
                right &= row(site, what, lambda context=context: let_in(site, context))  # type: ignore[misc]
            right &= row(site, "another node's topics", lambda: others_topics(site, seconds))
            right &= row(site, "a message of 100 MB", lambda: (1, too_large(site)))
            right &= row(site, "malformed messages", lambda: malformed(site, seconds))
            right &= row(site, "good batches of its own", lambda: own_batches(site, seconds))
            right &= row(site, "node names, shipped rules", lambda: many_names(site, names))
            if options.without_limits:
                with without(network):
                    row(site, "malformed messages, no limits", lambda: malformed(site, seconds))
        with TemporaryDirectory() as folder, Attacked(Path(folder), network, tls=False).attacked() as site:
            right &= row(site, "node names, no rules", lambda: many_names(site, names))
        if options.without_limits:
            with (
                without(network),
                TemporaryDirectory() as folder,
                Attacked(Path(folder), network, tls=False).attacked() as site,
            ):
                row(site, "node names, no rules, no limits", lambda: many_names(site, names))
    return 0 if right else 1


@contextlib.contextmanager
def without(network: Network) -> Iterator[None]:
    """Takes the limits away while the body runs."""
    network.nft("delete", "table", "inet", "laggard_broker")
    try:
        yield
    finally:
        network.limit()


def row(site: Attacked, what: str, attack: Callable[[], tuple[int, str]]) -> bool:
    """Attacks, and prints a line; whether the alarms are as before, and on time."""
    before, ended, lags, on_time = site.figures(), threading.Event(), [0.0], [len(NODES)]

    def watch() -> None:
        while not ended.wait(0.5):
            figures, in_time = site.watched()
            lags.append(figures.get("laggard_window_lag_seconds", 0.0))
            on_time.append(in_time)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        tried, outcome = attack()
        backlog = drained(site)
        time.sleep(AFTER_SECONDS)
    finally:
        ended.set()
        watching.join()
    after, alarms = site.figures(), site.alarms()
    counts = {name: after[name] - before.get(name, 0.0) for name in COUNTED if name in after}
    counted = ", ".join(f"{name[8:-6]} {n:,.0f}" for name, n in counts.items() if n) or "-"
    memory = [each["process_resident_memory_bytes"] / 2**20 for each in (before, after)]
    print(
        f"| {what} | {tried:,} | {outcome} | {counted} | {', '.join(alarms)} "
        f"| {backlog:.0f} s | {max(lags):.1f} s | {min(on_time)} of {len(NODES)} "
        f"| {memory[0]:.0f}, {memory[1]:.0f} MiB |",
        flush=True,
    )
    verdicts = alarms == [f"{SLOW}/sda"] and max(lags) < MOST_LAG_SECONDS and min(on_time) == len(NODES)
    return verdicts and "let in" not in outcome


def drained(site: Attacked) -> float:
    """Waits until the broker has handed on what it queued; for how long, seconds."""
    began = asked = time.monotonic()
    before = site.figures()["laggard_messages_total"]
    while time.monotonic() < began + DRAIN_SECONDS:
        time.sleep(1)
        now = site.figures()["laggard_messages_total"]  # which takes seconds when there are many nodes
        rate = (now - before) / (time.monotonic() - asked)
        asked, before = time.monotonic(), now
        if rate < QUIET_MESSAGES:
            break
    return time.monotonic() - began - 1


def contexts(site: Attacked) -> dict[str, ssl.SSLContext | None]:
    """What strangers come with."""
    other = Authority(site.folder / "elsewhere")
    other.run("init", "elsewhere")
    other.run("node", "oss-1")
    ca = site.folder / "ca" / "ca.pem"
    wrong = ssl.create_default_context(cafile=str(ca))
    issued = other.folder / "issued"
    wrong.load_cert_chain(issued / "oss-1.pem", issued / "oss-1.key")
    return {
        "no TLS": None,
        "no certificate": ssl.create_default_context(cafile=str(ca)),
        "another authority's certificate": wrong,
        "an expired certificate": expired(site, ca),
        "a revoked certificate": site.context("gone"),
    }


def expired(site: Attacked, ca: Path) -> ssl.SSLContext:
    """A certificate of the site's own authority that was valid in January 2020."""
    key, request, cert = (site.folder / name for name in ("old.key", "old.csr", "old.pem"))
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(key)]
    _openssl("req", "-new", *new, "-subj", "/CN=oss-2", "-out", str(request))
    dates = ["-startdate", "20200101000000Z", "-enddate", "20200201000000Z"]
    config = ["-config", str(ca.parent / "openssl.cnf"), "-extensions", "client"]
    _openssl("ca", "-batch", "-notext", *config, *dates, "-in", str(request), "-out", str(cert))
    context = ssl.create_default_context(cafile=str(ca))
    context.load_cert_chain(cert, key)
    return context


def let_in(site: Attacked, context: ssl.SSLContext | None) -> tuple[int, str]:
    """How many of TRIES connections were let in."""
    inside = 0
    for _ in range(TRIES):
        try:
            site.stranger("oss-1", context).close()
            inside += 1
        except OSError:
            pass
    return TRIES, f"{inside} let in" if inside else "all refused"


def others_topics(site: Attacked, seconds: float) -> tuple[int, str]:
    """Data, schemas, status and acknowledgements of every honest node, by a node with a certificate."""
    every = [
        publication(topic, b"x")
        for node in NODES
        for topic in (
            *(
                f"laggard/1/site/storage/{node}/{rest}"
                for rest in ("data/diskstats", "schema/diskstats", "status")
            ),
            f"laggard/1/site/ack/{node}",
        )
    ]

    def without_end() -> Iterator[bytes]:
        while True:
            yield from every

    before = site.figures()["laggard_wire_errors_total"]
    with site.evil() as link:
        sent = flood(link, without_end(), seconds)
    time.sleep(2)
    came = site.figures()["laggard_wire_errors_total"] - before
    return sent, f"{came:,.0f} let in" if came else "none came through"


def too_large(site: Attacked) -> str:
    """One message of 100 MB, on the node's own topic."""
    with site.evil() as link:
        sent = monster(link, "laggard/1/site/storage/evil/data/diskstats", MONSTER_BYTES)
    return f"cut off after {sent / 1e6:.1f} MB" if sent < MONSTER_BYTES else "100 MB let in"


def malformed(site: Attacked, seconds: float) -> tuple[int, str]:
    """Random bytes on a node's own topic at full speed."""
    with site.evil() as link:
        sent = flood(link, garbage("laggard/1/site/storage/evil/data/diskstats"), seconds)
    return sent, "refused"


def own_batches(site: Attacked, seconds: float) -> tuple[int, str]:
    """Batches that are all right, and of now, on a node's own topic at full speed."""
    before = site.figures()["laggard_samples_total"]
    with site.evil() as link:
        sent = flood(link, publications_of("evil"), seconds)
    drained(site)
    taken = site.figures()["laggard_samples_total"] - before
    return sent, f"{taken:,.0f} samples taken, honest ones among them"


def many_names(site: Attacked, names: int) -> tuple[int, str]:
    """A status of each of so many nodes that are none."""

    def all_of() -> Iterator[bytes]:
        state = wire.encode_state({"state": "up"})
        for number in range(names):
            node = f"n{number}"
            said = Envelope(Kind.STATE, node, "agent", bytes(16), 0, 0, time.time_ns(), 0, 1, 0, state)
            yield publication(f"laggard/1/site/compute/{node}/status", wire.encode_envelope(said))

    before = site.figures()["laggard_nodes"]
    with site.evil() as link:
        sent = flood(link, all_of(), NAMES_SECONDS)
    drained(site)
    known = site.figures()["laggard_nodes"] - before
    return sent, f"{known:,.0f} of them known" if known else "none came through"


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)


if __name__ == "__main__":
    raise SystemExit(main())
