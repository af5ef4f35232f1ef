"""An aggregator that gets more messages than one core takes, all of them valid.

    python -m bench.overload [--nodes 60000] [--seconds 10] [--in-flight 5000]

Each node sends a batch of one sample of a disk each second. The clock is the CPU time of this process: 20 ms
of it per 20 ms of messages, of which the MQTT reader's part is taken off (bench.mqtt_readers), so that other
work on the machine changes little. Before and after the overload one node in twenty sends, which one core
takes. Group commit and archive are left out. One message in a hundred is a coalesced batch, which must wait
for live ones. The broker sends up to `--in-flight` live messages that are not acknowledged, as the shipped
configuration of mosquitto, and queues a million; with 0 it sends all, as without `[state]`.
"""

import argparse
import resource
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.ingest import FIELDS as INGEST_FIELDS
from bench.machine import machine
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.groups.membership import ConfiguredMembership
from laggard_aggregator.ingest.batches import Message
from laggard_aggregator.ingest.ingest_queue import IngestQueue
from laggard_aggregator.settings.aggregator import BrokerSettings
from laggard_common import wire
from laggard_common.wire import Envelope, Kind, codec, topics
from laggard_common.wire.envelope import join_payload
from laggard_common.wire.schema import Component, Field, Schema

SECOND = 1_000_000_000
START_NS = 1_800_000_000 * SECOND
SLICES = 50
"""A second's messages come in as many parts."""
READER_US = 7.8
"""CPU time of the MQTT reader for a message, by bench.mqtt_readers."""
CALM = 20
"""One node in so many sends outside of the overload."""
BACKLOG = 100
"""One message in so many is a coalesced one."""
FIELDS = tuple(map(Field, INGEST_FIELDS[:8]))
LATENESS_SECONDS = 5.0
BROKER_QUEUE = 1_000_000


@dataclass(slots=True)
class Figures:
    """Counts of one phase. Delays in seconds, from a message's arrival at the broker to its admission."""

    sent: int = 0
    admitted: int = 0
    deferred: int = 0
    deferred_first: int = 0
    dropped: int = 0
    broker_dropped: int = 0
    most_in_broker: int = 0
    delays: list[float] = field(default_factory=list)
    most_queued: int = 0
    most_bytes: int = 0
    windows: int = 0
    late_close: float = 0.0
    judged: int = 0

    def row(self, name: str, seconds: int) -> str:
        """A line of the table."""
        return (
            f"| {name} | {self.sent / seconds:,.0f} | {self.admitted / seconds:,.0f} | {self.dropped:,} "
            f"| {self.most_in_broker:,} | {self.most_queued:,} | {self.most_bytes / 2**20:.0f} "
            f"| {max(self.delays, default=0.0):.1f} "
            f"| {self.windows} | {self.late_close:.2f} | {self.judged:,} |"
        )


class Overload:
    """Queue and machine of an aggregator with `nodes` known nodes; `now` is the virtual time in seconds.

    `share`: of one core. `in_flight`: limit of the broker, 0 for none.
    """

    def __init__(self, nodes: int, settings: BrokerSettings, share: float = 1.0, in_flight: int = 0) -> None:
        self.nodes = nodes
        self.broker = deque[Message]()
        self._in_flight = in_flight or 2**62
        self.queue = IngestQueue(settings.queue_messages, settings.queue_max_bytes)
        self._share = share
        detect = DetectSettings(interval_seconds=5.0, window_samples=4, shift_samples=2)
        self.machine = Machine(
            ConfiguredMembership((), detect), lateness_seconds=LATENESS_SECONDS, site="site"
        )
        encoder = codec.Encoder()
        self._payloads = [
            encoder.encode(range(1), [[tuple(1000 * at + 7 * f for f in range(8))]], [150])
            for at in range(1, 400)
        ]
        self._seqs = [0] * nodes
        self.now = 0.0
        self._debt = 0.0  # CPU seconds beyond those that have passed
        for at in range(nodes):
            schema = Schema(
                f"node-{at}", "diskstats", bytes(16), 1, SECOND, 1, FIELDS, (Component("wwn", "sda"),)
            )
            topic = topics.schema_topic("site", "storage", schema.node, "diskstats")
            list(self.machine.receive(((topic, wire.encode_schema(schema), START_NS),)))

    def meet(self) -> None:
        """Lets each node send once, whatever that costs: the first batch of a component makes its rows."""
        self.now += 1
        for topic, payload in self._second(1):
            list(self.machine.receive(((topic, payload, START_NS + round(self.now * 1e9)),)))

    def run(self, seconds: int, every: int) -> Figures:
        """Lets one node in `every` send for `seconds`."""
        figures, dropped = Figures(), self.queue.dropped
        for _ in range(seconds):
            made = list(self._second(every))
            for part in range(SLICES):
                self._slice(made[part::SLICES], figures)
        figures.dropped = self.queue.dropped - dropped
        return figures

    def _second(self, every: int) -> Iterator[tuple[str, bytes]]:
        """The messages of this second; those of the last tick."""
        tick = round(self.now)
        for at in range(tick % every, self.nodes, every):
            payload = self._payloads[tick % len(self._payloads)]
            joined = at % BACKLOG == 0
            envelope = Envelope(
                kind=Kind.JOINED if joined else Kind.COUNTERS,
                node=f"node-{at}",
                source="diskstats",
                stream=bytes(16),
                seq=self._seqs[at],
                schema_epoch=1,
                t0_ns=START_NS + tick * SECOND,
                dt_ns=SECOND,
                n=1,
                codec=codec.DELTA_ZSTD,
                payload=join_payload((1,), payload) if joined else payload,
            )
            self._seqs[at] += 1
            yield (
                topics.data_topic("site", "storage", envelope.node, "diskstats"),
                wire.encode_envelope(envelope),
            )

    def _slice(self, made: list[tuple[str, bytes]], figures: Figures) -> None:
        """Lets a part of a second pass: its messages come, and as much CPU time is used as it lasts."""
        self.now += 1 / SLICES
        now_ns = START_NS + round(self.now * 1e9)
        messages: list[Message] = [(topic, payload, now_ns) for topic, payload in made]
        figures.sent += len(messages)
        room = BROKER_QUEUE - len(self.broker)
        self.broker.extend(messages[:room])
        figures.broker_dropped += len(messages[room:])
        began = time.process_time()
        budget = self._share / SLICES - self._debt
        self._close(now_ns, figures)
        while (self.broker or len(self.queue)) and time.process_time() - began < budget:
            budget -= self._deliver(figures) * READER_US / 1e6
            live = self.queue.take_live()
            self._admit(live, now_ns, figures)
            waits = bool(self.queue._live)
            behind = self.queue.take_deferred()
            figures.deferred += len(behind)
            figures.deferred_first += len(behind) if waits else 0
            self._admit(behind, now_ns, figures)
        self._debt = max(time.process_time() - began - budget, 0.0)

    def _deliver(self, figures: Figures) -> int:
        """Moves messages from the broker to the queue; their number."""
        room = min(self._in_flight - len(self.queue._live), len(self.broker))
        self.queue.put([self.broker.popleft() for _ in range(room)])
        figures.most_in_broker = max(figures.most_in_broker, len(self.broker))
        figures.most_queued = max(figures.most_queued, len(self.queue))
        figures.most_bytes = max(figures.most_bytes, self.queue.size_bytes)
        return room

    def _admit(self, messages: list[Message], now_ns: int, figures: Figures) -> None:
        if messages:
            figures.delays.append((now_ns - messages[0][2]) / 1e9)
            figures.admitted += sum(1 for _ in self.machine.receive(messages))

    def _close(self, now_ns: int, figures: Figures) -> None:
        """Closes and judges the windows that are due."""
        due = self.machine.windows.due(now_ns)
        for (_, _, deadline_ns), close in zip(due, self.machine.closes(due, now_ns), strict=True):
            window = self.machine.seal(close)
            judged = () if window is None else self.machine.judge.evaluate(window)
            figures.windows += 1
            figures.judged = max([figures.judged, *(int(each.verdicts.judged.sum()) for each in judged)])
            figures.late_close = max(figures.late_close, (now_ns - deadline_ns) / 1e9)


def main() -> int:
    """Prints the table; 1 when a bound was exceeded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=60_000, help="each sends a message a second")
    parser.add_argument("--seconds", type=int, default=10, help="of overload")
    parser.add_argument("--in-flight", type=int, default=5000, help="messages; 0: no limit")
    options = parser.parse_args()
    print(machine("numpy", "msgpack", "zstandard"), flush=True)
    overload = Overload(options.nodes, BrokerSettings(), in_flight=options.in_flight)
    overload.meet()
    print(
        "| | sent/s | admitted/s | dropped | most in broker | in queue | MiB "
        "| s waited | windows | s late | judged |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    phases = [
        ("before", 20, CALM),
        ("overload", options.seconds, 1),
        ("after", 60, CALM),
        ("later", 20, CALM),
    ]
    memory, done = [_resident_mib()], []
    for name, seconds, every in phases:
        done.append(overload.run(seconds, every))
        memory.append(_resident_mib())
        print(done[-1].row(name, seconds), flush=True)
    left, refused = len(overload.queue) + len(overload.broker), overload.machine.admission.counts
    print(f"\nmost memory, MiB: {' '.join(f'{each:.0f}' for each in memory)}; left: {left}")
    early = sum(each.deferred_first for each in done)
    late = sum(store.counts.late for store in overload.machine.stores.values())
    print(f"late samples {late}, duplicates {refused.duplicates}")
    print(f"coalesced messages admitted: {sum(each.deferred for each in done)}, before a live one: {early}")
    sent, admitted = sum(each.sent for each in done), sum(each.admitted for each in done)
    dropped = sum(each.dropped + each.broker_dropped for each in done)
    if early:
        print("PROBLEM coalesced messages came first")
        return 1
    if sent != admitted + dropped + left:
        print(f"PROBLEM {sent - admitted - dropped - left} messages are counted nowhere")
        return 1
    return 0


def _resident_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    raise SystemExit(main())
