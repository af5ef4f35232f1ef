"""The record of a simulation: everything that happened, as seen from outside the product."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from bench.simulation.jobs import CLIENT_FIELDS, CLIENT_SOURCE, FILE_SYSTEM, PlannedJob, read_bytes
from bench.simulation.mails import SimulatedMailServer
from bench.simulation.processes import Killed, Process, current
from laggard_agent.collectors.interface import Reading
from laggard_agent.sampling.batcher import EncodedBatch
from laggard_agent.settings import AgentSettings
from laggard_agent.spool.segments import SpooledBatch
from laggard_agent.spool.spool import Spool
from laggard_aggregator.alarms.alarms import AlarmEvent
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.archive.write_queue import WriteQueue
from laggard_aggregator.detect.interface import Window
from laggard_aggregator.engine.machine import Machine, Result
from laggard_aggregator.engine.recovery import Recovery
from laggard_aggregator.log.entries import BatchEntry, LogEntry, LogSequence, WindowClose
from laggard_aggregator.runtime.loops import Results
from laggard_aggregator.status.view import Status
from laggard_common.errors import LaggardError
from laggard_common.wire.codec import Row
from laggard_common.wire.schema import Component, Field

SOURCE = "diskstats"
FIELDS = tuple(
    Field(name)
    for name in (
        "rd_ios",
        "rd_sectors",
        "rd_ms",
        "wr_ios",
        "wr_sectors",
        "wr_ms",
        "io_ms",
        "weighted_ms",
        "serial",
    )
)
SERIAL = len(FIELDS) - 1
READS = 100
"""Requests of a disk in an interval."""
HEALTHY_MS = 5
SLOW_FACTOR = 8


@dataclass(frozen=True, slots=True)
class Slow:
    """A disk that is slow from interval `first` to `last`, both since the epoch."""

    component: str
    first: int
    last: int

    def extra_ms(self, component: str, interval: int) -> int:
        """Its further milliseconds up to the end of `interval`."""
        if component != self.component:
            return 0
        intervals = min(max(interval - self.first, 0), self.last - self.first)
        return intervals * READS * HEALTHY_MS * (SLOW_FACTOR - 1)


@dataclass(slots=True)
class Sample:
    """A reading of a node: its rows, and when it was taken, by virtual time."""

    rows: tuple[Row, ...]
    interval: int
    by: Process


@dataclass(slots=True)
class NodeRecord:
    """All samples of a node by serial number, and those that its agents accounted for."""

    samples: dict[int, Sample] = field(default_factory=dict)
    spooled: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    """Stream and sequence number of each sample that was given to a spool."""
    excused: set[int] = field(default_factory=set)
    """Samples that may be lost without a count: in an unfinished batch at a kill, or not synced."""
    dropped: int = 0
    """Samples that ended agents counted as dropped, or as sent and not acknowledged."""
    open: deque[int] = field(default_factory=deque)
    """Samples of the running agent that no batch has yet."""


@dataclass(slots=True)
class Event:
    """A line of the history."""

    seconds: float
    source: str
    text: str


@dataclass(slots=True)
class PublishedAlarm:
    """An alarm's event when it was published. `durable`: whether it was. `latest`: whether its window was
    still the latest one of the group an interval later, so that every reader saw it.
    """

    event: AlarmEvent
    durable: bool
    seconds: float
    latest: bool = True


class Record:
    """What happened so far. `problems`: broken invariants found while it ran."""

    def __init__(self, interval_ns: int, slow: Slow, disks: int, jobs: Sequence[PlannedJob] = ()) -> None:
        self.interval_ns = interval_ns
        self.jobs = jobs
        self.slow = slow
        self.disks = disks
        self.nodes: dict[str, NodeRecord] = {}
        self.history: list[Event] = []
        self.problems: list[str] = []
        self.muted = False
        """Whether collectors find nothing any more."""
        self.log: list[LogEntry] = []
        """Inputs of the aggregator's machine: those of the snapshot of the last start, and since then."""
        self.judged: dict[int, tuple[Judgement, ...]] = {}
        """Published judgements by the lsn of their close."""
        self.alarms: list[PublishedAlarm] = []
        self.positions: dict[int, int] = {}
        """By number of a snapshot, the length of `log` that it covers."""
        self.durable_lsn = 0
        self.damaged = False
        """Whether the state was damaged on purpose, so that parts of it may be lost, counted."""
        self.counted_lost = 0
        self.dropped_by_archive = 0
        self.damaged_rows: set[tuple[str, int]] = set()
        """Node and serial number of samples in files of the archive that were damaged on purpose."""
        self.mails = SimulatedMailServer()
        self.counts: Counter[str] = Counter()
        """Of rollups, jobs and mails."""
        self.sacct_fails = False
        self.kills: list[float] = []
        """Times at which the aggregator was killed."""
        self.restarts = 0
        self.without_snapshot = False
        """Whether a restart had no snapshot: batches that were not acknowledged may be archived twice."""
        self._captured_at = 0

    def note(self, text: str, source: str = "") -> None:
        """Adds a line to the history."""
        self.history.append(Event(asyncio.get_running_loop().time(), source or current().name, text))

    def alarm(self, event: AlarmEvent, *, durable: bool) -> None:
        """An alarm was raised or cleared; `durable` as in `alarms`."""
        self.alarms.append(PublishedAlarm(event, durable, asyncio.get_running_loop().time()))
        self.note(f"alarm {event.kind}: {event.alarm.component} at {event.at - 1.8e9:.0f} s")

    def closed(self, close: WindowClose) -> None:
        """A window was judged and published."""
        soon = asyncio.get_running_loop().time() - self.interval_ns / 1e9
        for alarm in self.alarms:
            if alarm.event.alarm.group == close.group and alarm.event.at < close.end and alarm.seconds > soon:
                alarm.latest = False

    def problem(self, text: str) -> None:
        """Notes a broken invariant."""
        self.problems.append(text)
        self.note(f"BROKEN: {text}", "check")

    # -- agents

    def collector(self, process: Process) -> "SimulatedCollector":
        """The collector of the agent `process`."""
        node = self.nodes.setdefault(process.host.name, NodeRecord())
        node.open.clear()
        return SimulatedCollector(self, node, process)

    # -- the aggregator's state

    def captured(self, capture: Callable[..., Any], *arguments: Any) -> Any:
        """A copy of the machine's state is made."""
        self._captured_at = len(self.log)
        return capture(*arguments)

    def snapshot_written(self, write: Callable[..., int], directory: Path, number: int, sections: Any) -> int:
        """That copy is written as a snapshot."""
        self.positions[number] = self._captured_at
        return write(directory, number, sections)

    def restarted(
        self, number: int, entries: list[LogEntry], judged: Mapping[int, Sequence[Judgement]]
    ) -> None:
        """An aggregator starts with a snapshot and the entries of the journal behind it.

        `judged`: judgements of that replay by the lsn of their close. It publishes those that the process
        before it made durable and had no time to publish.
        """
        published = set(self.judged)
        self.restarts += 1
        self.without_snapshot |= self.restarts > 1 and not number
        before = self.log
        self.log = [*before[: self.positions.get(number, 0)], *entries]
        kept = {each.lsn for each in self.log if isinstance(each, BatchEntry | WindowClose)}
        lost = [
            each.lsn
            for each in before
            if isinstance(each, BatchEntry | WindowClose)
            and each.lsn <= self.durable_lsn
            and each.lsn not in kept
        ]
        if lost and not self.damaged:
            self.problem(f"state: durable entries are gone after a restart: {lost[:5]} of {self.durable_lsn}")
        kept = {each.lsn for each in self.log if isinstance(each, WindowClose)}
        if self.damaged:  # what was judged with a damaged entry is not repeated
            same = takewhile(lambda pair: pair[0] == pair[1], zip(before, self.log, strict=False))
            kept &= {each.lsn for each, _ in same if isinstance(each, WindowClose)}
        self.judged = {lsn: known for lsn, known in self.judged.items() if lsn in kept}
        for lsn in sorted(judged.keys() - published):
            self.judged[lsn] = tuple(judged[lsn])
            for judgement in judged[lsn]:
                for event in judgement.transitions:
                    self.alarm(event, durable=True)


class SimulatedCollector:
    """Disks whose counters are a function of the time; each reading has a serial number of its own."""

    name = SOURCE

    def __init__(self, record: Record, node: NodeRecord, process: Process) -> None:
        self._record = record
        self._node = node
        self._process = process
        self._components = tuple(Component(f"disk{at}", f"sd{'abcdefgh'[at]}") for at in range(record.disks))
        self._place = int(process.host.name.rpartition("-")[2]) * record.disks

    def read(self) -> Iterator[Reading]:
        """One reading."""
        if self._record.muted:
            return
        host, record = self._process.host, self._record
        interval = (host.wall_ns() - host.stepped_ns + record.interval_ns // 100) // record.interval_ns
        serial = len(self._node.samples) + 1
        rows = []
        for at, component in enumerate(self._components):
            ms = READS * HEALTHY_MS * interval + interval * (17 * (self._place + at) + 29) % 60
            ms += record.slow.extra_ms(f"{host.name}/{component.id}", interval)
            rows.append((READS * interval, READS * 128 * interval, ms, 0, 0, 0, 900 * interval, ms, serial))
        self._node.samples[serial] = Sample(tuple(rows), interval, self._process)
        self._node.open.append(serial)
        yield Reading(SOURCE, FIELDS, host.wall_ns(), self._components, rows)
        if record.jobs:
            moved = read_bytes(record.jobs, host.name, host.wall_ns() - host.stepped_ns)
            client = [(moved, moved >> 20)]
            yield Reading(CLIENT_SOURCE, CLIENT_FIELDS, host.wall_ns(), (FILE_SYSTEM,), client)


class RecordedSpool(Spool):
    """A spool that notes which samples it has."""

    def __init__(self, record: Record, settings: AgentSettings, *arguments: Any, **named: Any) -> None:
        self._node = record.nodes.setdefault(settings.node, NodeRecord())
        self._in_memory: set[int] = set()
        super().__init__(settings, *arguments, **named)
        current().on_death.append(self.abandon)

    def append(self, batch: EncodedBatch) -> SpooledBatch | None:
        """As that of a spool."""
        if batch.source != SOURCE:
            return super().append(batch)
        serials = [self._node.open.popleft() for _ in range(batch.n)]
        try:
            stored = super().append(batch)
        except Killed:
            self._node.excused.update(serials)
            raise
        if stored is not None:
            name = stored.envelope.stream, stored.envelope.seq
            self._node.spooled.update(dict.fromkeys(serials, name))
            if self.in_memory:
                self._in_memory.update(serials)
        return stored

    def abandon(self) -> None:
        """The process was killed: its files are closed, and so its lock is free."""
        self._node.excused.update(self._node.open, self._in_memory)
        self._node.dropped += self.queue.unconfirmed_samples + self.status()["dropped_samples"]
        for segment in self.queue:
            segment.close()
        if self._lock is not None:
            self._lock.close()

    def close(self) -> None:
        """As that of a spool."""
        self._node.dropped += self.queue.unconfirmed_samples + self.status()["dropped_samples"]
        self._node.excused.update(self._in_memory)
        current().on_death.remove(self.abandon)
        super().close()


class RecordedRecovery(Recovery):
    """A recovery whose machine's inputs are recorded."""

    def __init__(self, record: Record, *arguments: Any) -> None:
        self._record = record
        super().__init__(*arguments)
        current().on_death.append(self.abandon)

    def abandon(self) -> None:
        """The process was killed: its files are closed, and so its lock is free."""
        journal = getattr(self, "journal", None)
        if journal is not None:
            self._record.durable_lsn = max(self._record.durable_lsn, journal.durable_lsn)
        super().close()

    def close(self) -> None:
        """As that of a recovery."""
        if current().alive:
            current().on_death.remove(self.abandon)
            self.abandon()

    def replay(self, machine: Machine, *arguments: Any) -> Iterator[Result]:
        """As that of a recovery."""
        entries: list[LogEntry] = []
        judged: dict[int, list[Judgement]] = {}
        lsn = 0
        read = self._journal.entries

        def noted(number: int) -> Iterator[LogEntry]:
            for entry in read(number):
                entries.append(entry)
                yield entry

        self._journal.entries = noted  # type: ignore[method-assign]
        for result in super().replay(machine, *arguments):
            if isinstance(result, WindowClose):
                lsn = result.lsn
                judged[lsn] = []
            elif isinstance(result, Judgement):
                judged[lsn].append(result)
            yield result
        self._record.restarted(self._from_segment, entries, judged)

    async def start(self, machine: Machine, *arguments: Any, **named: Any) -> None:
        """As that of a recovery."""
        await super().start(machine, *arguments, **named)
        record, journal = self._record, self.journal

        def noted(entry: LogEntry) -> None:
            record.log.append(entry)
            journal.record(entry)

        machine.record(noted)


class RecordedResults(Results):
    """Results that are noted when they are published."""

    def __init__(
        self, record: Record, status: Status, archive: WriteQueue | None, sequence: LogSequence
    ) -> None:
        super().__init__(status, archive, sequence)
        object.__setattr__(self, "_record", record)

    def judged(self, close: WindowClose, judgements: tuple[Judgement, ...], window: Window | None) -> None:
        """As that of results."""
        super().judged(close, judgements, window)
        record: Record = self.__dict__["_record"]
        record.judged[close.lsn] = judgements
        record.closed(close)
        recovery: Any = self.status.recovery
        durable = recovery.journal.durable_lsn >= close.lsn
        if judgements and not durable and recovery.journal.whole and not current().host.disk.was_slow:
            record.problem(f"alarms: results of {close.group} are published before their close is durable")
        for judgement in judgements:
            for event in judgement.transitions:
                record.alarm(event, durable=durable)

    def cleared(self, events: list[AlarmEvent]) -> None:
        """As that of results."""
        super().cleared(events)
        for event in events:
            self.__dict__["_record"].alarm(event, durable=False)


class HistoryHandler(logging.Handler):
    """Log lines of the product become lines of the history, without the name of the temporary `folder`."""

    def __init__(self, record: Record, folder: Path) -> None:
        super().__init__(logging.INFO)
        self._record = record
        self._folder = f"{folder}/"

    def emit(self, record: logging.LogRecord) -> None:
        """Adds a line."""
        self._noted(f"{record.levelname.lower()}: {record.getMessage()}")
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self._noted(repr(error))
            if not isinstance(error, LaggardError | OSError):
                self._record.problem(f"start: unexpected {error!r}")

    def _noted(self, text: str) -> None:
        self._record.note(text.replace(self._folder, ""))
