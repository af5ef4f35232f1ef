"""Streams of the spool: a current one per source, older ones while they have batches."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from laggard_agent.sampling.batcher import Batch, Dictionary
from laggard_agent.spool.segments import Key, SpoolIdentity, Stream
from laggard_common.wire.limits import STREAM_BYTES
from laggard_common.wire.schema import Schema


class Streams:
    """Current stream, sequence number and schema of each source. `random_bytes` makes stream ids."""

    def __init__(self, owner: SpoolIdentity, random_bytes: Callable[[int], bytes]) -> None:
        self._owner = owner
        self._random_bytes = random_bytes
        self._now: dict[str, Stream] = {}
        self._generations: dict[str, int] = {}
        self._schemas: dict[Key, Schema] = {}

    def now(self) -> tuple[Stream, ...]:
        """The current stream of every source."""
        return tuple(self._now.values())

    def keys(self) -> set[Key]:
        """The keys of the current streams."""
        return {(stream.stream, source) for source, stream in self._now.items()}

    def dictionaries(self) -> dict[str, Dictionary]:
        """The dictionary of each source."""
        return {
            source: Dictionary(
                self._generations[source], s.schema.epoch, s.schema.fields, s.schema.components
            )
            for source, s in self._now.items()
        }

    def schema(self, key: Key) -> Schema | None:
        """The newest schema of a stream, None for a forgotten one."""
        return self._schemas.get(key)

    def given(self, key: Key) -> int | None:
        """Number of sequence numbers assigned in a current stream; None for another."""
        stream = self._now.get(key[1])
        return stream.next_seq if stream is not None and stream.stream == key[0] else None

    def that_reads(self, batch: Batch) -> tuple[Stream, bool]:
        """The stream of `batch` with a schema for it, and True if that schema is new.

        Changes nothing; `remember` makes it current.
        """
        dictionary = batch.dictionary
        stream = self._now.get(batch.source)
        if stream is None or self._generations[batch.source] != dictionary.generation:
            fresh = self._random_bytes(STREAM_BYTES)
            return Stream(fresh, 0, self._schema(batch, fresh)), True
        if stream.schema.epoch < dictionary.epoch:
            return replace(stream, schema=self._schema(batch, stream.stream)), True
        return stream, False

    def remember(self, stream: Stream, generation: int) -> None:
        """Makes `stream` the current one of its source."""
        source = stream.schema.source
        self._now[source] = stream
        self._generations[source] = generation
        self._schemas[stream.stream, source] = stream.schema

    def go_on(self, streams: Iterable[Stream]) -> None:
        """Continues an earlier agent's streams, in a new epoch if interval or batch size changed."""
        owner = self._owner
        for stream in streams:
            old = stream.schema
            today = replace(old, interval_ns=owner.interval_ns, batch_ticks=owner.batch_ticks)
            schema = old if today == old else replace(today, epoch=old.epoch + 1)
            self.remember(replace(stream, schema=schema), generation=0)

    def add_schemas(self, schemas: Mapping[Key, Schema]) -> None:
        """Adds schemas of an earlier agent's batches."""
        self._schemas.update(schemas)

    def advance(self, source: str) -> None:
        """Assigns the next sequence number of the source's stream."""
        stream = self._now[source]
        self._now[source] = replace(stream, next_seq=stream.next_seq + 1)

    def renew(self) -> None:
        """Begins a new stream for every source."""
        for source, stream in list(self._now.items()):
            fresh = self._random_bytes(STREAM_BYTES)
            renewed = Stream(fresh, 0, replace(stream.schema, stream=fresh))
            self.remember(renewed, self._generations[source])

    def forget_all_but(self, alive: set[Key]) -> None:
        """Keeps the schemas of these streams only."""
        self._schemas = {key: schema for key, schema in self._schemas.items() if key in alive}

    def _schema(self, batch: Batch, stream: bytes) -> Schema:
        d = batch.dictionary
        return Schema(
            node=self._owner.node,
            source=batch.source,
            stream=stream,
            epoch=d.epoch,
            interval_ns=self._owner.interval_ns,
            batch_ticks=self._owner.batch_ticks,
            fields=d.fields,
            components=d.components,
        )
