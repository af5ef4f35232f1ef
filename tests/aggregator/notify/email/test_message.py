"""Mails as a mail program reads them: parsed again, with hostile names in them."""

import email
import re
import shlex
from dataclasses import replace
from email import policy
from email.message import EmailMessage
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.alarms.overrides import Decision
from laggard_aggregator.notify.email.channel import compose
from laggard_aggregator.notify.report import MAX_LISTED, Notification, live_command
from laggard_aggregator.status.formatting import plain
from laggard_aggregator.status.location import Location
from tests.support.builders.notifications import NOW, PAGE, raised, report, resolution, resolved
from tests.support.smtp import settings

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
SETTINGS = settings(25, recipients=("ops@example.org", "Second <b@example.org>"))
GOLDENS = Path(__file__).parents[3] / "fixtures" / "mail"
MAX_MAIL_BYTES = 256 * 1024


def parsed(raw: bytes) -> EmailMessage:
    message = email.message_from_bytes(raw, policy=policy.default)
    assert isinstance(message, EmailMessage)
    assert message.defects == []
    return message


def text(message: EmailMessage, kind: str) -> str:
    part = message.get_body((kind,))
    assert part is not None
    return str(part.get_content()).replace("\r\n", "\n")


def written(notification: Notification, plot: bytes | None = None) -> EmailMessage:
    return parsed(compose(notification, SETTINGS, plot))


def normalized(message: EmailMessage) -> str:
    """Headers but the date, and the parts without boundaries and picture."""
    headers = [f"{k}: {v}\n" for k, v in message.items() if k not in ("Date", "Content-Type")]
    parts = [
        f"== {part.get_content_type()}\n"
        + (part.get_content().replace("\r\n", "\n") if part.get_content_maintype() == "text" else "")
        for part in message.walk()
    ]
    return "".join(headers + parts)


OF_A_NODE = report(level="node", causes=(("smbd/libc.so.6/memcpy", 1234.0), ("kernel/[k]/copy_page", 56.0)))
FIVE = [report(f"oss-{n}/sda") for n in range(1, 6)]
GONE = resolution(recovered=False)


@pytest.mark.parametrize(
    ("name", "notification", "plot"),
    [
        ("straggler", raised("s.1", report("oss-3/sdb")), PNG),
        ("straggler-functions", raised("s.2", OF_A_NODE), None),
        ("digest", raised("d.1", *FIVE, count=70), PNG),
        ("resolved", resolved("r.1", resolution()), None),
        (
            "resolved-many",
            resolved("r.2", GONE, resolution("oss-2/b"), count=9, resolves=("s.1", "d.2")),
            None,
        ),
        ("test", raised("t.1", report("oss-3/sdb"), kind="test"), None),
    ],
)
def test_mails_read_as_the_goldens(name: str, notification: Notification, plot: bytes | None) -> None:
    assert normalized(written(notification, plot)) == (GOLDENS / f"{name}.txt").read_text()


class Tags(HTMLParser):
    """The tags of a page, the addresses it would go to, and the text between."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.handlers: list[str] = []
        self.said = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.said += data


def test_subject_and_first_lines_say_who_how_much_and_since_when() -> None:
    message = written(raised("s.1", report(name="oss-3/sdb")), PNG)
    assert message["Subject"] == (
        "[Laggard site] oss-3/sdb has been 3.9 times slower than its peers for 6 h (await)"
    )
    since = "since 2025-10-09 03:01 UTC: await 83.3 ms, peers 21.5 ms."
    first = text(message, "plain").split("\n\n")[0].splitlines()
    assert first[:2] == ["oss-3/sdb is 3.9 times slower than its peers.", f"For 6 h, {since}"]
    page = Tags(text(message, "html")).said.replace("\N{NO-BREAK SPACE}", " ")
    assert page.index("oss-3/sdb") < page.index("is 3.9 times slower") < page.index(since)


def test_what_is_slow_at_times_is_said() -> None:
    comparison = replace(report().worst, at_times="9.0× in 33 % of the time")
    message = written(raised("s.1", report(comparisons=(comparison,))), PNG)
    for said in (text(message, "plain"), Tags(text(message, "html")).said):
        assert "It is slow at times: 9.0× in 33 % of the time." in said.replace("\N{NO-BREAK SPACE}", " ")
    assert "at times" not in text(written(raised("s.1", report()), PNG), "plain")
    reports = [report("oss-1/a", comparisons=(comparison,)), report("oss-1/b")]
    digest = written(raised("d.1", *reports, count=2), PNG)
    for said in (text(digest, "plain"), Tags(text(digest, "html")).said):
        assert said.lower().count("slow at times: 9.0× in 33 % of the time") == 1


def test_the_located_cause_is_said() -> None:
    disk = Location("lun", "oss-3/wwn-5", "await of oss-3/<b>sdb 4.1×: the disk", "oss-3/<b>sdb")
    message = written(raised("s.1", report(location=disk)), PNG)
    for said in (text(message, "plain"), Tags(text(message, "html")).said):
        assert "Located: the disk, lun oss-3/<b>sdb" in said
    assert "Located" not in text(written(raised("s.1", report()), PNG), "plain")
    several = Location("server", "oss-3", "request times of oss-3 4.1×, await 1.0×: the server", "oss-3")
    message = written(raised("s.1", report(location=several)), PNG)
    for said in (text(message, "plain"), Tags(text(message, "html")).said):
        assert "request times of oss-3 4.1×, await 1.0×" in said


def test_the_worst_average_is_said_only_where_it_exceeds_the_factors_now() -> None:
    assert "on average" not in text(written(raised("s.1", report()), PNG), "plain")
    recovering = replace(report().worst, worst_severity=40.0)
    mail = text(written(raised("s.1", report(comparisons=(recovering,))), PNG), "plain")
    assert "; 3.9×, earlier up to 40× on average; since" in mail.replace("\N{NO-BREAK SPACE}", " ")


def test_only_names_may_break_within_a_word_and_a_digest_has_two_columns() -> None:
    """On a phone of 390 px, columns of single words were broken: `compon ent`."""
    html = text(written(raised("d.1", *FIVE, count=70), None), "html")
    rows = re.findall(r"<tr>(<td[^>]*><a [^>]*href.*?)</tr>", html)
    assert [row.count("<td") for row in rows] == [2] * len(FIVE)
    assert "<th" not in html
    for each in (html, text(written(raised("s.1", report()), None), "html")):
        breaking = re.findall(r"<(\w+) [^>]*overflow-wrap:anywhere", each)
        assert breaking
        assert not {"th", "td", "table"} & set(breaking)


def test_the_plot_is_inside_of_the_html_and_beside_the_text() -> None:
    message = written(raised("s.1", report()), PNG)
    assert [part.get_content_type() for part in message.walk()] == [
        "multipart/alternative",
        "text/plain",
        "multipart/related",
        "text/html",
        "image/png",
    ]
    (picture,) = (part for part in message.walk() if part.get_content_type() == "image/png")
    assert picture.get_payload(decode=True) == PNG
    assert f"cid:{picture['Content-ID'].strip('<>')}" in Tags(text(message, "html")).links


def test_without_a_plot_both_say_so() -> None:
    message = written(raised("s.1", report()), None)
    assert [part.get_content_type() for part in message.walk()] == [
        "multipart/alternative",
        "text/plain",
        "text/html",
    ]
    for kind in ("plain", "html"):
        assert "No plot" in text(message, kind)


def test_who_it_is_from_to_and_for_programs() -> None:
    message = written(raised("s.1", report()), PNG)
    assert message["From"] == "Laggard <laggard@example.org>"
    assert message["To"] == "ops@example.org, Second <b@example.org>"
    assert message["Message-ID"] == "<laggard.s.1@example.org>"
    assert message["Auto-Submitted"] == "auto-generated"
    assert (message["X-Laggard-Site"], message["X-Laggard-Kind"]) == ("site", "straggler")
    assert message["Date"].datetime.tzinfo is not None


def test_evidence_functions_commands_and_link_are_in_both() -> None:
    message = written(raised("s.1", replace(OF_A_NODE, url=f"{PAGE}/component/a/b")))
    for said in (text(message, "plain"), Tags(text(message, "html")).said):
        for each in ("smbd/libc.so.6/memcpy", "1,234", "ssh oss-made-up iostat -x 5", "await"):
            assert each in said
    assert f"{PAGE}/component/a/b" in text(message, "plain").splitlines()
    assert f"{PAGE}/component/a/b" in Tags(text(message, "html")).links


def test_comments_tickets_and_the_form_of_a_silence_are_in_both() -> None:
    ticket, form = "https://tickets.example.org/4711", f"{PAGE}/component/luns/oss-3/wwn?act=silence#act"
    hostile = "<b>ordered</b>\nby \x1b[1mme"
    comments = (
        Decision("comment", "oss-3", "alice", NOW - 60, comment=hostile, ticket=ticket),
        Decision("silence", "oss-3", "bob", NOW - 120, comment="older"),
    )
    made = report("oss-3/sdb", comments=comments, silence_url=form)
    for notification in (raised("s.1", made), raised("d.1", made, made, count=2)):
        message = written(notification)
        page, shown = Tags(text(message, "html")), text(message, "plain")
        assert ticket in page.links
        assert "b" not in page.tags
        assert ticket in shown
        for said in (page.said, shown):
            assert "<b>ordered</b>\ufffdby \ufffd[1mme" in said
            assert "alice" in said
    message = written(raised("s.1", made))
    assert form in Tags(text(message, "html")).links
    assert f"To silence it: {form}" in text(message, "plain")
    assert "older" in text(message, "plain")


def test_a_digest_lists_the_worst_and_counts_the_rest() -> None:
    many = [report(f"oss-{n}/sda", 9.0) for n in range(MAX_LISTED)]
    message = written(raised("d.1", *many, count=70), PNG)
    assert message["Subject"] == (
        "[Laggard site] 70 components are slow, oss-0/sda the most (3.9×, 9.0× on average)"
    )
    for said in (text(message, "plain"), Tags(text(message, "html")).said):
        assert all(f"oss-{n}/sda" in said for n in range(MAX_LISTED))
        assert "And 20 more." in said
    assert len(message.as_bytes()) < MAX_MAIL_BYTES


def test_a_resolved_mail_belongs_to_the_thread() -> None:
    message = written(resolved("r.1", resolution()))
    assert message["Subject"] == "[Laggard site] oss-1/sda keeps up with its peers again, after 2 h"
    assert message["In-Reply-To"] == message["References"] == "<laggard.s.1@example.org>"
    for said in (text(message, "plain"), Tags(text(message, "html")).said):
        assert "2 h" in said
        assert (
            "to 2025-10-09 09:01 UTC. When it was reported, it was 4.0× slower than its peers on average."
            in said
        )


def test_one_that_is_gone_has_not_recovered() -> None:
    message = written(resolved("r.1", GONE, resolution("oss-2/b"), count=9, resolves=("s.1", "d.2")))
    assert message["Subject"] == "[Laggard site] 9 components are no longer slow, oss-1/sda among them"
    assert message["References"].split() == ["<laggard.s.1@example.org>", "<laggard.d.2@example.org>"]
    assert "It was removed, forgotten, or moved to another group." in text(message, "plain")
    for said in (text(message, "plain"), Tags(text(message, "html")).said):
        assert "And 7 more" in said


HOSTILE = (
    "x\r\nBcc: everyone@example.org\r\n\r\nnothing",
    "<script>alert(1)</script>",
    '"><img src=http://evil.example/p.png onerror=x>',
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% for x in y %}",
    "=?utf-8?q?forged?=",
    "\u202egnp.exe\u2066\x00\x1b[31m",
    "Ω" * 5000,
    "--===============",
    "\n.\n",
)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_only_text(name: str) -> None:
    first = report().worst
    comparisons = (replace(first, metric=plain(name), group=plain(name)), first)
    made = report(name, causes=((plain(name), 1.0),), comparisons=comparisons)
    plainly = written(raised("s.1", report()), PNG)
    for notification in (raised("s.1", made), raised("d.1", *[made] * 9, count=9)):
        raw = compose(notification, SETTINGS, PNG)
        message = parsed(raw)
        assert sorted(message.keys()) == sorted(plainly.keys())
        page = Tags(text(message, "html"))
        assert "script" not in page.tags
        assert page.handlers == []
        assert all(link.startswith((PAGE, "cid:plot")) for link in page.links)
        assert "49" not in page.said.replace(PAGE, "").split()
        assert len(raw) < MAX_MAIL_BYTES
        assert max(map(len, raw.split(b"\r\n"))) <= 998
    over = written(resolved("r.1", resolution(name)))
    assert "Bcc" not in over
    assert len(over["Subject"]) <= 180


@given(st.text())
def test_any_text_becomes_one_short_printable_line(name: str) -> None:
    shown = plain(name)
    assert shown.isprintable()
    assert len(shown) <= 160
    if name.isprintable() and len(name) <= 160:
        assert shown == name


def test_without_a_severity_there_is_no_factor() -> None:
    odd = report(severity=float("nan"), timeline=None)
    assert "has behaved unlike its peers for 6 h (await)" in written(raised("s.1", odd))["Subject"]
    assert "(" not in written(raised("d.1", *[odd] * 4, count=4))["Subject"]


def test_the_page_is_quoted() -> None:
    _, line = live_command("http://x/;reboot", needs_token=False)
    assert shlex.split(line) == ["laggard", "top", "--url", "http://x/;reboot"]
