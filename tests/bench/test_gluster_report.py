"""The table of the GlusterFS testbed, from results as its runs leave them."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.testbed.gluster import report


def alarm(component: str, **more: Any) -> dict[str, Any]:
    usual = {"level": "component", "source": "gluster_brick", "metric": "write_latency", "severity": 2.0}
    return {"component": component, **usual, "delay_seconds": 90.0, **more}


def result(run: str, **alarms: list[dict[str, Any]]) -> dict[str, Any]:
    latency = {"faulty": 9.0, "peers_lowest": 1.0, "peers": 1.5, "peers_highest": 2.0}
    return {
        "run": run,
        "fault": "of some kind",
        "healthy_seconds": 60.0,
        "fault_seconds": 120.0,
        "alarms": {"right": [], "explained": [], "false": [], **alarms},
        "figures": {
            "healthy": {"read latency": {**latency, "faulty": 1.0}},
            "fault": {"read latency": latency},
        },
    }


def row(text: str, first: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"| {first} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_fault_that_was_missed_once_says_so_and_has_no_delay() -> None:
    found = result(
        "brick", right=[alarm("gl-1//srv/b0/data"), alarm("gl-1//srv/b0/data", delay_seconds=95.0)]
    )
    text = report.table([found, result("brick")])
    assert row(text, "brick")[2:6] == ["1 of 2", "component by gluster_brick write_latency (2)", "90", "2.0"]


def test_false_positives_are_counted_named_and_over_all_the_time() -> None:
    text = report.table([result("control"), result("control", false=[alarm("gl-2//srv/b0/data")])])
    cells = row(text, "control")
    assert cells[2:4] == ["-", "nothing"]
    assert cells[6] == "1 in 6 min: component by gluster_brick write_latency (1)"


def test_figures_have_the_peers_whole_span() -> None:
    text = report.table([result("quota"), result("quota")])
    assert "| quota | read latency, ms | 1.00 | 9.00 | 1.50 (1.00 to 2.00) |" in text
    assert "| quota | disk await, ms | - | - | - |" in text


def test_files_are_read_in_their_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, run in (("a", "brick"), ("b", "quota")):
        (tmp_path / name).write_text(json.dumps({"machine": "", "runs": [result(run)]}))
    assert report.main([str(tmp_path / "b"), str(tmp_path / "a")]) == 0
    assert "| brick | of some kind | 0 of 1 |" in capsys.readouterr().out
