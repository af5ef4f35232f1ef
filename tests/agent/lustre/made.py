"""What the tests of the `lustre` collector share."""

import shutil
from pathlib import Path
from typing import Any

from laggard_agent.collectors.base import Reading
from laggard_agent.collectors.lustre.collector import LustreCollector
from laggard_agent.collectors.lustre.locate import Parameters, Trees
from laggard_common.errors import CollectError
from tests.agent.made import FakeClock

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "lustre"


def trees(root: Path) -> Trees:
    """The trees below `root`, laid out as on a host."""
    return Trees(root / "proc", root / "sys", root / "sys/kernel/debug")


def copied(name: str, folder: Path) -> Path:
    """A fixture that may be changed."""
    return Path(shutil.copytree(FIXTURES / name, folder / name))


class Watched:
    """A collector with a clock, and what its samples said."""

    def __init__(self, parameters: Parameters, **options: Any) -> None:
        self.clock = FakeClock()
        self.collector = LustreCollector(parameters, self.clock.wall_ns, self.clock.monotonic_ns, **options)
        self.readings: dict[str, Reading] = {}
        self.error = ""

    def sample(self, seconds: float = 1.0) -> "Watched":
        """Takes a sample, so many seconds after the one before."""
        self.clock.sleep(seconds)
        self.readings = {}
        self.error = ""
        try:
            for reading in self.collector.read():
                assert reading.source not in self.readings
                assert all(len(row) == len(reading.fields) for row in reading.rows)
                assert len({c.id for c in reading.components}) == len(reading.components) == len(reading.rows)
                assert len({f.name for f in reading.fields}) == len(reading.fields) > 0
                self.readings[reading.source] = reading
        except CollectError as exc:
            self.error = str(exc)
        return self

    def row(self, source: str, component: str) -> dict[str, int | float | None]:
        """A row by the names of its fields."""
        reading = self.readings[source]
        place = [c.id for c in reading.components].index(component)
        return {f.name: v for f, v in zip(reading.fields, reading.rows[place], strict=True)}

    def ids(self, source: str) -> list[str]:
        """The components of a source; none when it was not read."""
        return [c.id for c in self.readings[source].components] if source in self.readings else []

    def node(self, field: str) -> int | float | None:
        """A value of the node's own row."""
        return self.row("lustre", "lustre")[field]
