"""What is seen of a site while a backlog comes in: honest verdicts, lag, messages, acknowledgements."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import aiomqtt

from bench.hostile_clients.site import SLOW, Site
from laggard_common import wire
from laggard_common.errors import WireError
from laggard_common.wire import Kind
from laggard_common.wire.topics import ack_topic

SECOND = 10**9
SCRAPE_SECONDS = 15.0


@dataclass(slots=True)
class Seen:
    """`live_seconds`: how long after its last tick each live batch of the node was published; `backlog`:
    ticks of each message of its backlog; `acknowledged`: by stream and source up to which seq everything is;
    `live_acknowledged`: how long after it was published each live batch was, seconds; `unacknowledged`: when
    the others were published.
    """

    lags: list[float] = field(default_factory=list)
    alarms_stood: bool = True
    live_seconds: list[float] = field(default_factory=list)
    backlog: list[int] = field(default_factory=list)
    seqs: dict[tuple[bytes, str], list[int]] = field(default_factory=dict)
    acknowledged: dict[tuple[bytes, str], int] = field(default_factory=dict)
    live_acknowledged: list[float] = field(default_factory=list)
    unacknowledged: dict[tuple[bytes, str, int], float] = field(default_factory=dict)


@contextlib.contextmanager
def verdicts(site: Site, seen: Seen) -> Iterator[None]:
    """Asks as often as Prometheus whether the alarm stands, and how late windows were judged at most."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(SCRAPE_SECONDS):
            seen.lags.append(site.figures().get("laggard_window_lag_most_seconds", 0.0))
            seen.alarms_stood &= site.alarms() == [f"{SLOW}/sda"]

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()


@contextlib.contextmanager
def messages(site: Site, node: str, given: Mapping[tuple[bytes, str], int], seen: Seen) -> Iterator[None]:
    """Listens to a node's data and to its acknowledgements. Backlog is what has a seq below `given`."""
    loop = asyncio.new_event_loop()
    listening, subscribed = None, threading.Event()

    async def listen() -> None:
        async with aiomqtt.Client("localhost", site.port, identifier="watcher") as client:
            await client.subscribe([(f"laggard/1/site/+/{node}/data/+", 1), (ack_topic("site", node), 1)])
            subscribed.set()
            async for message in client.messages:
                assert isinstance(message.payload, bytes)
                _note(message.topic.value, message.payload, given, seen)

    def run() -> None:
        nonlocal listening
        listening = loop.create_task(listen())
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(listening)
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    subscribed.wait(20)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(listening.cancel)  # type: ignore[union-attr]
        thread.join(20)


def _note(topic: str, payload: bytes, given: Mapping[tuple[bytes, str], int], seen: Seen) -> None:
    if topic.split("/")[3] == "ack":
        for ack in wire.decode_ack(payload):
            if ack.ranges and ack.ranges[0][0] == 0:
                seen.acknowledged[ack.stream, ack.source] = ack.ranges[0][1]
            for key in list(seen.unacknowledged):
                if key[:2] == (ack.stream, ack.source) and any(a <= key[2] <= b for a, b in ack.ranges):
                    seen.live_acknowledged.append(time.monotonic() - seen.unacknowledged.pop(key))
        return
    with contextlib.suppress(WireError):
        e = wire.decode_envelope(payload)
        count = len(wire.split_joined(e)[0]) if e.kind == Kind.JOINED else 1
        seen.seqs.setdefault((e.stream, e.source), []).extend(range(e.seq, e.seq + count))
        if e.seq < given.get((e.stream, e.source), 0):
            seen.backlog.append(e.n)
        else:
            seen.unacknowledged[e.stream, e.source, e.seq] = time.monotonic()
            seen.live_seconds.append(time.time() - (e.t0_ns + (e.n - 1) * e.dt_ns) / SECOND)
