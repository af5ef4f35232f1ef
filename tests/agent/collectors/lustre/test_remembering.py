"""What is remembered from sample to sample saves work and changes nothing."""

import re
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from laggard_agent.collectors.lustre.param_paths import Located
from laggard_agent.collectors.lustre.table_specs import SLOWER
from laggard_common.errors import CollectError
from tests.support.builders.lustre import FIXTURES, Watched

FILES = {
    f"{ost}/{file}": (FIXTURES / "server-2.15/proc/fs/lustre/obdfilter" / ost / file).read_bytes()
    for ost in ("scratch-OST0000", "scratch-OST0001")
    for file in ("stats", "job_stats")
}
LOOKED_FOR = 11  # seconds after which all devices were looked for again


class Held:
    """OSTs whose files are held in memory."""

    roots = "memory"

    def __init__(self, texts: dict[str, bytes]) -> None:
        self.texts = texts

    def locate(self, kinds: Sequence[str], files: Sequence[str]) -> Located:
        """As `Parameters`."""
        found: dict[str, dict[str, str]] = {}
        for place in self.texts if "obdfilter" in kinds else ():
            ost, file = place.split("/")
            if file in files:
                found.setdefault(ost, {})[file] = place
        return Located(found, (), partial=True)

    def find(self, file: str) -> str | None:
        """As `Parameters`."""
        return None

    def read(self, place: str) -> bytes:
        """As `Parameters`."""
        if place not in self.texts:
            raise CollectError(place, "gone") from FileNotFoundError(2, "gone")
        return self.texts[place]

    def refresh(self) -> None:
        """As `Parameters`."""


@st.composite
def texts(draw: st.DrawFn) -> dict[str, bytes]:
    """The files a while later: other numbers, counters and jobs that came and went, files that went."""
    found = {}
    random = draw(st.randoms(use_true_random=False))

    def other(_: re.Match[bytes]) -> bytes:
        return b"%d" % random.randrange(2000)

    for place, text in FILES.items():
        head, *entries = re.split(rb"(?=^- job_id:)", text, flags=re.MULTILINE)
        random.shuffle(entries)
        lines = b"".join((head, *entries[: random.randint(0, 2)])).splitlines(keepends=True)
        kept = [line for line in lines if b"{" not in line or random.random() < 0.9]
        if random.random() < 0.7:
            kept = [re.sub(rb"(?<=[ .])\d+", other, line) for line in kept]
        if random.random() < 0.9:
            found[place] = b"".join(kept)
    return found


def told(watched: Watched) -> dict[tuple[str, str, str], int | float]:
    """All values that are there and not zero: a new collector has no columns of counters that are gone."""
    return {
        (source, component, field): value
        for source in watched.readings
        if source != "lustre"
        for component in watched.ids(source)
        for field, value in watched.row(source, component).items()
        if value
    }


@settings(max_examples=40)
@given(st.lists(texts(), min_size=2, max_size=4))
def test_the_same_as_a_collector_that_is_new(steps: list[dict[str, bytes]]) -> None:
    held = Held({})
    old = Watched(held, job_stats=True)
    for texts in steps:
        held.texts = texts
        old.sample(LOOKED_FOR)
        for _ in range(SLOWER):
            old.sample(0.1)
        new = Watched(held, job_stats=True).sample()
        assert told(old) == told(new)
        assert old.collector.leftovers == new.collector.leftovers
        assert [*map(old.ids, new.readings)] == [*map(new.ids, new.readings)]
