"""Journals and snapshots that were cut, mutated or made up: read as far as they are right, never a crash."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laggard_aggregator.engine.checkpoint import capture, restore
from laggard_aggregator.log import journal_codec, snapshot_codec, snapshots
from laggard_aggregator.log.entries import (
    BatchEntry,
    ForgetEntry,
    LogEntry,
    SchemaEntry,
    SweepEntry,
    WindowClose,
)
from laggard_aggregator.log.journal import Journal
from laggard_common import segment_log
from laggard_common.errors import LaterVersionError, ServiceError, StateError
from tests.aggregator.engine.test_recovery import Process, filled
from tests.support.builders.site import START, close, new_core, receive, steps
from tests.support.thorough import examples

ENTRIES: list[LogEntry] = [
    SchemaEntry(0, START, "laggard/1/site/storage/oss-1/schema/diskstats", b"schema"),
    BatchEntry(1, START, "laggard/1/site/storage/oss-1/data/diskstats", b"payload"),
    WindowClose(2, "group/é", 1.5, 2.5, 3.0),
    BatchEntry(3, START, "laggard/1/site/storage/oss-1/data/diskstats", b""),
    BatchEntry(4, START, "laggard/1/site/storage/oss-1/data/diskstats", b"judged only", accepted=False),
    SweepEntry(3, START, forget=True),
    SweepEntry(3, START + 1, forget=False),
    WindowClose(5, "luns", 2.5, 3.5, 4.0, drained=("oss-1/wwn-1",), restart=("oss-2/wwn-0", "é")),
    ForgetEntry(4, START + 2, START, "oss-[12]/*"),
]


def written(directory: Path) -> Path:
    journal = Journal(directory, 10**6)
    journal.rotate()
    journal.append(ENTRIES[:4])
    journal.append(ENTRIES[4:])
    journal.close()
    (path,) = directory.glob("*.journal")
    return path


def entries(directory: Path) -> list[LogEntry]:
    return list(Journal(directory, 10**6).entries(0))


def test_entries_come_back_as_they_were(tmp_path: Path) -> None:
    written(tmp_path)
    assert entries(tmp_path) == ENTRIES


def test_a_journal_cut_anywhere_gives_what_is_whole(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole = path.read_bytes()
    ends = [record.end for record in segment_log.scan(path)][1:]  # the first is no entry
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        assert entries(tmp_path) == ENTRIES[: sum(end <= size for end in ends)]


def test_a_journal_mutated_anywhere_gives_what_is_around(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole = path.read_bytes()
    ends = [record.end for record in segment_log.scan(path)][1:]
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes((whole[at] ^ 0x41,)) + whole[at + 1 :])
        found, before = entries(tmp_path), sum(end <= at for end in ends)
        assert found[:before] == ENTRIES[:before]
        assert found[before:] in ([], ENTRIES[before + 1 :], ENTRIES[before:] if at < ends[0] else [])


@given(st.integers(1, 255), st.binary(max_size=60))
@settings(max_examples=examples(200))
def test_records_that_check_and_are_none_raise_one_error(type_: int, payload: bytes) -> None:
    try:
        entry = journal_codec.decode(segment_log.Record(type_, payload, 8, 100), "here")
    except StateError as exc:
        assert str(exc).startswith("here: the record at 8 is not of a journal: ")  # noqa: PT017
    else:
        if entry is None:
            assert type_ in (journal_codec.RecordType.HEADER, journal_codec.RecordType.RETURN)
        else:
            assert journal_codec.decode(segment_log.Record(*_joined(entry), 8, 100), "here") == entry


def _joined(entry: LogEntry) -> tuple[int, bytes]:
    type_, pieces = journal_codec.encode(entry)
    return type_, b"".join(pieces)


def test_a_journal_of_the_first_version_is_read(tmp_path: Path) -> None:
    """Its closes have no overrides."""
    with closing(segment_log.SegmentWriter(tmp_path / "000000000001.journal")) as writer:
        writer.append(journal_codec.RecordType.HEADER, b"\x01")
        writer.append(*_joined(ENTRIES[1]))
        writer.append(journal_codec.RecordType.CLOSE, msgpack.packb((2, "group/é", 1.5, 2.5, 3.0)))
    assert entries(tmp_path) == ENTRIES[1:3]


def test_a_journal_of_a_later_version_ends_the_start_and_is_left_alone(tmp_path: Path) -> None:
    written(tmp_path)
    (path,) = tmp_path.glob("*.journal")
    path.unlink()
    with closing(segment_log.SegmentWriter(path)) as writer:
        writer.append(journal_codec.RecordType.HEADER, b"\x03")
        writer.append(*_joined(ENTRIES[1]))
    before = path.read_bytes()
    with pytest.raises(LaterVersionError, match=r"1\.journal: is of a later version of Laggard: start that"):
        entries(tmp_path)
    assert path.read_bytes() == before


@pytest.fixture(name="snapshot", scope="module")
def _snapshot(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    directory = tmp_path_factory.mktemp("state")
    process = asyncio.run(filled(directory, 0))
    process.kill()
    core = new_core()
    for messages, now_ns in list(steps(4))[:4]:
        receive(core, messages)
        close(core, now_ns)
    snapshots.write(directory, 1, iter(capture(core, 1, START)))
    snapshots.publish(directory, 1)
    path = directory / "000000000001.snapshot"
    return path, path.read_bytes()


def test_a_snapshot_cut_or_mutated_anywhere_is_none(snapshot: tuple[Path, bytes]) -> None:
    path, whole = snapshot
    path.write_bytes(whole)
    sections = len(list(snapshots.read(path.parent, 1)))
    assert sections >= 5
    for at in range(len(segment_log.MAGIC), len(whole), max(len(whole) // 80, 1)):
        for data in (whole[:at], whole[:at] + bytes((whole[at] ^ 0x41,)) + whole[at + 1 :]):
            path.write_bytes(data)
            with pytest.raises(StateError, match="is not a snapshot: "):
                list(snapshots.read(path.parent, 1))
    path.write_bytes(whole + b"more")  # a torn record behind the end is no harm
    assert len(list(snapshots.read(path.parent, 1))) == sections


def parts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where every value in plain data is."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from parts(inner, (*path, key))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from parts(inner, (*path, at))


NONSENSE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.just([]),
    st.just([1, 2]),
    st.just({}),
)


@given(st.data(), NONSENSE)
@settings(
    max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_snapshot_with_anything_in_the_place_of_anything_is_none_or_goes_on(
    snapshot: tuple[Path, bytes], data: st.DataObject, nonsense: Any
) -> None:
    """Checksums are right here: what matters is that nothing but one clear error comes of it."""
    path, whole = snapshot
    path.write_bytes(whole)
    sections = list(snapshots.read(path.parent, 1))
    places = list(parts(sections))[1:]
    place = data.draw(st.sampled_from(places))
    inner = sections
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = nonsense
    said = ""
    try:
        restore(new_core(), iter(sections), "here")
    except (StateError, ServiceError) as exc:
        said = str(exc)
    assert not said or "here: is not a snapshot: " in said or "is the state of site" in said


def test_what_is_left_without_snapshots_is_used(tmp_path: Path) -> None:
    process = asyncio.run(filled(tmp_path, 0))
    process.kill()
    for path in tmp_path.glob("*.snapshot"):
        path.unlink()

    async def story() -> None:
        after = await Process(tmp_path).start()
        assert after.head is None
        assert after.acknowledged() == {"oss-1": ((0, 0),)}
        after.kill()

    asyncio.run(story())


@given(st.binary(max_size=200))
def test_sections_that_are_none_raise_value_errors(data: bytes) -> None:
    with pytest.raises(ValueError):
        snapshot_codec.unpack(data)
