"""What the agents see as /proc: recorded LUNs, one of them slow without end."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.chaos import player
from bench.chaos.processes import Process


class Feed:
    """The recording in a folder for each LUN, for any number of sites at once."""

    def __init__(self, folder: Path, speed: int) -> None:
        self.recording = player.slow_without_end()
        self.tick_seconds = 1 / speed
        self._roots = {lun: folder / lun for lun in self.recording.luns}
        player.replay(self.recording, self._roots, speed).prepare()
        command = (sys.executable, "-P", player.__file__, str(folder), str(speed))
        self._process = Process("feed", command, folder / "feed.log")

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The replay while the body runs."""
        self._process.start()
        try:
            yield
        finally:
            self._process.kill()

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
