"""What to look at next, in words and commands."""

import pytest

from laggard_aggregator.metrics.registry import FUNCTIONS, SOURCES
from laggard_aggregator.status.next_steps import commands, hint


def lines(source: str, name: str, level: str = "component") -> list[str]:
    return [line for _, line in commands(source, level, name)]


def test_a_disk_is_looked_at_on_its_node() -> None:
    found = lines("diskstats", "oss-3/sdb")
    assert found[:2] == ["ssh oss-3 iostat -x 5", "ssh oss-3 sudo smartctl -x /dev/sdb"]


def test_a_node_is_looked_at_as_a_whole() -> None:
    assert "ssh oss-3 vmstat 5 6" in lines("diskstats", "oss-3", "node")
    assert "ssh oss-3 ip -s link" in lines("tcp", "oss-3", "node")


def test_what_belongs_to_no_node_is_asked_of_its_file_system() -> None:
    assert lines("lustre_ost", "scratch-OST0007")[0] == "lctl get_param obdfilter.scratch-OST0007.brw_stats"


def test_what_has_no_single_host_has_no_command() -> None:
    assert lines("diskstats", "couplet-3", "couplet") == []


@pytest.mark.parametrize("source", [*SOURCES, *FUNCTIONS])
@pytest.mark.parametrize(
    "name",
    [
        "oss-3/sdb; rm -rf /",
        "$(reboot)/sda",
        "-oProxyCommand=x/sda",
        "oss-3/`id`",
        "oss-3/a\nb",
        "oss-3/../../etc",
        "",
        "/",
        "oss-3/",
    ],
)
def test_no_command_on_a_node_holds_a_name_that_is_not_plain(source: str, name: str) -> None:
    for level in ("component", "node"):
        assert lines(source, name, level) == []


def test_a_disk_beside_healthy_ones_is_looked_at_itself() -> None:
    assert "the other 11 beside it are not" in hint("diskstats", "component", "oss-1/sdb", 0, 11)
    assert "the other one beside it is not" in hint("diskstats", "component", "oss-1/sdb", 0, 1)


def test_slow_neighbours_point_at_what_they_share() -> None:
    assert "2 of 11 others of oss-1 are slow too" in hint("diskstats", "component", "oss-1/sdb", 2, 11)


def test_a_parent_is_looked_at_before_its_devices() -> None:
    assert "this server" in hint("diskstats", "node", "oss-1", 0, 0)
    assert "this couplet" in hint("diskstats", "couplet", "couplet-3", 0, 0)


def test_functions_say_what_a_node_is_busy_with() -> None:
    assert "show where it goes" in hint("fnprofile", "node", "oss-1", 0, 0)
