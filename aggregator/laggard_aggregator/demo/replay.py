"""Replays a recording at a higher speed: each LUN's rows become the /proc/diskstats of one agent.

One recorded second is one tick of the replay and one sampling interval of the agents. At ten times the speed
rates (I/Os per second) are ten times the recorded ones; ratios of counters, such as await, are unchanged.
Time with I/O in progress is that of as many independent loads at once: a second has no ten of them.
"""

import asyncio
import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.demo.recording import Recording, Sample
from laggard_common.clock import Clock
from laggard_common.daemon.service import is_set_within

_LEADING = 3  # major, minor, name
_IN_FLIGHT, _BUSY_MS = 8, 9
"""The only column after the name that is not a counter, and the time with I/O in progress
(Documentation/admin-guide/iostats.rst)."""


class Replay:
    """Writes a recording into procfs roots. `roots`: the folder that is the /proc of each LUN's agent; LUNs
    may share one.

    The replay starts at a multiple of `align_ticks` ticks of the wall clock: windows aligned to the same
    multiples hold the same recorded seconds in every run. After the end of the recording its recovered part
    repeats, so that the LUNs stay busy.
    """

    def __init__(
        self, recording: Recording, roots: Mapping[str, Path], speed: int, clock: Clock, align_ticks: int = 1
    ) -> None:
        self._recording = recording
        samples = itertools.chain(recording.samples, repeated(recording.recovered()))
        self._samples: Iterator[Sample] = compressed(samples, speed)
        self._luns = {root: [lun for lun in roots if roots[lun] == root] for root in set(roots.values())}
        self._clock = clock
        self._align_ticks = align_ticks
        self._next = next(self._samples)
        self.tick_ns = 1_000_000_000 // speed
        self.begun_ns: int | None = None
        self.recorded_seconds = 0.0
        """Position of the roots, in recorded seconds."""

    @property
    def over(self) -> bool:
        """True when the recording has been replayed to its end."""
        return self.recorded_seconds >= self._recording.seconds

    def recorded_at(self, time: float) -> float:
        """Recorded seconds at `time`, epoch seconds of this clock."""
        if self.begun_ns is None:
            raise RuntimeError("not begun")
        return (time * 1e9 - self.begun_ns) / self.tick_ns

    def prepare(self) -> None:
        """Creates the roots with the first sample in them."""
        for root in self._luns:
            root.mkdir(parents=True, exist_ok=True)
        self.place(self._next)

    def place(self, sample: Sample) -> None:
        """Writes `sample` into the roots; a reader sees a complete row, old or new."""
        for root, luns in self._luns.items():
            partial = root / ".diskstats"
            partial.write_bytes(b"".join(sample.rows[lun] for lun in luns))
            partial.replace(root / "diskstats")
        self.recorded_seconds = sample.time - self._recording.start

    async def run(self, stop: asyncio.Event) -> None:
        """Replays until `stop`.

        Rows change half a tick after the agents' reading times, which are whole ticks of the wall clock.
        Missed ticks are skipped; cumulative counters lose nothing.
        """
        align_ns = self._align_ticks * self.tick_ns
        now_ns = self._clock.wall_ns()
        self.begun_ns = now_ns - now_ns % align_ns + align_ns + self.tick_ns // 2
        while not stop.is_set():
            await self._sleep_until(self._due_ns(self._next), stop)
            now_ns, due = self._clock.wall_ns(), None
            while self._due_ns(self._next) <= now_ns:
                due, self._next = self._next, next(self._samples)
            if due is not None:
                await asyncio.to_thread(self.place, due)

    def _due_ns(self, sample: Sample) -> int:
        assert self.begun_ns is not None
        return self.begun_ns + round(sample.time - self._recording.start) * self.tick_ns

    async def _sleep_until(self, due_ns: int, stop: asyncio.Event) -> None:
        await is_set_within(stop, max((due_ns - self._clock.wall_ns()) / 1e9, 0.0))


def compressed(samples: Iterable[Sample], speed: int) -> Iterator[Sample]:
    """Yields `samples` with the busy time that they have when replayed `speed` times as fast.

    A device that is busy for a share u of the time is idle for (1 - u) ** n of it under n such loads.
    """
    if speed == 1:
        yield from samples
        return
    before: Sample | None = None
    known: dict[str, NDArray[np.object_]] = {}
    busy: dict[str, float] = {}
    for sample in samples:
        counters = lun_counters(sample)
        for lun, own in counters.items():
            if before is None or lun not in known:
                busy[lun] = float(own[_BUSY_MS])
                continue
            span_ms = 1000.0 * (sample.time - before.time)
            share = min(max((own[_BUSY_MS] - known[lun][_BUSY_MS]) / span_ms, 0.0), 1.0)
            busy[lun] += span_ms / speed * (1.0 - (1.0 - share) ** speed)
        before, known = sample, {lun: own.copy() for lun, own in counters.items()}
        rows = {}
        for lun, own in counters.items():
            own[_BUSY_MS] = round(busy[lun])
            rows[lun] = _row(sample.rows[lun].split()[:_LEADING], own)
        yield Sample(sample.time, rows)


def repeated(samples: tuple[Sample, ...]) -> Iterator[Sample]:
    """Yields endless samples that continue from the last of `samples` (two or more) at the same rates."""
    first, *others = [lun_counters(sample) for sample in samples]
    names = {lun: row.split()[:_LEADING] for lun, row in samples[0].rows.items()}
    rises = {lun: np.subtract(others[-1][lun], first[lun]) for lun in names}
    for rise in rises.values():
        rise[_IN_FLIGHT] = 0
    span = samples[-1].time - samples[0].time
    for turn in itertools.count(1):
        for sample, counters in zip(samples[1:], others, strict=True):
            rows = {lun: _row(names[lun], counters[lun] + turn * rises[lun]) for lun in names}
            yield Sample(sample.time + turn * span, rows)


def lun_counters(sample: Sample) -> dict[str, NDArray[np.object_]]:
    """Of each LUN, the columns after the name, of any size."""
    return {lun: np.array([*map(int, row.split()[_LEADING:])], object) for lun, row in sample.rows.items()}


def _row(leading: list[bytes], counters: NDArray[np.object_]) -> bytes:
    return b"%4s %7s %s %s\n" % (*leading, b" ".join(b"%d" % value for value in counters.tolist()))
