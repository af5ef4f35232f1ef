"""What to look at next, in words and commands."""

import pytest

from laggard_aggregator.advice import advise
from laggard_aggregator.metrics.registry import SOURCES


def test_a_disk_beside_healthy_ones_is_looked_at_itself() -> None:
    advice = advise("diskstats", "component", "oss-1/sdb", 0, 11)
    assert "the other 11 beside it are not" in advice.hint
    assert advice.node == "oss-1"
    assert "smartctl -a /dev/sdb" in advice.commands


def test_slow_neighbours_point_at_what_they_share() -> None:
    assert "2 of 11 others of oss-1 are slow too" in advise("diskstats", "component", "oss-1/sdb", 2, 11).hint


def test_a_parent_is_looked_at_before_its_devices() -> None:
    advice = advise("diskstats", "node", "oss-1", 0, 0)
    assert "this server" in advice.hint
    assert not any("/dev/" in command for command in advice.commands)


def test_functions_say_what_a_node_is_busy_with() -> None:
    assert "perf top -a" in advise("fnprofile", "node", "oss-1", 0, 0).commands


@pytest.mark.parametrize("source", [*SOURCES, "unknown"])
@pytest.mark.parametrize(
    "name", ["oss-1/$(reboot)", "oss-1/a b", "oss-1/;x", "oss-1/", "-rf", "a/-rf", "a/`x`", "ü/ü"]
)
def test_no_command_holds_what_is_more_than_a_word(source: str, name: str) -> None:
    for level in ("component", "node"):
        for command in advise(source, level, name, 0, 0).commands:
            assert not set(command) & set("$`;<>&\\\"'()\n"), command
            assert "-rf" not in command
