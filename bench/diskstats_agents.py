"""Agents' messages about disks of made-up counters: the collector over a tree, and its batcher."""

from collections.abc import Callable, Sequence
from pathlib import Path

from laggard_agent.collectors.diskstats.collector import Diskstats, DiskstatsSettings
from laggard_agent.collectors.interface import Context, Roots
from tests.support.agent_messages import AgentMessages, Messages
from tests.support.builders.trees import disk_line, tree


class DiskstatsAgent:
    """The agent of `node`, with disks sda, sdb, ... of `models`, whose trees are in `folder`.

    `now`: nanoseconds since the epoch. One sample a batch.
    """

    def __init__(
        self, node: str, models: Sequence[str], folder: Path, interval_ns: int, now: Callable[[], int]
    ) -> None:
        self._disks = [f"sd{chr(ord('a') + at)}" for at in range(len(models))]
        files = {"proc/diskstats": ""}
        for disk, model in zip(self._disks, models, strict=True):
            files |= {f"sys/block/{disk}/device/model": model, f"sys/block/{disk}/queue/rotational": "1"}
        tree(folder, files)
        self._file = folder / "proc" / "diskstats"
        roots = Roots(folder / "proc", folder / "sys", None)
        self._collector = Diskstats(DiskstatsSettings(), Context(roots, now, now))
        self._agent = AgentMessages(node, "diskstats", interval_ns)

    def sample(self, tick_ns: int, counters: Sequence[Sequence[int]]) -> Messages:
        """The messages of a tick, at which /proc/diskstats has these values of each disk."""
        rows = zip(self._disks, counters, strict=True)
        lines = [disk_line(disk, *values, minor=16 * at) for at, (disk, values) in enumerate(rows)]
        self._file.write_text("".join(lines))
        readings = self._collector.read()
        return [message for reading in readings for message in self._agent.messages(tick_ns, reading)]
