"""A collector that is sampled by hand, with what its samples said."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar

from laggard_agent.collectors.interface import Context, Now, Reading, Roots
from laggard_common.errors import CollectError
from laggard_common.wire.codec import RAW, Encoder
from tests.support.clock import FakeClock


class Reads(Protocol):
    """What is sampled."""

    def read(self) -> Iterator[Reading]:
        """The readings of one sample."""
        ...


C = TypeVar("C", bound=Reads)


def surroundings(
    now: Now = lambda: 0, monotonic_ns: Callable[[], int] = lambda: 0, **roots: Path | None
) -> Context:
    """What surrounds a collector: two clocks, and the trees it reads, if not this host's."""
    return Context(Roots(**roots), now, monotonic_ns)  # type: ignore[arg-type]


class Sampled(Generic[C]):
    """Every sample is held to what later stages expect of a reading, and can be encoded."""

    def __init__(self, make: Callable[[Now, Callable[[], int]], C]) -> None:
        self.clock = FakeClock()
        self.collector = make(self.clock.wall_ns, self.clock.monotonic_ns)
        self.readings: dict[str, Reading] = {}
        self.error = ""

    def sample(self, seconds: float = 1.0) -> Self:
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
                assert Encoder(RAW).encode(range(len(reading.rows)), [list(reading.rows)], [0])
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
