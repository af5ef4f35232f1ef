"""Names, file systems and logs that must not end the agent, keep other logs waiting, or stay open."""

import errno
import logging
import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from laggard_agent.settings import TracesSettings
from laggard_agent.tools.iotrace import follow
from laggard_agent.tools.iotrace.follow import MOST_READ_BYTES
from laggard_common.wire.trace_records import MAX_POSITION
from tests.support.builders.followed_node import FollowedNode, append, write


@pytest.fixture
def node(tmp_path: Path) -> FollowedNode:
    return FollowedNode(tmp_path)


def open_deleted(node: FollowedNode) -> int:
    """Deleted logs of the node that this process has open."""
    links = Path("/proc/self/fd").iterdir()
    names = [str(link.readlink()) for link in links if link.is_symlink()]
    return sum(name.startswith(str(node.folder)) and name.endswith(" (deleted)") for name in names)


def failing(call: Callable[..., Any], folder: str) -> Callable[..., Any]:
    """`call`, which fails for paths that end with `folder`, as on a network file system."""

    def called(path: Any = ".", *args: Any, **options: Any) -> Any:
        if isinstance(path, (str, Path)) and str(path).endswith(folder):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
        return call(path, *args, **options)

    return called


@pytest.mark.parametrize("name", [b"\xff.trace", b"a\nb.trace", b"\x1b[2J.trace"])
def test_a_log_whose_name_is_not_printable_is_not_followed(
    node: FollowedNode, name: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    Path(os.fsdecode(os.fsencode(node.folder / "77") + b"/" + name)).write_text(write(0))
    append(node.folder / "77/z.trace", write(1))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            node.poll()
            node.start()
    assert node.offsets() == [512]
    assert [message.endswith("its name is not printable") for message in caplog.messages] == [True] * 3
    assert all(message.isprintable() for message in caplog.messages)


@pytest.mark.parametrize(
    "pattern", ["77/{job}*.trace", "77/*{job}.trace", "{job}*/8.trace", "*{job}/*.trace"]
)
def test_a_wildcard_beside_the_job_is_one_wildcard(tmp_path: Path, pattern: str) -> None:
    node = FollowedNode(tmp_path, pattern)
    (node.folder / "77/deep/er").mkdir(parents=True)
    append(node.folder / "77/8.trace", write(0))
    append(node.folder / "77/deep/8.trace", write(1))
    append(node.folder / "77/deep/er/8.trace", write(2))
    node.poll()
    assert node.offsets() == [0]


def test_logs_stay_while_their_folder_cannot_be_read(
    node: FollowedNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append(node.folder / "77/a.trace", write(0))
    node.poll()
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(os, "scandir", failing(os.scandir, "/logs"))
        patch.setattr(Path, "lstat", failing(Path.lstat, ".trace"))
        append(node.folder / "77/a.trace", write(1))
        append(node.folder / "77/b.trace", write(2))
        for _ in range(3):
            node.poll()
        assert node.offsets() == [0, 512]
        assert [message.endswith("Stale file handle") for message in caplog.messages] == [True]
    node.poll()
    assert node.offsets() == [0, 512, 1024]


def test_a_folder_that_cannot_be_read_keeps_no_other_pattern_waiting(
    node: FollowedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = node.folder.with_name("other")
    other.mkdir()
    node.settings = TracesSettings((*node.settings.files, f"{other}/*.trace"))
    node.start()
    monkeypatch.setattr(os, "scandir", failing(os.scandir, "/logs"))
    append(other / "a.trace", write(0))
    node.poll()
    assert node.offsets() == [0]


def test_a_deleted_log_without_a_last_newline_is_closed(node: FollowedNode) -> None:
    for name in "abc":
        append(node.folder / f"77/{name}.trace", write(0) + "1763650001.5 cn-17 wri")
    node.poll()
    for name in "abc":
        (node.folder / f"77/{name}.trace").unlink()
    node.poll(2)
    assert open_deleted(node) == 3
    node.poll()
    assert open_deleted(node) == 0
    assert node.offsets() == [0, 0, 0]


def test_a_deleted_log_that_cannot_be_read_is_closed(
    node: FollowedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = node.folder / "77/a.trace"
    append(log, write(0))
    node.poll()
    append(log, write(1))
    log.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", failing_read)
        for _ in range(3):
            node.poll()
    assert open_deleted(node) == 0


def failing_read(*_: object) -> bytes:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_the_number_of_deleted_logs_that_are_open_is_bounded(
    node: FollowedNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(follow, "MAX_LOGS", 3)
    with caplog.at_level(logging.WARNING):
        for at in range(5):
            log = node.folder / f"77/{at}.trace"
            append(log, write(at))
            node.poll(1)
            log.unlink()
            node.poll(1)
    assert open_deleted(node) == 3
    assert caplog.messages == ["traces: files: more than 3 deleted logs are not read to their end"]


@pytest.mark.parametrize("deleted", [False, True])
def test_large_logs_do_not_keep_others_waiting(node: FollowedNode, deleted: bool) -> None:
    large = [node.folder / f"77/{at}.trace" for at in range(2)]
    for log in large:
        with log.open("wb") as file:
            file.truncate(100 * MOST_READ_BYTES)
    for at, name in enumerate("abc"):
        append(node.folder / f"77/{name}.trace", write(at))
    node.poll()
    if deleted:
        for log in large:
            log.unlink()
    for _ in range(3):
        node.poll()
    assert node.offsets() == [0, 512, 1024]
    for at, name in enumerate("abc", 3):
        append(node.folder / f"77/{name}.trace", write(at))
    for _ in range(2):
        node.poll()
    assert node.offsets()[3:] == [1536, 2048, 2560]


def test_an_error_while_a_log_is_read_loses_no_record(
    node: FollowedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(node.folder / "77/a.trace", write(0))
    node.poll()
    append(node.folder / "77/a.trace", "".join(write(at) for at in range(1, 9)))
    real = os.pread
    for good_reads in range(6):
        calls = count()

        def pread(*args: int, calls: Iterator[int] = calls, most: int = good_reads) -> bytes:
            return real(*args) if next(calls) < most else failing_read()

        monkeypatch.setattr(os, "pread", pread)
        node.poll()
    assert node.offsets() == [at * 512 for at in range(9)]


def test_records_that_sum_to_more_than_a_position_are_several_runs(node: FollowedNode) -> None:
    line = f"1763650001 cn-17 write 1:1 - {MAX_POSITION // 2} /p\n"
    append(node.folder / "77/a.trace", 5 * line)
    node.poll()
    assert [each.count for each in node.records()] == [2, 2, 1]
