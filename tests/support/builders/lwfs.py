"""What the tests of the `lwfs` collector share."""

from pathlib import Path

from laggard_agent.collectors.lwfs.collector import Lwfs, LwfsSettings
from tests.support.sampled import Sampled, surroundings

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "lwfs"


def queue(length: int) -> str:
    """A line of a server's own log."""
    return f"[2018-02-25 18:00:12] N [sw-threads.c:97:record_log] [Trace]: queue length: {length}\n"


def meta(first: int) -> str:
    """A line of buckets, of which the first is told."""
    return f"[2018-02-25 18:00:12] N [sw-threads.c:85:record_log] [Trace]: Meta exe: {first} 0 0 0 0 0 0 0\n"


class Log:
    """A log that a collector follows."""

    def __init__(self, path: Path, text: str | None = "") -> None:
        self.path = path
        if text is not None:
            path.write_text(text)
        settings = LwfsSettings(path)
        self.sampled = Sampled(lambda now, monotonic_ns: Lwfs(settings, surroundings(now, monotonic_ns)))

    def append(self, text: str | bytes) -> "Log":
        """Writes more."""
        with self.path.open("ab") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return self

    def sample(self, seconds: float = 1.0) -> "Log":
        """Takes a sample that does not fail."""
        assert self.sampled.sample(seconds).error == ""
        return self

    def row(self, server: str = "lwfs") -> dict[str, int | float | None]:
        """The row of a server."""
        return self.sampled.row("lwfs", server)

    def queue(self) -> tuple[int | float | None, int | float | None]:
        """How many lines told a queue length, and their sum."""
        return self.row()["queue_samples"], self.row()["queue_length_sum"]

    def count(self, field: str) -> int | float | None:
        """A value of the log's own row."""
        return self.sampled.row("lwfs_log", "lwfs_log")[field]
