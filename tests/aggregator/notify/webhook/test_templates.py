"""Payloads as a receiver reads them, with hostile names in them."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.alarms.overrides import Decision
from laggard_aggregator.notify.report import Notification
from laggard_aggregator.notify.webhook.templates import MAX_TEXT_CHARS, TEMPLATES, escaped, rendered
from laggard_aggregator.status.location import Location
from tests.support.builders.notifications import PAGE, raised, report, resolution, resolved

DOCUMENT = Path(__file__).parents[4] / "docs" / "webhook.md"
TICKET = "https://tickets.example.org/4711"
COMMENTS = (Decision("comment", "oss-3", "alice", 1.76e9, comment="disk ordered", ticket=TICKET),)
CAUSES = (("smbd/libc.so.6/memcpy", 1234.0),)
DISK = Location("lun", "oss-3/wwn-5", "await of oss-3/sdb 4.1×: the disk", "oss-3/sdb")


def payload(template: str, notification: Notification) -> Any:
    raw = rendered(template, notification)
    assert raw.isascii()
    return json.loads(raw)


def keys(value: Any) -> Iterator[str]:
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield key
        yield from keys(inner)
    for inner in value if isinstance(value, list) else ():
        yield from keys(inner)


def text_of(template: str, notification: Notification) -> str:
    made = payload(template, notification)
    text = made["blocks"][0]["text"]["text"] if template == "slack" else made["text"]
    assert isinstance(text, str)
    return text


def test_json_of_a_raised_incident() -> None:
    made = payload(
        "json", raised("s.1", report("oss-3/sdb", causes=CAUSES, comments=COMMENTS, location=DISK))
    )
    (incident,) = made.pop("incidents")
    (comparison,) = incident.pop("comparisons")
    assert made == {
        "version": 1,
        "id": "s.1",
        "kind": "straggler",
        "site": "site",
        "subject": "oss-3/sdb has been 3.9 times slower than its peers for 6 h (await)",
        "url": f"{PAGE}/",
        "resolves": [],
        "count": 1,
    }
    assert incident.pop("next_steps")[0] == {
        "purpose": "the disk now, beside its neighbours",
        "command": "ssh oss-made-up iostat -x 5",
    }
    assert incident == {
        "component": "oss-made-up/sdx",
        "name": "oss-3/sdb",
        "group": "storage/diskstats/made-up",
        "level": "component",
        "metric": "await",
        "since": "2025-10-09T03:01:40Z",
        "lasted_seconds": 21_600.0,
        "url": f"{PAGE}/",
        "status": "raised",
        "factor": pytest.approx(83.3 / 21.5, abs=0.01),
        "severity": 4.1,
        "peers": 63,
        "causes": [{"function": "smbd/libc.so.6/memcpy", "difference": 1234.0}],
        "located": {
            "level": "lun",
            "component": "oss-3/wwn-5",
            "name": "oss-3/sdb",
            "evidence": "await of oss-3/sdb 4.1×: the disk",
        },
        "beside": [],
        "silence_url": "",
        "comments": [
            {
                "comment": "disk ordered",
                "ticket": "https://tickets.example.org/4711",
                "by": "alice",
                "at": "2025-10-09T08:53:20Z",
            }
        ],
    }
    assert (comparison["metric"], comparison["unit"], comparison["since"]) == (
        "await",
        "ms",
        "2025-10-09T03:01:40Z",
    )
    assert comparison["observed"] > 3 * comparison["reference"] > 0


def test_json_of_a_cleared_incident() -> None:
    made = payload("json", resolved("r.1", resolution(recovered=False), resolves=("s.1", "d.2")))
    assert (made["kind"], made["resolves"], made["url"]) == (
        "resolved",
        ["s.1", "d.2"],
        f"{PAGE}/component/luns/oss-1/sda",
    )
    (incident,) = made["incidents"]
    assert {
        key: incident[key] for key in ("status", "ended_at", "recovered", "lasted_seconds", "severity")
    } == {
        "status": "cleared",
        "ended_at": "2025-10-09T09:01:40Z",
        "recovered": False,
        "lasted_seconds": 7200.0,
        "severity": 4.0,
    }


def test_unknown_numbers_are_null() -> None:
    made = payload("json", raised("s.1", report(severity=float("nan"))))
    assert made["incidents"][0]["severity"] is None
    assert made["incidents"][0]["comparisons"][0]["severity"] is None


def test_the_documentation_names_exactly_these_fields() -> None:
    made = [
        payload("json", raised("s.1", report(causes=CAUSES, comments=COMMENTS, location=DISK))),
        payload("json", resolved("r.1", resolution())),
    ]
    section = DOCUMENT.read_text().split("## JSON, version 1")[1].split("\n## ")[0]
    named = set(re.findall(r"`([a-z_]+)(?:\[\])?`", section))
    words = {"straggler", "digest", "resolved", "test", "raised", "cleared", "null"}
    assert named - words == {key for each in made for key in keys(each)}


def test_a_message_of_slack() -> None:
    made = payload("slack", raised("s.1", report("oss-3/sdb")))
    assert made["text"] == "[Laggard site] oss-3/sdb has been 3.9 times slower than its peers for 6 h (await)"
    assert [(block["type"], block["text"]["type"]) for block in made["blocks"]] == [("section", "mrkdwn")]
    assert made["blocks"][0]["text"]["text"].split("\n") == [
        "*Laggard site: alarm raised*",
        "`oss-3/sdb` has been 3.9 times slower than its peers for 6 h: `await` 83.3 ms, peers 21.5 ms",
        f"<{PAGE}/|Open in Laggard>",
    ]


def test_messages_name_the_duty_cycle() -> None:
    comparison = replace(report().worst, at_times="9.0× in 33 % of the time")
    for template in ("slack", "mattermost"):
        said = text_of(template, raised("s.1", report(comparisons=(comparison,))))
        assert "peers 21.5 ms; 9.0× in 33 % of the time" in said


def test_messages_name_stops() -> None:
    stops = "6 stops of 2 to 10 s in the last 2 hours, 40 s lost; peers: none"
    comparison = replace(report().worst, at_times=stops, stops=True, severity=1.02)
    said = text_of("slack", raised("s.1", report(comparisons=(comparison,))))
    assert "has stopped for seconds at times for 6 h, unlike its peers" in said
    assert stops in said
    slower = replace(comparison, severity=3.0)
    assert "times slower than its peers" in slower.predicate


def test_a_message_of_mattermost() -> None:
    over = resolved("r.1", resolution(), resolution("oss-2/b", recovered=False), count=9)
    assert payload("mattermost", over) == {
        "text": "\n".join(
            (
                "**Laggard site: alarm cleared for 9 components**",
                "`oss-1/sda` keeps up with its peers again, after 2 h",
                "`oss-2/b` is no longer compared, after 2 h",
                "and 7 more",
                f"[Open in Laggard]({PAGE}/)",
            )
        )
    }


def test_a_test_says_so() -> None:
    for template in ("slack", "mattermost"):
        assert "TEST, nothing is wrong" in text_of(template, raised("t.1", report(), kind="test"))
    assert payload("json", raised("t.1", report(), kind="test"))["kind"] == "test"


@pytest.mark.parametrize("template", ["slack", "mattermost"])
def test_a_digest_fits(template: str) -> None:
    many = [report("&" * 150 + f"{n}") for n in range(50)]
    text = text_of(template, raised("d.1", *many, count=70))
    assert len(text) <= MAX_TEXT_CHARS
    listed = text.count("slower than its peers")
    assert listed > 0
    assert f"\nand {70 - listed} more\n" in text


HOSTILE = (
    "<!channel>",
    "@channel @all @here",
    "<http://evil.example|click>",
    "[click](http://evil.example)",
    "`*_~ @channel",
    "&lt;!here&gt;",
    "a\nb\r\n# c",
    "\u202e\x00\x1b[31m\u2066",
    "Ω" * 5000,
)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("template", sorted(TEMPLATES))
def test_a_hostile_name_is_only_text(template: str, name: str) -> None:
    for notification in (raised("s.1", report(name)), resolved("r.1", resolution(name))):
        made = payload(template, notification)
        assert len(rendered(template, notification)) < 100_000
        if template == "json":
            assert len(made["incidents"][0]["name"]) <= 160
            continue
        text = text_of(template, notification)
        plainly = text_of(template, raised("s.1", report("x")))
        assert len(text.split("\n")) == len(plainly.split("\n"))
        outside = re.sub(r"`[^`\n]*`", "", text).replace(quote(name, safe="/"), "")
        for mark in ("@", "evil", "channel", "here"):
            assert mark not in outside
        assert not re.search(r"<(?!https://laggard\.example\.org)", text)
        if template == "slack":
            assert "<" not in made["text"]


@given(st.text())
def test_escaping_is_undone_by_the_receiver(text: str) -> None:
    made = escaped(text)
    assert "<" not in made
    assert ">" not in made
    assert made.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") == text
