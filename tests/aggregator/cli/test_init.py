"""`laggard init` with a real Prometheus server, and with servers that have nothing."""

import os
import shutil
import time
from pathlib import Path

import pytest

from laggard_aggregator.cli import daemon
from laggard_aggregator.cli.main import main
from laggard_aggregator.settings.aggregator import AggregatorSettings
from laggard_common import config
from tests.support.builders.prometheus_blocks import Exported, serving
from tests.support.query_server import Answers, answering

needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")), reason="needs prometheus and promtool"
)


@needs_prometheus
@pytest.mark.parametrize(("scrape", "interval", "window"), [(15.0, 15.0, 60), (60.0, 60.0, 20)])
def test_the_fitting_map_is_configured(
    scrape: float,
    interval: float,
    window: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    end = time.time() // 15 * 15
    with serving(Exported(end - 1800, end, hosts=3, scrape_seconds=scrape), tmp_path) as url:
        assert main(["init", "--prometheus", url]) == 0
    said = capsys.readouterr().out
    assert "ceph: no series of ceph_osd_op_r_latency_count\n" in said
    assert (
        f"node_exporter: 18 components of 3 targets, scraped every {scrape:g} s (by job: storage 3)" in said
    )
    assert f"laggard diagnose --prometheus {url} --from -7d" in said
    settings = config.load(AggregatorSettings, tmp_path / "aggregator.toml")
    assert not settings.mqtt.enabled
    [table] = settings.prometheus
    assert (table.urls, table.maps, table.scrape_seconds) == ((url,), ("node_exporter",), scrape)
    assert (settings.detect.interval_seconds, settings.detect.window_samples) == (interval, window)
    assert daemon.main(["--config", "aggregator.toml", "--check-config"]) == 0
    assert main(["init", "--prometheus", url]) == 2
    assert "exists already, and is not overwritten" in capsys.readouterr().err


def test_a_server_without_known_counters_gets_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "aggregator.toml"
    with answering(Answers()) as url:
        assert main(["init", "--prometheus", url, "-o", os.fspath(output)]) == 2
    assert "none of the shipped maps fits" in capsys.readouterr().err
    assert not output.exists()
