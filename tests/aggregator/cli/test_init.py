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
from laggard_common.errors import ConfigError
from tests.support.builders.prometheus_blocks import Exported, serving
from tests.support.query_server import Answers, answering

needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")), reason="needs prometheus and promtool"
)


@needs_prometheus
@pytest.mark.parametrize(
    ("age", "scrape", "interval", "window"),
    [(1800, 15.0, 15.0, 60), (1800, 60.0, 60.0, 20), (150, 15.0, 15.0, 60), (400, 60.0, 60.0, 20)],
)
def test_the_fitting_map_is_configured(
    age: float,
    scrape: float,
    interval: float,
    window: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    end = time.time() // 15 * 15
    with serving(Exported(end - age, end, hosts=3, scrape_seconds=scrape), tmp_path) as url:
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


def test_evidence_that_is_scraped_seldom_slows_no_detection(tmp_path: Path) -> None:
    """An input of evidence alone may be slower than the detection interval; one of disks may not."""
    file = tmp_path / "aggregator.toml"
    text = '[mqtt]\nenabled = false\n[[prometheus]]\nurls = ["http://p:9090"]\nscrape_seconds = 600\n'
    file.write_text(f'{text}maps = ["smartctl_exporter"]\n')
    assert not config.load(AggregatorSettings, file).prometheus[0].judged
    file.write_text(f'{text}maps = ["node_exporter"]\n')
    with pytest.raises(ConfigError, match=r"expected at most 15, detect\.interval_seconds"):
        config.load(AggregatorSettings, file)
