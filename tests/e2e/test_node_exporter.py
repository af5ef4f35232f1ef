"""A real node_exporter over a /proc/diskstats, scraped by a real Prometheus: the map has the same numbers."""

import shutil
import time
from pathlib import Path

import pytest

from laggard_aggregator.prometheus.compare_map import load_map
from laggard_aggregator.prometheus.scrapes import ScrapeReader
from laggard_aggregator.prometheus.server import PrometheusServer
from tests.support.ports import free_port, is_listening
from tests.support.processes import running
from tests.support.wait import wait_until

EXPORTER = "prometheus-node-exporter"
DISKSTATS = """\
   8       0 sda 25354637 34367663 1003346126 18492372 28444756 11134226 505697032 63877960 0 9653880 82621804
   8       1 sda1 250 0 2000 36 0 0 0 0 0 36 36
   7       0 loop0 5 0 40 1 0 0 0 0 0 1 1
 253       0 dm-0 59910002 0 1003337218 46229572 39231014 0 505697032 1158557800 0 11325968 1206301256
 259       0 nvme0n1 47114 4 4643973 21650 1078320 43950 39451633 1011053 3 222766 1032546 17 3 8192 25
   8      16 sdb 326552 841 9657779 84 41822 2895 1972905 5007 7 60730 67070 68851 2 1925173784 11130 7 9
"""
COLUMNS = {
    "rd_ios": 3,
    "rd_sectors": 5,
    "rd_ms": 6,
    "wr_ios": 7,
    "wr_sectors": 9,
    "wr_ms": 10,
    "io_ms": 12,
    "weighted_ms": 13,
    "dc_ios": 14,
    "dc_sectors": 16,
    "dc_ms": 17,
}
"""Places in a line, as the kernel's Documentation/admin-guide/iostats.rst numbers them."""
pytestmark = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which(EXPORTER)), reason=f"needs prometheus and {EXPORTER}"
)


def test_every_number_is_that_of_the_kernels_text(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "sys").mkdir()
    (tmp_path / "proc" / "diskstats").write_text(DISKSTATS)
    exporter_port, port = free_port(), free_port()
    target = f'{{targets: ["127.0.0.1:{exporter_port}"]}}'
    (tmp_path / "prometheus.yml").write_text(
        f"scrape_configs: [{{job_name: node, scrape_interval: 1s, static_configs: [{target}]}}]\n"
    )
    exporter = [EXPORTER, "--collector.disable-defaults", "--collector.diskstats"]
    exporter += [f"--path.{root}={tmp_path / root.removesuffix('fs')}" for root in ("procfs", "sysfs")]
    exporter += [f"--path.udev.data={tmp_path}", f"--web.listen-address=127.0.0.1:{exporter_port}"]
    server = ["prometheus", f"--config.file={tmp_path / 'prometheus.yml'}"]
    server += [f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    (source,) = load_map("node_exporter").sources
    reader = ScrapeReader(source, 60.0)
    with running(exporter, tmp_path / "exporter.log"), running(server, tmp_path / "prometheus.log"):
        wait_until(lambda: is_listening(port), "prometheus")
        asked = PrometheusServer(f"http://127.0.0.1:{port}")
        wait_until(lambda: asked.instant("node_disk_discard_time_seconds_total", time.time()), "a scrape")
        interval = int(time.time() // 60) + 1
        readings = reader.read(asked, interval - 1, interval)
    rows = {line.split()[2]: line.split() for line in DISKSTATS.splitlines()}
    told = {one.component.name: one for one in readings[max(readings)]}
    assert set(told) == {"sda", "sdb", "nvme0n1"}
    assert {one.component.node for one in told.values()} == {"127.0.0.1"}
    for name, one in told.items():
        row = rows[name]
        wanted = [int(row[place]) if place < len(row) else None for place in COLUMNS.values()]
        values = dict(zip((field.name for field in source.fields), one.values, strict=True))
        assert list(values) == list(COLUMNS)
        assert list(values.values()) == wanted
