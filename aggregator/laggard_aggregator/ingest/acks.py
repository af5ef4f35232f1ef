"""What agents are told of their batches: which are safe, so that they may leave the spool."""

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice

from laggard_aggregator.ingest.dedup_state import Source, Stream
from laggard_common import wire
from laggard_common.wire import Ack
from laggard_common.wire.topics import ack_topic

ACK_RANGES = 8192  # of one message; with at most 19 bytes each they stay below MAX_ACK_BYTES
MAX_UNSAFE = 1_000_000  # batches that wait to be safe; of more the oldest wait until all that is noted is


class Acknowledging:
    """Which batches of a site wait to be safe, and who is to hear of those that are.

    `sources`: of each node, then by source; those of the intake, which makes and forgets them.
    """

    def __init__(self, site: str, sources: Mapping[str, Mapping[str, Source]]) -> None:
        self._site = site
        self._sources = sources
        self._unsafe: deque[tuple[int, str, Stream, int]] = deque(maxlen=MAX_UNSAFE)
        self._unnoted = 0  # the newest ordinal that MAX_UNSAFE left no room for
        self._owed: dict[str, None] = {}  # nodes in the order of their waiting

    def wait(self, ordinal: int, node: str, stream: Stream, seq: int) -> None:
        """Takes in that batch `seq` was received, as `ordinal` or as a part of it, and is not safe yet."""
        if len(self._unsafe) == MAX_UNSAFE:
            self._unnoted = self._unsafe[0][0]
        self._unsafe.append((ordinal, node, stream, seq))

    def safe(self, ordinal: int) -> None:
        """Takes in that every batch up to `ordinal` is safe, and may be acknowledged."""
        while self._unsafe and self._unsafe[0][0] <= ordinal:
            _, node, stream, seq = self._unsafe.popleft()
            stream.safe.add(seq)
            stream.safe.give_up()  # as what was received did: bounded, whatever seqs a node sends
            self._owed[node] = None
        if 0 < self._unnoted <= ordinal:
            self._all_but_unsafe()

    def give_back(self, ordinal: int) -> None:
        """Takes in that the batch `ordinal`, which is not safe, is not kept: it counts as not received.

        Its sender keeps it, as it is not acknowledged, and sends it again.
        """
        at = next((i for i in range(len(self._unsafe) - 1, -1, -1) if self._unsafe[i][0] == ordinal), -1)
        while at >= 0 and self._unsafe[at][0] == ordinal:  # each of the batches that were joined
            _, _, stream, seq = self._unsafe[at]
            stream.received.remove(seq)
            del self._unsafe[at]
            at -= 1

    def owe(self, node: str) -> None:
        """The node is to hear of its batches though none became safe."""
        self._owed[node] = None

    def forget(self, node: str) -> None:
        """The node is to hear no more."""
        self._owed.pop(node, None)

    def messages(self, most: int | None = None) -> list[tuple[str, bytes]]:
        """Topic and payload for nodes that sent something new, or something twice, since last told.

        Those of at most `most` nodes, who waited longest; what comes meanwhile is told with the rest.
        """
        nodes = list(islice(self._owed, most))
        for node in nodes:
            del self._owed[node]
        return [
            (ack_topic(self._site, node), wire.encode_ack(acks))
            for node in nodes
            for acks in self._acks(node)
        ]

    def _all_but_unsafe(self) -> None:
        """Makes everything that was received safe but what is noted as unsafe, as not all was noted."""
        self._unnoted = 0
        for node, sources in self._sources.items():
            for source in sources.values():
                for stream in source.streams.values():
                    stream.safe = stream.received.copy()
            self._owed[node] = None
        for _, _, stream, seq in self._unsafe:
            stream.safe.remove(seq)

    def _acks(self, node: str) -> Iterator[list[Ack]]:
        """What is safe of a node's batches, in messages of at most ACK_RANGES ranges.

        Without a range of a stream whose schema did not come: its agent sends that again, then.
        """
        message: list[Ack] = []
        room = ACK_RANGES
        for name, source in self._sources.get(node, {}).items():
            for stream_id, stream in source.streams.items():
                ranges = stream.safe.as_tuples()
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
