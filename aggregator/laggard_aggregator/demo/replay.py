"""Replaying a recording at speed: each LUN's rows become the /proc/diskstats of an agent of its own.

One recorded second is one tick of the replay and one sampling interval of the agents. At ten times the speed
a rate (I/Os a second) therefore reads ten times what was recorded; a ratio of two counters, such as await, is
what it was.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from laggard_aggregator.demo.recording import Recording, Sample
from laggard_common.clock import Clock

SPEEDS = (1, 2, 5, 10, 20)
"""Recorded seconds a second; each makes a tick a whole number of milliseconds, 50 ms or more."""


class Replay:
    """Writes a recording into procfs roots. `roots`: the folder that is the /proc of each LUN's agent."""

    def __init__(self, recording: Recording, roots: Mapping[str, Path], speed: int, clock: Clock) -> None:
        self._samples = recording.samples
        self._roots = roots
        self._clock = clock
        self._first = recording.start
        self._seconds = [round(sample.time - self._first) for sample in recording.samples]
        self.tick_ns = 1_000_000_000 // speed
        self.begun_ns: int | None = None
        self.position = 0

    @property
    def recorded_seconds(self) -> float:
        """How far into the recording the roots are."""
        return self._samples[self.position].time - self._first

    def recorded_at(self, time: float) -> float:
        """Seconds into the recording that were being replayed at `time`, epoch seconds of this clock."""
        if self.begun_ns is None:
            raise RuntimeError("not begun")
        return (time * 1e9 - self.begun_ns) / self.tick_ns

    def prepare(self) -> None:
        """Makes the roots, and puts the first sample there for the agents to find."""
        for root in self._roots.values():
            root.mkdir(parents=True, exist_ok=True)
        self.place(self._samples[0])

    def place(self, sample: Sample) -> None:
        """Puts `sample` into the roots; a reader sees a whole row, the old one or the new one."""
        for lun, root in self._roots.items():
            partial = root / ".diskstats"
            partial.write_bytes(sample.rows[lun])
            partial.replace(root / "diskstats")

    async def run(self, stop: asyncio.Event) -> None:
        """Replays to the end or until `stop`.

        Rows change half a tick after the agents' reading times, whole ticks of the wall clock. A tick
        that was missed is skipped, as counters lose nothing by it.
        """
        now = self._clock.wall_ns()
        self.begun_ns = now - now % self.tick_ns + self.tick_ns + self.tick_ns // 2
        while self.position < len(self._samples) - 1 and not stop.is_set():
            due_ns = self.begun_ns + self._seconds[self.position + 1] * self.tick_ns
            await self._sleep_until(due_ns, stop)
            self._advance()
            await asyncio.to_thread(self.place, self._samples[self.position])

    def _advance(self) -> None:
        """Moves to the newest sample that is due."""
        assert self.begun_ns is not None
        second = (self._clock.wall_ns() - self.begun_ns) // self.tick_ns
        while self.position < len(self._samples) - 1 and self._seconds[self.position + 1] <= second:
            self.position += 1

    async def _sleep_until(self, due_ns: int, stop: asyncio.Event) -> None:
        seconds = (due_ns - self._clock.wall_ns()) / 1e9
        if seconds > 0:
            try:
                await asyncio.wait_for(stop.wait(), seconds)
            except TimeoutError:
                return
