"""The kinds of fault. Each is done to a site that is well, lasts for a while, and is gone when it returns.

The bench does what a service manager does, and nothing else: it starts again what has ended.
"""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench.chaos.host import Disk
from bench.chaos.processes import Process
from bench.chaos.site import HOSTILE, Site
from laggard_agent.spool.segments import SUFFIX as SPOOL_SUFFIX
from laggard_aggregator.log.journal import SUFFIX as JOURNAL_SUFFIX
from laggard_common import segment_log
from laggard_common.errors import LATER_VERSION
from laggard_common.mqtt.settings import client_arguments
from tests.support.hostile_client import connected, flood, garbage
from tests.support.shipped_brokers import AGGREGATOR, BROKER

_REFILL_SECONDS = 0.2
_KILLED_SHARE = 0.5
_START_SECONDS = 60.0
_RESTORED, _CONNECTED = "state: restored", "connected to the broker"
"""Lines of the logs of aggregator and agents; one that ends in order says how many ticks it missed."""
_VALID_SECONDS = 8.0
_FAR_SECONDS, _NEAR_SECONDS = 90.0, 1.5
"""Steps of a clock: one that a timeline follows at once either way, and one that it is slewed over."""
_STEPPED_SECONDS, _WRONG_SECONDS = 7200.0, 90.0

Inject = Callable[[Site, random.Random, int], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """`inject(site, rng, number of the try)`. `ends`: what it ends. `broker`: the kind that it needs."""

    name: str
    inject: Inject
    ends: frozenset[str] = frozenset()
    broker: str = "mosquitto"


def _broker(site: Site) -> Process:
    assert site.broker is not None
    return site.broker


def _pause(rng: random.Random, least: float, most: float) -> None:
    time.sleep(rng.uniform(least, most))


def broker_killed(site: Site, rng: random.Random, _: int) -> None:
    """kill -9, and up to 5 s later it is started again."""
    _broker(site).kill()
    _pause(rng, 0.5, 5.0)
    _broker(site).start()


def broker_restarted(site: Site, rng: random.Random, _: int) -> None:
    """SIGTERM, and started again."""
    _broker(site).stop()
    _pause(rng, 0.0, 1.0)
    _broker(site).start()


def broker_stalled(site: Site, rng: random.Random, _: int) -> None:
    """SIGSTOP for 5 to 15 s."""
    _broker(site).stall()
    _pause(rng, 5.0, 15.0)
    _broker(site).resume()


def aggregator_killed(site: Site, rng: random.Random, _: int) -> None:
    """kill -9, and up to 4 s later it is started again."""
    site.aggregator.kill()
    _pause(rng, 0.0, 4.0)
    site.aggregator.start()


def aggregator_stalled(site: Site, rng: random.Random, _: int) -> None:
    """SIGSTOP for 5 to 15 s."""
    site.aggregator.stall()
    _pause(rng, 5.0, 15.0)
    site.aggregator.resume()


def aggregator_restarted(site: Site, rng: random.Random, _: int) -> None:
    """SIGTERM, and started again."""
    site.aggregator.stop()
    _pause(rng, 0.0, 1.0)
    site.aggregator.start()


def both_killed(site: Site, rng: random.Random, _: int) -> None:
    """Broker and aggregator, kill -9, the one to come back first being a matter of chance."""
    both = [_broker(site), site.aggregator]
    for one in both:
        one.kill()
    rng.shuffle(both)
    for one in both:
        _pause(rng, 0.2, 3.0)
        one.start()


def agents_killed(site: Site, rng: random.Random, _: int) -> None:
    """Three of the agents or more, kill -9."""
    some = rng.sample(sorted(site.agents), rng.randint(3, len(site.agents)))
    for node in some:
        site.kill_agent(node)
    _pause(rng, 0.2, 3.0)
    for node in some:
        site.agents[node].start()


def network_cut(site: Site, rng: random.Random, number: int) -> None:
    """From agents to broker: the link is down, or every other time packets are swallowed, for 5 to 12 s."""
    assert site.network is not None
    cut, mend = (site.network.unplug, site.network.plug)
    if number % 2:
        cut, mend = (site.network.swallow, site.network.pass_on)
    cut()
    try:
        _pause(rng, 5.0, 12.0)
    finally:
        mend()


def aggregators_disk_full(site: Site, rng: random.Random, _: int) -> None:
    """State and archive have no byte left for 5 to 12 s."""
    _full(site.store, rng)


def aggregator_started_on_full_disk(site: Site, rng: random.Random, _: int) -> None:
    """kill -9, and started again while state and archive have no byte left, for 5 to 12 s."""
    site.aggregator.kill()
    site.store.fill()
    site.aggregator.start()
    _full(site.store, rng)


def agents_disk_full(site: Site, rng: random.Random, _: int) -> None:
    """The spools have no byte left for 5 to 12 s."""
    _full(site.spools, rng)


def agents_disk_read_only(site: Site, rng: random.Random, _: int) -> None:
    """All agents are killed and find their disk read-only when they are started again, for 3 to 8 s."""
    for node in site.agents:
        site.kill_agent(node)
    site.spools.freeze()
    try:
        for one in site.agents.values():
            one.start()
        _pause(rng, 3.0, 8.0)
    finally:
        site.spools.thaw()


def clocks_stepped(site: Site, rng: random.Random, number: int) -> None:
    """An agent's clock steps one way, and back 3 to 6 s later: by 90 s, 1.5 s, 2 h, forward first or back."""
    node = site.stepped[number % 2]
    seconds = (_FAR_SECONDS, _NEAR_SECONDS, _STEPPED_SECONDS)[number // 4 % 3]
    site.step(node, -seconds if number // 2 % 2 else seconds)
    _pause(rng, 3.0, 6.0)
    site.step(node, 0.0)


def aggregators_clock_stepped(site: Site, rng: random.Random, number: int) -> None:
    """The aggregator's clock steps two hours forward or back, and after verdicts that came meanwhile it is
    right again. Every other time the aggregator is killed and started again with the wrong clock.
    """
    site.step_aggregator((_STEPPED_SECONDS, -_STEPPED_SECONDS)[number // 2 % 2])
    try:
        _pause(rng, 1.0, 6.0)
        if number % 2:
            site.aggregator.kill()
            site.aggregator.start()
        since = time.time()
        site.until("a verdict with a wrong clock", lambda: site.is_current(since), _WRONG_SECONDS)
    finally:
        site.step_aggregator(0.0)


def procfs_stalled(site: Site, rng: random.Random, number: int) -> None:
    """Readings of two agents do not return for 4 to 14 s; every other time one of them is the slow LUN's."""
    healthy = [node for node in site.agents if node != site.slow]
    some = rng.sample(healthy, 2 - number % 2) + [site.slow] * (number % 2)
    for node in some:
        site.procfs[node].stall()
    _pause(rng, 4.0, 14.0)
    for node in some:
        site.procfs[node].go_on()


def certificates_expired(site: Site, rng: random.Random, number: int) -> None:
    """Those of the agents, the aggregator, the broker, or the list of the revoked; renewed 3 to 6 s later.

    Certificates are looked at when a connection begins, so the broker is started again before they expire,
    for them to be in use, after that, so that they are refused, and where it is its own that was renewed.
    """
    names = {0: list(site.agents), 1: [AGGREGATOR], 2: [BROKER], 3: []}[number % 4]
    for name in names:
        site.authority.shorten(name, _VALID_SECONDS)
    expires = time.monotonic() + _VALID_SECONDS
    if names:
        broker_restarted(site, rng, number)
    else:
        site.authority.expire_list()
    time.sleep(max(0.0, expires - time.monotonic()))
    broker_restarted(site, rng, number)
    _pause(rng, 3.0, 6.0)
    for name in names:
        site.authority.renew(name)
    if not names:
        site.authority.run("crl")
    if names in ([BROKER], []):
        broker_restarted(site, rng, number)


def hostile_flood(site: Site, rng: random.Random, _: int) -> None:
    """A node of the site sends malformed messages as fast as the broker takes them, for 0.5 to 1 s."""
    settings = site.authority.client(site.host, site.port, HOSTILE)
    context = client_arguments(settings)["tls_context"]
    topic = f"laggard/1/chaos/storage/{HOSTILE}/data/diskstats"
    with connected(site.port, HOSTILE, context, host=site.host) as link:
        flood(link, garbage(topic), rng.uniform(0.5, 1.0))


def tails_torn(site: Site, rng: random.Random, _: int) -> None:
    """Agents and aggregator die in the middle of a write to spool and journal."""
    site.aggregator.kill()
    some = rng.sample(sorted(site.agents), 3)
    for node in some:
        site.kill_agent(node)
    for folder, suffix in (
        (site.store.path / "state", JOURNAL_SUFFIX),
        *((site.spool(node), SPOOL_SUFFIX) for node in some),
    ):
        newest = max(folder.glob(f"*{suffix}"))
        with newest.open("ab") as file:
            written = rng.randbytes(rng.randint(1, 200))
            file.write(
                (segment_log.HEADER.pack(200, rng.getrandbits(32), 2) + written)[: rng.randint(1, 209)]
            )
    for node in some:
        site.agents[node].start()
    site.aggregator.start()


def version_changed(site: Site, rng: random.Random, _: int) -> None:
    """All programs go to the other version, there and back with each try, amid a backlog of 5 to 10 s.

    The aggregator before the broker is there again, agents one after the other while the backlog is sent;
    each is ended in order or killed. An aggregator that ends, as the state is of a later version, goes back.
    """
    _broker(site).kill()
    _pause(rng, 5.0, 10.0)
    restored = _lines(site.aggregator, _RESTORED)
    _change(site, "", rng)
    site.until(
        "the state or an end",
        lambda: _lines(site.aggregator, _RESTORED) > restored or not site.aggregator.runs,
        _START_SECONDS,
    )
    if not site.aggregator.runs:
        said = site.aggregator.log.read_text().splitlines()[-1]
        if LATER_VERSION not in said:
            raise RuntimeError(f"the aggregator ended: {said}")
        site.change_version(site.aggregator)
        site.aggregator.start()
    connected = {node: _lines(each, _CONNECTED) for node, each in site.agents.items()}
    _broker(site).start()
    for node in rng.sample(sorted(site.agents), len(site.agents)):
        program, before = site.agents[node], connected[node]
        site.until("a connection", lambda p=program, n=before: _lines(p, _CONNECTED) > n, _START_SECONDS)
        _pause(rng, 0.0, 1.5)
        _change(site, node, rng)


def _lines(program: Process, text: str) -> int:
    """How often a program has logged a text."""
    return program.log.read_text(errors="replace").count(text)


def _change(site: Site, node: str, rng: random.Random) -> None:
    """Starts an agent, or the aggregator, in the other version."""
    program = site.agents[node] if node else site.aggregator
    if rng.random() >= _KILLED_SHARE:
        program.stop()
    elif node:
        site.kill_agent(node)
    else:
        program.kill()
    site.change_version(program)
    program.start()


def _full(disk: Disk, rng: random.Random) -> None:
    until = time.monotonic() + rng.uniform(5.0, 12.0)
    try:
        while time.monotonic() < until:
            disk.fill()  # again and again: whoever deletes something shall not have the space
            time.sleep(_REFILL_SECONDS)
    finally:
        disk.empty()


_BROKER, _AGGREGATOR, _AGENTS = "broker", "aggregator", "agents"
"""What faults end."""

FAULTS: Mapping[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault("broker-killed", broker_killed, frozenset({_BROKER})),
        Fault("broker-restarted", broker_restarted, frozenset({_BROKER})),
        Fault("broker-stalled", broker_stalled),
        Fault("aggregator-killed", aggregator_killed, frozenset({_AGGREGATOR})),
        Fault("aggregator-restarted", aggregator_restarted, frozenset({_AGGREGATOR})),
        Fault("aggregator-stalled", aggregator_stalled),
        Fault("both-killed", both_killed, frozenset({_BROKER, _AGGREGATOR})),
        Fault("agents-killed", agents_killed, frozenset({_AGENTS})),
        Fault("network-cut", network_cut),
        Fault("aggregator-disk-full", aggregators_disk_full),
        Fault("aggregator-start-disk-full", aggregator_started_on_full_disk, frozenset({_AGGREGATOR})),
        Fault("agents-disk-full", agents_disk_full),
        Fault("agents-disk-read-only", agents_disk_read_only, frozenset({_AGENTS})),
        Fault("clocks-stepped", clocks_stepped),
        Fault("aggregator-clock-stepped", aggregators_clock_stepped, frozenset({_AGGREGATOR})),
        Fault("procfs-stalled", procfs_stalled),
        Fault("certificates-expired", certificates_expired, frozenset({_BROKER})),
        Fault("hostile-flood", hostile_flood),
        Fault("tails-torn", tails_torn, frozenset({_AGGREGATOR, _AGENTS})),
        Fault("nats-killed", broker_killed, frozenset({_BROKER}), "nats"),
        Fault("nats-stalled", broker_stalled, broker="nats"),
        Fault("nats-network-cut", network_cut, broker="nats"),
        Fault("nats-aggregator-killed", aggregator_killed, frozenset({_AGGREGATOR}), "nats"),
        Fault("embedded-killed", aggregator_killed, frozenset({_AGGREGATOR}), "embedded"),
    )
}
"""By name, in the order of the table."""
VERSION_CHANGED = Fault("version-changed", version_changed, frozenset({_BROKER, _AGGREGATOR, _AGENTS}))
"""Needs an earlier version."""
