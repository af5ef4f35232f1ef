"""What the tests of the `infiniband` collector share."""

from pathlib import Path

from laggard_agent.collectors.infiniband.collector import Infiniband, InfinibandSettings
from tests.support.sampled import Sampled, surroundings

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "infiniband"
NODES = ("mlx5", "mlx4", "hfi1")


class Node:
    """A /sys with the devices of a fixture, and a collector that reads it."""

    def __init__(self, root: Path, fixture: str = "", **options: bool) -> None:
        self.folder = root / "class/infiniband"
        if fixture:
            for line in (FIXTURES / f"{fixture}.txt").read_text().splitlines():
                path, _, text = line.partition(":")
                self.write(path, f"{text}\n")
        settings = InfinibandSettings(**options)
        self.sampled = Sampled(
            lambda now, monotonic_ns: Infiniband(settings, surroundings(now, monotonic_ns, sysfs=root))
        )

    def write(self, path: str, text: str | bytes) -> "Node":
        """A file says something else."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return self

    def sample(self, seconds: float = 1.0) -> "Node":
        """Takes a sample that does not fail."""
        assert self.sampled.sample(seconds).error == ""
        return self

    def names(self) -> list[str]:
        """The ports by the names of the day."""
        readings = self.sampled.readings
        return (
            [c.name for c in readings["infiniband_port"].components] if "infiniband_port" in readings else []
        )

    def row(self, name: str) -> dict[str, int | float | None]:
        """The row of a port, by its name of the day."""
        (found,) = (c.id for c in self.sampled.readings["infiniband_port"].components if c.name == name)
        return self.sampled.row("infiniband_port", found)

    def node(self, field: str) -> int | float | None:
        """A value of the node's own row."""
        return self.sampled.row("infiniband", "infiniband")[field]
