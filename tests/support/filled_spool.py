"""A spool as an agent leaves it that cannot publish: filled through its batchers."""

from pathlib import Path

from laggard_agent.app import boot_id
from laggard_agent.collectors.interface import Reading
from laggard_agent.sampling.batcher import Batcher
from laggard_agent.settings import AgentSettings, SpoolSettings
from laggard_agent.spool.segments import Key
from laggard_agent.spool.spool import Spool

SECOND = 10**9


ROOM = 64 * 2**30


def reopened(folder: Path, node: str, batch_ticks: int, interval_ns: int = SECOND) -> Spool:
    """The spool in `folder`, as the agent of `node` opens it."""
    settings = AgentSettings(
        node=node,
        interval_seconds=interval_ns / SECOND,
        batch_samples=batch_ticks,
        spool=SpoolSettings(folder, ROOM),
    )
    return Spool(settings, boot_id())


class FilledSpool:
    """A spool in `folder`, filled by `add`. `close` ends it in order, so that an agent goes on with it."""

    def __init__(self, folder: Path, node: str, batch_ticks: int, interval_ns: int = SECOND) -> None:
        self._folder = folder
        self._interval_ns = interval_ns
        self._batch_ticks = batch_ticks
        self._batchers: dict[str, Batcher] = {}
        self.spool = reopened(folder, node, batch_ticks, interval_ns)

    def add(self, tick_ns: int, reading: Reading) -> None:
        """A reading of one source at one tick."""
        batcher = self._batchers.get(reading.source)
        if batcher is None:
            batcher = Batcher(reading.source, self._interval_ns, self._batch_ticks)
            self._batchers[reading.source] = batcher
        for batch in batcher.add(tick_ns, reading):
            self.spool.append(batch)

    def close(self) -> dict[Key, int]:
        """How many batches each stream and source has."""
        for batcher in self._batchers.values():
            for batch in batcher.flush():
                self.spool.append(batch)
        keys = [(schema.stream, schema.source) for schema in self.spool.current_schemas()]
        given = {key: self.spool.next_seq(key) for key in keys}
        self.spool.close()
        return given

    @property
    def bytes(self) -> int:
        """What the files take on the disk."""
        return sum(path.stat().st_size for path in self._folder.glob("*.segment"))
