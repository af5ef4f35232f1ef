"""A made-up site of eight servers: the messages of its agents, and an aggregator that is led through them.

Everything is a function of the time, so that two runs see the same bytes in the same order. One LUN and the
functions of its server become slow, and recover.
"""

import asyncio
import json
import urllib.error
import urllib.request
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.golden import entry
from tests.golden.entry import Component, Field, FieldKind, Schema, codec, topics, wire
from tests.support.wait import LIMIT_SECONDS, time_limit

SECOND = 1_000_000_000
START = 1_800_000_000 * SECOND
NODES = tuple(f"oss-{n}" for n in range(1, 9))
SLOW, SLOW_FROM, SLOW_UNTIL = "oss-5", 20, 75
TICKS = 5
FIELDS = (
    *(
        Field(name, unit=unit)
        for name, unit in (("rd_ios", "1"), ("rd_merges", "1"), ("rd_sectors", "sectors"))
    ),
    *(Field(name, unit=unit) for name, unit in (("rd_ms", "ms"), ("wr_ios", "1"), ("wr_merges", "1"))),
    *(Field(name, unit=unit) for name, unit in (("wr_sectors", "sectors"), ("wr_ms", "ms"))),
    Field("in_flight", FieldKind.GAUGE),
    *(Field(name, unit="ms") for name in ("io_ms", "weighted_ms")),
)
FUNCTIONS = ("gfsd/gfsd/readv", "gfsd/gfsd/writev", "gfsd/libc/memcpy", "kworker/kernel/tcp_sendmsg")
PROFILE = (Field("samples"), Field("cpu_ns", unit="ns"))

AGGREGATOR = """\
site = "site"
[mqtt]
port = {port}
[http]
listen = "127.0.0.1:0"
[detect]
interval_seconds = 1.0
window_samples = 20
shift_samples = 10
confirm = 2
[[group]]
name = "luns"
role = "storage"
metrics = ["await", "util"]
[[group]]
name = "functions"
source = "fnprofile"
role = "storage"
metrics = ["samples"]
detector = "manhattan"
interval_seconds = 5.0
window_samples = 4
shift_samples = 2
[[topology]]
node = "oss-([0-9])"
controller = 'ctl-\\1'
couplet = "one"
"""
"""Completed with `[archive]`, `[state]` and `[mail]` by whoever runs it."""


@dataclass
class HandClock:
    """A clock that stands still until it is set."""

    ns: int

    def wall_ns(self) -> int:
        """Both clocks are the same."""
        return self.ns

    def monotonic_ns(self) -> int:
        """Both clocks are the same."""
        return self.ns


def noise(*of: object) -> int:
    """0-59, without a pattern."""
    return zlib.crc32(repr(of).encode()) % 60


def schema(node: str, *, epoch: int = 1, stream: bytes = b"s" * 16) -> Schema:
    """The LUNs of a server: one, and another from epoch 2 on."""
    labels = (("model", "MZ7LH"), ("rotational", "0"), ("size", "960197124096"))
    luns = tuple(Component(f"wwn-{node[4:]}{n}", f"sd{'ab'[n]}", labels) for n in range(epoch))
    return Schema(node, "diskstats", stream, epoch, SECOND, TICKS, FIELDS, luns)


def profile_schema(node: str) -> Schema:
    """The functions of a server."""
    named = tuple(Component(name, name) for name in FUNCTIONS)
    return Schema(node, "fnprofile", b"p" * 16, 1, TICKS * SECOND, 1, PROFILE, named)


def counters(node: str, lun: int, tick: int) -> tuple[int, ...]:
    """100 reads a second of 5 ms and 3 writes; of the slow LUN 50 ms. One server boots at second 48."""
    t = tick - 48 if node == "oss-6" and tick >= 48 else tick
    slow = min(max(tick - SLOW_FROM, 0), SLOW_UNTIL - SLOW_FROM) if node == SLOW and lun == 0 else 0
    ms = 500 * t + noise(node, lun, tick) + 4_500 * slow
    return (100 * t, t // 7, 12_800 * t, ms, 3 * t, 0, 24 * t, 6 * t, tick % 3, 900 * t, ms + 6 * t)


def envelope(of: Schema, seq: int, *, codec_number: int = codec.DELTA_ZSTD) -> wire.Envelope:
    """Five seconds of a server's LUNs."""
    ticks = range(TICKS * seq + 1, TICKS * seq + 1 + TICKS)
    places = range(len(of.components))
    rows: list[list[Sequence[int]]] = [[counters(of.node, lun, tick) for lun in places] for tick in ticks]
    offsets = [noise("us", of.node, tick) for tick in ticks]
    payload = codec.Encoder(codec_number).encode(list(places), rows, offsets)
    t0_ns = START + ticks[0] * SECOND
    return wire.Envelope(
        wire.Kind.COUNTERS,
        of.node,
        of.source,
        of.stream,
        seq,
        of.epoch,
        t0_ns,
        SECOND,
        TICKS,
        codec_number,
        payload,
    )


def profile(node: str, seq: int) -> wire.Envelope:
    """The functions of a server as sampled over five seconds."""
    at = TICKS * (seq + 1)
    slow = min(max(at - SLOW_FROM, 0), SLOW_UNTIL - SLOW_FROM) if node == SLOW else 0
    rates = [(name, 40 * at + noise(node, name, at) % 7) for name in FUNCTIONS]
    values = [total + (200 * slow if name == FUNCTIONS[1] else 0) for name, total in rates]
    rows: list[list[Sequence[int]]] = [[(value, 1_003_009 * value) for value in values]]
    payload = codec.Encoder().encode(list(range(len(FUNCTIONS))), rows, [noise("fn", node, at)])
    return wire.Envelope(
        *(wire.Kind.COUNTERS, node, "fnprofile", b"p" * 16, seq, 1, START + at * SECOND, TICKS * SECOND, 1),
        codec.DELTA_ZSTD,
        payload,
    )


def status(node: str, number: int, **facts: object) -> wire.Envelope:
    """What an agent says of itself."""
    said = {
        "state": "up",
        "role": "storage",
        "version": "0.1.0",
        "interval_ns": SECOND,
        "batch_ticks": TICKS,
        "collectors": {
            "diskstats": {"success": True, "seconds": 0.001, "components": 1, "error": ""},
            "net": {
                "success": node != "oss-2",
                "seconds": 0.0005,
                "components": 2,
                "error": "no /proc/net/dev",
            },
        },
        "spool_bytes": 4096,
        "spool_in_memory": False,
        "dropped_samples": 7 if node == "oss-2" else 0,
        "unconfirmed_samples": 0,
        "missed_ticks": 1,
        "clock_steps": 0,
        "cpu_seconds": 1.25,
        "resident_bytes": 30_000_000,
        "acknowledged_by": "aggregator",
    }
    payload = wire.encode_state({**said, **facts})
    at_ns = START + 4 * SECOND
    return wire.Envelope(wire.Kind.STATE, node, "agent", b"r" * 16, number, 0, at_ns, 0, 1, 0, payload)


Message = tuple[str, bytes]
FENCE = ("", b"")
"""In a list of messages: what comes before is counted before what follows is published.

Messages of unknown nodes and coalesced ones are deferred behind the live ones, so their order is that of the
packets otherwise.
"""


def data(e: wire.Envelope) -> Message:
    """A batch as the broker hands it on."""
    return topics.data_topic("site", "storage", e.node, e.source), wire.encode_envelope(e)


def announcement(of: Schema) -> Message:
    """A schema as the broker hands it on."""
    return topics.schema_topic("site", "storage", of.node, of.source), wire.encode_schema(of)


def messages(seq: int) -> Iterator[Message]:
    """What comes in the five seconds of batch `seq`: nearly all in order, and each disorder once."""
    if seq == 0:
        for node in NODES:
            yield announcement(schema(node))
            yield announcement(profile_schema(node))
            yield f"laggard/1/site/storage/{node}/status", wire.encode_envelope(status(node, 0))
        yield FENCE
    for node in NODES:
        yield data(profile(node, seq))
        own = schema(node)
        if node == "oss-3" and seq >= 8:  # a second LUN
            own = schema(node, epoch=2)
            if seq == 8:
                yield announcement(own)
        if node == "oss-4" and seq >= 9:  # a new spool, whose schema comes after its first batch
            own = schema(node, stream=b"t" * 16)
        if node == "oss-2" and seq in (5, 6):  # sent coalesced after an interruption
            if seq == 6:
                yield FENCE
                for joined in entry.coalesced([envelope(own, 5), envelope(own, 6)]):
                    yield topics.data_topic("site", "storage", node, "diskstats"), joined
                yield FENCE
            continue
        if node == "oss-6" and seq == 7:  # never comes
            continue
        if node == "oss-7" and seq == 4:  # late
            continue
        yield data(envelope(own, seq))
        if node == "oss-4" and seq == 9:
            yield announcement(own)
        if node == "oss-7" and seq == 9:
            yield data(envelope(own, 4))
        if node == "oss-8" and seq == 3:  # twice
            yield data(envelope(own, 3))
            yield "laggard/1/site/storage/oss-8/data/diskstats", b"not a message"


class Live:
    """A running aggregator, its broker, and its clock."""

    def __init__(self, app: entry.AggregatorApp, broker: entry.Broker, clock: HandClock) -> None:
        self.app = app
        self.broker = broker
        self.clock = clock
        self.sent = 0

    async def play(self, batches: range, per_batch: Callable[[int], Awaitable[None]] | None = None) -> None:
        """Publishes the messages of `batches`; windows close in between, all at known times of the clock."""
        for seq in batches:
            self.clock.ns = START + TICKS * seq * SECOND + 11 * SECOND // 2
            await self.publish(messages(seq))
            if per_batch is not None:
                await per_batch(seq)
            self.clock.ns = START + (TICKS * seq + 8) * SECOND
            ends = START // SECOND + (TICKS * seq + 1) // 10 * 10
            await self.until(lambda now, ends=ends: self._judged(now, ends))  # type: ignore[misc]

    async def publish(self, some: Iterator[Message] | Sequence[Message]) -> None:
        """Publishes messages, and waits until the aggregator has counted them."""
        for topic, payload in (*some, FENCE):
            if topic:
                self.broker.publish(topic, payload)
                self.sent += 1
            else:
                await self.until(lambda now: now.metric("laggard_messages_total") == self.sent)

    def _judged(self, now: "Answers", end: int) -> bool:
        """Whether every group is judged up to `end`; the first window needs readings before it."""
        if end < START // SECOND + 20:
            return now.metric("laggard_windows_total") >= 2 * (end > START // SECOND)
        groups = now.json("/api/v1/groups")["groups"]
        return len(groups) == 2 and all(group["window_end"] == end for group in groups)

    async def until(self, condition: Callable[["Answers"], bool]) -> None:
        """Polls until `condition` holds of what the aggregator answers; fails after a generous time."""
        async with time_limit():
            while not await asyncio.to_thread(condition, Answers(self.app.url)):
                await asyncio.sleep(0.02)

    async def answers(self) -> "Answers":
        """What the aggregator answers now."""
        return Answers(self.app.url)


class Answers:
    """What an aggregator answers over HTTP. To be asked in a thread."""

    def __init__(self, url: str) -> None:
        self._url = url

    def text(self, path: str) -> str:
        """The body at `path`, also of an error."""
        try:
            with urllib.request.urlopen(self._url + path, timeout=LIMIT_SECONDS) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as exc:
            with exc:
                return f"{exc.code} {exc.read().decode()}"

    def json(self, path: str) -> Any:
        """The JSON at `path`."""
        return json.loads(self.text(path))

    def metric(self, series: str) -> float:
        """The value of a series, 0 where there is none."""
        lines = self.text("/metrics").splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(series + " ")), 0.0)


@asynccontextmanager
async def broker() -> Any:
    """A broker on loopback."""
    async with entry.Broker() as running:
        yield running


@asynccontextmanager
async def live(config: Path, clock: HandClock, at: entry.Broker, *, killed: bool = False) -> Any:
    """An aggregator while the block lasts; it stops in order, or `killed` as a process that is cut off."""
    app = entry.aggregator(config, clock)
    stop, started = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(app.run(stop, started))
    waiting = asyncio.create_task(started.wait())
    try:
        async with time_limit():
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if task.done():
                await task
            running = Live(app, at, clock)
            await running.until(lambda now: now.metric("laggard_ready") == 1.0)
        yield running
    finally:
        async with time_limit():
            if killed:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            else:
                stop.set()
                await task


def config(folder: Path, port: int, *sections: str, name: str = "aggregator.toml") -> Path:
    """An aggregator.toml in `folder` with archive and state beside it."""
    path = folder / name
    own = (
        f"[archive]\ndirectory = {json.dumps(str(folder / 'archive'))}\n"
        f"[state]\ndirectory = {json.dumps(str(folder / 'state'))}\ncatch_up_seconds = 0.0\n"
    )
    path.write_text(AGGREGATOR.format(port=port) + own + "".join(sections))
    return path


def acknowledged(at: entry.Broker) -> dict[str, dict[str, list[list[int]]]]:
    """By node, then by source and stream, the latest ranges of seqs that the aggregator acknowledged."""
    found: dict[str, dict[str, list[list[int]]]] = {}
    for message in at.messages:
        if "/ack/" in message.topic:
            node = message.topic.rpartition("/")[2]
            for ack in wire.decode_ack(message.payload):
                ranges = [list(each) for each in ack.ranges]
                found.setdefault(node, {})[f"{ack.source} {ack.stream.hex()}"] = ranges
    return found


def without(e: wire.Envelope, **changes: Any) -> wire.Envelope:
    """A message with other values."""
    return replace(e, **changes)
