"""compare.toml in a collector's folder: all that the aggregator needs of a new source."""

import sys
from pathlib import Path

import numpy as np
import pytest

from laggard_aggregator.metrics.declared import CompareFile, declarations
from laggard_aggregator.metrics.definition import Differences
from laggard_aggregator.metrics.registry import FUNCTIONS, SOURCES
from laggard_common.config import parse
from laggard_common.errors import ConfigError
from tests.support.processes import run_command

NEW = """
[[source]]
name = "zpool"
defaults = ["read_latency"]
peers = ["pool"]
load = { operations = ["reads"] }
mean = [{ name = "read_latency", unit = "us", count = ["reads"], sum = ["read_ns"], scale = 0.001 }]
next_steps = [{ shows = "its disks", run = "ssh {node} zpool iostat -v {device}" }]
"""
SCRIPT = """
import sys
import laggard_agent.collectors as collectors
collectors.__path__.append(sys.argv[1])
from laggard_aggregator.groups.membership import ConfiguredMembership
from laggard_aggregator.settings.aggregator import AggregatorSettings
from laggard_aggregator.status.next_steps import commands
from laggard_common.config import parse
from laggard_common.wire.schema import Component
table = {"name": "pools", "source": "zpool", "metrics": ["read_latency"]}
parse(AggregatorSettings, {"group": [table]})
component = Component("tank", "tank", (("pool", "tank"),))
for group in ConfiguredMembership(()).groups_of("n1", "storage", "zpool", component, 0.0):
    print(group.name, *group.metrics)
print(commands("zpool", "component", "n1/tank"))
"""


def test_a_new_source_is_one_file_in_a_collectors_folder(tmp_path: Path) -> None:
    (tmp_path / "zfs").mkdir()
    (tmp_path / "zfs" / "compare.toml").write_text(NEW)
    done = run_command([sys.executable, "-c", SCRIPT, tmp_path])
    assert done.stdout.splitlines() == [
        "storage/zpool/tank read_latency",
        "(('its disks', 'ssh n1 zpool iostat -v tank'),)",
    ]


def test_declarations_are_those_of_the_collectors() -> None:
    files = list(declarations())
    declared = [source.name for file in files for source in file.source]
    declared += [source.name for file in files for source in file.functions]
    assert {"lustre_ost", "gluster_brick", "lwfs", "fnprofile"} <= set(declared)
    assert len(set(declared)) == len(declared)
    assert set(declared) <= {*SOURCES, *FUNCTIONS}


def test_the_load_of_an_osd_has_the_writes_of_other_osds() -> None:
    """Two OSDs of a real cluster in a minute: the one with fewer requests of clients writes more."""
    load = SOURCES["ceph_osd"].load
    counters = ("op_r", "op_w", "op_r_out_bytes", "op_w_in_bytes", "bluestore_commit_lat_count")
    rises = np.array([[6045, 3284, 1, 1, 8410], [3259, 1757, 1, 1, 11002]], dtype=np.int64)
    operations = load["operations"].derive(Differences(counters, rises, np.array([60.0, 60.0])))
    assert operations.tolist() == [6045 + 8410, 3259 + 11002]
    assert set(load) == {"operations", "throughput", "request_bytes", "read_share"}


def test_words_stand_in_the_names_of_counters() -> None:
    metrics = SOURCES["gluster_brick"].metrics
    assert metrics["fop_latency"].needs[:3] == ("fop_read_count", "fop_write_count", "fop_lookup_count")
    assert SOURCES["gluster_brick"].optional[:2] == ("fop_lookup_count", "fop_lookup_latency_ns")


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"name": "a"}, "source[0].load: missing, expected a table"),
        ({"name": "a", "load": {}}, "source[0].load.operations: expected operations, or reads"),
        (
            {"name": "a", "load": {"operations": ["x"], "reads": "r"}},
            "source[0].load.operations: expected operations, or reads",
        ),
        ({"name": "a", "load": {"operations": ["x"]}, "defaults": ["b"]}, "source[0].defaults: expected"),
        ({"name": "a", "load": {"operations": ["x"]}, "hm": 1}, "source[0].hm: unknown key"),
    ],
)
def test_bad_declarations(table: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(CompareFile, {"source": [table]})
    assert any(one.startswith(problem) for one in caught.value.problems), caught.value.problems
