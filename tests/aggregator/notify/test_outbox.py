import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from laggard_aggregator.notify.incidents import Incident, digest
from laggard_aggregator.notify.outbox import NAME, Outbox, QueuedMessage
from laggard_common.errors import LaterVersionError, StateError

VERSION_1 = Path(__file__).parents[2] / "fixtures" / "mail" / "outbox-version-1.db"
NOW = 1_760_000_000.0
OPEN = Incident("oss-1/a", "oss-1/sda", "luns", "component", "await", 4.0, NOW - 100, "c1", "s.c1")
MAIL = QueuedMessage("s.c1", NOW, ("a@example.org", "b@example.org"), b"From: x\r\n\r\nbody")


def reopened(outbox: Outbox, tmp_path: Path) -> Outbox:
    """As a process finds it that comes after one that was killed: nothing was closed."""
    found = Outbox(tmp_path, NOW + 1000)
    outbox.close()
    return found


def test_a_mail_and_what_it_tells_of_outlive_the_process(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, NOW)
    outbox.queue("mail", MAIL, [OPEN])
    outbox = reopened(outbox, tmp_path)
    assert (outbox.waiting("mail"), outbox.open_incidents("mail"), outbox.began_at) == ([MAIL], [OPEN], NOW)
    outbox.set_recipients("mail", "s.c1", ("b@example.org",))
    assert outbox.waiting("mail")[0].recipients == ("b@example.org",)
    outbox.set_outcome("mail", "s.c1", "sent")
    outbox = reopened(outbox, tmp_path)
    assert (outbox.waiting("mail"), outbox.open_incidents("mail")) == ([], [OPEN])
    outbox.close()


def test_a_mail_is_queued_once_whatever_became_of_it(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, NOW)
    outbox.queue("mail", MAIL, [OPEN])
    outbox.queue("mail", MAIL, [OPEN])
    assert outbox.waiting("mail") == [MAIL]
    outbox.set_outcome("mail", "s.c1", "sent")
    outbox.queue("mail", MAIL, [OPEN])
    assert outbox.waiting("mail") == []
    outbox.close()


def test_a_case_ends_with_the_mail_that_says_so() -> None:
    outbox = Outbox(None, NOW)
    outbox.queue("mail", MAIL, [OPEN])
    outbox.queue("mail", QueuedMessage("r.1", NOW + 1, ("a@example.org",), b"over"), [], ["c1"])
    assert outbox.open_incidents("mail") == []
    assert [mail.id for mail in outbox.waiting("mail")] == ["s.c1", "r.1"]
    outbox.close()


def test_mails_are_counted_by_the_hour_and_forgotten_when_they_ended() -> None:
    outbox = Outbox(None, NOW)
    outbox.queue("mail", MAIL, [])
    outbox.queue("mail", QueuedMessage("s.2", NOW + 50, (), b""), [])
    outbox.set_outcome("mail", "s.c1", "refused")
    assert outbox.queued_since("mail", NOW - 1) == 2
    assert outbox.queued_since("mail", NOW) == 1
    outbox.prune(NOW + 100)
    assert [mail.id for mail in outbox.waiting("mail")] == ["s.2"]
    assert outbox.queued_since("mail", NOW - 1) == 1
    outbox.close()


def test_timelines_are_saved_whole() -> None:
    outbox = Outbox(None, NOW)
    outbox.save_timelines({"a": b"1", "b": b"2"})
    outbox.save_timelines({"b": b"3"})
    assert outbox.timelines() == {"b": b"3"}
    outbox.close()


@pytest.mark.parametrize("content", [b"no database" * 400, b"SQLite format 3\0" + bytes(4000)])
def test_what_is_damaged_is_put_aside(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / NAME).write_bytes(content)
    outbox = Outbox(tmp_path, NOW)
    assert outbox.open_incidents("mail") == []
    assert (tmp_path / "mail.damaged").read_bytes() == content
    assert len(caplog.records) == 1
    outbox.close()


def test_a_damaged_schema_is_put_aside(tmp_path: Path) -> None:
    """SQLite quotes the schema's bytes in its error, where they are no text."""
    Outbox(tmp_path, NOW).close()
    content = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(content.replace(b"CREATE TABLE ", b"CREATE TABLE\xff"))
    Outbox(tmp_path, NOW).close()
    assert (tmp_path / "mail.damaged").exists()


def test_one_of_a_later_version_stays_as_it_is(tmp_path: Path) -> None:
    """A new one in its place would report standing alarms again, and the later version would miss its own."""
    db = sqlite3.connect(tmp_path / NAME)
    db.execute("PRAGMA user_version = 7")
    db.close()
    before = (tmp_path / NAME).read_bytes()
    with pytest.raises(
        LaterVersionError, match=r"mail\.db: is of a later version of Laggard: start that one"
    ):
        Outbox(tmp_path, NOW)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    assert (tmp_path / NAME).read_bytes() == before


def test_a_directory_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="unable to open database file"):
        Outbox(tmp_path / "nowhere", NOW)


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, NOW)
    outbox.queue("mail", MAIL, [OPEN])
    outbox._db.execute("PRAGMA max_page_count = 8")
    other = replace(OPEN, id="c2", message="s.2")
    with pytest.raises(StateError, match="full"):
        outbox.queue("mail", QueuedMessage("s.2", NOW, (), bytes(100_000)), [other])
    assert (outbox.waiting("mail"), outbox.open_incidents("mail")) == ([MAIL], [OPEN])
    outbox.set_outcome("mail", "s.c1", "sent")
    assert outbox.waiting("mail") == []
    outbox.close()


def test_an_outbox_of_version_1_is_migrated(tmp_path: Path) -> None:
    """The file of an aggregator that had mail alone: one mail sent, one refused for one of two recipients."""
    shutil.copy(VERSION_1, tmp_path / NAME)
    outbox = Outbox(tmp_path, NOW + 1000)
    opened = {each.component: each for each in outbox.open_incidents("mail")}
    assert replace(opened["oss-1/wwn-1"], id="", message="") == Incident(
        "oss-1/wwn-1", "oss-1/sd1", "luns", "component", "await", 4.0, NOW - 100
    )
    waiting = opened["oss-2/wwn-2"]
    assert waiting.id == digest("site", waiting.component, repr(waiting.since))
    (message,) = outbox.waiting("mail")
    assert (message.id, message.recipients) == (waiting.message, ("b@example.org",))
    assert message.message.startswith(b"From: Laggard <laggard@example.org>\r\n")
    assert (outbox.began_at, outbox.queued_since("mail", NOW - 1)) == (NOW, 2)
    assert list(outbox.timelines()) == ['["luns", "oss-1/wwn-1", "await", 1759999900.0]']
    outbox.queue("mail", replace(message, id=opened["oss-1/wwn-1"].message))  # as that mail was sent
    again = reopened(outbox, tmp_path)
    assert again.waiting("mail") == [message]
    again.close()


def test_channels_share_the_outbox_and_nothing_else() -> None:
    outbox = Outbox(None, NOW)
    outbox.queue("mail", MAIL, [OPEN])
    outbox.queue("webhook", replace(MAIL, recipients=("webhook",)), [OPEN])
    outbox.set_outcome("mail", MAIL.id, "sent")
    outbox.close_incidents("webhook", [OPEN.id])
    assert (outbox.waiting("mail"), len(outbox.waiting("webhook"))) == ([], 1)
    assert (outbox.open_incidents("mail"), outbox.open_incidents("webhook")) == ([OPEN], [])
    outbox.close()
