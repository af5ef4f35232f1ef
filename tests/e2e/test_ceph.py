"""The collector `ceph` at a real OSD: its numbers are those that `ceph daemon` shows."""

import json
import os
import tempfile
from pathlib import Path

import pytest

from laggard_agent.collectors.ceph.collector import Ceph, CephSettings
from tests.support.ceph_cluster import FSID, PROGRAMS, ceph_cluster, is_installed
from tests.support.processes import run_command
from tests.support.sampled import Sampled, surroundings

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
