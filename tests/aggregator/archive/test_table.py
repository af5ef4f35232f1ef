"""The surface of the archive: each row once whatever happens to its files, and conditions as plain loops."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard_aggregator.archive import layout, retention
from laggard_aggregator.archive.table import (
    TEXT,
    TIME,
    Among,
    Table,
    Within,
    day_of,
    last_revisions,
    rows_table,
    tables_of,
)
from laggard_common.errors import ArchiveError, InputError
from tests.support.thorough import examples

DAY = "2026-01-31"
DAY_NS = 1_769_817_600 * 10**9
LATER_NS = DAY_NS + 2 * 86_400 * 10**9
SCHEMA = pa.schema(
    [
        pa.field("job_key", pa.string(), nullable=False),
        pa.field("revision_at", TIME, nullable=False),
        pa.field("node", TEXT),
        pa.field("amount", pa.int64()),
    ]
)


def table(folder: Path, kind: str = "jobs") -> Table:
    return Table(folder, kind, site="s")


def rows(first: int, count: int) -> list[dict[str, object]]:
    return [
        {"job_key": f"j{at % 7}", "revision_at": at, "node": f"n{at % 5}", "amount": at}
        for at in range(first, first + count)
    ]


def filled(folder: Path, parts: int = 4, each: int = 10, day: str = DAY) -> Table:
    found = table(folder)
    for part in range(parts):
        found.append_rows(day, rows(part * each, each), DAY_NS + part * 10**9, SCHEMA)
    return found


def amounts(tables: Iterator[pa.Table]) -> list[int]:
    return [value for each in tables for value in each["amount"].to_pylist()]


def test_rows_come_back_in_order(tmp_path: Path) -> None:
    found = filled(tmp_path)
    assert found.days() == [DAY]
    assert amounts(found.scan()) == list(range(40))
    assert amounts(found.scan(["amount"], first_day="2026-02-01")) == []
    assert found.read(SCHEMA).num_rows == 40
    assert [each.source for each in tables_of(tmp_path, "jobs")] == ["laggard"]
    assert table(tmp_path, "paths").days() == []


@pytest.mark.parametrize("at", range(4))
def test_each_row_comes_once_when_files_are_merged_meanwhile(tmp_path: Path, at: int) -> None:
    found = filled(tmp_path)
    seen, scan = [], found.scan(["amount"])
    for number, each in enumerate(scan):
        seen += each["amount"].to_pylist()
        if number == at:
            retention.compact(tmp_path, LATER_NS)
    assert seen == list(range(40))
    assert len(found.files()) == 1


def test_rows_behind_a_merge_keep_to_the_conditions(tmp_path: Path) -> None:
    found = filled(tmp_path)
    scan = found.scan(["amount"], Among("node", ["n1"]))
    first = next(scan)["amount"].to_pylist()
    retention.compact(tmp_path, LATER_NS)
    assert first + amounts(scan) == [at for at in range(40) if at % 5 == 1]


def test_files_that_expire_meanwhile_are_missing(tmp_path: Path) -> None:
    found = filled(tmp_path)
    scan = found.scan(["amount"])
    next(scan)
    for part in found.files():
        part.path.unlink()
    assert amounts(scan) == []


def test_files_that_are_listed_and_never_there_are_an_error(tmp_path: Path) -> None:
    found = filled(tmp_path, 1)
    (part,) = found.files()
    part.path.unlink()
    part.path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ArchiveError, match="change faster"):
        list(found.scan())
    with pytest.raises(ArchiveError, match="change faster"):
        found.unchanged(lambda parts: [each.path.read_bytes() for each in parts])


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[8:200] = bytes(each ^ 0xFF for each in content[8:200])  # pages are at the beginning
    path.write_bytes(content)


def test_a_damaged_file_is_set_aside_and_the_others_are_read(tmp_path: Path) -> None:
    found = filled(tmp_path)
    damage(found.files()[1].path)
    assert amounts(found.scan()) == [*range(10), *range(20, 40)]
    assert len(found.files()) == 3
    assert len(list(tmp_path.glob("damaged/**/*.parquet"))) == 1


def test_a_strict_table_names_a_damaged_file_and_leaves_it(tmp_path: Path) -> None:
    filled(tmp_path)
    found = Table(tmp_path, "jobs", site="s", is_strict=True)
    damage(found.files()[1].path)
    with pytest.raises(InputError, match="damaged"):
        list(found.scan())
    with pytest.raises(InputError, match="damaged"):
        list(found.new_since({}))
    assert len(found.files()) == 4


def test_new_files_come_once(tmp_path: Path) -> None:
    found, seen = filled(tmp_path), dict[str, int]()
    assert [file.span("amount") for file in found.new_since(seen)] == [(0, 9), (10, 19), (20, 29), (30, 39)]
    assert seen == {DAY: 4}
    assert list(found.new_since(seen)) == []
    found.append_rows(DAY, rows(40, 3), DAY_NS, SCHEMA)
    assert [amounts(file.scan(["amount"])) for file in found.new_since(seen)] == [[40, 41, 42]]


def test_a_file_that_was_not_finished_comes_again(tmp_path: Path) -> None:
    found, seen = filled(tmp_path), dict[str, int]()
    files = found.new_since(seen, "jobs/")
    next(files)
    next(files)
    files.close()  # type: ignore[attr-defined]
    assert seen == {f"jobs/{DAY}": 1}


def test_new_files_that_are_merged_meanwhile_come_with_the_merged_one(tmp_path: Path) -> None:
    found, seen, came = filled(tmp_path), dict[str, int](), set[int]()
    for number, file in enumerate(found.new_since(seen)):
        came.update(amounts(file.scan(["amount"])))
        if number == 1:
            retention.compact(tmp_path, LATER_NS)
    assert came == set(range(40))
    assert seen == {DAY: 4}


def test_a_day_that_began_again_is_new(tmp_path: Path) -> None:
    found, seen = filled(tmp_path), dict[str, int]()
    assert len(list(found.new_since(seen))) == 4
    for part in found.files():
        part.path.unlink()
    found.append_rows(DAY, rows(0, 1), DAY_NS, SCHEMA)
    assert len(list(found.new_since(seen))) == 1


def test_a_gone_file_is_none(tmp_path: Path) -> None:
    found = filled(tmp_path, 1)
    (part,) = found.files()
    part.path.unlink()
    with found.opened(part) as file:
        assert file is None


def test_columns_that_a_file_lacks_are_null(tmp_path: Path) -> None:
    found = table(tmp_path)
    old = pa.schema([field for field in SCHEMA if field.name != "amount"])
    found.append_rows(DAY, rows(0, 2), DAY_NS, old)
    found.append_rows(DAY, rows(2, 2), DAY_NS, SCHEMA)
    assert found.read(SCHEMA)["amount"].to_pylist() == [None, None, 2, 3]
    assert found.dataset(SCHEMA).count_rows() == 4
    assert table(tmp_path, "paths").dataset(SCHEMA).count_rows() == 0


def test_no_rows_are_no_file(tmp_path: Path) -> None:
    found = table(tmp_path)
    found.append_rows(DAY, [], DAY_NS, SCHEMA)
    assert found.files() == []


@settings(max_examples=examples(60), deadline=None)
@given(
    low=st.integers(-5, 70),
    length=st.integers(0, 70),
    nodes=st.sets(st.sampled_from(["n0", "n3", "n4", "m", "z"])),
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=4),
)
def test_conditions_are_those_of_a_plain_loop(
    tmp_path_factory: pytest.TempPathFactory, low: int, length: int, nodes: set[str], sizes: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("archive")
    found, first = table(folder), 0
    for size in sizes:
        found.append_rows(DAY, rows(first, size), DAY_NS, SCHEMA)
        first += size
    where = Within("amount", low, low + length), Among("node", nodes)
    expected = [at for at in range(first) if low <= at < low + length and f"n{at % 5}" in nodes]
    assert amounts(found.scan(["amount"], *where)) == expected


def test_row_groups_that_cannot_match_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "ROW_GROUP_ROWS", 10)
    found = table(tmp_path)
    found.append(DAY, [rows_table(SCHEMA, rows(0, 40))], DAY_NS, SCHEMA)
    asked: list[int] = []

    class Noting(Within):
        def rows(self, table: pa.Table) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
            asked.append(table.num_rows)
            return super().rows(table)

    assert amounts(found.scan(["amount"], Noting("amount", 15, 22))) == list(range(15, 22))
    assert asked == [10, 10]


def test_the_last_revision_of_each_job_counts() -> None:
    given_rows = [
        {"job_key": key, "revision_at": at, "amount": number}
        for number, (key, at) in enumerate([("a", 1), ("b", 5), ("a", 3), ("a", 3), ("b", 2)])
    ]
    assert last_revisions(rows_table(SCHEMA, given_rows))["amount"].to_pylist() == [1, 2, 3]
    assert last_revisions(SCHEMA.empty_table()).num_rows == 0


def test_the_day_of_a_time_is_of_utc() -> None:
    assert [day_of(at) for at in (0.0, 86_399.9, 86_400.0)] == ["1970-01-01", "1970-01-01", "1970-01-02"]
