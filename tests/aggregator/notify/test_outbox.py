import sqlite3
from pathlib import Path

import pytest

from laggard_aggregator.notify.incidents import Case
from laggard_aggregator.notify.outbox import NAME, Ledger, Queued, Told
from laggard_common.errors import StateError

NOW = 1_760_000_000.0
CASE = Case("oss-1/a", "oss-1/sda", "luns", "component", "await", 4.0, NOW - 100)
TOLD = Told("c1", CASE, NOW, "s.c1")
MAIL = Queued("s.c1", NOW, ("a@example.org", "b@example.org"), b"From: x\r\n\r\nbody")


def again(ledger: Ledger, tmp_path: Path) -> Ledger:
    """As a process finds it that comes after one that was killed: nothing was closed."""
    found = Ledger(tmp_path, NOW + 1000)
    ledger.close()
    return found


def test_a_mail_and_what_it_tells_of_outlive_the_process(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, NOW)
    ledger.queue(MAIL, [TOLD])
    ledger = again(ledger, tmp_path)
    assert (ledger.waiting(), ledger.open_cases(), ledger.began_at) == ([MAIL], [TOLD], NOW)
    ledger.still_for("s.c1", ("b@example.org",))
    assert ledger.waiting()[0].recipients == ("b@example.org",)
    ledger.ended("s.c1", "sent")
    ledger = again(ledger, tmp_path)
    assert (ledger.waiting(), ledger.open_cases()) == ([], [TOLD])
    ledger.close()


def test_a_mail_is_queued_once_whatever_became_of_it(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, NOW)
    ledger.queue(MAIL, [TOLD])
    ledger.queue(MAIL, [TOLD])
    assert ledger.waiting() == [MAIL]
    ledger.ended("s.c1", "sent")
    ledger.queue(MAIL, [TOLD])
    assert ledger.waiting() == []
    ledger.close()


def test_a_case_ends_with_the_mail_that_says_so() -> None:
    ledger = Ledger(None, NOW)
    ledger.queue(MAIL, [TOLD])
    ledger.queue(Queued("r.1", NOW + 1, ("a@example.org",), b"over"), [], ["c1"])
    assert ledger.open_cases() == []
    assert [mail.id for mail in ledger.waiting()] == ["s.c1", "r.1"]
    ledger.close()


def test_mails_are_counted_by_the_hour_and_forgotten_when_they_ended() -> None:
    ledger = Ledger(None, NOW)
    ledger.queue(MAIL, [])
    ledger.queue(Queued("s.2", NOW + 50, (), b""), [])
    ledger.ended("s.c1", "refused")
    assert ledger.queued_since(NOW - 1) == 2
    assert ledger.queued_since(NOW) == 1
    ledger.prune(NOW + 100)
    assert [mail.id for mail in ledger.waiting()] == ["s.2"]
    assert ledger.queued_since(NOW - 1) == 1
    ledger.close()


def test_courses_are_kept_whole() -> None:
    ledger = Ledger(None, NOW)
    ledger.keep_courses({"a": b"1", "b": b"2"})
    ledger.keep_courses({"b": b"3"})
    assert ledger.courses() == {"b": b"3"}
    ledger.close()


@pytest.mark.parametrize("content", [b"no database" * 400, b"SQLite format 3\0" + bytes(4000)])
def test_what_is_damaged_is_put_aside(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / NAME).write_bytes(content)
    ledger = Ledger(tmp_path, NOW)
    assert ledger.open_cases() == []
    assert (tmp_path / "mail.damaged").read_bytes() == content
    assert len(caplog.records) == 1
    ledger.close()


def test_one_of_a_later_version_is_put_aside(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / NAME)
    db.execute("PRAGMA user_version = 7")
    db.close()
    ledger = Ledger(tmp_path, NOW)
    assert ledger.waiting() == []
    ledger.close()


def test_a_directory_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="unable to open database file"):
        Ledger(tmp_path / "nowhere", NOW)


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, NOW)
    ledger.queue(MAIL, [TOLD])
    ledger._db.execute("PRAGMA max_page_count = 8")
    with pytest.raises(StateError, match="full"):
        ledger.queue(Queued("s.2", NOW, (), bytes(100_000)), [Told("c2", CASE, NOW, "s.2")])
    assert (ledger.waiting(), ledger.open_cases()) == ([MAIL], [TOLD])
    ledger.ended("s.c1", "sent")
    assert ledger.waiting() == []
    ledger.close()
