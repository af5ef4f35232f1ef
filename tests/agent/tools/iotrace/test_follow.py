"""Growing trace logs become documents, each record once: rotated, truncated, torn, restarted, hostile."""

import logging
import os
import random
from pathlib import Path

import pytest

from laggard_agent.tools.iotrace import follow
from laggard_agent.tools.iotrace.follow import READ_BYTES, STATE
from laggard_common.trace_formats.line_reader import MAX_LINE_BYTES
from tests.support.builders.followed_node import FollowedNode, append, write
from tests.support.builders.iotrace import read, sample, unfold

HEAD = "1763650000.1 cn-17 open 4121:3 - 0 /scratch/out\n"


@pytest.fixture
def node(tmp_path: Path) -> FollowedNode:
    return FollowedNode(tmp_path)


def test_records_have_the_job_of_the_path_and_are_folded(node: FollowedNode) -> None:
    append(node.folder / "77/a.trace", HEAD + "".join(write(at) for at in range(100)))
    assert node.poll() == 1
    (document,) = node.documents()
    assert (document.job, document.start, [each.count for each in document.records]) == ("77", 0, [1, 100])
    assert node.poll() == 0


@pytest.mark.parametrize("format_name", ["laggard", "strace", "dxt"])
def test_a_log_that_grows_byte_by_byte_has_the_records_of_the_whole(
    node: FollowedNode, format_name: str
) -> None:
    data, rng = sample(format_name), random.Random(7)
    log, at = node.folder / "77/a.trace", 0
    while at < len(data):
        step = rng.randrange(1, 300)
        with log.open("ab") as file:
            file.write(data[at : at + step])
        at += step
        node.poll()
        if rng.random() < 0.1:
            node.start()
    wanted = read(format_name, data)[0]
    found = [each for record in node.records() for each in unfold(record)]
    key = [(r.operation, r.descriptor, r.offset, r.size, r.path) for r in wanted]
    assert sorted(map(str, key)) == sorted(
        str((r.operation, r.descriptor, r.offset, r.size, r.path)) for r in found
    )


def test_a_quiet_log_is_sent_after_the_interval_and_a_busy_one_at_once(node: FollowedNode) -> None:
    log = node.folder / "77/a.trace"
    append(log, write(0))
    assert node.poll(2) == 1
    append(log, write(1))
    assert node.poll(2) == 0
    assert node.poll(30) == 1
    append(log, "".join(write(at) for at in range(2, 2 + READ_BYTES // 40)))
    assert node.poll(2) >= 1


def test_a_restart_goes_on_where_the_spool_ends(node: FollowedNode) -> None:
    log = node.folder / "77/a.trace"
    append(log, HEAD + write(0))
    node.poll()
    node.start()
    append(log, write(1))
    node.poll()
    assert node.offsets() == [None, 0, 512]
    assert len({each.log for each in node.documents()}) == 1


def test_a_crash_before_the_position_is_kept_sends_the_same_range_again(node: FollowedNode) -> None:
    log = node.folder / "77/a.trace"
    append(log, write(0))
    node.clock.sleep(1)
    node.follower.read()
    kept = (node.state / STATE).read_bytes()
    node.follower.send(node.store)
    (node.state / STATE).write_bytes(kept)
    node.start()
    append(log, write(1))
    node.poll()
    first, second = node.documents()
    assert (first.log, first.start) == (second.log, second.start)
    assert first.end < second.end


def test_documents_wait_while_the_spool_has_no_room(node: FollowedNode) -> None:
    log = node.folder / "77/a.trace"
    append(log, write(0))
    node.room = False
    assert node.poll() == 0
    append(log, write(1))
    assert node.poll() == 0
    node.room = True
    node.poll()
    node.poll()
    assert node.offsets() == [0, 512]


def test_a_renamed_log_is_read_to_its_end_and_the_new_one_from_its_start(node: FollowedNode) -> None:
    log = node.folder / "77/a.trace"
    append(log, write(0))
    node.poll()
    append(log, write(1))
    log.rename(log.with_suffix(".1"))
    append(log, write(2))
    node.poll(1)
    append(log.with_suffix(".1"), write(3))
    node.poll(5)
    node.poll()
    assert sorted(filter(None, node.offsets())) == [512, 1024, 1536]
    assert len(node.offsets()) == 4


def test_a_log_under_another_name_of_the_pattern_is_not_sent_twice(node: FollowedNode) -> None:
    log = node.folder / "77/a.trace"
    append(log, write(0))
    node.poll()
    os.link(log, node.folder / "77/b.trace")
    node.poll()
    log.unlink()
    node.poll()
    append(node.folder / "77/b.trace", write(1))
    node.poll()
    node.start()
    node.poll()
    assert node.offsets() == [0, 512]


def test_a_truncated_log_starts_over_as_another_log(node: FollowedNode) -> None:
    log = node.folder / "77/a.trace"
    append(log, write(0) + write(1))
    node.poll()
    log.write_text(write(5))
    node.poll()
    node.start()
    log.write_text(write(6) + write(7) + write(8))
    node.poll()
    assert node.offsets() == [0, 512, 2560, 3072, 3584, 4096]
    assert len({each.log for each in node.documents()}) == 3


def test_a_deleted_log_is_read_to_its_end(node: FollowedNode) -> None:
    log = node.folder / "77/a.trace"
    append(log, write(0))
    node.poll()
    append(log, write(1))
    log.unlink()
    node.poll()
    node.poll()
    assert node.offsets() == [0, 512]


@pytest.mark.parametrize("where", ["cgroup", "environ"])
def test_the_job_of_a_process_is_that_of_its_group_or_environment(tmp_path: Path, where: str) -> None:
    node = FollowedNode(tmp_path, "*.trace")
    folder = node.procfs / "4121"
    folder.mkdir()
    group = "0::/system.slice/slurmstepd.scope/job_93/step_0/user/task_0\n"
    (folder / "cgroup").write_text(group if where == "cgroup" else "0::/user.slice\n")
    (folder / "environ").write_bytes(b"HOME=/root\0SLURM_JOB_ID=93\0A=b\0")
    append(node.folder / "a.trace", HEAD)
    node.poll()
    (folder / "cgroup").unlink()
    (folder / "environ").unlink()
    node.start()
    append(node.folder / "a.trace", write(0))
    node.poll()
    assert [each.job for each in node.documents()] == ["93", "93"]


def test_the_job_of_a_dxt_dump_is_in_its_header(tmp_path: Path) -> None:
    node = FollowedNode(tmp_path, "*.dxt", "dxt")
    (node.folder / "a.dxt").write_bytes(b"# jobid: 4242\n" + sample("dxt"))
    node.poll()
    assert {each.job for each in node.documents()} == {"4242"}


def test_many_records_are_split_into_documents_that_fit(node: FollowedNode) -> None:
    rng, log = random.Random(3), node.folder / "77/a.trace"
    places = [rng.randrange(10**6) for _ in range(60_000)]
    append(log, "".join(f"1763650001 n read 1:{at % 9} {at} 1 /{'é' * (at % 300)}\n" for at in places))
    for _ in range(60):
        node.poll()
    assert sorted(node.offsets(), key=str) == sorted(places, key=str)
    ranges = [(each.start, each.end) for each in node.documents()]
    assert [end for _, end in ranges[:-1]] == [start for start, _ in ranges[1:]]


def test_hostile_logs_harm_nothing(node: FollowedNode, caplog: pytest.LogCaptureFixture) -> None:
    folder = node.folder / "77"
    (folder / "a.trace").write_bytes(random.Random(1).randbytes(300_000))
    (folder / "b.trace").write_bytes(b"x" * (3 * MAX_LINE_BYTES) + b"\n" + write(1).encode())
    (folder / "c.trace").symlink_to("/etc/passwd")
    os.mkfifo(folder / "d.trace")
    (folder / "e.trace").mkdir()
    (folder / "f.trace").write_text("".join(write(-5) for _ in range(9)) + write(2))
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            node.poll()
    assert sorted(filter(None, node.offsets())) == [512, 1024]
    assert len(caplog.messages) == 3


def test_the_number_of_logs_is_bounded(
    node: FollowedNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(follow, "MAX_LOGS", 3)
    for name in "abcde":
        append(node.folder / f"77/{name}.trace", write(ord(name)))
    with caplog.at_level(logging.WARNING):
        node.poll()
        node.poll()
    assert len(node.offsets()) == 3
    assert caplog.messages == ["traces: files: 5 logs match, 3 are followed"]


def test_damaged_positions_are_a_warning(node: FollowedNode, caplog: pytest.LogCaptureFixture) -> None:
    (node.state / STATE).write_bytes(b"\xff{")
    with caplog.at_level(logging.WARNING):
        node.start()
    append(node.folder / "77/a.trace", write(0))
    assert node.poll() == 1
    assert len(caplog.messages) == 1
