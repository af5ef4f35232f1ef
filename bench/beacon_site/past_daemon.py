"""The aggregator in the site's time: `python -m bench.beacon_site.past_daemon CLOCK CONFIG`.

CLOCK is a file of 8 bytes, nanoseconds since the epoch (little-endian, signed), that both of its clocks show;
whoever feeds it moves them on. The passes over the archive look for work as much more often as that time
passes faster, and each adds a byte to CLOCK.passes once it has ended. Apart from that it is the daemon that
`laggard-aggregator` runs.
"""

import mmap
import struct
import sys
from pathlib import Path
from typing import ClassVar

from laggard_aggregator import app
from laggard_aggregator.cli import daemon
from laggard_aggregator.jobs import background

PASS_SECONDS = 3.0
_TIME = struct.Struct("<q")


class FileClock:
    """Both clocks show the time in the file at `path`."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._time = mmap.mmap(file.fileno(), _TIME.size, prot=mmap.PROT_READ)

    def wall_ns(self) -> int:
        """Nanoseconds since the epoch."""
        return int(_TIME.unpack_from(self._time)[0])

    monotonic_ns = wall_ns


class CountedTask(background.BackgroundTask):
    """The passes over the archive, each with its byte in the file `ended`."""

    ended: ClassVar[Path]

    def attempt(self) -> bool:
        """One pass of each kind; whether all succeeded."""
        succeeded = super().attempt()
        with self.ended.open("ab") as file:
            file.write(b".")
        return succeeded


def passes_file(clock: Path) -> Path:
    """The file that has a byte for each pass that has ended."""
    return clock.with_name(f"{clock.name}.passes")


def set_time(path: Path, time_ns: int) -> None:
    """Sets the clocks of the daemon that reads `path`, made if need be."""
    path.touch()
    with path.open("r+b", buffering=0) as file:
        file.write(_TIME.pack(time_ns))


if __name__ == "__main__":
    _clock = FileClock(Path(sys.argv[1]))
    setattr(app, "SystemClock", lambda: _clock)  # noqa: B010 - replaced in this process alone
    setattr(background, "PASS_SECONDS", PASS_SECONDS)  # noqa: B010
    CountedTask.ended = passes_file(Path(sys.argv[1]))
    setattr(app, "BackgroundTask", CountedTask)  # noqa: B010
    sys.exit(daemon.main(["--config", sys.argv[2]]))
