import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.groups.membership import (
    ConfiguredMembership,
    PeerGroup,
    Rule,
    component_class,
    component_key,
    shown_name,
)
from laggard_common.wire.schema import Component

LABELS = (("model", "ST4000NM0035 1V4"), ("rotational", "1"), ("size", "4000787030016"))
DISK = Component("wwn-1", "sda", LABELS)


def rule(name: str, components: str = ".*", role: str = "", source: str = "diskstats") -> Rule:
    return Rule(PeerGroup(name, source, role, ("await",), DetectSettings()), re.compile(components))


def names(membership: ConfiguredMembership, component: Component = DISK, **where: str) -> list[str]:
    """The groups of a component for its own sake, and not as a part of a sum."""
    place = {"node": "oss-1", "role": "storage", "source": "diskstats"} | where
    groups = membership.groups_of(**place, component=component, at=0.0)
    return [group.name for group in groups if group.source == place["source"]]


def sums(source: str, role: str = "storage", *rules: Rule) -> dict[str, str]:
    """The sums that a component is a part of: group by source."""
    groups = ConfiguredMembership(rules).groups_of(
        node="oss-1", role=role, source=source, component=DISK, at=0.0
    )
    return {group.source: group.name for group in groups if group.source != source}


def test_parts_of_sums_are_members_of_their_groups_beside_their_own() -> None:
    assert sums("diskstats") == {"server": "storage/server"}
    assert sums("diskstats", "compute") == {}
    assert sums("net") == {"server": "storage/server", "tcp": "storage/tcp"}
    assert sums("net", "compute") == {"tcp": "compute/tcp"}


def test_rules_for_sums_match_the_sum() -> None:
    named = (rule("some", "oss-1/server", source="server"), rule("others", "oss-1/sda", source="server"))
    assert sums("diskstats", "storage", *named) == {"server": "some"}
    assert sums("net", "compute", *named) == {"server": "some", "tcp": "compute/tcp"}
    rules = (rule("one", r"\*/10\.1\..*", source="tcp_destination"),)
    address = Component("10.1.0.7", "10.1.0.7")
    assert names(ConfiguredMembership(rules), address, source="tcp_destination") == ["one"]


def test_without_rules_peers_are_of_one_role_source_and_class() -> None:
    membership = ConfiguredMembership(())
    assert names(membership) == ["storage/diskstats/ST4000NM0035_1V4_hdd_4TB"]
    assert names(membership, role="compute") == ["compute/diskstats/ST4000NM0035_1V4_hdd_4TB"]
    assert names(membership, component=Component("x", "sdb")) == ["storage/diskstats"]


@pytest.mark.parametrize(
    ("source", "labels", "expected"),
    [
        (
            "lustre_ost",
            {"scope": "site", "fs": "scratch", "target": "OST0001"},
            ["storage/lustre_ost/scratch"],
        ),
        ("lustre_mdt", {"scope": "site", "fs": "scratch"}, ["storage/lustre_mdt/scratch"]),
        ("lustre_osc", {"fs": "scratch", "target": "OST0001"}, ["storage/lustre_osc/oss-1/scratch"]),
        ("lustre_mdc", {"fs": "scratch", "target": "MDT0000"}, []),
        ("lustre_oss_service", {"service": "ost_io"}, ["storage/lustre_oss_service/ost_io"]),
        ("lustre_mds_service", {"service": "mdt"}, ["storage/lustre_mds_service/mdt"]),
        ("gluster_brick", {"volume": "da/ta"}, ["storage/gluster_brick/da_ta"]),
        ("gluster_brick", {}, ["storage/gluster_brick"]),
        ("gluster_client", {"volume": "data"}, []),
        ("tcp", {}, ["storage/tcp"]),
    ],
)
def test_automatic_peers_share_what_their_source_says(
    source: str, labels: dict[str, str], expected: list[str]
) -> None:
    component = Component("id", "name", tuple(labels.items()))
    assert names(ConfiguredMembership(()), component, source=source) == expected


def test_a_source_that_cannot_be_compared_has_no_automatic_group() -> None:
    assert names(ConfiguredMembership(()), source="host") == []


def test_rules_come_before_the_default_and_may_overlap() -> None:
    membership = ConfiguredMembership((rule("luns"), rule("first", "oss-1/.*")))
    assert names(membership) == ["luns", "first"]
    assert names(membership, node="oss-2") == ["luns"]


def test_a_rule_without_peers_leaves_its_components_among_theirs() -> None:
    detect = DetectSettings(detector="peak", options={"peak": 1.0, "below": 0.3, "minutes": 60.0})
    peak = Rule(PeerGroup("peak-1", "diskstats", "", ("tps",), detect), re.compile("oss-1/.*"))
    automatic = "storage/diskstats/ST4000NM0035_1V4_hdd_4TB"
    assert names(ConfiguredMembership((peak,))) == [automatic, "peak-1"]
    assert names(ConfiguredMembership((peak,)), node="oss-2") == [automatic]
    assert names(ConfiguredMembership((rule("luns"), peak))) == ["luns", "peak-1"]


def test_rules_match_in_full_by_name_of_the_day_or_by_identity() -> None:
    assert names(ConfiguredMembership((rule("a", "oss-1/sd"),))) != ["a"]
    assert names(ConfiguredMembership((rule("a", "oss-1/sd[a-z]"),))) == ["a"]
    assert names(ConfiguredMembership((rule("a", "oss-1/wwn-.*"),))) == ["a"]
    assert names(ConfiguredMembership((rule("a", role="compute"),))) != ["a"]
    assert names(ConfiguredMembership((rule("a", source="net"),))) != ["a"]


def test_a_component_that_may_move_is_known_without_its_node() -> None:
    ost = Component("scratch-OST0001", "scratch-OST0001", (("scope", "site"),))
    assert component_key("oss-1", ost) == component_key("oss-2", ost) == "scratch-OST0001"
    assert shown_name("oss-1", ost) == "scratch-OST0001"
    assert (component_key("oss-1", DISK), shown_name("oss-1", DISK)) == ("oss-1/wwn-1", "oss-1/sda")


@given(
    node=st.sampled_from(["oss-1", "evil"]),
    at=st.sampled_from(["id", "name", "both"]),
    victim=st.sampled_from([DISK, Component("a/b", "c/d")]),
)
def test_no_node_can_pass_its_component_off_as_another_nodes(node: str, at: str, victim: Component) -> None:
    theirs = (component_key("oss-2", victim), shown_name("oss-2", victim))
    posing = Component(
        theirs[0] if at != "name" else "OST0001", theirs[1] if at != "id" else "OST0001", (("scope", "site"),)
    )
    claimed = (component_key(node, posing), shown_name(node, posing))
    assert all(name.startswith(f"{node}/") for name in claimed)
    assert not set(claimed) & set(theirs)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, ""),
        ({"rotational": "0"}, "ssd"),
        ({"size": "480103981056", "rotational": "0"}, "ssd_480GB"),
        ({"size": "479999999999", "rotational": "0"}, "ssd_480GB"),
        ({"size": "0"}, ""),
        ({"size": "999999999999"}, "1TB"),
        ({"size": "9" * 24}, "1e+09PB"),
        ({"size": "-5"}, ""),
        ({"size": "٣"}, ""),
        ({"model": "  A/B\tC  "}, "A_B_C"),
    ],
)
def test_classes_are_single_words(labels: dict[str, str], expected: str) -> None:
    assert component_class(Component("id", "name", tuple(labels.items()))) == expected


def test_clients_of_one_nfs_export_are_peers_in_one_of_many_groups() -> None:
    mount = Component("filer:/home/a", "filer:/home/a", (("server", "filer"), ("export", "/home/a")))
    found = [
        ConfiguredMembership(()).groups_of(node, "compute", "nfs_mount", mount, 0.0) for node in ("c1", "c2")
    ]
    assert found[0] == found[1]
    (group,) = found[0]
    assert (group.name, group.one_node) == ("compute/nfs_mount/filer/_home_a", True)
