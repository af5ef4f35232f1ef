"""`laggard diagnose --prometheus` with a real server, and with answers that no server should give."""

import asyncio
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from laggard_aggregator.cli.main import main
from laggard_aggregator.offline.prometheus_input import least_interval
from laggard_aggregator.prometheus.compare_map import load_map, shipped_names
from laggard_aggregator.prometheus.server import PrometheusServer
from laggard_common.errors import ConfigError, ServiceError
from tests.support.builders.prometheus_blocks import Exported, Slow, serving
from tests.support.http_receiver import Receiver, receiving

HOUR = 3600.0
needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")), reason="needs prometheus and promtool"
)


def diagnosed(url: str, exported: Exported, capsys: pytest.CaptureFixture[str], *more: str) -> list[Any]:
    """The records of `laggard diagnose`."""
    span = [f"--from={exported.start:.0f}", f"--to={exported.end:.0f}"]
    assert main(["diagnose", "--prometheus", url, *span, "--json", *more]) in (0, 1)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def stragglers(records: list[Any]) -> set[str]:
    return {record["component"] for record in records if record.get("straggler")}


@pytest.fixture
def end() -> float:
    return time.time() // 7200 * 7200 - 4 * HOUR  # blocks of the past, at their borders


@needs_prometheus
def test_the_slow_disks_are_found_and_no_other(
    end: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = end - 6 * HOUR
    exported = Exported(
        start,
        end,
        slow=(Slow(1, 2, 3.0, start + 2 * HOUR), Slow(3, 0, 2.0, start + 3 * HOUR)),
        restarts={0: start + 1.5 * HOUR, 1: start + 4 * HOUR},
        gaps={2: (start + HOUR, start + 1.4 * HOUR)},
    )
    with serving(exported, tmp_path) as url:
        records = diagnosed(url, exported, capsys)
    assert stragglers(records) == {"oss1/sdc", "oss3/sda"}
    factors = {r["component"]: r["severity"] for r in records if r.get("straggler")}
    assert factors == {"oss1/sdc": pytest.approx(3.0, rel=0.1), "oss3/sda": pytest.approx(2.0, rel=0.1)}
    components = {record["component"] for record in records if "component" in record}
    assert len(components) == 24
    groups = {record["group"] for record in records if "component" in record}
    assert groups == {"disks, storage, X1, 1"}


@needs_prometheus
def test_two_replicas_count_once(end: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = end - 4 * HOUR
    exported = Exported(start, end, slow=(Slow(0, 5, 3.0, start + HOUR),), replicas=("a", "b"))
    with serving(exported, tmp_path) as url:
        records = diagnosed(url, exported, capsys, "--map", "node_exporter")
    assert stragglers(records) == {"oss0/sdf"}
    assert len({record["component"] for record in records if "component" in record}) == 24


@needs_prometheus
def test_a_server_that_began_minutes_ago_may_have_short_intervals(end: float, tmp_path: Path) -> None:
    with serving(Exported(end - 150, end), tmp_path) as url:
        assert least_interval(PrometheusServer(url), load_map("node_exporter"), end) == 30


@needs_prometheus
def test_a_server_that_scrapes_seldom_gets_longer_intervals(
    end: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = end - 12 * HOUR
    exported = Exported(start, end, slow=(Slow(2, 1, 3.0, start),), scrape_seconds=60.0)
    with serving(exported, tmp_path) as url:
        records = diagnosed(url, exported, capsys)
        assert stragglers(records) == {"oss2/sdb"}
        span = [f"--from={start:.0f}", f"--to={end:.0f}", "--interval", "60"]
        assert main(["diagnose", "--prometheus", url, *span]) == 2
        assert f"--interval: expected at least 120, two scrapes of {url}" in capsys.readouterr().err
        assert main(["diagnose", "--prometheus", url, *span[:2], "--map", "ceph"]) == 2
        assert "no series of ceph_bluestore_commit_lat_sum" in capsys.readouterr().err


def answered(body: bytes, status: str, ask: Callable[[PrometheusServer], Any]) -> Any:
    """The result of `ask` at a server that gives this answer to everything."""

    async def run() -> Any:
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
        receiver = Receiver()
        receiver.answers.extend([head + body] * 5)
        async with receiving(receiver):
            server = PrometheusServer(f"http://127.0.0.1:{receiver.port}/prefix")
            try:
                return await asyncio.to_thread(ask, server)
            finally:
                assert all("/prefix/api/v1/query" in request.line for request in receiver.requests)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        ("401 Unauthorized", b"Unauthorized\n", "answered 401 Unauthorized, not as a Prometheus"),
        ("200 OK", b"<html>", "answered 200 OK, not as a Prometheus"),
        ("200 OK", b"[" * 100_000, "answered 200 OK, not as a Prometheus"),
        ("400 Bad Request", b'{"status":"error","error":"bad \\u001b[31m query"}', "bad \x1b[31m query"),
        ("200 OK", b'{"status":"success","data":{"resultType":"scalar","result":[0,"1"]}}', "none of query"),
        ("200 OK", b'{"status":"success","data":{"resultType":"vector","result":[{"metric":3}]}}', "none of"),
        (
            "200 OK",
            b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"x"]}]}}',
            "none of query",
        ),
    ],
)
def test_other_answers_are_one_line(status: str, body: bytes, told: str) -> None:
    with pytest.raises(ServiceError, match=r"^http://127") as failure:
        answered(body, status, lambda server: server.instant("up", 0))
    assert told in str(failure.value)


def test_warnings_are_kept_and_odd_values_are_numbers() -> None:
    body = (
        b'{"status":"success","warnings":["partial response"],"data":{"resultType":"matrix",'
        b'"result":[{"metric":{"a":"b"},"values":[[1.5,"NaN"],[2.5,"+Inf"],[3,"4e3"]]}]}}'
    )

    def ask(server: PrometheusServer) -> Any:
        return server.over("up", 0, 10, 1), server.warnings

    (series,), warnings = answered(body, "200 OK", ask)
    assert series.labels == {"a": "b"}
    assert series.times.tolist() == [1.5, 2.5, 3.0]
    assert str(series.values.tolist()) == "[nan, inf, 4000.0]"
    assert warnings == ["partial response"]


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://a:99999", "http://me:secret@prom:9090"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError) as failure:
        PrometheusServer(url)
    assert "secret" not in str(failure.value)


def test_options_that_do_not_go_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose"]) == 2
    assert "expected INPUT... or --prometheus URL" in capsys.readouterr().err
    assert main(["diagnose", "x.csv", "--map", "ceph"]) == 2
    assert "--map: goes with --prometheus" in capsys.readouterr().err


def test_the_shipped_maps_are_valid_and_others_are_told(tmp_path: Path) -> None:
    assert shipped_names() == ("ceph", "lustrefs_exporter", "node_exporter", "smartctl_exporter")
    assert all(load_map(name).sources for name in shipped_names())
    with pytest.raises(ConfigError, match="none of the shipped maps: ceph, lustrefs_exporter, node_exporter"):
        load_map("nodes")
    mine = tmp_path / "mine.toml"
    mine.write_text('[[compare]]\nname="a"\nmetric="b"\ncomponent=["x y"]\nseconds=["c"]\noperations=["d"]\n')
    with pytest.raises(ConfigError, match="no name of a label: 'x y'"):
        load_map(str(mine))
