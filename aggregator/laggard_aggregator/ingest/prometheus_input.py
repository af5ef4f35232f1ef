"""Polls the servers of a `[[prometheus]]` and admits their scrapes as batches of agents are admitted."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from laggard_aggregator.ingest.admission import SCRAPED, Admission
from laggard_aggregator.ingest.batches import Message
from laggard_aggregator.metrics.registry import SOURCES
from laggard_aggregator.prometheus.batches import BatchMaker, KnownStream
from laggard_aggregator.prometheus.compare_map import MappedSource
from laggard_aggregator.prometheus.scrapes import ScrapedReading, ScrapeReader
from laggard_aggregator.settings.prometheus import PrometheusTable
from laggard_common.clock import Clock
from laggard_common.daemon.service import is_set_within
from laggard_common.errors import LaggardError, ServiceError, TooMuchAskedError

_log = logging.getLogger(__name__)

MOST_SETTLE_SECONDS = 5.0
"""A scrape may be stored late by a third of its interval, but no more than this."""
MOST_INTERVALS = 240
MOST_SAMPLES = 200_000
"""Limits of one question."""

Admit = Callable[[list[Message]], Awaitable[bool]]
"""Admits messages; whether all of them were accepted."""


@dataclass(slots=True)
class ScrapeView:
    """State of an input, and totals since the start. Times are epoch seconds.

    `failure`: the reason why polls fail now, empty if they succeed. `newest`: end of the newest scrape
    interval that was read, NaN before the first. `lost_seconds`: time that was not read, as it was older than
    the backlog. `left_out`: readings that could not be used; `ambiguous`: series besides the chosen ones.
    """

    failure: str = ""
    polled: bool = False
    newest: float = math.nan
    polls: int = 0
    failures: int = 0
    readings: int = 0
    lost_seconds: float = 0.0
    left_out: int = 0
    series: int = 0
    ambiguous: int = 0


class PrometheusInput:
    """Polls until cancelled. `admission`: the machine's; `admit` puts messages into the machine.

    A scrape interval is read once it is over; the one before it is read again, for scrapes that were stored
    late. After an outage, of the server or of this process, the intervals since the newest accepted one are
    read, as far as `backlog_seconds` reaches.
    """

    def __init__(self, settings: PrometheusTable, admission: Admission, clock: Clock, admit: Admit) -> None:
        self.view = ScrapeView()
        self._settings = settings
        self._interval = settings.scrape_seconds
        self._clock = clock
        self._admission = admission
        self._admit = admit
        named = (admission.site, settings.role, settings.name)
        self._sources = [
            (
                ScrapeReader(source, self._interval, settings.select),
                BatchMaker(*named, source, self._interval, SCRAPED),
            )
            for source in settings.sources
        ]
        self._done: dict[int, int] = {}  # by place in the sources, the newest interval that was read
        self._server = 0  # the one that answered last
        self._told_silence = False
        self._told_lost = 0.0

    @property
    def settle_seconds(self) -> float:
        """Time between the end of an interval and the poll."""
        return min(MOST_SETTLE_SECONDS, self._interval / 3)

    async def run(self, stop: asyncio.Event) -> None:
        """Polls after each scrape interval, until `stop`."""
        while not stop.is_set():
            await self.poll()
            now = self._clock.wall_ns() / 1e9 - self.settle_seconds
            left = (math.floor(now / self._interval) + 1) * self._interval - now
            if await is_set_within(stop, left):
                return

    async def poll(self) -> None:
        """Reads and admits all intervals that are over; a failure is in `view`, and in one WARNING."""
        view = self.view
        view.polls += 1
        failures: dict[str, None] = {}
        for at in range(len(self._sources)):
            try:
                await self._poll(at)
            except LaggardError as exc:
                failures[str(exc)] = None
        failure = "; ".join(failures)
        view.failures += bool(failure)
        if failure and not view.failure:
            _log.warning("prometheus %s: %s", self._settings.name, failure)
        elif view.failure and not failure:
            _log.info("prometheus %s answers again", self._settings.name)
        view.failure = failure
        if not failure:
            self._tell_lost()
            self._tell_silence()
        view.polled = True
        view.left_out = sum(r.counts.left_out + m.without_room for r, m in self._sources)
        view.series = sum(reader.counts.series for reader, _ in self._sources)
        view.ambiguous = sum(reader.counts.ambiguous for reader, _ in self._sources)

    async def _poll(self, at: int) -> None:
        reader, maker = self._sources[at]
        last = math.floor((self._clock.wall_ns() / 1e9 - self.settle_seconds) / self._interval)
        oldest = last - math.floor(self._settings.backlog_seconds / self._interval)
        first = self._first(at, oldest, last)
        most = MOST_INTERVALS
        while first <= last:
            room = MOST_SAMPLES // max(reader.counts.series, 1)
            until = min(last, first + max(min(room, most) - 2, 0))
            try:
                readings = await asyncio.to_thread(self._read, reader, max(first - 1, oldest), until)
            except TooMuchAskedError:
                if until == first:
                    raise
                most = (until - first + 1) // 2 + 1
                continue
            for interval in sorted(readings):
                if not await self._send(maker, interval, readings[interval]):
                    raise ServiceError("the archive is full: scrapes are read again later")
            self._done[at] = until
            self.view.newest = until * self._interval
            first = until + 1

    def _first(self, at: int, oldest: int, last: int) -> int:
        """The first interval to read, not before `oldest`. Counts those that are lost."""
        done = self._done.get(at)
        if done is None:
            _, maker = self._sources[at]
            done = self._admission.newest_seq(maker.source.name, maker.stream)
        if done is None:
            return last
        if done + 1 < oldest:
            self.view.lost_seconds += (oldest - done - 1) * self._interval
            done = self._done[at] = oldest - 1
        return min(done, last) + 1

    def _read(self, reader: ScrapeReader, first: int, last: int) -> dict[int, list[ScrapedReading]]:
        """The readings from the first server that answers, beginning with the one that did so before."""
        servers = self._settings.servers()
        failures: list[str] = []
        for turn in range(len(servers)):
            place = (self._server + turn) % len(servers)
            try:
                readings = reader.read(servers[place], first, last)
            except TooMuchAskedError:
                raise
            except ServiceError as exc:
                failures.append(str(exc))
            else:
                self._server = place
                return readings
        raise ServiceError("; ".join(failures))

    async def _send(self, maker: BatchMaker, interval: int, readings: Sequence[ScrapedReading]) -> bool:
        """Admits an interval; False where the archive had no room for all of it."""
        now_ns = self._clock.wall_ns()

        def known(node: str) -> KnownStream:
            stream = self._admission.stream_of(node, maker.source.name, maker.stream)
            if stream is None:
                return KnownStream()
            return KnownStream(stream.schema, interval in stream.received)

        messages = [(topic, payload, now_ns) for topic, payload in maker.messages(interval, readings, known)]
        self.view.readings += len(readings) if messages else 0
        return not messages or await self._admit(messages)

    def _tell_lost(self) -> None:
        """Logs what was lost in an outage, once it is over."""
        lost = self.view.lost_seconds - self._told_lost
        if lost:
            name, self._told_lost = self._settings.name, self.view.lost_seconds
            _log.warning(
                "prometheus %s: skipped %.0f s of data that are older than backlog_seconds", name, lost
            )

    def _tell_silence(self) -> None:
        """Logs once that the server has no series of a map, or lacks a counter that its comparison needs."""
        silent = [name for reader, maker in self._sources for name in _lacking(reader, maker.source)]
        if silent and not self._told_silence:
            _log.warning("prometheus %s: no series of %s", self._settings.name, ", ".join(silent))
        self._told_silence = bool(silent)


def _lacking(reader: ScrapeReader, source: MappedSource) -> Iterator[str]:
    """The first counter of a source without any series, else those that its comparison needs."""
    present = reader.counts.counters
    if not present:
        yield source.counters[0]
    elif source.name in SOURCES:
        metrics = SOURCES[source.name]
        needed, _ = metrics.counters(metrics.defaults)
        for mapped in source.fields:
            has_older = bool(mapped.older) and present.issuperset(mapped.older)
            if mapped.name in needed and not has_older:
                yield from (name for name in mapped.counters if name not in present)
