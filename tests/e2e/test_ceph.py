"""The collector `ceph` and the map `ceph` at a real OSD: numbers and names are those of Ceph's own tools."""

import json
import os
import shutil
import tempfile
import urllib.request
from pathlib import Path

import pytest

from laggard_agent.collectors.ceph.collector import Ceph, CephSettings
from laggard_aggregator.prometheus.compare_map import load_map
from tests.support.ceph_cluster import FSID, PROGRAMS, ceph_cluster, exporter, is_installed
from tests.support.processes import run_command
from tests.support.sampled import Sampled, surroundings
from tests.support.wait import LIMIT_SECONDS, wait_until

pytestmark = [
    pytest.mark.skipif(not is_installed(), reason=f"needs {', '.join(PROGRAMS)}"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]


def test_the_numbers_of_a_real_osd() -> None:
    with (
        tempfile.TemporaryDirectory(dir="/tmp", prefix="lg-") as name,
        ceph_cluster(Path(name), 1) as cluster,
    ):
        settings = CephSettings(cluster.sockets, cluster.folder, timeout_seconds=10.0)
        agent = Sampled(lambda now, monotonic: Ceph(settings, surroundings(now, monotonic)))
        rados = ["rados", "-c", cluster.folder / "ceph.conf", "-p", "bench"]
        payload = cluster.folder / "ceph.conf"
        for number in range(3):
            run_command([*rados, "put", f"object{number}", payload])
        run_command([*rados, "get", "object1", cluster.folder / "copy"])
        told = json.loads(cluster.ceph("daemon", str(cluster.sockets / "ceph-osd.0.asok"), "perf", "dump"))
        agent.sample()
    assert agent.row("ceph", "ceph")["values_not_understood"] == 0
    assert [dict(one.labels)["fsid"] for one in agent.readings["ceph_osd"].components] == [FSID]
    row = agent.row("ceph_osd", "osd.0")
    assert row["op_r"] == told["osd"]["op_r"] > 0
    assert row["op_w_latency_count"] == told["osd"]["op_w_latency"]["avgcount"] >= 3
    assert row["op_w_latency_us"] == int(told["osd"]["op_w_latency"]["sum"] * 1e6)
    assert row["op_w_in_bytes"] == told["osd"]["op_w_in_bytes"] >= 3 * 100
    assert row["bluestore_commit_lat_count"] >= told["bluestore"]["commit_lat"]["avgcount"] > 0


@pytest.mark.skipif(not shutil.which("ceph-mgr"), reason="needs ceph-mgr")
def test_the_manager_exports_what_the_map_names() -> None:
    """All counters but those of other OSDs' requests, which have a low priority there."""
    (source,) = load_map("ceph").sources
    with (
        tempfile.TemporaryDirectory(dir="/tmp", prefix="lg-") as name,
        ceph_cluster(Path(name), 1) as cluster,
        exporter(cluster) as port,
    ):
        told: set[str] = set()

        def has_osd() -> bool:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_SECONDS) as answer:
                told.update(line.partition("{")[0] for line in answer.read().decode().splitlines())
            return "ceph_osd_op_r_latency_sum" in told

        wait_until(has_osd, "the OSD's counters")
    lacking = {
        one.name
        for one in source.fields
        if not told.issuperset(one.counters) and not (one.older and told.issuperset(one.older))
    }
    assert lacking == {"subop_w_latency_count", "subop_w_latency_us"}
    assert {"ceph_osd_metadata"} <= told
