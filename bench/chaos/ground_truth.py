"""What an onlooker sees of a site: messages of all kinds, and batches on the agents' disks."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiomqtt

from laggard_agent.spool.segments import SUFFIX, SpoolRecordType
from laggard_common import segment_log, wire
from laggard_common.errors import SpoolError, WireError
from laggard_common.mqtt.settings import ClientArguments
from laggard_common.wire import Envelope, Kind

logging.getLogger("mqtt").setLevel(logging.CRITICAL)  # connections that end are what this is about

UNDER_WAY = 6
"""Batches of a stream that may be on their way while nothing is wrong: 3 s of two a second."""
FRESH_SECONDS = 2.0
_PAUSE_SECONDS = 0.3
_TOPICS = ("laggard/1/+/ack/+", "laggard/1/+/+/+/status", "laggard/1/+/+/+/data/diskstats")

StreamOf = tuple[str, bytes]
"""Node and stream; the agents have one source."""


@dataclass(frozen=True, slots=True)
class Spooled:
    """A batch on an agent's disk."""

    stream: bytes
    seq: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A batch that somebody saw first at `seen_ns`, and its ticks by the agent's clock; epoch nanoseconds."""

    seen_ns: int
    ticks_ns: tuple[int, ...]


class Witness:
    """Listens with a client of its own, in a thread."""

    def __init__(self, arguments: ClientArguments) -> None:
        self._arguments = arguments
        self.acked: dict[StreamOf, tuple[tuple[int, int], ...]] = {}
        self.status: dict[tuple[str, bytes], Mapping[str, Any]] = {}
        """By node and run of its agent: what that said last of itself."""
        self.seen: dict[StreamOf, dict[int, Seen]] = {}
        """By seq: every batch that was seen on a disk or in a message."""

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Listens while the body runs."""
        loop = asyncio.new_event_loop()
        task = loop.create_task(self._run())

        def serve() -> None:
            with contextlib.suppress(asyncio.CancelledError):
                loop.run_until_complete(task)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            loop.call_soon_threadsafe(task.cancel)
            thread.join()
            loop.close()

    def lacks(self, node: str, folder: Path, mark: Spooled | None) -> str:
        """Why not everything in that agent's spool but what is under way is acknowledged; empty when it is.

        With a `mark`, that includes something that was spooled after it.
        """
        newest, held = self.look(node, folder)
        if not held or time.time() - newest > FRESH_SECONDS:
            return f"{node} spools nothing"
        last: dict[bytes, int] = {}
        for batch in held:
            last[batch.stream] = max(last.get(batch.stream, 0), batch.seq)
        current = held[-1].stream
        under_way = {current: last[current] - UNDER_WAY}
        if mark is not None and self._top(node, current) <= (mark.seq if mark.stream == current else -1):
            return f"nothing new of {node} is acknowledged"
        waiting = [
            batch.seq
            for batch in held
            if batch.seq <= under_way.get(batch.stream, batch.seq) and not self.is_acked(node, batch)
        ]
        if waiting:
            return f"{len(waiting)} batches of {node} wait, {waiting[0]} to {waiting[-1]} of {last[current]}"
        ranges = self.acked.get((node, current), ())
        return "" if len(ranges) == 1 and ranges[0][0] == 0 else f"{node} has gaps: {ranges}"

    def look(self, node: str, folder: Path) -> tuple[float, list[Spooled]]:
        """When something was last written to a spool, epoch seconds, and its batches, oldest first."""
        newest, held = 0.0, []
        for path in sorted(folder.glob(f"*{SUFFIX}")):
            with contextlib.suppress(OSError, SpoolError):  # deleted meanwhile
                newest = max(newest, path.stat().st_mtime)
                for record in segment_log.scan(path):
                    if record.type == SpoolRecordType.BATCH:
                        envelope = wire.decode_envelope(record.payload)
                        held.append(Spooled(envelope.stream, envelope.seq))
                        self._note(node, envelope)
        return newest, held

    def _note(self, node: str, envelope: Envelope) -> None:
        seen = self.seen.setdefault((node, envelope.stream), {})
        counts: tuple[int, ...] = (envelope.n,)
        if envelope.kind == Kind.JOINED:
            counts, _ = wire.split_joined(envelope)
        first = 0
        for seq, count in enumerate(counts, envelope.seq):
            if seq not in seen:
                ticks = (envelope.t0_ns + at * envelope.dt_ns for at in range(first, first + count))
                seen[seq] = Seen(time.time_ns(), tuple(ticks))
            first += count

    def _top(self, node: str, stream: bytes) -> int:
        ranges = self.acked.get((node, stream), ())
        return ranges[-1][1] if ranges else -1

    def is_acked(self, node: str, batch: Spooled) -> bool:
        """Whether an acknowledgement of it was heard."""
        ranges = self.acked.get((node, batch.stream), ())
        return any(low <= batch.seq <= high for low, high in ranges)

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(aiomqtt.MqttError, OSError):
                async with aiomqtt.Client(**self._arguments, identifier="witness", timeout=5) as client:
                    await client.subscribe([(name, 1) for name in _TOPICS])
                    async for message in client.messages:
                        with contextlib.suppress(WireError):
                            self._see(str(message.topic), message.payload)
            await asyncio.sleep(_PAUSE_SECONDS)

    def _see(self, topic: str, payload: object) -> None:
        levels = topic.split("/")
        if not isinstance(payload, bytes):
            return
        if levels[3] == "ack":
            for ack in wire.decode_ack(payload):
                self.acked[levels[4], ack.stream] = ack.ranges
            return
        envelope = wire.decode_envelope(payload)
        if levels[5] == "data":
            self._note(levels[4], envelope)
            return
        said = wire.decode_state(envelope.payload)
        if "missed_ticks" in said:  # not the last will
            self.status[levels[4], envelope.stream] = said
