"""Rollups equal the slow twin's, whatever the order of arrival, and however often they are made."""

import errno
import random
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard_aggregator.archive import layout, part_reader, retention
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.jobs.rollups import counter_slices, rollup_pass, series60
from laggard_aggregator.jobs.rollups.rollup_pass import RollupPass
from laggard_aggregator.settings.aggregator import ArchiveTable
from laggard_common.errors import ArchiveError
from tests.aggregator.jobs.job_archives import MS, job_batch, write_parts
from tests.naive_jobs import NaiveMinute, NaiveReading, naive_minutes
from tests.support.builders.archives import START_NS
from tests.support.thorough import examples

START = START_NS // MS
"""In ms, at the beginning of an hour."""
LATER_NS = START_NS + 30 * 3600 * 1000 * MS
LONGEST = 60_000
Rows = dict[tuple[str, str, int], NaiveMinute]


def stored_minutes(directory: Path, source: str = "lustre_llite") -> Rows:
    """The archive's rows, added up."""
    found: Rows = defaultdict(NaiveMinute)
    table = ArchiveReader(directory).table("series60", source)
    if not table.num_rows:
        return found
    minutes = table["minute"].cast(pa.int64()).to_pylist()
    for row, minute_ns in zip(table.drop_columns(["minute"]).to_pylist(), minutes, strict=True):
        held = found[row["node"], row["component"], minute_ns // 10**9]
        held.samples += row["samples"]
        held.milliseconds += round(row["seconds"] * 1000)
        for name in ("a", "b"):
            if row.get(name) is not None:
                held.sums[name] = held.sums.get(name, 0) + row[name]
                # A row that corrects an earlier one has a sum and may have no rate of its own.
                held.fastest[name] = max(held.fastest.get(name, 0.0), row[f"{name}.max"] or 0.0)
    return found


def expected(of: dict[tuple[str, str], list[NaiveReading]]) -> Rows:
    return {
        (*key, minute): row
        for key, found in of.items()
        for minute, row in naive_minutes(found, LONGEST).items()
    }


def assert_equal(found: Rows, wanted: Rows, *, fastest: bool = True) -> None:
    """`fastest`: rows were written once; what corrects a row leaves the largest rate, and 0 for no sum."""
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        least = -1 if fastest else 0
        sums = [{name: of for name, of in each.sums.items() if of > least} for each in (found[key], row)]
        assert found[key].samples == row.samples, key
        assert sums[0] == sums[1], key
        assert abs(found[key].milliseconds - row.milliseconds) <= 1, key
        if fastest:
            assert found[key].fastest == pytest.approx(row.fastest, rel=1e-6), key


@st.composite
def component_readings(draw: st.DrawFn) -> list[NaiveReading]:
    """Readings of a component with resets, gaps, absent fields and restarts, near the edges of hours."""
    found = []
    tick = START + draw(st.integers(0, 3)) * 1_799_000
    a = draw(st.integers(0, 2**40))
    b: int | None = draw(st.integers(0, 100))
    started = 1
    for _ in range(draw(st.integers(1, 25))):
        tick += draw(st.sampled_from([1000, 1000, 1000, 7000, 59_000, 61_000, 601_000, 1_790_000]))
        event = draw(st.sampled_from(["", "", "", "", "reset", "restart", "absent"]))
        a = draw(st.integers(0, 9)) if event == "reset" else a + draw(st.integers(0, 10**9))
        started += event == "restart"
        b = None if event == "absent" else (b or 0) + draw(st.integers(0, 5))
        read = tick + draw(st.integers(-400, 400))
        found.append(NaiveReading(tick, read, {"a": a, "b": b}, started))
    return found


@settings(max_examples=examples(60), deadline=None)
@given(of=st.lists(component_readings(), min_size=1, max_size=4), chance=st.randoms(use_true_random=False))
def test_rollups_in_any_order_of_arrival_equal_the_twins(
    tmp_path_factory: pytest.TempPathFactory, of: list[list[NaiveReading]], chance: random.Random
) -> None:
    directory = tmp_path_factory.mktemp("archive")
    known = {(f"n{at % 2}", f"c{at}"): found for at, found in enumerate(of)}
    batches = [
        job_batch(*key, [reading], lsn=lsn, received_ns=LATER_NS)
        for lsn, (key, reading) in enumerate(
            (key, reading) for key, found in known.items() for reading in found
        )
    ]
    chance.shuffle(batches)
    batches += batches[: chance.randrange(3)]  # written twice, as after a crash
    cut = chance.randrange(len(batches) + 1)
    for at, some in enumerate((batches[:cut], batches[cut:])):
        write_parts(directory, [some[: len(some) // 2], some[len(some) // 2 :]], LATER_NS + at)
        RollupPass(directory).run(LATER_NS, 30)
    assert_equal(stored_minutes(directory), expected(known), fastest=cut in (0, len(batches)))
    if chance.random() < 0.5:
        (directory / rollup_pass.PROGRESS).unlink()
    assert RollupPass(directory).run(LATER_NS, 30).rows == 0, "nothing is added twice"


def steady(first: int, count: int, step: int = 1000, at: int = 0) -> list[NaiveReading]:
    """Readings every `step` ms whose fields rise by 7 and 3."""
    return [
        NaiveReading(first + i * step, first + i * step, {"a": 7 * (at + i), "b": 3 * (at + i)})
        for i in range(count)
    ]


def test_the_sum_over_the_minutes_is_the_last_value_less_the_first(tmp_path: Path) -> None:
    found = steady(START + 1000, 2 * 3600)
    parts = [
        [job_batch("n", "c", found[i : i + 60], lsn=i, received_ns=START_NS)] for i in range(0, 7200, 60)
    ]
    write_parts(tmp_path, parts, START_NS)
    done = RollupPass(tmp_path).run(LATER_NS, 30)
    rows = stored_minutes(tmp_path)
    assert (done.hours, done.rows) == (2, 120)
    assert sum(row.sums["a"] for row in rows.values()) == found[-1].values["a"] == 7 * 7199
    assert sum(row.samples for row in rows.values()) == 7200


def test_an_hour_is_due_when_it_has_settled(tmp_path: Path) -> None:
    write_parts(
        tmp_path, [[job_batch("n", "c", steady(START + 1000, 100), lsn=1, received_ns=START_NS)]], START_NS
    )
    end = START_NS + 3600 * 10**9
    assert RollupPass(tmp_path).run(end + rollup_pass.SETTLE_NS - 1, 30).hours == 0
    assert RollupPass(tmp_path).run(end + rollup_pass.SETTLE_NS, 30).rows == 2


def test_a_late_backlog_of_one_node_adds_its_own_rows_only(tmp_path: Path) -> None:
    found = steady(START + 1000, 3000)
    early, late = found[:1000], found[1000:2000]
    other = job_batch("m", "c", found, lsn=1, received_ns=START_NS)
    mine = [
        job_batch("n", "c", some, lsn=2 + at, received_ns=START_NS)
        for at, some in enumerate((early, found[2000:]))
    ]
    write_parts(tmp_path, [[other, *mine]], START_NS)
    RollupPass(tmp_path).run(LATER_NS, 30)
    assert (
        sum(row.sums["a"] for (node, _, _), row in stored_minutes(tmp_path).items() if node == "n")
        == 7 * 1998
    )
    write_parts(tmp_path, [[job_batch("n", "c", late, lsn=4, received_ns=LATER_NS)]], LATER_NS)
    assert 0 < RollupPass(tmp_path).run(LATER_NS, 30).rows <= 19, "one node's minutes"
    assert_equal(stored_minutes(tmp_path), expected({("n", "c"): found, ("m", "c"): found}))


def test_rows_are_the_same_after_a_merge_and_with_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counter_slices, "MAX_CELLS", 500)
    monkeypatch.setattr(series60, "PART_ROWS", 16)
    found = steady(START + 1000, 4000)
    parts = [
        [job_batch("n", "c", found[i : i + 40], lsn=i, received_ns=START_NS + i)] for i in range(0, 4000, 40)
    ]
    write_parts(tmp_path, parts, START_NS)
    RollupPass(tmp_path).run(LATER_NS, 30)
    assert len(list(tmp_path.glob("kind=series60/**/*.parquet"))) > 2
    retention.compact(tmp_path, LATER_NS)
    assert RollupPass(tmp_path).run(LATER_NS, 30).rows == 0
    assert_equal(stored_minutes(tmp_path), expected({("n", "c"): found}))


def test_a_source_that_cannot_be_read_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parts(tmp_path, [[job_batch("n", "c", steady(START, 500), lsn=1, received_ns=START_NS)]], START_NS)
    ((day, sound),) = layout.days(tmp_path, "counters")
    stuck = layout.folder(tmp_path, "counters", "a_source", day, "site")
    shutil.copytree(sound, stuck)
    opened = layout.open_file

    def failing(part: layout.Part, *arguments: Any) -> pq.ParquetFile:
        if part.folder == stuck:
            raise PermissionError(errno.EACCES, "Permission denied", str(part.path))
        return opened(part, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(layout, "open_file", failing)
        for _ in range(2):
            with pytest.raises(ArchiveError, match="Permission denied"):
                RollupPass(tmp_path).run(LATER_NS, 30)
    assert stored_minutes(tmp_path)
    assert not stored_minutes(tmp_path, "a_source")
    RollupPass(tmp_path).run(LATER_NS, 30)
    assert stored_minutes(tmp_path, "a_source") == stored_minutes(tmp_path)


def test_rollups_outlive_the_raw_data(tmp_path: Path) -> None:
    write_parts(tmp_path, [[job_batch("n", "c", steady(START, 500), lsn=1, received_ns=START_NS)]], START_NS)
    RollupPass(tmp_path).run(LATER_NS, 30)
    before = stored_minutes(tmp_path)
    now_ns = START_NS + 40 * 86_400 * 10**9
    retention.retain(tmp_path, now_ns, ArchiveTable(tmp_path, raw_days=30, rollup_days=365))
    assert not layout.days(tmp_path, "counters")
    assert RollupPass(tmp_path).run(now_ns, 30).rows == 0
    assert stored_minutes(tmp_path) == before
    retention.retain(tmp_path, START_NS + 400 * 86_400 * 10**9, ArchiveTable(tmp_path))
    assert not layout.days(tmp_path, "series60")


def test_a_damaged_file_is_set_aside_and_its_minutes_stay(tmp_path: Path) -> None:
    found = steady(START + 1000, 1200)
    parts = [[job_batch("n", "c", found[i : i + 600], lsn=i, received_ns=START_NS)] for i in (0, 600)]
    write_parts(tmp_path, parts, START_NS)
    RollupPass(tmp_path).run(LATER_NS, 30)
    before = stored_minutes(tmp_path)
    damaged = sorted(tmp_path.glob("kind=counters/**/*.parquet"))[0]
    content = bytearray(damaged.read_bytes())
    content[200:4000] = bytes(3800)
    damaged.write_bytes(content)
    (tmp_path / rollup_pass.PROGRESS).unlink()
    RollupPass(tmp_path).run(LATER_NS, 30)
    assert list(tmp_path.glob("damaged/kind=counters/**/*.parquet"))
    after = stored_minutes(tmp_path)
    assert {key: row.samples for key, row in after.items()} == {
        key: row.samples for key, row in before.items()
    }


def test_rows_after_a_damaged_newest_file_are_rolled_up(tmp_path: Path) -> None:
    """Its number was given to the next file, which a pass took for the one it had seen."""
    readings = steady(START + 1000, 300)
    write_parts(tmp_path, [[job_batch("n0", "c", readings[:150], lsn=0, received_ns=START_NS)]], START_NS)
    RollupPass(tmp_path).run(LATER_NS, 30)
    ((_, where),) = layout.days(tmp_path, "counters")
    (part,) = layout.parts(where)
    part_reader.set_aside(layout.DamagedPartError(part, "a test"))
    write_parts(tmp_path, [[job_batch("n1", "c", readings, lsn=1, received_ns=START_NS)]], START_NS)
    RollupPass(tmp_path).run(LATER_NS, 30)
    found = stored_minutes(tmp_path)
    assert sum(row.samples for key, row in found.items() if key[0] == "n1") == len(readings)


def test_hours_are_rolled_up_again_after_their_rollups_were_damaged(tmp_path: Path) -> None:
    write_parts(
        tmp_path, [[job_batch("n", "c", steady(START + 1000, 600), lsn=1, received_ns=START_NS)]], START_NS
    )
    RollupPass(tmp_path).run(LATER_NS, 30)
    before = stored_minutes(tmp_path)
    ((_, where),) = layout.days(tmp_path, "series60")
    part_reader.set_aside(layout.DamagedPartError(layout.parts(where)[0], "a test"))
    assert not stored_minutes(tmp_path)
    RollupPass(tmp_path).run(LATER_NS, 30)
    assert stored_minutes(tmp_path) == before
    assert RollupPass(tmp_path).run(LATER_NS, 30).hours == 0


def test_a_full_disk_leaves_the_hour_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parts(tmp_path, [[job_batch("n", "c", steady(START, 500), lsn=1, received_ns=START_NS)]], START_NS)

    def full(*_: object) -> None:
        raise ArchiveError(str(tmp_path), "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(layout, "write_part", full)
        with pytest.raises(ArchiveError, match="No space"):
            RollupPass(tmp_path).run(LATER_NS, 30)
    assert RollupPass(tmp_path).run(LATER_NS, 30).rows == 10


def test_a_renamed_component_has_its_last_name_of_the_minute(tmp_path: Path) -> None:
    first, second = steady(START + 1000, 70), steady(START + 71_000, 70, at=70)
    batches = [
        job_batch("n", "c", some, lsn=at, received_ns=START_NS, name=name)
        for at, (some, name) in enumerate(((first, "sda"), (second, "sdb")))
    ]
    write_parts(tmp_path, [batches], START_NS)
    RollupPass(tmp_path).run(LATER_NS, 30)
    rows = ArchiveReader(tmp_path).table("series60", "lustre_llite").to_pylist()
    assert [row["name"] for row in rows][-1] == "sdb"
    assert sum(row["a"] for row in rows) == 7 * 139
