"""Files of the outbox become documents, each once; everything else is refused and harms nothing."""

import errno
import logging
import os
from pathlib import Path

import pytest
import zstandard

from laggard_agent.sampling.batcher import EncodedBatch
from laggard_agent.transport.outbox import MAX_FILES, NodeOutbox
from laggard_common.wire import Kind
from laggard_common.wire.limits import MAX_EVENT_BYTES


class Stored(list[EncodedBatch]):
    """A spool that has room, or none."""

    room = True

    def store(self, document: EncodedBatch) -> bool:
        if self.room:
            self.append(document)
        return self.room

    def contents(self) -> list[tuple[str, bytes]]:
        return [(each.source, zstandard.ZstdDecompressor().decompress(each.payload)) for each in self]


def outbox(folder: Path) -> tuple[NodeOutbox, Stored]:
    stored = Stored()
    return NodeOutbox(folder, stored.store, lambda: 17), stored


def test_files_are_sent_by_name_and_deleted(tmp_path: Path) -> None:
    made, stored = outbox(tmp_path)
    (tmp_path / "2.jobs").write_bytes(b"second")
    (tmp_path / "1.layers").write_bytes(b"first")
    (tmp_path / ".3.jobs").write_bytes(b"unfinished")
    assert made.send() == 2
    assert stored.contents() == [("layers", b"first"), ("jobs", b"second")]
    assert {(each.kind, each.n, each.t0_ns) for each in stored} == {(Kind.EVENTS, 1, 17)}
    assert [path.name for path in tmp_path.iterdir()] == [".3.jobs"]
    assert made.send() == 0


def test_files_wait_while_the_spool_has_no_room(tmp_path: Path) -> None:
    made, stored = outbox(tmp_path)
    stored.room = False
    (tmp_path / "1.jobs").write_bytes(b"x")
    assert made.send() == 0
    stored.room = True
    assert made.send() == 1
    assert stored.contents() == [("jobs", b"x")]


def test_a_poll_is_bounded(tmp_path: Path) -> None:
    made, stored = outbox(tmp_path)
    for number in range(MAX_FILES + 3):
        (tmp_path / f"{number:03d}.jobs").write_bytes(b"%d" % number)
    assert [made.send(), made.send()] == [MAX_FILES, 3]
    assert [content for _, content in stored.contents()] == [b"%d" % n for n in range(MAX_FILES + 3)]


def test_what_is_no_document_is_deleted_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made, stored = outbox(tmp_path)
    secret = tmp_path / ".secret"
    secret.write_bytes(b"secret")
    (tmp_path / "a.jobs").symlink_to(secret)
    (tmp_path / "b.jobs").touch()
    (tmp_path / "c.jobs").write_bytes(bytes(MAX_EVENT_BYTES + 1))
    (tmp_path / "d\x1b[31m.txt").write_bytes(b"x")
    os.mkfifo(tmp_path / "e.jobs")
    (tmp_path / "f.jobs").write_bytes(bytes(MAX_EVENT_BYTES))
    with caplog.at_level(logging.WARNING):
        assert made.send() == 1
    assert [len(content) for _, content in stored.contents()] == [MAX_EVENT_BYTES]
    assert [path.name for path in tmp_path.iterdir()] == [".secret"]
    assert len(caplog.messages) == 5
    assert "\x1b" not in caplog.text


def test_a_folder_that_cannot_be_used_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made, stored = outbox(tmp_path / "missing")
    with caplog.at_level(logging.WARNING):
        assert [made.send(), made.send()] == [0, 0]
    assert len(caplog.messages) == 1
    (tmp_path / "missing").mkdir()
    (tmp_path / "missing" / "1.jobs").write_bytes(b"x")
    assert made.send() == 1
    assert len(stored) == 1


def test_a_folder_with_a_documents_name_holds_up_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made, stored = outbox(tmp_path)
    for number in range(2 * MAX_FILES):
        (tmp_path / f"a{number:03}.jobs").mkdir()
    (tmp_path / "b.jobs").write_bytes(b"x")
    with caplog.at_level(logging.WARNING):
        assert [made.send() for _ in range(5)] == [0, 0, 1, 0, 0]
    assert stored.contents() == [("jobs", b"x")]
    assert len(caplog.messages) == 2 * MAX_FILES, "each is named once"
    assert "is no regular file" in made.problem
    assert f"{2 * MAX_FILES - 1} more" in made.problem
    for number in range(2 * MAX_FILES):
        (tmp_path / f"a{number:03}.jobs").rmdir()
    made.send()
    assert made.problem == ""


def test_a_file_that_cannot_be_deleted_is_spooled_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a folder in which the agent may not write, or of another user with the sticky bit."""
    made, stored = outbox(tmp_path)
    unlink = Path.unlink

    def refuse(path: Path) -> None:
        if path.name == "1.jobs":
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))
        unlink(path)

    monkeypatch.setattr(Path, "unlink", refuse)
    (tmp_path / "1.jobs").write_bytes(b"kept")
    (tmp_path / "2.jobs").write_bytes(b"next")
    with caplog.at_level(logging.WARNING):
        assert [made.send() for _ in range(5)] == [2, 0, 0, 0, 0]
    assert stored.contents() == [("jobs", b"kept"), ("jobs", b"next")]
    assert len(caplog.messages) == 1
    assert made.problem.startswith("1.jobs: cannot be read or deleted: Operation not permitted")
    monkeypatch.undo()
    assert made.send() == 0
    assert (list(tmp_path.iterdir()), made.problem) == ([], "")


def test_a_file_that_cannot_be_read_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, stored = outbox(tmp_path)
    (tmp_path / "1.jobs").write_bytes(b"first")
    (tmp_path / "2.jobs").write_bytes(b"second")
    real_open = os.open

    def refuse(path: Path, *arguments: int) -> int:
        if path.name == "1.jobs":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real_open(path, *arguments)

    monkeypatch.setattr(os, "open", refuse)
    assert [made.send(), made.send()] == [1, 0]
    monkeypatch.undo()
    assert made.send() == 1
    assert [content for _, content in stored.contents()] == [b"second", b"first"]
