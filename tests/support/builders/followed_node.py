"""A node whose agent follows trace logs."""

from pathlib import Path

import zstandard

from laggard_agent.sampling.batcher import EncodedBatch
from laggard_agent.settings import TracesSettings
from laggard_agent.tools.iotrace.follow import TraceFollower
from laggard_common.wire import Kind
from laggard_common.wire.limits import MAX_EVENT_BYTES
from laggard_common.wire.trace_document import TraceDocument, decode_document
from laggard_common.wire.trace_records import Folded
from tests.support.builders.iotrace import unfold
from tests.support.clock import FakeClock


class FollowedNode:
    """A node with logs below `folder`, and a spool that has room, or none."""

    def __init__(self, folder: Path, pattern: str = "{job}/*.trace", format_name: str = "auto") -> None:
        self.folder = folder / "logs"
        (self.folder / "77").mkdir(parents=True)
        self.state = folder / "spool"
        self.state.mkdir()
        self.procfs = folder / "proc"
        self.procfs.mkdir()
        self.settings = TracesSettings((f"{self.folder}/{pattern}",), format_name)
        self.clock = FakeClock()
        self.stored: list[EncodedBatch] = []
        self.room = True
        self.start()

    def start(self) -> None:
        """Starts the agent, again."""
        self.follower = TraceFollower(self.settings, "cn-1", self.state, self.procfs, self.clock)

    def store(self, batch: EncodedBatch) -> bool:
        if self.room:
            self.stored.append(batch)
        return self.room

    def poll(self, seconds: float = 60.0) -> int:
        """One poll after some time; returns the number of documents."""
        self.clock.sleep(seconds)
        self.follower.read()
        return self.follower.send(self.store)

    def documents(self) -> list[TraceDocument]:
        contents = [zstandard.ZstdDecompressor().decompress(each.payload) for each in self.stored]
        assert all(0 < len(each) <= MAX_EVENT_BYTES for each in contents)
        assert {(each.kind, each.source) for each in self.stored} <= {(Kind.EVENTS, "traces")}
        return [decode_document(each) for each in contents]

    def records(self) -> list[Folded]:
        return [record for each in self.documents() for record in each.records]

    def offsets(self) -> list[int | None]:
        """Offsets of all unfolded records."""
        return [each.offset for record in self.records() for each in unfold(record)]


def write(at: int, size: int = 512, path: str = "/scratch/out") -> str:
    return f"1763650001.{at % 10**9:09d} cn-17 write 4121:3 {at * size} {size} {path}\n"


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)
