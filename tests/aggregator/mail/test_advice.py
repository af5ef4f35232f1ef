import shlex

import pytest

from laggard_aggregator.mail.advice import commands
from laggard_aggregator.metrics.functions import FUNCTIONS
from laggard_aggregator.metrics.registry import SOURCES

PAGE = "https://laggard.example.org"


def lines(source: str, name: str, level: str = "component") -> list[str]:
    return [line for _, line in commands(source, level, name, PAGE)]


def test_a_disk_is_looked_at_on_its_node() -> None:
    found = lines("diskstats", "oss-3/sdb")
    assert found[:2] == ["ssh oss-3 iostat -x 5", "ssh oss-3 sudo smartctl -x /dev/sdb"]
    assert found[-1] == f"laggard top --url {PAGE}"


def test_a_node_is_looked_at_as_a_whole() -> None:
    assert "ssh oss-3 vmstat 5 6" in lines("diskstats", "oss-3", "node")
    assert "ssh oss-3 ip -s link" in lines("tcp", "oss-3", "node")


def test_what_belongs_to_no_node_is_asked_of_its_file_system() -> None:
    assert lines("lustre_ost", "scratch-OST0007")[0] == "lctl get_param obdfilter.scratch-OST0007.brw_stats"


def test_of_what_has_no_single_host_only_the_ranking_is_left() -> None:
    assert lines("diskstats", "couplet-3", "couplet") == [f"laggard top --url {PAGE}"]


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
        assert lines(source, name, level) == [f"laggard top --url {PAGE}"]


def test_the_page_is_quoted() -> None:
    (line,) = (
        line for what, line in commands("", "component", "a/b", "http://x/;reboot") if "laggard" in line
    )
    assert shlex.split(line) == ["laggard", "top", "--url", "http://x/;reboot"]
