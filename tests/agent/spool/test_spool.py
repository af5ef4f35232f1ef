import contextlib
import errno
import logging
import os
import random
import resource
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard_agent.sampling.batcher import Dictionary, EncodedBatch
from laggard_agent.settings import AgentSettings, SpoolSettings
from laggard_agent.spool.segments import SpooledBatch, SpoolRecordType
from laggard_agent.spool.spool import Spool
from laggard_common.daemon.host_name import HostName
from laggard_common.errors import ServiceError
from laggard_common.segment_log import scan
from laggard_common.wire import Kind
from tests.support.builders.trees import FIELDS, components

OWNER = AgentSettings(node="oss-1", batch_samples=5)
MIB = 1024 * 1024
BOOT = "boot-1"


def opened(
    directory: Path, max_bytes: int = 16 * MIB, boot: str = BOOT, owner: AgentSettings = OWNER, seed: int = 1
) -> Spool:
    settings = replace(owner, spool=SpoolSettings(directory, max_bytes))
    return Spool(settings, boot, random.Random(seed).randbytes)


def batch(
    source: str = "net", n: int = 5, epoch: int = 1, payload: bytes = b"x", generation: int = 0
) -> EncodedBatch:
    return EncodedBatch(
        source, Dictionary(generation, epoch, FIELDS, components("a")), 10**18, 10**9, n, 1, payload
    )


def added(spool: Spool, what: EncodedBatch | None = None) -> SpooledBatch:
    stored = spool.append(what or batch())
    assert stored is not None
    return stored


def crash(spool: Spool) -> None:
    """The process dies: files stay as they are, the lock goes."""
    lock = spool._lock
    assert lock is not None
    lock.close()


def backlog(spool: Spool) -> list[int]:
    """The seqs of the whole backlog."""
    spool.rewind()
    seqs = []
    while stored := spool.next_backlog():
        seqs.append(stored.envelope.seq)
    return seqs


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.segment"))


def test_what_is_stored_is_the_message(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    first, second, other = added(spool), added(spool), added(spool, batch("tcp", n=3, payload=b"yz"))
    assert [(s.envelope.source, s.envelope.seq, s.envelope.n) for s in (first, second, other)] == [
        ("net", 0, 5),
        ("net", 1, 5),
        ("tcp", 0, 3),
    ]
    envelope = other.envelope
    assert (envelope.node, envelope.source, envelope.seq) == ("oss-1", "tcp", 0)
    assert (envelope.schema_epoch, envelope.n, envelope.codec, envelope.payload) == (1, 3, 1, b"yz")
    assert first.envelope.stream == second.envelope.stream != other.envelope.stream
    schema = other.schema
    assert schema is not None
    assert (schema.node, schema.epoch, schema.interval_ns, schema.batch_ticks) == ("oss-1", 1, 10**9, 5)
    assert {s.source for s in spool.current_schemas()} == {"net", "tcp"}
    spool.close()


def test_a_document_is_on_the_disk_itself_once_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: dict[Path, int] = {}

    def note(fd: int) -> None:
        synced[Path(f"/proc/self/fd/{fd}").readlink()] = os.fstat(fd).st_size

    monkeypatch.setattr(os, "fdatasync", note)
    monkeypatch.setattr(os, "fsync", note)
    spool = opened(tmp_path, max_bytes=1 << 19)
    added(spool)
    assert synced == {}, "counters are not"
    added(spool, replace(batch("jobs"), kind=Kind.EVENTS, payload=bytes(100_000)))
    (segment,) = (each for each in tmp_path.glob("*.segment") if each.stat().st_size > 100_000)
    assert synced[segment] == segment.stat().st_size
    assert tmp_path in synced, "and its name"
    spool.close()


def test_streams_seqs_and_dictionaries_go_on_after_an_orderly_end(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    before = [added(spool), added(spool, batch(epoch=2))][-1]
    spool.close()
    spool = opened(tmp_path, boot="boot-2", seed=2)
    assert spool.dictionaries() == {"net": Dictionary(0, 2, FIELDS, components("a"))}
    after = added(spool, batch(epoch=2))
    assert (after.envelope.stream, after.envelope.seq) == (before.envelope.stream, 2)
    assert backlog(spool) == [0, 1, 2]
    spool.close()


def test_they_go_on_after_the_process_was_killed(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    before = [added(spool) for _ in range(3)][-1]
    crash(spool)
    spool = opened(tmp_path, seed=2)
    after = added(spool)
    assert (after.envelope.stream, after.envelope.seq) == (before.envelope.stream, 3)
    spool.close()


def test_after_a_crash_little_comes_again_that_was_acknowledged(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    for _ in range(200):
        stored = added(spool)
        spool.mark_sent(stored)
        spool.acknowledge(stored.key, ((0, stored.envelope.seq),))
    crash(spool)
    spool = opened(tmp_path)
    assert backlog(spool) == list(range(179, 200))
    assert added(spool).envelope.seq == 200
    spool.close()


@pytest.mark.parametrize("boot", ["boot-2", ""])
def test_a_machine_that_went_down_begins_new_streams(tmp_path: Path, boot: str) -> None:
    """Seqs that were published may be missing from the file: they must not be given to other data."""
    spool = opened(tmp_path, boot=boot and BOOT)
    before = added(spool)
    crash(spool)
    spool = opened(tmp_path, boot=boot, seed=2)
    assert spool.dictionaries() == {}
    after = added(spool)
    assert after.envelope.stream != before.envelope.stream
    assert after.envelope.seq == 0
    spool.rewind()
    first = spool.next_backlog()
    assert first is not None
    assert (first.envelope.stream, first.envelope.seq) == (before.envelope.stream, before.envelope.seq)
    assert first.schema == before.schema
    assert backlog(spool) == [0, 0]
    spool.close()


def test_a_damaged_end_begins_new_streams_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spool = opened(tmp_path)
    before = [added(spool), added(spool)][-1]
    spool.close()
    newest = tmp_path / files(tmp_path)[-1]
    last_batch = [record for record in scan(newest) if record.type == SpoolRecordType.BATCH][-1]
    newest.write_bytes(newest.read_bytes()[: last_batch.end - 1])
    spool = opened(tmp_path, seed=2)
    assert "damaged bytes" in caplog.text
    assert added(spool).envelope.stream != before.envelope.stream
    assert backlog(spool) == [0, 0]
    spool.close()


def test_streams_outlive_all_batches(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    before = added(spool)
    spool.acknowledge(before.key, ((0, 0),))
    spool.close()
    for _ in range(3):
        spool = opened(tmp_path)
        assert backlog(spool) == []
        spool.close()
    spool = opened(tmp_path)
    after = added(spool)
    assert (after.envelope.stream, after.envelope.seq) == (before.envelope.stream, 1)
    assert len(files(tmp_path)) == 1
    spool.close()


def test_another_interval_is_another_epoch_of_the_same_stream(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    before = added(spool)
    spool.close()
    spool = opened(tmp_path, owner=replace(OWNER, interval_seconds=2.0))
    (schema,) = spool.current_schemas()
    assert (schema.stream, schema.epoch, schema.interval_ns) == (before.envelope.stream, 2, 2 * 10**9)
    spool.close()


def test_another_generation_is_another_stream(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    before = added(spool, batch(epoch=5))
    after = added(spool, batch(epoch=1, generation=1))
    assert (after.envelope.seq, after.envelope.schema_epoch) == (0, 1)
    assert after.envelope.stream != before.envelope.stream
    spool.close()
    spool = opened(tmp_path)
    assert added(spool).envelope.stream == after.envelope.stream
    spool.close()


def test_acknowledged_batches_leave_the_disk(tmp_path: Path) -> None:
    spool = opened(tmp_path, max_bytes=MIB)
    stored = [added(spool, batch(payload=random.Random(i).randbytes(10_000))) for i in range(50)]
    key = stored[0].key
    assert len(files(tmp_path)) > 5
    assert spool.status()["spool_bytes"] > 490_000
    assert spool.acknowledge(key, ((0, 29), (31, 48)))
    assert backlog(spool) == [30, 49]
    assert 10_000 < spool.status()["spool_bytes"] < 50_000
    assert spool.acknowledge(key, ((30, 30), (49, 49)))
    assert spool.status()["spool_bytes"] == 0
    assert len(files(tmp_path)) == 1
    assert sum(path.stat().st_size for path in tmp_path.glob("*.segment")) < 64 * 1024
    assert spool.status()["dropped_samples"] == 0
    spool.close()


def test_acknowledgements_that_mean_nothing(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    stored = added(spool)
    assert not spool.acknowledge((bytes(16), "net"), ((0, 0),))
    assert not spool.acknowledge((stored.envelope.stream, "tcp"), ((0, 0),))
    assert spool.acknowledge(stored.key, ((1, 2**64 - 1),))
    assert backlog(spool) == [0]
    later = [added(spool).envelope.seq for _ in range(2)]
    assert backlog(spool) == [0, *later]
    spool.close()


def test_a_full_spool_is_one_warning_that_says_what_it_holds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = opened(tmp_path, max_bytes=MIB)

    def fill(minutes: range) -> None:
        for at in minutes:
            minute = replace(batch(payload=bytes(10_000)), t0_ns=10**18 + at * 60 * 10**9)
            added(spool, minute)

    fill(range(300))
    (said,) = [r.message for r in caplog.records]
    assert said == "spool: full: 1048576 bytes hold 1.7 hours, dropping the oldest"
    stored = added(spool)
    spool.acknowledge(stored.key, ((0, stored.envelope.seq),))
    fill(range(300, 600))
    assert [r.message for r in caplog.records] == [said, said]
    spool.close()


def test_the_oldest_are_dropped_and_counted_by_what_became_of_them(tmp_path: Path) -> None:
    spool = opened(tmp_path, max_bytes=MIB)
    noise = random.Random(3)
    stored = [added(spool, batch(payload=noise.randbytes(10_000))) for _ in range(60)]
    for s in stored[:10]:
        spool.mark_sent(s)
    spool.acknowledge(stored[0].key, ((10, 14),))
    for _ in range(100):
        added(spool, batch(payload=noise.randbytes(10_000)))
    kept = backlog(spool)
    assert kept == list(range(kept[0], 160))
    assert spool.status()["unconfirmed_samples"] == 10 * 5
    assert spool.status()["dropped_samples"] == (kept[0] - 15) * 5
    assert sum(path.stat().st_size for path in tmp_path.glob("*.segment")) <= MIB
    spool.close()


def test_the_backlog_leaves_out_what_was_sent_until_it_is_to_be_sent_again(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    stored = [added(spool) for _ in range(6)]
    for s in stored[:4]:
        spool.mark_sent(s)
    assert backlog(spool) == [4, 5]
    spool.acknowledge(stored[0].key, ((0, 1),))
    assert spool.queue.oldest_unacknowledged() == {stored[0].key: 2}
    spool.resend([stored[0].key])
    seqs = []
    while s2 := spool.next_backlog():
        seqs.append(s2.envelope.seq)
    assert seqs == [2, 3, 4, 5]
    spool.close()


def test_what_is_passed_over_by_acknowledgements_was_taken_by_the_broker(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    stored = [added(spool) for _ in range(6)]
    key = stored[0].key
    assert not spool.queue.is_passed_over(key)
    for s in stored[1:5]:
        spool.mark_sent(s)
    spool.acknowledge(key, ((1, 3),))
    assert not spool.queue.is_passed_over(key)  # the first of all was never sent
    spool.mark_sent(stored[0])
    assert spool.queue.is_passed_over(key)
    spool.acknowledge(key, ((0, 2),))
    assert not spool.queue.is_passed_over(key)
    spool.acknowledge(key, ((5, 5),))
    assert spool.queue.is_passed_over(key)
    spool.close()


def test_the_backlog_goes_on_while_batches_come_and_go(tmp_path: Path) -> None:
    spool = opened(tmp_path, max_bytes=MIB)
    noise = random.Random(4)
    stored_first, *_ = [added(spool, batch(payload=noise.randbytes(10_000))) for _ in range(40)]
    spool.rewind()
    seen = []
    while stored := spool.next_backlog():
        seen.append(stored.envelope.seq)
        spool.mark_sent(stored)
        if stored.envelope.seq == 3:
            spool.acknowledge(stored_first.key, ((0, 20),))
        if len(seen) < 10:
            added(spool, batch(payload=noise.randbytes(10_000)))
    assert seen[:4] == [0, 1, 2, 3]
    assert seen[4] >= 21
    assert seen[4:] == list(range(seen[4], seen[-1] + 1))
    spool.close()


def test_a_batch_that_is_too_large_to_travel_is_dropped(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    assert spool.append(batch(payload=bytes(4 * MIB))) is None
    assert spool.status()["dropped_samples"] == 5
    assert added(spool).envelope.seq == 0
    spool.close()


def test_two_agents_never_share_a_spool(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    with pytest.raises(ServiceError) as caught:
        opened(tmp_path)
    assert str(caught.value) == f"{tmp_path}: the spool is in use by another agent"
    spool.close()
    opened(tmp_path).close()


def test_the_spool_of_another_node_is_discarded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spool = opened(tmp_path)
    before = added(spool)
    spool.close()
    spool = opened(tmp_path, owner=replace(OWNER, node="oss-2"), seed=2)
    assert f"{tmp_path} belongs to node oss-1" in caplog.text
    assert backlog(spool) == []
    assert added(spool).envelope.stream != before.envelope.stream
    assert len(files(tmp_path)) == 1
    spool.close()


@pytest.mark.parametrize(("before", "now"), [("old-name", HostName("oss-2")), ("localhost", "oss-2")])
def test_the_spool_of_this_host_under_an_earlier_name_is_kept(
    tmp_path: Path, before: str, now: str, caplog: pytest.LogCaptureFixture
) -> None:
    spool = opened(tmp_path, owner=replace(OWNER, node=before))
    first = added(spool)
    spool.close()
    spool = opened(tmp_path, owner=replace(OWNER, node=now), seed=2)
    assert "discarding" not in caplog.text
    assert backlog(spool) == [first.envelope.seq]
    assert added(spool).envelope.stream != first.envelope.stream
    spool.close()
    spool = opened(tmp_path, boot="another boot", owner=replace(OWNER, node="oss-3"), seed=3)
    assert backlog(spool) == []
    spool.close()


def test_only_the_owner_and_its_group_may_read_it(tmp_path: Path) -> None:
    spool = opened(tmp_path / "new")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) & 0o007 == 0
    assert all(
        stat.S_IMODE(path.stat().st_mode) & 0o007 == 0 for path in (tmp_path / "new").glob("*.segment")
    )
    spool.close()


def test_a_directory_that_cannot_be_used_means_memory_and_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    spool = opened(tmp_path / "file")
    assert [added(spool).envelope.seq for _ in range(120)] == list(range(120))
    assert spool.status()["spool_in_memory"]
    assert backlog(spool) == list(range(120))
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1
    assert f"{tmp_path}/file: File exists; keeping batches in memory only" in caplog.text
    spool.close()


def test_memory_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    spool = opened(tmp_path / "file", max_bytes=100 * MIB)
    noise = random.Random(5).randbytes(200_000)
    for _ in range(100):
        added(spool, batch(payload=noise))
    assert spool.status()["spool_bytes"] <= 9 * MIB
    assert spool.status()["dropped_samples"] > 250
    spool.close()


def test_a_disk_that_fails_and_comes_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Seqs given in memory are unknown to the disk, so memory has streams of its own."""
    caplog.set_level(logging.INFO)
    spool = opened(tmp_path)
    on_disk = added(spool)
    broken = spool.queue.newest
    broken.close()  # appending to it fails from now on, as on a disk that went read-only
    in_memory = added(spool)
    assert spool.status()["spool_in_memory"]
    assert in_memory.envelope.stream != on_disk.envelope.stream
    assert in_memory.envelope.seq == 0
    last = [added(spool) for _ in range(60)][-1]
    assert not spool.status()["spool_in_memory"]
    assert (last.envelope.stream, last.envelope.seq) == (in_memory.envelope.stream, 60)
    assert "is usable again" in caplog.text
    assert backlog(spool) == [0, *range(61)]
    spool.close()
    spool = opened(tmp_path)
    after = added(spool)
    assert (after.envelope.stream, after.envelope.seq) == (in_memory.envelope.stream, 61)
    spool.close()


def test_a_document_that_waits_has_the_disk_tried_again(tmp_path: Path) -> None:
    """A node with few samples has few batches that do."""
    spool = opened(tmp_path)
    spool.queue.newest.close()
    added(spool)
    assert spool.status()["spool_in_memory"]
    for _ in range(50):
        spool.try_disk_again()
    assert not spool.status()["spool_in_memory"]
    spool.close()


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """Nothing can be written to any file; they can still be made and read."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def test_a_full_disk_keeps_what_it_has(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spool = opened(tmp_path, max_bytes=32 * MIB)
    noise = random.Random(7).randbytes(200_000)
    on_disk = [added(spool, batch(payload=noise)) for _ in range(60)]
    before = files(tmp_path)
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    with full_disk():
        in_memory = [added(spool, batch(payload=noise)) for _ in range(200)]
    assert files(tmp_path) == before
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1
    left = backlog(spool)
    assert left[:60] == [s.envelope.seq for s in on_disk]
    assert left[60:] == [s.envelope.seq for s in in_memory][-len(left) + 60 :]
    assert 30 < len(left) - 60 < 50  # 8 MiB of 200 kB
    assert spool.status()["dropped_samples"] == (260 - len(left)) * 5
    spool.close()


def test_a_directory_that_comes_late_is_taken_over(tmp_path: Path) -> None:
    """As when the agent starts before the file system of its spool is mounted."""
    directory = tmp_path / "spool"
    spool = opened(directory)
    early = [added(spool) for _ in range(3)]
    spool.close()
    directory.rename(tmp_path / "unmounted")
    directory.write_text("")
    spool = opened(directory, seed=2)
    in_memory = added(spool)
    directory.unlink()
    (tmp_path / "unmounted").rename(directory)
    late = [added(spool) for _ in range(60)][-1]
    assert not spool.status()["spool_in_memory"]
    assert late.envelope.stream == in_memory.envelope.stream != early[0].envelope.stream
    assert backlog(spool) == [0, 1, 2, *range(61)]
    spool.close()
    assert files(directory) == ["0000000000.segment", "0000000001.segment"]
    spool = opened(directory, seed=3)
    assert (added(spool).envelope.stream, added(spool).envelope.seq) == (late.envelope.stream, 62)
    spool.close()


def test_files_that_somebody_removed_do_not_stop_the_agent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = opened(tmp_path, max_bytes=MIB)
    noise = random.Random(8).randbytes(10_000)
    stored = [added(spool, batch(payload=noise)) for _ in range(60)]
    spool.acknowledge(stored[0].key, ((0, 1),))
    for name in files(tmp_path):
        (tmp_path / name).unlink()
    for _ in range(200):
        added(spool, batch(payload=noise))
    assert "its batches are lost" in caplog.text
    assert spool.status()["dropped_samples"] == (260 - len(backlog(spool)) - 2) * 5
    spool.close()


def test_a_file_that_cannot_be_deleted_is_one_warning_and_nothing_comes_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = opened(tmp_path)
    stored = [added(spool) for _ in range(3)]
    unlink = Path.unlink

    def refuse(path: Path, *, missing_ok: bool = False) -> None:
        if path.suffix == ".segment":
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    with caplog.at_level(logging.WARNING):
        for batch_ in stored:
            spool._begin_segment()
            spool.acknowledge(batch_.key, (batch_.seqs,))
    assert sum("which stays, emptied if possible" in message for message in caplog.messages) == 1
    spool.close()
    monkeypatch.undo()
    again = opened(tmp_path)
    assert backlog(again) == []
    again.close()


def test_a_file_that_cannot_be_read_costs_its_own_batches(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = opened(tmp_path)
    for _ in range(3):
        added(spool)
        spool._begin_segment()
    spool.close()
    second = sorted(tmp_path.glob("*.segment"))[1]
    second.unlink()
    second.mkdir()
    with caplog.at_level(logging.WARNING):
        again = opened(tmp_path)
    assert not again.in_memory
    assert backlog(again) == [0, 2]
    again.close()
    assert [message for message in caplog.messages if "Is a directory; it is left out" in message]


def test_a_record_of_another_format_is_passed_over(tmp_path: Path) -> None:
    spool = opened(tmp_path, max_bytes=MIB)
    added(spool)
    spool.queue.newest.append(SpoolRecordType.BATCH, b"of a later version")
    added(spool)
    assert backlog(spool) == [0, 1]
    spool.close()
    spool = opened(tmp_path, max_bytes=MIB, seed=2)
    assert backlog(spool) == [0, 1]
    for _ in range(150):
        added(spool, batch(payload=bytes(10_000)))
    assert spool.status()["dropped_samples"] > 10
    spool.close()


def test_a_spool_of_a_later_version_stays_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a downgrade batches are kept in memory, and the later version finds all of its own."""
    spool = opened(tmp_path)
    added(spool)
    with monkeypatch.context() as later:
        later.setattr("laggard_agent.spool.segments._HEADER_VERSION", 2)
        spool._begin_segment()
        added(spool)
        spool.close()
        before = {path.name: path.read_bytes() for path in tmp_path.glob("*.segment")}
    with caplog.at_level(logging.WARNING):
        earlier = opened(tmp_path)
    assert earlier.in_memory
    assert backlog(earlier) == []
    for _ in range(120):
        added(earlier)
    assert earlier.in_memory
    earlier.close()
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.segment")} == before
    (message,) = caplog.messages
    assert "is of a later version of Laggard: start that one" in message


def test_acknowledgements_do_not_write_long_schemas_again(tmp_path: Path) -> None:
    many = Dictionary(0, 1, FIELDS, components(*(f"a-component-with-a-name-{i}" for i in range(3000))))
    spool = opened(tmp_path)
    for _ in range(30):
        stored = added(spool, replace(batch(), dictionary=many))
        spool.acknowledge(stored.key, ((stored.envelope.seq, stored.envelope.seq),))
    assert len(files(tmp_path)) == 1
    assert files(tmp_path)[0] < "0000000003.segment"
    spool.close()


def test_a_schema_that_is_too_large_to_travel(tmp_path: Path) -> None:
    long = Dictionary(0, 1, FIELDS, components(*(f"{i:0256d}" for i in range(10_000))))
    spool = opened(tmp_path)
    assert spool.append(replace(batch(), dictionary=long)) is None
    assert spool.status()["dropped_samples"] == 5
    assert added(spool, batch("tcp")).envelope.seq == 0
    assert spool.current_schemas()[0].source == "tcp"
    spool.close()


@pytest.mark.parametrize("damage", ["random", "empty", "zeros", "foreign"])
def test_files_that_are_not_segments_do_not_stop_the_agent(tmp_path: Path, damage: str) -> None:
    content = {"random": random.Random(6).randbytes(5000), "empty": b"", "zeros": bytes(5000)}
    (tmp_path / "0000000007.segment").write_bytes(content.get(damage, b"LAGGSEG1" + bytes(100)))
    (tmp_path / "notes.segment").write_text("not ours")
    spool = opened(tmp_path)
    assert not spool.status()["spool_in_memory"]
    assert added(spool).envelope.seq == 0
    assert files(tmp_path) == ["0000000008.segment", "notes.segment"]
    spool.close()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("aaaaackreb"), st.integers(0, 1000)), max_size=40))
def test_no_seq_is_given_twice_and_nothing_unacknowledged_is_lost(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, int]]
) -> None:
    """Appends (a), acknowledgements (k), crashes (c, r), orderly ends (e) and reboots (b) in any order."""
    directory = tmp_path_factory.mktemp("spool")
    boot = 0
    spool = opened(directory, boot="0")
    seen: set[tuple[bytes, int]] = set()
    waiting: set[tuple[bytes, int]] = set()
    for at, (action, which) in enumerate(actions):
        if action == "a":
            stored = added(spool)
            assert (stored.envelope.stream, stored.envelope.seq) not in seen
            seen.add((stored.envelope.stream, stored.envelope.seq))
            waiting.add((stored.envelope.stream, stored.envelope.seq))
        elif action == "k":
            for stream, seq in sorted(waiting)[which % 50 : which % 50 + 1]:
                assert spool.acknowledge((stream, "net"), ((seq, seq),))
                waiting.discard((stream, seq))
        else:
            spool.close() if action == "e" else crash(spool)
            boot += action == "b"
            spool = opened(directory, boot=str(boot), seed=at + 2)
    spool.rewind()
    found = set()
    while left := spool.next_backlog():
        found.add((left.envelope.stream, left.envelope.seq))
    assert waiting <= found <= seen
    spool.close()
