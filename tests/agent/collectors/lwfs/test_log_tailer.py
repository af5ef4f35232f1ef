"""Every line of a log that is rotated is given out once, whatever happens to the file."""

import errno
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard_agent.collectors.lwfs.log_tailer import (
    FIRST_BYTES,
    MOST_LINE_BYTES,
    MOST_STEP_BYTES,
    Follower,
    OpenLog,
)
from tests.support.builders.lwfs import Log, meta, queue
from tests.support.clock import FakeClock
from tests.support.thorough import examples


def test_renamed_and_made_anew(tmp_path: Path) -> None:
    log = Log(tmp_path / "log").append(queue(1)).sample()
    log.append(queue(2))
    old = log.path.rename(tmp_path / "log.1")
    log.sample()  # nothing stands at the path now, but what is open goes on
    assert (log.queue(), log.count("found")) == ((1, 2), 0)
    log.append(queue(4))
    with old.open("a") as late:
        late.write(queue(8))
    log.sample()
    assert (log.queue(), log.count("rotations")) == ((3, 14), 1)
    with old.open("a") as late:  # whoever had it open still writes
        late.write(queue(16))
    log.append(queue(32)).sample()
    assert log.queue() == (5, 62)
    log.sample(20)
    with old.open("a") as late:
        late.write(queue(1000))
    assert log.sample().queue() == (5, 62)


def test_renamed_in_the_middle_of_a_line(tmp_path: Path) -> None:
    log = Log(tmp_path / "log").sample()
    line = queue(7)
    log.append(line[:30]).sample()
    old = log.path.rename(tmp_path / "log.1")
    log.append(queue(1)).sample()
    with old.open("a") as late:
        late.write(line[30:] + queue(2)[:50])
    assert log.sample().queue() == (2, 8)
    assert log.count("lines_torn") == 0
    log.sample(20)
    assert (log.count("lines_torn"), log.count("rotations")) == (1, 1)


def test_an_older_file_that_cannot_be_read_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path / "log").append(queue(1)).sample()
    log.path.rename(tmp_path / "log.1")
    bad = (tmp_path / "log.1").stat().st_ino
    read = os.pread

    def failing(fd: int, size: int, at: int) -> bytes:
        if os.fstat(fd).st_ino == bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(fd, size, at)

    monkeypatch.setattr(os, "pread", failing)
    log.append(queue(2))
    assert log.sampled.sample().error == f"{log.path}: Input/output error"
    assert log.queue() == (1, 2)
    log.append(queue(4))
    log.sampled.sample(20)
    assert log.queue() == (2, 6)
    assert log.append(queue(8)).sample().queue() == (3, 14), "it is left after its time"


def test_what_is_open_is_read_while_something_else_stands_at_the_path(tmp_path: Path) -> None:
    log = Log(tmp_path / "log").append(queue(1)).sample()
    old = log.path.rename(tmp_path / "log.1")
    os.mkfifo(log.path)
    with old.open("a") as late:
        late.write(queue(2))
    assert log.sampled.sample().error == f"{log.path}: not a regular file"
    assert (log.queue(), log.count("behind_bytes")) == ((1, 2), 0)


def test_a_file_that_tells_nothing_of_itself_has_an_unknown_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path / "log").append(queue(1)).sample()

    looked_at, own = os.fstat, log.path.stat().st_ino

    def stale(fd: int) -> os.stat_result:
        if (found := looked_at(fd)).st_ino == own:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return found

    monkeypatch.setattr(os, "fstat", stale)
    assert log.sampled.sample().error == f"{log.path}: Stale file handle"
    assert log.count("behind_bytes") is None


def test_truncated(tmp_path: Path) -> None:
    log = Log(tmp_path / "log").sample()
    log.append(queue(1) + queue(2)).sample()
    log.path.write_text(queue(4))
    assert log.sample().queue() == (3, 7)
    assert (log.count("truncations"), log.count("rotations")) == (1, 0)


def test_truncated_and_written_past_the_place_that_was_reached(tmp_path: Path) -> None:
    log = Log(tmp_path / "log").sample()
    log.append(queue(1)).sample()
    log.path.write_text("\n" + queue(3) * 50)
    assert log.sample().queue() == (51, 151)
    assert log.count("truncations") == 1


def test_truncated_and_written_to_the_same_length(tmp_path: Path) -> None:
    log = Log(tmp_path / "log").sample()
    log.append(queue(1)).sample()
    log.path.write_text(queue(2))
    assert log.sample().queue() == (2, 3)


def test_copied_and_truncated_loses_nothing_that_was_copied(tmp_path: Path) -> None:
    log = Log(tmp_path / "log").sample()
    line = queue(2)
    log.append(queue(1) + line[:20]).sample()
    log.append(line[20:] + queue(4))
    (tmp_path / "log.2").write_text(queue(500) * 20)  # an older one, and something that cannot be read as one
    (tmp_path / "log.d").mkdir()
    shutil.copy(log.path, tmp_path / "log.1")
    log.path.write_text(queue(8))
    assert log.sample().queue() == (4, 15)
    assert (log.count("truncations"), log.count("lines_torn")) == (1, 0)
    assert log.sample().queue() == (4, 15)


def test_truncated_without_a_copy_loses_what_was_not_read(tmp_path: Path) -> None:
    log = Log(tmp_path / "log").sample()
    log.append(queue(1) + queue(2)[:20]).sample()
    log.path.write_text(queue(8))
    assert log.sample().queue() == (2, 9)
    assert log.count("lines_torn") == 1


def test_a_line_without_its_end_is_not_believed(tmp_path: Path) -> None:
    log = Log(tmp_path / "log").sample()
    log.append(queue(12345)[:-3]).sample()
    assert log.sampled.ids("lwfs") == []
    log.append("45\n").sample()
    assert log.queue() == (1, 12345)


def test_a_very_long_line_is_passed_over_in_bounded_memory(tmp_path: Path) -> None:
    log = Log(tmp_path / "log").append(queue(1)).sample()
    with log.path.open("ab") as file:
        file.seek(100 * 1024 * 1024)
        file.truncate()  # zeros without a newline
    log.append("\n" + queue(2))
    for _ in range(40):
        log.sample()
        if not log.count("behind_bytes"):
            break
    assert (log.queue(), log.count("lines_too_long")) == ((1, 2), 1)


def test_a_step_is_bounded_and_what_is_left_comes_later(tmp_path: Path) -> None:
    log = Log(tmp_path / "log").sample()
    lines = 3 * MOST_STEP_BYTES // len(queue(1))
    log.append(queue(1) * lines).sample()
    assert 0 < (log.row()["queue_samples"] or 0) <= MOST_STEP_BYTES // len(queue(1))
    assert (log.count("behind_bytes") or 0) > MOST_STEP_BYTES
    old = log.path.rename(tmp_path / "log.1")
    log.append(meta(7))
    for _ in range(3):
        log.sample(30)
    assert (log.queue(), log.row()["meta_exe_0"]) == ((lines, lines), 7)
    assert old.exists()


def test_of_a_long_log_only_the_end_is_read_at_first(tmp_path: Path) -> None:
    log = Log(tmp_path / "log", "x" * FIRST_BYTES + "\n" + meta(3) + queue(1)).sample()
    assert (log.row()["meta_exe_0"], log.queue(), log.count("lines_too_long")) == (3, (0, 0), 0)


@pytest.mark.parametrize("length", [MOST_LINE_BYTES - 1, MOST_LINE_BYTES, MOST_LINE_BYTES + 1, 500_000])
def test_long_lines_of_any_length(tmp_path: Path, length: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a\n" + b"x" * length + b"\nb\n")
    log = OpenLog.open(path)
    lines, read = log.lines(10_000_000)
    assert read == length + 5
    assert [line for line in lines if len(line) < 10] == [b"a", b"b"]
    assert log.long_lines == (len(lines) == 2)
    log.close()


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["write", "write", "part", "rename", "copytruncate"]), st.booleans()),
    max_size=25,
)


@settings(max_examples=examples(100), deadline=None)
@given(ACTIONS)
def test_any_order_of_rotations(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, bool]]
) -> None:
    """Lines go in and come out once, in order.

    With at most one rotation between two steps, and none that copies a file of which nothing was read yet:
    nothing tells then that the copy is one.
    """
    folder = tmp_path_factory.mktemp("log")
    path = folder / "log"
    path.write_bytes(b"")
    clock = FakeClock()
    follower = Follower(path, clock.monotonic_ns)
    assert follower.lines() == []
    written: list[bytes] = []
    seen: list[bytes] = []
    rotated = False
    is_open = False
    is_known = False
    for number, (action, step) in enumerate(actions):
        line = b"line %d" % number
        if action == "rename" and not rotated and not is_open:
            path.rename(folder / f"log.{number}")
            path.write_bytes(b"")
            rotated, is_known = True, False
        elif action == "copytruncate" and not rotated and not is_open and is_known:
            shutil.copy(path, folder / f"log.{number}")
            path.write_bytes(b"")
            rotated, is_known = True, False
        else:
            with path.open("ab") as file:
                if is_open:
                    file.write(b"\n")
                file.write(line if action == "part" else line + b"\n")
            is_open = action == "part"
            written.append(line)
        if step:
            clock.sleep(1)
            seen += follower.lines()
            rotated, is_known = False, path.stat().st_size > 0
    if is_open:
        with path.open("ab") as file:
            file.write(b"\n")
    for _ in range(3):
        clock.sleep(20)
        seen += follower.lines()
    assert seen == written
    assert follower.behind_bytes() == 0
