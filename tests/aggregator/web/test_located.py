"""The located cause of alarms of two groups, on the pages, in the API and in a mail."""

from dataclasses import replace

from laggard_aggregator.engine.node_evidence import EventCount, NodeSign
from laggard_aggregator.metrics.registry import EVIDENCE
from laggard_aggregator.notify.incidents import AlarmTimelines, Limits, due
from laggard_aggregator.notify.report import report
from laggard_aggregator.web.pages.page_state import StateReader
from tests.aggregator.web.test_pages import ask, text_of
from tests.support.builders import live_status

OST = "scratch-OST0001"


def site(disk: bool = True) -> live_status.MadeView:
    """Four servers with a disk and an OST each; those of the second are slow, its disk unless not `disk`."""
    disks, osts = (live_status.group(name, 4) for name in ("disks", "osts"))
    slow = [False, True, False, False]
    severity = [1.0, 4.0, 1.0, 1.0]
    names = tuple(f"oss-{n}/wwn-{n}" for n in range(4))
    of_disks = live_status.judgement(
        "disks", names, [0, 6 * disk, 0, 0], severity if disk else [1.0] * 4, [each and disk for each in slow]
    )
    targets = tuple(f"scratch-OST000{n}" for n in range(4))
    of_osts = replace(
        live_status.judgement("osts", targets, [0, 6, 0, 0], severity, slow), metric="read_latency"
    )
    return live_status.MadeView(
        groups_=(disks, replace(osts, source="lustre_ost", metrics=("read_latency",))),
        judgements_=(of_disks, of_osts),
        alarms_={(alarm := replace(live_status.alarm("osts", OST), metric="read_latency")).key: alarm},
        names={"oss-1/wwn-1": "oss-1/sdb"},
        hosts_={name: f"oss-{n}" for n, name in enumerate(targets)},
    )


def test_the_api_locates_both_alarms_at_the_disk() -> None:
    (answer,) = ask(["/api/v1/stragglers"], site())
    rows = answer.json()["stragglers"]
    assert {row["component"] for row in rows} == {"oss-1/wwn-1", OST}
    assert {(row["located_level"], row["located_component"], row["located_name"]) for row in rows} == {
        ("lun", "oss-1/wwn-1", "oss-1/sdb")
    }
    assert {row["evidence"] for row in rows} == {
        "await of oss-1/sdb 4.0×, and the request time agrees: the disk"
    }


def test_without_a_slow_disk_it_is_the_server() -> None:
    answer, component = ask(["/api/v1/stragglers", f"/api/v1/components/osts/{OST}"], site(disk=False))
    for row in (answer.json()["stragglers"][0], component.json()["metrics"][0]):
        assert (row["located_level"], row["located_component"]) == ("server", "oss-1")
        assert "the await of its disks is like their peers'" in row["evidence"]


def test_the_pages_name_the_cause() -> None:
    overview, component = ask(["/", f"/component/osts/{OST}"], site())
    for page in (overview, component):
        assert "Located: the disk, lun oss-1/sdb" in text_of(page.text).replace(" ,", ",")


def test_the_pages_of_a_revision_share_the_causes() -> None:
    view = site()
    reader = StateReader(view)
    first = reader.now().locations()
    assert {where.component for where in first.values()} == {"oss-1/wwn-1"}
    assert reader.now(nodes=True).locations() is first
    view.judgements_, view.revision = site(disk=False).judgements_, view.revision + 1
    assert {where.component for where in reader.now().locations().values()} == {"oss-1"}


def test_a_mail_names_the_cause() -> None:
    view = site()
    (incident,) = due(view, (), "site", Limits(after_seconds=0.0, least_severity=1.0))
    said = report(incident, view, AlarmTimelines(), "http://aggregator", view.locating()())
    assert said is not None
    where = said.location
    assert where is not None
    assert (where.level, where.component, where.name) == ("lun", "oss-1/wwn-1", "oss-1/sdb")


def test_a_mail_names_the_cause_of_the_worst_alarm_that_has_one() -> None:
    """As the page does: an alarm by a metric with no place on a request's path has none."""
    view = site()
    (first,) = view.alarms_.values()
    worse = replace(first, group="elsewhere", severity=50.0, worst_severity=50.0)
    view.alarms_[worse.key] = worse
    (incident,) = due(view, (), "site", Limits(after_seconds=0.0, least_severity=1.0))
    said = report(incident, view, AlarmTimelines(), "http://aggregator", view.locating()())
    assert said is not None
    assert said.worst.group == "elsewhere"
    assert said.location is not None
    assert said.location.component == "oss-1/wwn-1"


def test_evidence_of_the_node_is_beside_its_alarm() -> None:
    """On the page, in the API and in a mail; of a component without an alarm on no page."""
    view = site()
    count, state = EVIDENCE["disk_errors"].counts[0], EVIDENCE["disk_errors"].states[0]
    view.signs = {
        "oss-1": (
            NodeSign("sdb", (EventCount(count, 12),), (), live_status.NOW - 60),
            NodeSign("<b>sdx", (), (state,), live_status.NAN),
        )
    }
    addresses = ["/api/v1/stragglers", f"/component/osts/{OST}", "/component/disks/oss-0/wwn-0"]
    answer, page, other = ask(addresses, view)
    lines = [line for row in answer.json()["stragglers"] if row["component"] == OST for line in row["beside"]]
    assert lines == [
        "sdb: 12 failed commands since 2025-10-09 09:00 UTC: replace it",
        "<b>sdx: it does not run: replace it",
    ]
    shown = text_of(page.text)
    assert "sdb: 12 failed commands since" in shown
    assert "&lt;b&gt;sdx" in page.text
    assert "<b>sdx" not in page.text
    assert "failed commands" not in other.text
    (incident,) = due(view, (), "site", Limits(after_seconds=0.0, least_severity=1.0))
    mail = report(incident, view, AlarmTimelines(), "http://aggregator", {})
    assert mail is not None
    assert list(mail.beside) == lines
