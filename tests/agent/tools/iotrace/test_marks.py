"""Logs that are out of sight for a while, or under another name or job, are sent on from where they were."""

import logging
import os
from pathlib import Path

import pytest

from laggard_agent.tools.iotrace import follow, marks
from laggard_agent.tools.iotrace.follow import STATE
from laggard_agent.tools.iotrace.marks import Mark, Marks
from tests.support.builders.followed_node import FollowedNode, append, write
from tests.support.builders.iotrace import sample


@pytest.fixture
def node(tmp_path: Path) -> FollowedNode:
    return FollowedNode(tmp_path)


def test_followed_logs_stay_when_more_logs_match(node: FollowedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "MAX_LOGS", 2)
    for at, name in enumerate("bcd"):
        append(node.folder / f"77/{name}.trace", write(at))
    node.poll()
    append(node.folder / "77/a.trace", write(9))
    append(node.folder / "77/c.trace", write(5))
    for _ in range(3):
        node.poll()
    assert node.offsets() == [0, 512, 2560]
    for name in "bc":
        (node.folder / f"77/{name}.trace").unlink()
    for _ in range(3):
        node.poll()
    assert node.offsets() == [0, 512, 2560, 4608, 1024]


@pytest.mark.parametrize("restart", [False, True])
def test_a_log_whose_folder_was_away_goes_on_where_it_was_left(node: FollowedNode, restart: bool) -> None:
    append(node.folder / "77/a.trace", write(0))
    node.poll()
    away = node.folder.with_name("away")
    node.folder.rename(away)
    if restart:
        node.start()
    for _ in range(3):
        node.poll()
    append(away / "77/a.trace", write(1))
    away.rename(node.folder)
    if restart:
        append(node.folder / "77/b.trace", write(2))
    node.poll()
    assert sorted(node.offsets(), key=str) == sorted([0, 512, 1024][: 2 + restart], key=str)


def test_a_log_that_comes_back_under_another_name_goes_on(node: FollowedNode) -> None:
    log = node.folder / "77/a.trace"
    append(log, write(0))
    node.poll()
    log.rename(log.with_suffix(".old"))
    for _ in range(3):
        node.poll()
    log.with_suffix(".old").rename(node.folder / "77/b.trace")
    append(node.folder / "77/b.trace", write(1))
    node.poll()
    assert node.offsets() == [0, 512]
    assert len({each.log for each in node.documents()}) == 1


@pytest.mark.parametrize("first", [0, 1])
def test_a_crash_and_a_rename_send_the_same_range_of_the_same_log(node: FollowedNode, first: int) -> None:
    log = node.folder / "77/a.trace"
    log.touch()
    node.poll()
    if first:
        append(log, write(0))
        node.poll()
    kept = (node.state / STATE).read_bytes()
    append(log, write(1))
    node.poll()
    (node.state / STATE).write_bytes(kept)
    log.rename(node.folder / "77/b.trace")
    node.start()
    node.poll()
    *_, lost, again = node.documents()
    assert (lost.log, lost.start, lost.end) == (again.log, again.start, again.end)
    assert lost.session < again.session


def test_marks_of_logs_out_of_sight_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "MAX_UNSEEN", 3)
    day_ns = 86_400 * 10**9
    made = Marks(tmp_path / STATE, "cn-1")
    for inode in range(8):
        made.put(Mark(1, inode, 5, path=f"/{inode}"))
        made.save({(1, 0), (1, inode)}, inode * day_ns)
    found = Marks(tmp_path / STATE, "cn-1")
    assert [inode for inode in range(9) if found.of((1, inode))] == [0, 4, 5, 6, 7]
    found.save({(1, 0)}, 36 * day_ns)
    found.save({(1, 0)}, 37 * day_ns)
    assert [inode for inode in range(9) if found.of((1, inode))] == [0, 7]


def test_marks_are_on_the_disk_before_they_replace_the_last_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(str(Path(f"/proc/self/fd/{fd}").readlink())))
    made = Marks(tmp_path / STATE, "cn-1")
    made.save((), 0)
    assert synced == [str((tmp_path / STATE).with_suffix(".new"))]


def test_the_positions_of_a_later_version_are_a_warning(
    node: FollowedNode, caplog: pytest.LogCaptureFixture
) -> None:
    (node.state / STATE).write_text('{"node": "cn-1", "session": 7, "logs": {"1:2": {"place": 9}}}')
    with caplog.at_level(logging.WARNING):
        node.start()
    append(node.folder / "77/a.trace", write(0))
    assert node.poll() == 1
    assert len(caplog.messages) == 1


def test_an_overwritten_dump_has_the_job_of_its_own_header(tmp_path: Path) -> None:
    node = FollowedNode(tmp_path, "*.dxt")
    log = node.folder / "a.dxt"
    for job in (b"4242", b"42431"):
        log.write_bytes(sample("dxt").replace(b"4711", job, 1))
        node.poll()
    log.write_text(write(1))
    node.poll()
    assert [each.job for each in node.documents()] == ["4242", "42431", ""]


def test_a_new_log_on_the_inode_of_an_empty_one_has_its_own_job(node: FollowedNode) -> None:
    log = node.folder / "77/a.trace"
    log.touch()
    node.poll()
    (node.folder / "78").mkdir()
    log.rename(node.folder / "78/b.trace")
    append(node.folder / "78/b.trace", write(0))
    node.start()
    node.poll()
    (document,) = node.documents()
    assert (document.job, Path(document.log).parts[-2]) == ("78", "78")


@pytest.mark.parametrize("restart", [False, True])
def test_the_job_of_the_path_precedes_that_of_the_mark(node: FollowedNode, restart: bool) -> None:
    log = node.folder / "77/a.trace"
    append(log, write(0))
    node.poll()
    (node.folder / "78").mkdir()
    log = log.rename(node.folder / "78/a.trace")
    append(log, write(1))
    if restart:
        node.start()
    node.poll()
    node.poll()
    assert [each.job for each in node.documents()] == ["77", "78"]


@pytest.mark.parametrize(
    ("pattern", "name", "job"),
    [("*{job}.trace", "x12345.trace", "12345"), ("{job}*.trace", "12345x.trace", "12345")],
)
def test_the_job_is_the_whole_number_beside_a_wildcard(
    tmp_path: Path, pattern: str, name: str, job: str
) -> None:
    node = FollowedNode(tmp_path, pattern)
    append(node.folder / name, write(0))
    node.poll()
    assert [each.job for each in node.documents()] == [job]
