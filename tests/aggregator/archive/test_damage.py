"""Damaged files: never another number without an error, and the aggregator goes on with the rest."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from laggard_aggregator.archive import layout, part_reader, retention, write_queue
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.archive.schemas import TEXT
from laggard_aggregator.archive.write_queue import WriteQueue
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.cli.main import main
from laggard_aggregator.groups.membership import ConfiguredMembership
from laggard_aggregator.groups.topology import Topology
from laggard_aggregator.jobs.tables import OF_JOBS
from laggard_aggregator.layers import store
from laggard_aggregator.log.entries import WindowClose
from laggard_aggregator.settings.aggregator import ArchiveTable
from laggard_common.clock import SystemClock
from laggard_common.errors import ArchiveError, InputError
from tests.aggregator.archive.test_writer import SCHEMA, batch, files, read
from tests.support.builders.archives import START_NS, judgement
from tests.support.builders.batches import SECOND
from tests.support.builders.documents import document
from tests.support.builders.layer_traces import TraceBuilder
from tests.support.wait import LIMIT_SECONDS

EVERY = 3


def written(directory: Path, parts: int = 1) -> None:
    """An archive with rows of every kind that the daemon writes, in `parts` parts of each."""
    writer = ArchiveWriter(directory, "site", START_NS)
    writer.groups(ConfiguredMembership(()), Topology(), 1.0, 0.0)
    for place in range(parts):
        writer.batch(batch(SCHEMA, 2 * place, START_NS + place * SECOND))
        writer.window_close(WindowClose(2 * place + 1, "luns", 0.0, 60.0, START_NS / 1e9 + place))
        writer.document(document(2 * place, START_NS + place * SECOND, source=layout.OWN))
        writer.judgement(replace(judgement(), shadow=replace(judgement(), transitions=())))
        writer.flush()


def derived(directory: Path, kind: str) -> None:
    """An archive with a row of a table of jobs."""
    schema = OF_JOBS.get(kind, pa.schema([("node", pa.string()), ("minute", pa.int64())]))
    values = {pa.string(): "a", TEXT: "a", pa.bool_(): True, pa.binary(): b"a"}
    row = {each.name: [values.get(each.type, [] if pa.types.is_list(each.type) else 1)] for each in schema}
    table = pa.table({name: pa.array(row[name], schema.field(name).type) for name in row}, schema=schema)
    where = layout.folder(directory, kind, layout.OWN, layout.day_of(START_NS), "site")
    layout.write_part(where, layout.stamp(START_NS), (1, 1), schema, [table])


def recorded(directory: Path, recording: Path) -> None:
    """An archive with the layers of a recording, which no daemon writes."""
    built = TraceBuilder()
    for at in range(10):
        built.request("device", at, at * 100.0, at * 100.0 + 90, offset=at * 65536)
    built.write(recording / "events.csv")
    assert main(["layers", str(recording), "--archive", str(directory), "-o", str(recording / "report")]) == 0


@pytest.mark.parametrize("kind", layout.KINDS)
def test_a_flipped_bit_is_an_error_whichever_it_is(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, kind: str
) -> None:
    if kind == "layers":
        recorded(tmp_path, tmp_path_factory.mktemp("recording"))
    elif kind in layout.OF_JOBS:
        derived(tmp_path, kind)
    else:
        written(tmp_path)
    ((_, where),) = layout.days(tmp_path, kind)
    (part,) = layout.parts(where)
    whole = part.path.read_bytes()
    for at in range(0, len(whole), EVERY):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        part.path.write_bytes(damaged)
        with pytest.raises(layout.DamagedPartError):
            layout.check(part)
        if not at % (EVERY * 40):  # the readers themselves are slower
            for reading in readings(tmp_path, kind):
                with pytest.raises(InputError, match=r"parquet|cannot be read"):
                    reading()
    part.path.write_bytes(whole)
    layout.check(part)


def readings(directory: Path, kind: str) -> Iterator[Callable[[], object]]:
    """All ways in which a kind is read."""
    reader = ArchiveReader(directory)
    source = {"counters": "diskstats", "schemas": "diskstats", "layers": store.SOURCE}.get(kind, layout.OWN)
    yield lambda: reader.table(kind, source)
    if kind in ("counters", "schemas", "closes"):
        yield lambda: list(reader.events())
    if kind == "groups":
        yield reader.runs


def test_a_footer_that_is_read_alone_is_damaged_or_not_and_nothing_else(tmp_path: Path) -> None:
    """As compaction reads it for a table's columns before it checks digests."""
    written(tmp_path)
    ((_, where),) = layout.days(tmp_path, "counters")
    (part,) = layout.parts(where)
    whole = part.path.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    damages = 0
    for at in range(footer, len(whole) - 8, 7):
        damaged = bytearray(whole)
        damaged[at] ^= 0x80  # a letter becomes a byte that is none
        part.path.write_bytes(damaged)
        try:
            with layout.page_checked_file(part) as file:
                assert len(file.schema_arrow.names) > 0
        except layout.DamagedPartError:
            damages += 1
    assert damages > 0.1 * (len(whole) - 8 - footer) / 7


def test_without_a_digest_pages_have_their_checksums(tmp_path: Path) -> None:
    """As other Parquet readers may check them. Page headers and the footer are covered by the digest only."""
    written(tmp_path)
    errors = 0
    (name,) = files(tmp_path)
    path = tmp_path / name
    whole = path.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    path = path.rename(path.with_name(path.name.rpartition("-")[0] + ".parquet"))
    for at in range(0, footer, EVERY * 5):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        try:
            ArchiveReader(tmp_path).table("counters", "diskstats")
        except InputError:
            errors += 1
    assert errors > 0.5 * footer / (EVERY * 5)


@pytest.mark.parametrize("is_kept", [True, False], ids=("kept", "deleted by the operator"))
def test_the_number_of_a_damaged_part_is_never_given_again(tmp_path: Path, is_kept: bool) -> None:
    written(tmp_path, 2)
    ((_, where),) = layout.days(tmp_path, "counters")
    newest = layout.parts(where)[-1]
    part_reader.set_aside(layout.DamagedPartError(newest, "a test"))
    if not is_kept:
        (tmp_path / layout.DAMAGED / where.relative_to(tmp_path) / newest.name).unlink()
    assert layout.next_part(where) == newest.last + 1
    part_reader.set_aside(layout.DamagedPartError(layout.parts(where)[0], "a test"))
    assert layout.next_part(where) == newest.last + 1, "an older one changes nothing"


def test_the_number_of_a_part_that_an_earlier_version_set_aside_is_not_given_again(tmp_path: Path) -> None:
    written(tmp_path, 2)
    ((_, where),) = layout.days(tmp_path, "counters")
    newest = layout.parts(where)[-1]
    place = tmp_path / layout.DAMAGED / where.relative_to(tmp_path)
    layout.make_folder(place)
    newest.path.rename(place / newest.name)
    assert layout.next_part(where) == newest.last + 1


@pytest.mark.parametrize("damage", [b"", None], ids=["empty", "cut"])
@pytest.mark.parametrize("digest", [True, False], ids=["digest", "earlier"])
def test_a_damaged_part_at_the_start_is_set_aside_and_its_rows_are_written_again(
    tmp_path: Path, damage: bytes | None, digest: bool, caplog: pytest.LogCaptureFixture
) -> None:
    written(tmp_path, parts=3)
    newest = tmp_path / files(tmp_path)[-1]
    if not digest:
        newest = newest.rename(newest.with_name(newest.name.rpartition("-")[0] + ".parquet"))
    whole = newest.read_bytes()
    newest.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    again = ArchiveWriter(
        tmp_path, "site", START_NS, continues_at_ns=START_NS + SECOND, continued_run_ns=START_NS
    )
    fed = WriteQueue(again, ArchiveTable(), lambda _: None, SystemClock())
    assert fed.open()
    assert (fed.failure, fed.damaged) == ("", 1)
    assert newest.name in caplog.text
    fed.replay([batch(SCHEMA, 2 * place, START_NS + place * SECOND) for place in range(4)])
    assert asyncio.run(fed.write(flush=True))
    assert [taken.lsn for taken in read(tmp_path)] == [0, 2, 4, 6]


def test_a_folder_that_cannot_be_listed_is_an_error_and_not_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows would be written once more. (Root may list every folder, so the system call is refused.)"""
    written(tmp_path)
    again = ArchiveWriter(
        tmp_path, "site", START_NS, continues_at_ns=START_NS + SECOND, continued_run_ns=START_NS
    )
    fed = WriteQueue(again, ArchiveTable(), lambda _: None, SystemClock())
    with monkeypatch.context() as patched:
        patched.setattr("os.scandir", refuse)
        assert not fed.open()
        assert "Permission denied" in fed.failure
        fed.replay([batch(SCHEMA, 0), batch(SCHEMA, 2)])
        assert not asyncio.run(fed.write(flush=True))
    assert asyncio.run(fed.write(flush=True))
    assert fed.failure == ""
    assert [taken.lsn for taken in read(tmp_path)] == [0, 2]


def test_rows_that_a_restart_has_no_memory_for_stay_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive is down at the start, and back soon. The next start, with the archive, writes all."""
    written(tmp_path)
    one = batch(SCHEMA, 0).counters.values.nbytes
    monkeypatch.setattr(write_queue, "MAX_VALUE_BYTES", 3 * one)
    journal = [batch(SCHEMA, lsn, START_NS + SECOND) for lsn in range(0, 12, 2)]

    def restarted() -> WriteQueue:
        again = ArchiveWriter(
            tmp_path, "site", START_NS, continues_at_ns=START_NS + SECOND, continued_run_ns=START_NS
        )
        return WriteQueue(again, ArchiveTable(), lambda _: None, SystemClock())

    first = restarted()
    with monkeypatch.context() as patched:
        patched.setattr("os.scandir", refuse)
        assert not first.open()
        first.replay(journal)
    assert not asyncio.run(first.has(10))
    assert "restart to write it" in first.failure
    first.put(batch(SCHEMA, 12, START_NS + SECOND))
    assert not asyncio.run(first.write(flush=True))
    second = restarted()
    assert second.open()
    second.replay(journal)
    assert asyncio.run(second.has(10))
    assert [taken.lsn for taken in read(tmp_path)] == [0, 2, 4, 6, 8, 10]
    assert second.dropped == 0


def test_a_few_that_wait_are_written_by_the_same_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = ArchiveWriter(tmp_path, "site", START_NS, continued_run_ns=START_NS)
    fed = WriteQueue(writer, ArchiveTable(), lambda _: None, SystemClock())
    with monkeypatch.context() as patched:
        patched.setattr("os.scandir", refuse)
        fed.open()
        fed.replay([batch(SCHEMA, 0), batch(SCHEMA, 2)])
    assert asyncio.run(fed.has(2))
    assert fed.dropped == 0


def test_a_file_whose_name_may_not_be_on_the_disk_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are written again, and would be there under two names of one range."""
    writer = ArchiveWriter(tmp_path, "site", START_NS)
    writer.batch(batch(SCHEMA, 1))
    writer.flush()
    writer.batch(batch(SCHEMA, 2))
    with monkeypatch.context() as patched:
        patched.setattr(layout, "sync_path", refuse)
        with pytest.raises(ArchiveError):
            writer.flush()
    assert len(files(tmp_path)) == 1
    writer.batch(batch(SCHEMA, 3))
    writer.flush()
    assert len(files(tmp_path)) == 2
    assert [taken.lsn for taken in read(tmp_path)] == [1, 2, 3]


def test_some_columns_of_a_year_cost_no_digest_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do parts that cannot be merged."""
    written(tmp_path, parts=2)
    read_whole: list[Path] = []
    real = layout.digest_of

    def digest_of(path: Path) -> str:
        read_whole.append(path)
        return real(path)

    monkeypatch.setattr(layout, "digest_of", digest_of)
    (name, _) = files(tmp_path)
    parts = layout.parts((tmp_path / name).parent)
    reader = ArchiveReader(tmp_path)
    assert reader.table("counters", "diskstats", ["node"]).num_rows
    assert len(list(retention._unions(parts))) == 1
    assert read_whole == []
    reader.table("counters", "diskstats")
    assert len(read_whole) == 2


def refuse(path: Path) -> None:
    raise PermissionError(13, "Permission denied", str(path))


def test_every_file_of_the_archive_is_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, parts=3)
    where = layout.folder(tmp_path, "alarms", layout.OWN, "2027-01-15", "site")
    part = layout.parts(where)[1]
    part.path.write_bytes(part.path.read_bytes()[:-1] + b"2")
    every = [each.name for each in layout.all_parts(tmp_path)]
    checked: list[str] = []

    def check(part: layout.Part) -> None:
        checked.append(part.name)
        layout.check(part)

    monkeypatch.setattr(retention, "check", check)
    parts, rounds = layout.all_parts(tmp_path), 1
    while retention.scrub(parts, 1):
        rounds += 1
    assert checked == every
    assert rounds == len(every) + 1
    assert [each.first for each in layout.parts(where)] == [1, 3]
    assert part_reader.count_damaged(tmp_path) == 1


def test_batches_are_written_while_a_large_file_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also at the stop, which does not wait for the check before it writes the rest."""
    began, written_meanwhile = threading.Event(), threading.Event()
    writer = ArchiveWriter(tmp_path, "site", START_NS)
    fed = WriteQueue(writer, ArchiveTable(), lambda _: written_meanwhile.set(), SystemClock())
    monkeypatch.setattr(write_queue, "WRITE_SECONDS", 0.01)

    def check(part: layout.Part) -> None:
        began.set()
        assert written_meanwhile.wait(LIMIT_SECONDS)

    monkeypatch.setattr(retention, "check", check)

    async def story() -> None:
        fed.put(batch(SCHEMA, 1))
        assert await fed.write(flush=True)
        written_meanwhile.clear()
        fed._unchecked = layout.all_parts(tmp_path)
        stop = asyncio.Event()
        running = asyncio.create_task(fed.run(stop))
        await asyncio.to_thread(began.wait, 20)
        fed.put(batch(SCHEMA, 2))
        stop.set()
        await running

    asyncio.run(story())
    assert [taken.lsn for taken in read(tmp_path)] == [1, 2]


def test_schemas_that_were_lost_are_written_again(tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path, "site", START_NS)
    fed = WriteQueue(writer, ArchiveTable(), lambda _: None, SystemClock())
    fed.put(batch(SCHEMA, 1))
    assert asyncio.run(fed.write(flush=True))
    (name,) = files(tmp_path, "schemas")
    (tmp_path / name).write_bytes(b"PAR1")
    for _ in range(2):  # the first begins the round
        asyncio.run(fed._scrub())
    assert fed.damaged == 1
    fed.put(batch(SCHEMA, 2))
    assert asyncio.run(fed.write(flush=True))
    assert [taken.lsn for taken in read(tmp_path)] == [1, 2]


def test_the_command_names_what_is_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, parts=2)
    assert main(["archive", "verify", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "18 files checked, 0 damaged\n"
    first, second = (tmp_path / name for name in files(tmp_path))
    second.write_bytes(second.read_bytes()[:-1] + b"2")
    first.rename(first.with_name(first.name.rpartition("-")[0] + ".parquet"))
    assert main(["archive", "verify", str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{second}: damaged: its content does not match the digest in its name",
        "18 files checked, 1 damaged",
        "1 file of an earlier version without a digest",
    ]
    assert main(["archive", "verify", str(tmp_path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "record": "archive",
        "checked": 18,
        "damaged": 1,
        "without_digest": 1,
        "damaged_before": 0,
        "problems": [f"{second}: damaged: its content does not match the digest in its name"],
    }
    retention.scrub(layout.all_parts(tmp_path), 10**9)
    assert main(["archive", "verify", str(tmp_path)]) == 0
    assert f"1 damaged file found before in {tmp_path}/damaged" in capsys.readouterr().out
    assert main(["archive", "verify", str(tmp_path / "none")]) == 2
