"""Intake, pipeline and engine as one machine: the same entries in the same order give the same judgements.

No clock and no loop. What it records (`ingest.entries`), replayed into another core that was in the same
state, takes that one through the same states, to the bit; that is what a restart does.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from laggard_aggregator.alarms.alarms import Ended, Transition
from laggard_aggregator.alarms.judge import Engine, Judgement, Window
from laggard_aggregator.alarms.overrides import Book
from laggard_aggregator.engine.pipeline import Pipeline, closes
from laggard_aggregator.groups.membership import ConfiguredMembership
from laggard_aggregator.groups.topology import Topology
from laggard_aggregator.ingest.admission import Intake
from laggard_aggregator.ingest.batches import TakenBatch, WindowClose
from laggard_aggregator.ingest.offheap_queue import Received
from laggard_aggregator.log.entries import (
    BatchEntry,
    CloseEntry,
    Entry,
    ForgetEntry,
    ReturnEntry,
    SchemaEntry,
    SweepEntry,
)
from laggard_aggregator.log.sequence import Ordinals
from laggard_aggregator.windows.schedule import DueWindow


class Core:
    """Everything that messages and closes change.

    `record` is told of every entry before its effect is seen, in the thread of whoever calls `receive`,
    `give_back`, `sweep` or asks for the next of `closes`. `forget_ns`: nodes and components that are silent
    for so long are forgotten.
    """

    def __init__(
        self,
        site: str,
        membership: ConfiguredMembership,
        topology: Topology,
        *,
        lateness_seconds: float,
        after_seconds: float = 0.0,
        forget_ns: int = 2**62,
    ) -> None:
        self.membership = membership
        self.topology = topology
        self.ordinals = Ordinals()
        self.intake = Intake(site, self.ordinals)
        self.pipeline = Pipeline(membership, Engine({}, after_seconds, topology), lateness_seconds)
        self.decisions = Book()
        self._forget_ns = forget_ns
        self._record: Callable[[Entry], None] | None = None

    def record(self, record: Callable[[Entry], None]) -> None:
        """Tells `record` of every entry from now on."""
        self._record = self.intake.record = record

    def receive(self, topic: str, payload: bytes, received_ns: int) -> Iterator[TakenBatch]:
        """The batches that a message lets be taken, each as it is taken."""
        return self.pipeline.take_all(self.intake.receive_all(((topic, payload, received_ns),)))

    def receive_all(self, messages: Sequence[Received]) -> Iterator[TakenBatch]:
        """As `receive` of one message after the other, in less time; to be gone through to its end."""
        run: list[Received] = []
        for message in messages:
            run.append(message)
            if "/schema/" in message[0]:  # which may let many batches be taken that waited for it
                yield from self.pipeline.take_all(self.intake.receive_all(run))
                run = []
        yield from self.pipeline.take_all(self.intake.receive_all(run))

    def give_back(self, taken: TakenBatch) -> None:
        """Lets a batch, which was not acknowledged, come again: somebody has no room for it now."""
        self._tell(ReturnEntry(taken.ordinal))
        self.intake.acks.give_back(taken.ordinal)
        self.pipeline.samples -= taken.batch.tick_ns.size * taken.batch.indexes.size

    def closes(self, due: list[DueWindow], now_ns: int) -> Iterator[WindowClose]:
        """The closes of windows that are due, each to be sealed before the next one is asked for."""
        for bare in closes(due, self.ordinals, self.pipeline.groups, now_ns):
            close = self._decided(bare)
            self._tell(CloseEntry(close))
            yield close

    def seal(self, close: WindowClose) -> Window | None:
        """The window that `close` closes, None when nobody had data; may run in a thread."""
        return self.pipeline.seal(close)

    def sweep(self, now_ns: int, *, forget: bool = False) -> list[Transition]:
        """Declares old gaps, and forgets what was silent for too long; the alarms that ended with it."""
        self._tell(SweepEntry(self.ordinals.last, now_ns, forget))
        return self._sweep(now_ns, forget)

    def forget(self, target: str, now_ns: int, before_ns: int) -> tuple[list[str], list[Transition]]:
        """Forgets what `target` names and was silent before `before_ns`: the nodes, and alarms that ended."""
        self._tell(ForgetEntry(self.ordinals.last, now_ns, before_ns, target))
        return self._forget(target, now_ns, before_ns)

    def replay(self, entry: Entry) -> Iterator[TakenBatch | WindowClose | Judgement | Ended]:
        """Goes through an entry again; what came of it, in order. Entries come as they were recorded."""
        if isinstance(entry, BatchEntry | SchemaEntry):
            self.ordinals.last = entry.ordinal - isinstance(entry, BatchEntry)
            yield from self.receive(entry.topic, entry.payload, entry.received_ns)
        elif isinstance(entry, CloseEntry):
            close = entry.close
            self.ordinals.last = close.ordinal
            if close.group in self.pipeline.groups:
                self.pipeline.windows.closed(close.group, round(close.end * 1e9))
            yield close
            yield from self.pipeline.close(close)
            yield from _ended(close.ordinal, self.pipeline.ended())
        elif isinstance(entry, SweepEntry):
            yield from _ended(entry.ordinal, self._sweep(entry.now_ns, entry.forget))
        elif isinstance(entry, ForgetEntry):
            yield from _ended(entry.ordinal, self._forget(entry.target, entry.now_ns, entry.before_ns)[1])
        else:
            self.intake.acks.give_back(entry.ordinal)

    def begin_counting(self) -> None:
        """Counts from 0, and takes for safe what was replayed: it was counted, and journaled, before."""
        self.intake.acks.safe(self.ordinals.last)
        self.intake.begin_counting()
        self.pipeline.begin_counting()

    def _decided(self, close: WindowClose) -> WindowClose:
        """`close` with what operators decided about components of its group."""
        if not self.decisions.concern(close.group):
            return close
        components = self.pipeline.stores[close.group].compared
        drained, afresh = self.decisions.at_close(close.group, components, self.pipeline.shown)
        return replace(close, drained=drained, afresh=afresh)

    def _sweep(self, now_ns: int, forget: bool) -> list[Transition]:
        self.intake.sweep(now_ns)
        if not forget:
            return []
        return self._forget("*", now_ns, now_ns - self._forget_ns)[1]

    def _forget(self, target: str, now_ns: int, before_ns: int) -> tuple[list[str], list[Transition]]:
        nodes = self.intake.forget(before_ns, target)
        return nodes, self.pipeline.forget(before_ns, nodes, now_ns / 1e9, target)

    def _tell(self, entry: Entry) -> None:
        if self._record is not None:
            self._record(entry)


def _ended(ordinal: int, transitions: list[Transition]) -> Iterator[Ended]:
    if transitions:
        yield Ended(ordinal, tuple(transitions))
