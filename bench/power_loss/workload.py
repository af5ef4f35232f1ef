"""Work of an aggregator and an agent on their disks: `python -m bench.power_loss.workload FOLDER STEPS`.

Everything that must survive from a moment on is written to FOLDER/promised at that moment, a line of JSON
each: `acked`, by node the ranges of the aggregator's acknowledgement; `decided`, the number of the last
decision that was confirmed to its operator; `stored`, stream and sequence number of a spooled batch, which
may have been published; `queued` and `sent`, the number of a message in the outbox (mail.db).
"""

import asyncio
import json
import random
import sys
from functools import partial
from pathlib import Path

from laggard_agent.sampling.batcher import Dictionary, EncodedBatch
from laggard_agent.settings import AgentSettings, SpoolSettings
from laggard_agent.spool.spool import Spool
from laggard_aggregator.alarms.overrides import Overrides
from laggard_aggregator.archive import retention
from laggard_aggregator.archive.write_queue import WriteQueue
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.control import storage
from laggard_aggregator.engine.checkpoint import Head
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.engine.recovery import Recovery
from laggard_aggregator.notify.outbox import Outbox, QueuedMessage
from laggard_aggregator.settings.aggregator import ArchiveTable, StateTable
from laggard_common import wire
from tests.support.builders.site import START, messages, new_core
from tests.support.builders.trees import FIELDS, components
from tests.support.clock import HandClock

SECOND = 1_000_000_000
SNAPSHOT_STEPS, FLUSH_STEPS, DECISION_STEPS, RESTART_STEPS = 7, 4, 5, 17
COMPACT_STEPS = 9
CHANNEL, UNSENT = "mail", 2
"""Messages are sent that many steps after they were queued."""


class Aggregator:
    """State, archive and decisions of an aggregator in `folder`, restored as its start does it."""

    def __init__(self, folder: Path, clock: HandClock) -> None:
        self.clock = clock
        self.state, self.archive_folder = folder / "state", folder / "archive"
        self.recovery = Recovery(StateTable(self.state), clock)
        self.machine, head = self.recovery.load(new_core)
        self.head: Head | None = head
        self.run_ns = START if head is None else head.run_ns
        writer = ArchiveWriter(
            self.archive_folder,
            "site",
            self.run_ns,
            continues_at_ns=None if head is None else head.taken_ns,
            continued_run_ns=None if head is None else head.run_ns,
        )
        writer.groups(self.machine.membership, self.machine.topology, 1.0, 0.0)
        self.archive = WriteQueue(writer, ArchiveTable(), None, clock)
        self.archive.open()
        for result in self.recovery.replay(self.machine):
            self.archive.replay((result,))
        if head is not None:
            self.recovery.skip_to(self.machine.sequence, self.archive.last_written)
        self.machine.start_counting()
        self.decided: Overrides = storage.load(self.state)

    async def start(self) -> None:
        """Takes the first snapshot."""
        machine = self.machine
        await self.recovery.start(
            machine, self.run_ns, machine.admission.acks.durable, self.archive.has, continues=True
        )
        self.archive.journal = self.recovery.journal

    def acked(self) -> dict[str, list[tuple[str, str, list[tuple[int, int]]]]]:
        """The acknowledgements that are due, by node."""
        return {
            topic.rpartition("/")[2]: [
                (ack.stream.hex(), ack.source, list(ack.ranges)) for ack in wire.decode_ack(payload)
            ]
            for topic, payload in self.machine.admission.acks.messages()
        }


async def run(folder: Path, steps: int) -> None:
    """The workload, with an orderly restart every RESTART_STEPS."""
    promised = (folder / "promised").open("ab", buffering=0)

    def promise(kind: str, value: object) -> None:
        promised.write(json.dumps([kind, value]).encode() + b"\n")

    clock = HandClock(START)
    aggregator = Aggregator(folder, clock)
    await aggregator.start()
    spool, outbox = opened(folder, 0), Outbox(folder / "state", START)
    decisions = 0
    for step, some in enumerate(messages(steps)):
        clock.ns = START + (5 * step + 2) * SECOND
        machine, archive = aggregator.machine, aggregator.archive
        for batch in machine.receive(some, archive.room()):
            archive.put(batch)
        await aggregator.recovery.journal.commit()
        _close(machine, archive, clock.ns)
        await aggregator.recovery.journal.commit()
        promise("acked", aggregator.acked())
        stored = spool.append(encoded(step))
        assert stored is not None
        promise("stored", [stored.envelope.stream.hex(), stored.envelope.seq])
        if step % 3 == 2:
            spool.acknowledge(stored.key, ((0, step - 2),))
        outbox.queue(CHANNEL, QueuedMessage(str(step), START + step, ("ops",), encoded(step).payload * 50))
        promise("queued", step)
        if step >= UNSENT:
            outbox.set_outcome(CHANNEL, str(step - UNSENT), "sent")
            promise("sent", step - UNSENT)
        if step % FLUSH_STEPS == 1:
            await archive.write(flush=True)
        if step % DECISION_STEPS == 2:
            decisions += 1
            state = {"decisions": [], "afresh": {"luns": [f"oss-{decisions}"]}}
            storage.note(aggregator.state, {"number": decisions})
            storage.save(aggregator.state, state)
            promise("decided", decisions)
        if step % SNAPSHOT_STEPS == 5:
            await aggregator.recovery.snapshot((), archive.has)
            promise("acked", aggregator.acked())
        if step % COMPACT_STEPS == 8:
            retention.compact(aggregator.archive_folder, clock.ns + 3600 * SECOND)
        if step % RESTART_STEPS == RESTART_STEPS - 1:
            await aggregator.recovery.snapshot((), archive.has)
            aggregator.recovery.close()
            spool.close()
            outbox.close()
            aggregator = Aggregator(folder, clock)
            await aggregator.start()
            spool, outbox = opened(folder, step), Outbox(folder / "state", START)


def _close(machine: Machine, archive: WriteQueue, now_ns: int) -> None:
    for close in machine.closes(machine.windows.due(now_ns), now_ns):
        window = machine.seal(close)
        archive.put(close)
        for judgement in () if window is None else machine.judge.evaluate(window):
            archive.put(judgement)


def opened(folder: Path, seed: int, boot: str = "boot-1") -> Spool:
    """The agent's spool."""
    settings = AgentSettings(
        node="oss-1", batch_samples=5, spool=SpoolSettings(folder / "spool", 4 * 1024 * 1024)
    )
    return Spool(settings, boot, random.Random(seed).randbytes)


def encoded(number: int) -> EncodedBatch:
    """A batch whose payload is `number`."""
    dictionary = Dictionary(0, 1, FIELDS, components("a"))
    return EncodedBatch(
        "net", dictionary, 10**18 + number * 10**9, 10**9, 5, 1, number.to_bytes(4, "big") * 20
    )


if __name__ == "__main__":
    asyncio.run(partial(run, Path(sys.argv[1]), int(sys.argv[2]))())
