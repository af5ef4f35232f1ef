"""What the agents see as /proc: recorded LUNs, one of them slow without end, at several times the speed."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from laggard_aggregator.demo.recording import SETTLE_SECONDS, Recording, Sample, read_recording
from laggard_aggregator.demo.replay import Replay
from laggard_aggregator.demo.site import SHIFT_SAMPLES
from laggard_common.clock import SystemClock

NODES = 6
_ONSET_SECONDS = 30.0  # of the fault, which are left out


def slow_without_end() -> Recording:
    """`NODES` LUNs of the recording, in the time in which one of them is slow; a replay repeats it."""
    whole = read_recording()
    luns = (*[lun for lun in whole.luns if lun != whole.faulty][: NODES - 1], whole.faulty)
    during = tuple(
        Sample(sample.time, {lun: sample.rows[lun] for lun in luns})
        for sample in whole.samples
        if whole.fault_start + _ONSET_SECONDS < sample.time < whole.fault_end
    )
    before = during[0].time - SETTLE_SECONDS - 1
    return replace(whole, luns=luns, samples=during, fault_start=before - 1, fault_end=before)


class Feed:
    """The recording in a folder for each LUN, for any number of sites at once."""

    def __init__(self, folder: Path, speed: int) -> None:
        self.recording = slow_without_end()
        self.tick_seconds = 1 / speed
        self._roots = {lun: folder / lun for lun in self.recording.luns}
        self._replay = Replay(self.recording, self._roots, speed, SystemClock(), SHIFT_SAMPLES)
        self._replay.prepare()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The replay in a thread of its own while the body runs."""
        loop, stop = asyncio.new_event_loop(), asyncio.Event()
        thread = threading.Thread(target=loop.run_until_complete, args=(self._replay.run(stop),))
        thread.start()
        try:
            yield
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()
            loop.close()

    def procfs(self, lun: str, root: Path) -> "Procfs":
        """One agent's /proc at `root` with what this LUN does."""
        return Procfs(root, self._roots[lun] / "diskstats")


class Procfs:
    """One agent's /proc, which can stall."""

    def __init__(self, root: Path, source: Path) -> None:
        self.root = root
        self._source = source
        self._file = root / "diskstats"
        root.mkdir(parents=True)
        self._file.symlink_to(source)

    def stall(self) -> None:
        """From now on a reading does not return."""
        pipe = self.root / ".stalled"
        os.mkfifo(pipe)
        pipe.replace(self._file)

    def go_on(self) -> None:
        """Ends `stall`: readings return, the one that waits with what there is now."""
        pipe, link = self.root / ".was-stalled", self.root / ".link"
        link.symlink_to(self._source)
        os.link(self._file, pipe)
        link.replace(self._file)
        with contextlib.suppress(OSError):  # nobody reads
            end = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            os.write(end, self._source.read_bytes())
            os.close(end)
        pipe.unlink()
