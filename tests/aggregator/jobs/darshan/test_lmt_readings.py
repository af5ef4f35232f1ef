"""LMT's database as it is found: gaps written as 0 or NULL, odd readings, and the end of summer time."""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.jobs.darshan.lmt_input import lmt_rows
from laggard_aggregator.jobs.records.local_times import LocalTimes
from laggard_common.errors import InputError
from tests.naive_jobs_sources import lmt_traffic
from tests.support.builders import mine_store

FIRST = 1_700_000_000
STEP = 60
RISE = 1 << 26
START = 6 << 30


def database(path: Path, written: Mapping[int, Sequence[Any]], stamps: Sequence[Any] | None = None) -> Path:
    """Counters of bytes written by OST, a minute apart."""
    count = max(map(len, written.values()))
    texts = [datetime.fromtimestamp(FIRST + STEP * at, UTC).strftime("%F %T") for at in range(count)]
    with closing(sqlite3.connect(path)) as opened:
        opened.execute("create table TIMESTAMP_INFO (TS_ID integer, TIMESTAMP datetime)")
        opened.execute("create table OST_INFO (OST_ID integer, OST_NAME text)")
        opened.execute(
            "create table OST_DATA (OST_ID integer, TS_ID integer, READ_BYTES bigint, WRITE_BYTES bigint)"
        )
        opened.executemany("insert into TIMESTAMP_INFO values (?, ?)", enumerate(stamps or texts))
        for ost, values in written.items():
            opened.execute("insert into OST_INFO values (?, ?)", (ost, f"fs-OST{ost:04x}"))
            rows = [(ost, at, 0, value) for at, value in enumerate(values)]
            opened.executemany("insert into OST_DATA values (?, ?, ?, ?)", rows)
        opened.commit()
    return path


def rows_of(path: Path, zone: str = "UTC") -> tuple[list[dict[str, Any]], list[str]]:
    skipped: list[str] = []
    tables = [part for _, part in lmt_rows(path, zone, skipped)]
    return pa.concat_tables(tables).to_pylist(), skipped


def traffic(written: Mapping[int, Sequence[Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    with TemporaryDirectory() as folder:
        return rows_of(database(Path(folder) / "lmt.db", written))


def counter(count: int) -> list[Any]:
    return [START + at * RISE for at in range(count)]


ODD = st.sampled_from([0, None, -1, 17, "x", START // 2, 1 << 62, 1e300, -(1 << 63)])


@given(st.integers(5, 20), st.data())
def test_an_odd_reading_is_spanned(count: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(1, count - 2))
    values = counter(count)
    values[at] = data.draw(ODD)
    rows, skipped = traffic({1: values, 2: counter(count)})
    for ost in (1, 2):
        own = [row for row in rows if row["ost_index"] == ost]
        assert sum(row["bytes_written"] for row in own) == (count - 1) * RISE
        assert sum(row["end_us"] - row["start_us"] for row in own) == (count - 1) * STEP * 1_000_000
    assert len(skipped) == 1
    assert "1 reading left out" in skipped[0]


@given(st.integers(1, 8), st.sampled_from([0, None]))
def test_a_gap_of_several_readings_is_spanned(length: int, missing: object) -> None:
    values = counter(20)
    values[5 : 5 + length] = [missing] * length
    rows, _ = traffic({1: values})
    assert sum(row["bytes_written"] for row in rows) == 19 * RISE


@given(st.lists(st.one_of(ODD, st.integers(0, 1 << 62)), min_size=2, max_size=12))
def test_no_traffic_is_beyond_what_an_ost_can_move(values: list[Any]) -> None:
    rows, _ = traffic({1: values})
    assert all(0 <= row["bytes_written"] <= (row["end_us"] - row["start_us"]) * 10**6 for row in rows)


def test_a_counter_that_starts_over_goes_on_without_the_fall() -> None:
    rows, skipped = traffic({1: [*counter(5), *(at * RISE for at in range(1, 6))]})
    assert [row["bytes_written"] for row in rows] == [RISE] * 8
    assert not skipped


def test_an_ost_that_was_never_written_has_zeros() -> None:
    rows, skipped = traffic({1: [0] * 5, 2: counter(5)})
    assert [row["bytes_written"] for row in rows if row["ost_index"] == 1] == [0] * 4
    assert not skipped


def test_zeros_of_one_ost_do_not_follow_the_traffic_of_another() -> None:
    rows, _ = traffic({1: counter(4), 2: [0, 0, RISE, 2 * RISE]})
    assert [row["bytes_written"] for row in rows if row["ost_index"] == 2] == [0, RISE, RISE]


def test_times_and_names_that_are_none_cost_their_readings_alone(tmp_path: Path) -> None:
    stamps = [datetime.fromtimestamp(FIRST + STEP * at, UTC).strftime("%F %T") for at in range(6)]
    stamps[2] = "0000-00-00 00:00:00"
    path = database(tmp_path / "lmt.db", {1: counter(6)}, [*stamps[:4], None, *stamps[5:]])
    with closing(sqlite3.connect(path)) as opened:
        opened.execute(
            "insert into OST_DATA values (9, 0, 1, 1), (null, 0, 1, 1), (1, null, 1, 1), (1, 77, 1, 1)"
        )
        opened.execute("insert into OST_INFO values (null, 'x'), (3, null)")
        opened.execute("insert into TIMESTAMP_INFO values (null, '2024-01-01 00:00:00')")
        opened.commit()
    rows, skipped = rows_of(path)
    assert sum(row["bytes_written"] for row in rows) == 5 * RISE
    assert [line.partition(": ")[2] for line in skipped] == [
        "1 reading left out: of an OST without a name",
        "3 readings left out: without a time",
    ]


ZONES = ["America/Los_Angeles", "Europe/Berlin", "Australia/Lord_Howe"]


def local(zone: str, moments: Sequence[int]) -> list[str]:
    return [datetime.fromtimestamp(at, ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S") for at in moments]


def autumn(zone: str) -> int:
    """The moment of 2017 or 2018 at which summer time ended."""
    at = datetime(2017, 8, 1, tzinfo=UTC) if "Australia" not in zone else datetime(2018, 2, 1, tzinfo=UTC)
    own = ZoneInfo(zone)
    while (at + timedelta(minutes=30)).astimezone(own).utcoffset() == at.astimezone(own).utcoffset():
        at += timedelta(minutes=30)
    return int(at.timestamp()) + 1800


@given(st.sampled_from(ZONES), st.integers(5, 600), st.integers(0, 599), st.integers(1, 200))
def test_the_order_settles_the_hour_that_occurs_twice(zone: str, step: int, phase: int, before: int) -> None:
    first = autumn(zone) - 7200 - (before * step) % 3600 - phase
    moments = list(range(first, autumn(zone) + 9000, step))
    found, doubtful = LocalTimes(zone).in_order(local(zone, moments))
    assert found == [at * 1_000_000 for at in moments]
    assert doubtful == 0


@given(st.lists(st.integers(-9000, 9000), min_size=1, max_size=60, unique=True), st.sampled_from(ZONES))
def test_any_pauses_give_times_of_the_clock_that_go_on(offsets: list[int], zone: str) -> None:
    texts = local(zone, [autumn(zone) + offset for offset in sorted(offsets)])
    found, _ = LocalTimes(zone).in_order(texts)
    known = [at for at in found if at is not None]
    assert len(known) == len(texts)
    assert local(zone, [at // 1_000_000 for at in known]) == texts
    assert known == sorted(known)


def test_one_pass_alone_is_doubtful() -> None:
    first = autumn(ZONES[0]) - 3000
    _, doubtful = LocalTimes(ZONES[0]).in_order(local(ZONES[0], list(range(first, first + 600, 60))))
    assert doubtful == 10


def test_traffic_across_the_end_of_summer_time(tmp_path: Path) -> None:
    first = autumn(ZONES[0]) - 7200
    stamps = local(ZONES[0], [first + STEP * at for at in range(240)])
    rows, skipped = rows_of(database(tmp_path / "lmt.db", {1: counter(240)}, stamps), ZONES[0])
    assert sum(row["bytes_written"] for row in rows) == 239 * RISE
    assert min(row["start_us"] for row in rows) == first * 1_000_000
    assert not skipped


@given(
    stored=st.sampled_from(["integer", "text", "real", ""]),
    fraction=st.sampled_from(["", ".0", ".250000"]),
    joint=st.sampled_from([" ", "T"]),
    numbers=st.lists(st.integers(0, 3000), min_size=2, max_size=12, unique=True).map(sorted),
)
def test_a_database_is_read_however_it_was_filled(
    stored: str, fraction: str, joint: str, numbers: list[int]
) -> None:
    """Columns of text, as after an import of CSV, and times with fractions, as `datetime(6)` has them."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "lmt.db"
        with closing(sqlite3.connect(path)) as opened:
            for table, columns in (
                ("TIMESTAMP_INFO", ("TS_ID", "TIMESTAMP text")),
                ("OST_INFO", ("OST_ID", "OST_NAME text")),
                ("OST_DATA", ("OST_ID", "TS_ID", "READ_BYTES", "WRITE_BYTES")),
            ):
                described = ", ".join(each if " " in each else f"{each} {stored}" for each in columns)
                opened.execute(f"create table {table} ({described})")
            for ost in (9, 10):
                opened.execute("insert into OST_INFO values (?, ?)", (str(ost), f"fs-OST{ost:04x}"))
            for number in numbers:
                text = datetime.fromtimestamp(FIRST + number, UTC).strftime(f"%F{joint}%T") + fraction
                opened.execute("insert into TIMESTAMP_INFO values (?, ?)", (str(number), text))
                rows = [(str(ost), str(number), str(START + number), str(START)) for ost in (9, 10)]
                opened.executemany("insert into OST_DATA values (?, ?, ?, ?)", rows)
            opened.commit()
        rows_read, skipped = rows_of(path)
    late = round(float(fraction or 0) * 1e6)
    expected = [
        (ost, (FIRST + a) * 1_000_000 + late, (FIRST + b) * 1_000_000 + late, b - a, 0)
        for ost in (9, 10)
        for a, b in pairwise(numbers)
    ]
    fields = ("ost_index", "start_us", "end_us", "bytes_read", "bytes_written")
    assert [tuple(row[name] for name in fields) for row in rows_read] == expected
    assert skipped == []


def test_a_database_of_other_tables_is_one_error(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as opened:
        opened.execute("create table t (x)")
        opened.commit()
    with pytest.raises(InputError, match="no database of LMT"):
        rows_of(path)


def test_a_schema_that_sqlite_calls_out_of_memory_is_one_error(tmp_path: Path) -> None:
    path = mine_store.lmt(tmp_path / "x.db", readings=4, page_bytes=512)
    content = path.read_bytes()
    at = content.index(b"CREATE TABLE OST_INFO") + len(b"CREATE TABLE")
    path.write_bytes(content[:at] + b"\xff" * 40 + content[at + 40 :])
    with closing(sqlite3.connect(path)) as opened, pytest.raises(MemoryError):
        opened.execute("select * from OST_INFO")
    with pytest.raises(InputError, match="no database of LMT"):
        rows_of(path)


AMOUNT = st.one_of(st.none(), st.just(0), st.integers(-3, 1 << 30))


@given(st.lists(st.lists(AMOUNT, min_size=2, max_size=9), min_size=1, max_size=3), st.booleans())
def test_traffic_is_that_of_the_twin(counters: list[list[int | None]], rising: bool) -> None:
    if rising:
        counters = [
            list(accumulate(value if value and value > 0 else 1 for value in own)) for own in counters
        ]
    rows, _ = traffic(dict(enumerate(counters)))
    found = {
        (row["ost_index"], row["start_us"] // 10**6, row["end_us"] // 10**6): row["bytes_written"]
        for row in rows
    }
    readings = [
        (ost, FIRST + STEP * at, value) for ost, own in enumerate(counters) for at, value in enumerate(own)
    ]
    assert found == lmt_traffic(readings, longest=3600)
