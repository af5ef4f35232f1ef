"""Errors put into the product's code, one at a time: the simulation must find each.

Each names the invariant that it breaks and the faults that show it. Nothing of this runs in a simulation
without `--mutation`.
"""

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pyarrow.parquet as pq

from bench.simulation.processes import is_simulated
from laggard_agent.spool import backlog
from laggard_agent.spool.recovery import Recovered
from laggard_agent.spool.segment_queue import SegmentQueue
from laggard_agent.spool.segments import SpoolSegment
from laggard_agent.transport.redelivery import Redelivery
from laggard_aggregator.alarms.alarms import AlarmBook, AlarmEvent, Persistence
from laggard_aggregator.alarms.judge import Judge, Judgement
from laggard_aggregator.archive import layout
from laggard_aggregator.archive.write_queue import WriteQueue
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.detect.interface import IntArray
from laggard_aggregator.engine.recovery import Recovery
from laggard_aggregator.engine.routes import Route
from laggard_aggregator.ingest.admission import Admission
from laggard_aggregator.ingest.dedup_state import SeqRanges
from laggard_aggregator.ingest.mqtt.subscriber import Subscriber
from laggard_aggregator.jobs.join.join_pass import JoinPass
from laggard_aggregator.jobs.rollups.rollup_pass import RollupPass
from laggard_aggregator.log.entries import LogEntry, WindowClose
from laggard_aggregator.log.journal import GroupCommit, Journal
from laggard_aggregator.notify.outbox import Outbox
from laggard_aggregator.runtime.loops import IngestLoop
from laggard_aggregator.windows.schedule import WindowClock
from laggard_common import segment_log


@dataclass(frozen=True, slots=True)
class Mutation:
    """`breaks`: the invariants of `check`, any of which may find it. `shown_by`: kinds of faults."""

    breaks: tuple[str, ...]
    shown_by: frozenset[str]
    applied: Callable[[], AbstractContextManager[Any]]
    small_spool: bool = False
    harmless: bool = False
    """Only plans whose verdicts are compared with those of an undisturbed run show it."""
    whole: bool = False
    """Only sites with jobs, rollups and mails show it."""


_EVERY: frozenset[str] = frozenset()
"""Plans need no certain fault."""
_RESTARTS = frozenset({"aggregator killed", "aggregator restarted", "aggregator lost power"})


def _replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Callable[[], AbstractContextManager[Any]]:
    """A patch of `owner.name` by what `make` makes of the true one."""
    return lambda: mock.patch.object(owner, name, make(getattr(owner, name)))


def _accepted_again(add: Any) -> Any:
    def always(self: SeqRanges, seq: int, now_ns: int = 0) -> bool:
        add(self, seq, now_ns)
        return True

    return always


def _coalesced_accepted_again(add_all: Any) -> Any:
    def added(self: SeqRanges, seqs: range, now_ns: int = 0) -> list[bool]:
        is_new: list[bool] = add_all(self, seqs, now_ns)
        return is_new if len(seqs) == 1 else [True] * len(seqs)

    return added


def _newest_accepted_again(add: Any) -> Any:
    def added(self: SeqRanges, seq: int, now_ns: int = 0) -> bool:
        newest = self.as_tuples()[-1][1] if len(self) else -1
        return bool(add(self, seq, now_ns)) or seq == newest

    return added


def _across_gaps(_: Any) -> Any:
    def continues(parts: Any, envelope: Any, rows: Any) -> bool:
        last, like = parts[-1][0].envelope, parts[-1][1]
        same = (rows.indexes, rows.absent, rows.fields) == (like.indexes, like.absent, like.fields)
        return same and envelope.dt_ns == last.dt_ns

    return continues


def _late_by_first_tick(late: Any) -> Any:
    """The check's own machine stays right."""

    def found(self: Route, counters: Any) -> int:
        if not is_simulated() or self.varies or counters.present is not None:
            return int(late(self, counters))
        rows: IntArray = self.rows[counters.indexes]
        is_late = counters.tick_ns[0] <= self.store.watermark_ns
        return counters.tick_ns.size * int((rows >= 0).sum()) if is_late else 0

    return found


class _WithoutSync:
    """The module `os`, whose `fsync` does nothing."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, _fd: int) -> None:
        """Nothing."""


def _without_hours(load: Any) -> Any:
    def loaded(self: RollupPass) -> Any:
        progress = load(self)
        for table in progress.values():
            table.dirty.clear()
        return progress

    return loaded


def _without_jobs(load: Any) -> Any:
    def loaded(self: JoinPass) -> Any:
        waiting = load(self)
        waiting.jobs.clear()
        return waiting

    return loaded


def _counted_as_lost(skip_to: Any) -> Any:
    def skipped(self: Recovery, *arguments: Any) -> None:
        skip_to(self, *arguments)
        self._count_lost(1)

    return skipped


def _durable_at_once(record: Any) -> Any:
    def recorded(self: GroupCommit, entry: LogEntry) -> None:
        record(self, entry)
        self._durable(entry.lsn)

    return recorded


def _dropped_without_count(drop: Any) -> Any:
    def dropped(self: SegmentQueue, segment: SpoolSegment, newest_ns: int) -> None:
        before = self.dropped_samples
        drop(self, segment, newest_ns)
        self.dropped_samples = before

    return dropped


def _without_last(entries: Any) -> Any:
    def cut(self: Journal, number: int) -> Iterator[LogEntry]:
        return iter(list(entries(self, number))[:-2])

    return cut


def _without_sources(restore: Any) -> Any:
    def restored(self: Admission, state: Any) -> None:
        restore(self, {key: value for key, value in state.items() if key != "sources"})

    return restored


def _not_waiting(_: Any) -> Any:
    async def at_once(self: Any, *_: Any) -> None:
        del self

    return at_once


def _without_closes(record: Any) -> Any:
    def recorded(self: GroupCommit, entry: LogEntry) -> None:
        if not isinstance(entry, WindowClose):
            record(self, entry)

    return recorded


def _nothing(_: Any) -> Any:
    return lambda *_, **__: None


def _always(value: Any) -> Callable[[Any], Any]:
    return lambda _: lambda *_, **__: value


def _unchecked(_: Any) -> Any:
    def read(header: bytes, read: Callable[[int], bytes], at: int) -> segment_log.Record | None:
        length, _, type_ = struct.unpack("<IIB", header)
        if not type_ or length > segment_log.MAX_RECORD_BYTES:
            return None
        payload = read(length)
        if len(payload) < length:
            return None
        return segment_log.Record(type_, payload, at, at + segment_log.HEADER.size + length)

    return read


def _always_continued(_: Any) -> Any:
    return lambda self, *_: self.header.streams if self.header is not None else ()


def _not_archived(_: Any) -> Any:
    async def at_once(*_: Any) -> bool:
        return True

    return at_once


def _not_lost(_: Any) -> Any:
    async def none(self: Redelivery, now: float) -> list[Any]:
        self.due = now + 600.0
        return []

    return none


def _raising_open(_: Any) -> Any:
    return lambda self: self._open()


def _cleared_by_absence(transitions: Any) -> Any:
    def found(self: Judge, judged: Judgement, *rest: Any, **options: Any) -> tuple[AlarmEvent, ...]:
        absent = [key for key in self.alarms.standing if key[1] not in judged.components]
        cleared = [self.alarms.clear(key, judged.end) for key in absent]
        events = transitions(self, judged, *rest, **options)
        return (*events, *(event for event in cleared if event is not None))

    return found


def _wall_of_host(_: Any) -> Any:
    return lambda self: self._host_wall_ns()


@contextmanager
def _unchecked_file(part: layout.Part) -> Iterator[pq.ParquetFile]:
    with layout.reading(part), pq.ParquetFile(part.path) as file:
        yield file


MUTATIONS: dict[str, Mutation] = {
    "duplicates are accepted": Mutation(
        ("twice",), frozenset({"doubled"}), _replaced(SeqRanges, "add", _accepted_again)
    ),
    "coalesced duplicates are accepted": Mutation(
        ("twice",),
        frozenset({"doubled", "unconfirmed", "lost"}),
        _replaced(SeqRanges, "add_all", _coalesced_accepted_again),
    ),
    "the newest batch of a stream is accepted again": Mutation(
        ("twice",), frozenset({"doubled"}), _replaced(SeqRanges, "add", _newest_accepted_again)
    ),
    "batches are coalesced across gaps": Mutation(
        ("twice", "lost", "values", "delivery"),
        frozenset({"lost", "connection cut", "broker crashed"}),
        _replaced(backlog, "_continues", _across_gaps),
    ),
    "a batch is late if its first sample is": Mutation(
        ("verdicts",), _RESTARTS, _replaced(Route, "late", _late_by_first_tick)
    ),
    "files of the archive are not synced": Mutation(
        ("lost", "state", "start", "twice"),
        frozenset({"aggregator lost power"}),
        lambda: mock.patch.object(layout, "os", _WithoutSync()),
    ),
    "rollups forget the hours that wait": Mutation(
        ("rollups",), _EVERY, _replaced(RollupPass, "_load", _without_hours), whole=True
    ),
    "joins forget the jobs that wait": Mutation(
        ("jobs",), _EVERY, _replaced(JoinPass, "_load", _without_jobs), whole=True
    ),
    "sent mails are not noted": Mutation(
        ("mails",), _EVERY, _replaced(Outbox, "set_outcome", _nothing), whole=True
    ),
    "batches are acknowledged before the journal has them": Mutation(
        ("lost", "verdicts"),
        frozenset({"aggregator lost power", "aggregator killed"}),
        _replaced(GroupCommit, "record", _durable_at_once),
    ),
    "the journal is not synced": Mutation(
        ("state", "lost"),
        frozenset({"aggregator lost power"}),
        _replaced(segment_log.SegmentWriter, "sync", _nothing),
    ),
    "a full spool drops batches without a count": Mutation(
        ("lost",),
        frozenset({"broker down", "connection cut"}),
        _replaced(SegmentQueue, "_drop", _dropped_without_count),
        small_spool=True,
    ),
    "damaged batches of a spool are not counted": Mutation(
        ("lost",),
        frozenset({"bit of the spool flipped"}),
        lambda: mock.patch.object(Recovered, "lost_batches", 0),
    ),
    "streams go on after a power loss": Mutation(
        ("lost", "twice", "delivery"),
        frozenset({"node lost power"}),
        _replaced(Recovered, "streams_to_continue", _always_continued),
    ),
    "a restart leaves out the end of the journal": Mutation(
        ("state",), _RESTARTS, _replaced(Journal, "entries", _without_last)
    ),
    "a restart forgets which batches it has": Mutation(
        ("twice", "verdicts", "lost", "delivery"),
        _RESTARTS,
        _replaced(Admission, "restore", _without_sources),
    ),
    "a restart counts losses that are none": Mutation(
        ("lost",), _RESTARTS, _replaced(Recovery, "skip_to", _counted_as_lost)
    ),
    "a restart archives again": Mutation(
        ("twice",), _RESTARTS, _replaced(ArchiveWriter, "_is_new", _always(True))
    ),
    "a snapshot does not wait for the archive": Mutation(
        ("lost",),
        frozenset({"archive's disk full", "aggregator killed", "aggregator lost power"}),
        _replaced(Recovery, "_is_archived", _not_archived),
    ),
    "an unusable archive ends the start": Mutation(
        ("start",), frozenset({"archive's disk full"}), _replaced(WriteQueue, "open", _raising_open)
    ),
    "a restart forgets alarms": Mutation(
        ("alarms", "verdicts"), _RESTARTS, _replaced(AlarmBook, "restore", _nothing)
    ),
    "a restart forgets persistence": Mutation(
        ("verdicts", "alarms"), _RESTARTS, _replaced(Persistence, "restore", _nothing)
    ),
    "results are published before their close is durable": Mutation(
        ("alarms",),
        frozenset({"aggregator lost power", "aggregator killed"}),
        _replaced(GroupCommit, "wait_durable", _not_waiting),
    ),
    "an alarm is cleared while its component is silent": Mutation(
        ("alarms",),
        frozenset({"agent killed", "node lost power", "connection cut", "broker silent"}),
        _replaced(Judge, "_transitions", _cleared_by_absence),
    ),
    "window closes are not journaled": Mutation(
        ("state", "verdicts"), _RESTARTS, _replaced(GroupCommit, "record", _without_closes)
    ),
    "windows do not wait for the broker's messages after a restart": Mutation(
        ("verdicts",), _RESTARTS, _replaced(IngestLoop, "caught_up", _not_waiting), harmless=True
    ),
    "windows follow the host's clock": Mutation(
        ("verdicts", "alarms"),
        frozenset({"aggregator's clock set"}),
        _replaced(WindowClock, "wall_ns", _wall_of_host),
        harmless=True,
    ),
    "checksums of records are not checked": Mutation(
        ("values", "verdicts", "start", "lost", "delivery", "alarms"),
        frozenset({"bit of the state flipped", "bit of the spool flipped"}),
        _replaced(segment_log, "_checked", _unchecked),
    ),
    "checksums of the archive are not checked": Mutation(
        ("values",),
        frozenset({"bit of the archive flipped"}),
        _replaced(layout, "checked_file", lambda _: _unchecked_file),
    ),
    "lost batches are never sent again": Mutation(
        ("delivery",), frozenset({"lost", "broker crashed"}), _replaced(Redelivery, "find", _not_lost)
    ),
    "messages are never confirmed to the broker": Mutation(
        ("memory",), frozenset({"lost", "doubled"}), _replaced(Subscriber, "done", _nothing)
    ),
}
