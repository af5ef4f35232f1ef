"""Real servers that answer as Prometheus does, with what exporters said: a parameter of tests."""

import shutil
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from laggard_aggregator.prometheus.server import PrometheusServer
from tests.support.builders.prometheus_blocks import Exports, serving
from tests.support.ports import free_port, is_listening
from tests.support.processes import running
from tests.support.wait import LIMIT_SECONDS, wait_until

Serve = Callable[[Exports, Path], AbstractContextManager[str]]
"""The URL of a server that has what was exported, while the block lasts."""


@contextmanager
def victoria_metrics(exported: Exports, folder: Path) -> Iterator[str]:
    """The URL of a VictoriaMetrics server that imported the exported text, while the block lasts."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = ["victoria-metrics", f"-storageDataPath={folder / 'victoria-metrics'}", "-retentionPeriod=100y"]
    with running([*command, f"-httpListenAddr=127.0.0.1:{port}"], folder / "victoria-metrics.log"):
        wait_until(lambda: is_listening(port), "VictoriaMetrics")
        samples = [line.rsplit(" ", 1) for line in exported.lines() if not line.startswith("#")]
        text = "".join(f"{series} {float(at) * 1000:.0f}\n" for series, at in samples)
        seconds = exported.end - min(float(at) for _, at in samples) + 1
        _post(f"{url}/api/v1/import/prometheus", text)
        _post(f"{url}/internal/force_flush", "")
        server = PrometheusServer(url)
        stored = f'sum(count_over_time({{__name__!=""}}[{seconds:.0f}s])) == {len(samples)}'
        wait_until(lambda: server.instant(stored, exported.end), "the samples")
        yield url


def _post(url: str, text: str) -> None:
    with urllib.request.urlopen(url, text.encode(), timeout=LIMIT_SECONDS) as answer:
        answer.read()


needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")), reason="needs prometheus and promtool"
)
needs_victoria_metrics = pytest.mark.skipif(
    not shutil.which("victoria-metrics"), reason="needs victoria-metrics"
)
SERVERS = (
    pytest.param(serving, marks=needs_prometheus, id="prometheus"),
    pytest.param(victoria_metrics, marks=needs_victoria_metrics, id="victoria-metrics"),
)
"""Each serves what was exported."""
