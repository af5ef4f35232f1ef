"""All agents of a site: who sends what, when, over which connection, and what of it was acknowledged."""

import random
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from bench.scale import packets
from bench.scale.batches import Batches
from bench.scale.links import Link, Links
from bench.scale.shapes import SECOND, SITE, SOURCE, Shape
from laggard_agent.sampling.batcher import splay_ns
from laggard_agent.transport.publisher import STATUS_SECONDS
from laggard_common import __version__, wire
from laggard_common.errors import WireError
from laggard_common.wire import Kind, codec, topics

SHARED_LINKS = 32
SHARED_USER = "bench"
RAMP_SECONDS = 30
_INTRODUCED_PER_SECOND = 1500
_AT_ONCE = 2000  # unacknowledged messages while the site comes up

Contexts = Callable[[str], ssl.SSLContext]

_pack = msgpack.Packer(use_bin_type=True).pack


@dataclass(slots=True)
class Sent:
    """What was sent since the start."""

    batches: int = 0
    samples: int = 0
    statuses: int = 0
    schemas: int = 0
    own: int = 0  # of both: over connections of their nodes' own
    bytes: int = 0
    acknowledgements: int = 0
    late_seconds: float = 0.0  # how long after its moment a batch went at most, since last asked


@dataclass(slots=True, eq=False)
class Node:
    """One agent. `seq`: of its next batch."""

    name: str
    link: Link
    own: int  # 1 with a connection of its own
    data: bytes  # its topics, as MQTT writes them
    status: bytes
    head: bytes  # its envelopes up to seq
    status_head: bytes
    status_payload: bytes
    status_due: float
    stream: bytes
    seq: int = 0
    statuses: int = 0


class Crowd:
    """All nodes of one shape, in the order of their moments within the time of a batch."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self.shape = shape
        names = list(shape.names())
        batch_ns = shape.ticks * SECOND
        moments = []
        for name in names:
            phase_ticks, rest_ns = divmod(splay_ns(SITE, name, batch_ns), SECOND)
            moments.append((shape.ticks - 1 - phase_ticks) * SECOND + rest_ns)
        order = np.argsort(moments)
        self.names = [names[at] for at in order]
        self.moments_ns: NDArray[np.int64] = np.array(moments)[order]
        self.batches = Batches(shape, seed)
        self.nodes: list[Node] = []

    def due(self, after_ns: int, until_ns: int) -> list[tuple[NDArray[np.intp], NDArray[np.int64]]]:
        """Who has a moment after one time and up to the other, each once an entry, and when."""
        span_ns = self.shape.ticks * SECOND
        found = []
        for at in range(after_ns // span_ns, until_ns // span_ns + 1):
            low, high = np.searchsorted(
                self.moments_ns, [after_ns - at * span_ns, until_ns - at * span_ns], side="right"
            )
            if low < high:
                found.append((np.arange(low, high), self.moments_ns[low:high] + at * span_ns))
        return found


class Fleet:
    """The agents of `shapes`. At most `own` nodes, spread evenly, have a connection of their own."""

    def __init__(
        self, shapes: tuple[Shape, ...], port: int, own: int, contexts: Contexts | None = None, seed: int = 1
    ) -> None:
        """`contexts`: with what each node's own connection comes, by its name; None without TLS."""
        self.sent = Sent()
        self.links = Links(port, self._taken, self._heard)
        self.crowds = [Crowd(shape, seed + at) for at, shape in enumerate(shapes)]
        self.connections = 0
        self._begun_ns = 0
        self._random = random.Random(seed)
        self._own = own
        self._contexts = contexts
        self._heard_last: dict[bytes, bytes] = {}

    def come_up(self) -> None:
        """Connects, and publishes every schema and a first status."""
        count = sum(crowd.shape.nodes for crowd in self.crowds)
        own = min(self._own, count)
        of_shared: list[list[str]] = [[] for _ in range(SHARED_LINKS)]
        links: dict[str, Link | int] = {}
        names = [name for crowd in self.crowds for name in crowd.names]
        for at, name in enumerate(names):
            if (at + 1) * own // count > at * own // count:
                context = None if self._contexts is None else self._contexts(name)
                links[name] = self.links.add(name, name, [topics.ack_topic(SITE, name)], context)
                if not at % 500:
                    self.links.until(lambda: all(link.ready >= 0 for link in self.links.all))
            else:
                place = at % SHARED_LINKS
                of_shared[place].append(topics.ack_topic(SITE, name))
                links[name] = place
        shared = [
            self.links.add(f"{SHARED_USER}-{at}", SHARED_USER, asked) if asked else None
            for at, asked in enumerate(of_shared)
        ]
        self.links.until(lambda: all(link.ready >= 0 for link in self.links.all))
        self.connections = own
        began = time.monotonic()
        for crowd in self.crowds:
            for name in crowd.names:
                due = began + self.sent.schemas / _INTRODUCED_PER_SECOND
                self.links.until(lambda due=due: time.monotonic() >= due)  # type: ignore[misc]
                link = links[name]
                there = shared[link] if isinstance(link, int) else link
                assert there is not None
                crowd.nodes.append(self._introduced(crowd.shape, name, there, own=not isinstance(link, int)))
        self.links.until(lambda: not self.links.unacknowledged)

    def send_due(self, after_ns: int, until_ns: int) -> None:
        """Sends every batch that has its moment between these times.

        The agents begin to sample one after another, in the first RAMP_SECONDS.
        """
        self._begun_ns = self._begun_ns or after_ns
        for crowd in self.crowds:
            for places, moments in crowd.due(after_ns, until_ns):
                self._send_all(crowd, places, moments)
        late = (time.time_ns() - after_ns) / 1e9
        self.sent.late_seconds = max(self.sent.late_seconds, late)

    def send_at_once(self) -> float:
        """Sends a batch of every node, one right after the other; how long that took, seconds."""
        taken, now_ns = 0.0, time.time_ns()
        for crowd in self.crowds:
            everyone = np.arange(len(crowd.nodes))
            taken += self._send(crowd, everyone, np.full(everyone.size, now_ns), crowd.shape.ticks)
        return taken

    def missing(self) -> int:
        """How many batches the aggregator has not acknowledged, by what it said last to each node."""
        return sum(self._missing(node) for crowd in self.crowds for node in crowd.nodes)

    def _send_all(self, crowd: Crowd, places: NDArray[np.intp], moments: NDArray[np.int64]) -> None:
        """Sends a batch of each of `places`; the first of each is as long as it has sampled for."""
        begun = self._begun_ns // SECOND + places * 7919 % RAMP_SECONDS
        sampled = np.minimum(moments // SECOND - begun, crowd.shape.ticks)
        for ticks in np.unique(sampled[sampled > 0]).tolist():
            chosen = sampled == ticks
            self._send(crowd, places[chosen], moments[chosen], ticks)

    def _send(self, crowd: Crowd, places: NDArray[np.intp], moments: NDArray[np.int64], ticks: int) -> float:
        """Sends batches that are made before the first of them goes; how long the going took, seconds."""
        payloads = crowd.batches.next(places, ticks)
        firsts = (moments // SECOND - (ticks - 1)) * SECOND
        tail = _pack(SECOND) + _pack(ticks) + _pack(codec.DELTA_ZSTD)
        pending: dict[int, tuple[Link, list[bytes]]] = {}
        for place, payload, t0_ns in zip(places.tolist(), payloads, firsts.tolist(), strict=True):
            node = crowd.nodes[place]
            message = b"".join((node.head, _pack(node.seq), b"\x01", _pack(t0_ns), tail, _pack(payload)))
            node.seq += 1
            link = node.link
            out = self.links.publish(link, node.data, message, node)
            self.sent.bytes += len(out)
            self.sent.own += node.own
            pending.setdefault(id(link), (link, []))[1].append(out)
        began = time.monotonic()
        for link, some in pending.values():
            self.links.send(link, b"".join(some))
        went = time.monotonic() - began
        self.sent.batches += len(payloads)
        self.sent.samples += len(payloads) * ticks * crowd.shape.components
        return went

    def _taken(self, link: Link, what: object) -> None:
        """The broker has a batch: as an agent does, its node now says how it is if that is due."""
        if isinstance(what, Node) and what.status_due <= time.monotonic() + STATUS_SECONDS / 2:
            self.links.send(link, self._status(what))

    def _status(self, node: Node) -> bytes:
        node.status_due = time.monotonic() + STATUS_SECONDS
        message = b"".join(
            (node.status_head, _pack(node.statuses), b"\x00", _pack(time.time_ns()), node.status_payload)
        )
        node.statuses += 1
        self.sent.statuses += 1
        out = self.links.publish(node.link, node.status, message, True, packets.PUBLISH_RETAINED)
        self.sent.bytes += len(out)
        self.sent.own += node.own
        return out

    def _heard(self, topic: bytes, payload: bytes) -> None:
        self.sent.acknowledgements += 1
        self._heard_last[topic] = payload

    def _missing(self, node: Node) -> int:
        said = self._heard_last.get(topics.ack_topic(SITE, node.name).encode())
        try:
            acks = () if said is None else wire.decode_ack(said)
        except WireError:
            return node.seq
        have = (
            b - a + 1
            for ack in acks
            if (ack.stream, ack.source) == (node.stream, SOURCE)
            for a, b in ack.ranges
        )
        return node.seq - sum(have)

    def _introduced(self, shape: Shape, name: str, link: Link, *, own: bool) -> Node:
        stream = self._random.randbytes(16)
        schema = packets.text(topics.schema_topic(SITE, shape.role, name, SOURCE))
        node = Node(
            name=name,
            link=link,
            own=int(own),
            data=packets.text(topics.data_topic(SITE, shape.role, name, SOURCE)),
            status=packets.text(topics.status_topic(SITE, shape.role, name)),
            head=b"\x9c" + b"".join(map(_pack, (wire.VERSION, int(Kind.COUNTERS), name, SOURCE, stream))),
            status_head=b"\x9c"
            + b"".join(
                map(_pack, (wire.VERSION, int(Kind.STATE), name, "agent", self._random.randbytes(16)))
            ),
            status_payload=b"".join(map(_pack, (0, 1, 0, wire.encode_state(_state(shape))))),
            status_due=0.0,
            stream=stream,
        )
        self.sent.schemas += 1
        said = wire.encode_schema(shape.schema(name, stream))
        out = self.links.publish(link, schema, said, True, packets.PUBLISH_RETAINED)
        self.links.send(link, out + self._status(node))
        self.links.until(lambda: self.links.unacknowledged < _AT_ONCE)
        return node


def _state(shape: Shape) -> dict[str, Any]:
    """What an agent says of itself."""
    health = {"success": True, "seconds": 0.0004, "components": shape.components, "error": ""}
    return {
        "state": "up",
        "role": shape.role,
        "version": __version__,
        "interval_ns": SECOND,
        "batch_ticks": shape.ticks,
        "collectors": {SOURCE: health},
        "spool_bytes": 4096,
        "spool_in_memory": False,
        "dropped_samples": 0,
        "unconfirmed_samples": 0,
        "missed_ticks": 0,
        "clock_steps": 0,
        "cpu_seconds": 12.5,
        "resident_bytes": 24_000_000,
        "acknowledged_by": "aggregator",
    }
