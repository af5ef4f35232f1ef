"""Agents' messages about disks of made-up counters: the collector over a tree, and its batcher."""

from collections.abc import Callable, Sequence
from pathlib import Path

from laggard_agent.collectors.diskstats.collector import Diskstats, DiskstatsSettings
from laggard_agent.collectors.interface import Context, Roots
from laggard_agent.sampling.batcher import Batcher, EncodedBatch
from laggard_common import wire
from laggard_common.wire import Envelope, Kind
from laggard_common.wire.limits import STREAM_BYTES
from laggard_common.wire.schema import Schema
from laggard_common.wire.topics import data_topic, schema_topic
from tests.support.builders.trees import disk_line, tree

SOURCE = "diskstats"
Messages = list[tuple[str, bytes]]


class DiskstatsAgent:
    """The agent of `node`, with disks sda, sdb, ... of `models`, whose trees are in `folder`.

    `now`: nanoseconds since the epoch. One sample a batch.
    """

    def __init__(
        self, node: str, models: Sequence[str], folder: Path, interval_ns: int, now: Callable[[], int]
    ) -> None:
        self._node = node
        self._interval_ns = interval_ns
        self._disks = [f"sd{chr(ord('a') + at)}" for at in range(len(models))]
        files = {"proc/diskstats": ""}
        for disk, model in zip(self._disks, models, strict=True):
            files |= {f"sys/block/{disk}/device/model": model, f"sys/block/{disk}/queue/rotational": "1"}
        tree(folder, files)
        self._file = folder / "proc" / "diskstats"
        roots = Roots(folder / "proc", folder / "sys", None)
        self._collector = Diskstats(DiskstatsSettings(), Context(roots, now, now))
        self._batcher = Batcher(SOURCE, interval_ns, 1)
        self._epoch = -1
        self._sequence = 0

    def sample(self, tick_ns: int, counters: Sequence[Sequence[int]]) -> Messages:
        """The messages of a tick, at which /proc/diskstats has these values of each disk."""
        rows = zip(self._disks, counters, strict=True)
        lines = [disk_line(disk, *values, minor=16 * at) for at, (disk, values) in enumerate(rows)]
        self._file.write_text("".join(lines))
        made: Messages = []
        for reading in self._collector.read():
            for batch in self._batcher.add(tick_ns, reading):
                made += self._messages(batch)
        return made

    def _messages(self, batch: EncodedBatch) -> Messages:
        stream = self._node.encode().ljust(STREAM_BYTES, b".")[:STREAM_BYTES]
        known = batch.dictionary
        made: Messages = []
        if known.epoch != self._epoch:
            self._epoch = known.epoch
            schema = Schema(
                node=self._node,
                source=SOURCE,
                stream=stream,
                epoch=known.epoch,
                interval_ns=self._interval_ns,
                batch_ticks=1,
                fields=known.fields,
                components=known.components,
            )
            made.append((schema_topic("site", "storage", self._node, SOURCE), wire.encode_schema(schema)))
        envelope = Envelope(
            kind=Kind.COUNTERS,
            node=self._node,
            source=SOURCE,
            stream=stream,
            seq=self._sequence,
            schema_epoch=known.epoch,
            t0_ns=batch.t0_ns,
            dt_ns=batch.dt_ns,
            n=batch.n,
            codec=batch.codec,
            payload=batch.payload,
        )
        self._sequence += 1
        return [*made, (data_topic("site", "storage", self._node, SOURCE), wire.encode_envelope(envelope))]
