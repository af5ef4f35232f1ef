"""Acknowledgements: which batches are durable, so that their agents may delete them from the spool."""

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice

from laggard_aggregator.ingest.dedup_state import SourceStreams, StreamState
from laggard_common import wire
from laggard_common.wire import Ack
from laggard_common.wire.topics import ack_topic

ACK_RANGES = 8192  # of one message; with at most 19 bytes each they stay below MAX_ACK_BYTES
MAX_PENDING = 1_000_000  # batches noted as not durable; the oldest beyond wait until all noted ones are


class Acks:
    """Batches of a site that are not durable yet, and nodes to be sent an acknowledgement.

    `sources`: of each node, then by source; owned by the admission.
    """

    def __init__(self, site: str, sources: Mapping[str, Mapping[str, SourceStreams]]) -> None:
        self._site = site
        self._sources = sources
        self._pending: deque[tuple[int, str, StreamState, int]] = deque(maxlen=MAX_PENDING)
        self._dropped_lsn = 0  # the newest one that `_pending` had no room for
        self._requested: dict[str, None] = {}  # nodes in the order of their requests

    def accept(self, lsn: int, node: str, stream: StreamState, seq: int) -> None:
        """Notes batch `seq`, accepted as `lsn` or as a part of it, as not durable yet."""
        if len(self._pending) == MAX_PENDING:
            self._dropped_lsn = self._pending[0][0]
        self._pending.append((lsn, node, stream, seq))

    def durable(self, lsn: int) -> None:
        """Marks every batch up to `lsn` as durable, to be acknowledged."""
        while self._pending and self._pending[0][0] <= lsn:
            _, node, stream, seq = self._pending.popleft()
            stream.durable.add(seq)
            stream.durable.give_up()  # as `received` did: bounded, whatever seqs a node sends
            self._requested[node] = None
        if 0 < self._dropped_lsn <= lsn:
            self._mark_all_but_pending()

    def request_ack(self, node: str) -> None:
        """Sends the node an acknowledgement even if no batch of it became durable."""
        self._requested[node] = None

    def forget(self, node: str) -> None:
        """Sends the node no acknowledgement."""
        self._requested.pop(node, None)

    def messages(self, most: int | None = None) -> list[tuple[str, bytes]]:
        """Topics and payloads of the requested acknowledgements, oldest request first, of `most` nodes."""
        nodes = list(islice(self._requested, most))
        for node in nodes:
            del self._requested[node]
        return [
            (ack_topic(self._site, node), wire.encode_ack(acks))
            for node in nodes
            for acks in self._acks(node)
        ]

    def _mark_all_but_pending(self) -> None:
        """Marks everything received as durable except the pending batches, as not all of them were noted."""
        self._dropped_lsn = 0
        for node, sources in self._sources.items():
            for source in sources.values():
                for stream in source.streams.values():
                    stream.durable = stream.received.copy()
            self._requested[node] = None
        for _, _, stream, seq in self._pending:
            stream.durable.remove(seq)

    def _acks(self, node: str) -> Iterator[list[Ack]]:
        """The durable ranges of a node, in messages of at most ACK_RANGES ranges.

        A stream without a schema gets an entry without ranges, on which its agent sends the schema again.
        """
        message: list[Ack] = []
        room = ACK_RANGES
        for name, source in self._sources.get(node, {}).items():
            for stream_id, stream in source.streams.items():
                ranges = stream.durable.as_tuples()
                if stream.schema is None:
                    message.append(Ack(stream_id, name, ()))
                while ranges:
                    message.append(Ack(stream_id, name, ranges[:room]))
                    ranges, room = ranges[room:], room - len(ranges[:room])
                    if room == 0:
                        yield message
                        message, room = [], ACK_RANGES
        if message:
            yield message
