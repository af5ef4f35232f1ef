"""docs/architecture.md names the reader of each format, and no format has two."""

import re

import pytest

from tests.house.source import sources
from tests.support.container import PROJECT

TEXT = (PROJECT / "docs" / "architecture.md").read_text()
ROW = re.compile(r"^\| ([^|]+) \| `([^`|]+\.py)` \| `([^`|]+)` \| ([^|]+) \|$", re.MULTILINE)
ROWS = ROW.findall(TEXT[TEXT.index("## Who reads which format") : TEXT.index("### Values that are missing")])


def test_the_table_is_there() -> None:
    assert len(ROWS) > 20
    assert len({reader for _, reader, _, _ in ROWS}) == len(ROWS)
    assert len({kind for kind, _, _, _ in ROWS}) == len(ROWS)


@pytest.mark.parametrize(("kind", "reader", "sign", "_"), ROWS, ids=[row[0] for row in ROWS])
def test_a_format_has_one_reader(kind: str, reader: str, sign: str, _: str) -> None:
    found = [source.name for source in sources() if sign in (PROJECT / source.name).read_text()]
    assert len(found) == 1, f"{kind}: {found}"
    assert found[0].endswith(f"/{reader}")


@pytest.mark.parametrize("folder", ["offline/sysstat", "offline"])
def test_every_reader_of_diagnose_is_in_the_table(folder: str) -> None:
    """A module that opens inputs, or parses what one printed."""
    path = PROJECT / "aggregator" / "laggard_aggregator" / folder
    opening = [
        f"{folder}/{module.name}"
        for module in path.glob("*.py")
        if re.search(r"json\.loads|csv\.read_csv|csv\.open_csv|subprocess", module.read_text())
    ]
    assert set(opening) <= {reader for _, reader, _, _ in ROWS}
