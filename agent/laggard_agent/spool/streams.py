"""The streams of the spool: one for each source now, older ones as long as batches of theirs are left."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from laggard_agent.sampling.batcher import Batch, Dictionary
from laggard_agent.spool.segments import Key, SpoolIdentity, Stream
from laggard_common.wire.limits import STREAM_BYTES
from laggard_common.wire.schema import Schema


class Streams:
    """Which stream each source writes to, with which seq and schema. `random_bytes` makes streams."""

    def __init__(self, owner: SpoolIdentity, random_bytes: Callable[[int], bytes]) -> None:
        self._owner = owner
        self._random_bytes = random_bytes
        self._now: dict[str, Stream] = {}
        self._generations: dict[str, int] = {}
        self._schemas: dict[Key, Schema] = {}

    def now(self) -> tuple[Stream, ...]:
        """Every source's present stream."""
        return tuple(self._now.values())

    def keys(self) -> set[Key]:
        """What names the present streams."""
        return {(stream.stream, source) for source, stream in self._now.items()}

    def dictionaries(self) -> dict[str, Dictionary]:
        """What each source's batches are written with."""
        return {
            source: Dictionary(
                self._generations[source], s.schema.epoch, s.schema.fields, s.schema.components
            )
            for source, s in self._now.items()
        }

    def schema(self, key: Key) -> Schema | None:
        """The newest schema of a stream, None when there is nothing left of it."""
        return self._schemas.get(key)

    def given(self, key: Key) -> int | None:
        """How many seqs of a present stream have been given; None for another."""
        stream = self._now.get(key[1])
        return stream.next_seq if stream is not None and stream.stream == key[0] else None

    def that_reads(self, batch: Batch) -> tuple[Stream, bool]:
        """The stream that `batch` belongs to, with a schema for it, and whether that schema is a new one.

        Nothing is changed: what is new counts from `remember` on.
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
        """From now on `stream` is its source's."""
        source = stream.schema.source
        self._now[source] = stream
        self._generations[source] = generation
        self._schemas[stream.stream, source] = stream.schema

    def go_on(self, streams: Iterable[Stream]) -> None:
        """Takes over an earlier agent's streams, in a new epoch where interval or batch size changed."""
        owner = self._owner
        for stream in streams:
            old = stream.schema
            today = replace(old, interval_ns=owner.interval_ns, batch_ticks=owner.batch_ticks)
            schema = old if today == old else replace(today, epoch=old.epoch + 1)
            self.remember(replace(stream, schema=schema), generation=0)

    def add_schemas(self, schemas: Mapping[Key, Schema]) -> None:
        """Schemas of batches that an earlier agent left."""
        self._schemas.update(schemas)

    def advance(self, source: str) -> None:
        """The next seq of the source's stream has been given."""
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
