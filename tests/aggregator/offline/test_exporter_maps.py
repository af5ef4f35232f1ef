"""The maps of further exporters, over text in their own form that a real Prometheus server has stored."""

import json
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from laggard_aggregator.cli.main import main
from laggard_aggregator.metrics.registry import EVIDENCE
from laggard_aggregator.offline.prometheus_input import Span, read_prometheus
from laggard_aggregator.prometheus.compare_map import CompareMap, load_map
from laggard_aggregator.prometheus.scrapes import ScrapeReader
from laggard_aggregator.prometheus.server import PrometheusServer
from tests.support.builders.prometheus_blocks import serving

HOUR = 3600.0
pytestmark = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")), reason="needs prometheus and promtool"
)


@dataclass(frozen=True)
class Mdts:
    """Six MDTs as lustrefs-exporter prints them; from half-time on, opens of one take three times as long."""

    end: float
    start: float
    known: str = "lustre_stats_total"

    def lines(self) -> Iterator[str]:
        random = np.random.default_rng(3)
        times = np.arange(self.start, self.end, 60.0)
        counts: dict[tuple[int, str], list[int]] = {}
        for mdt in range(6):
            for operation, us in (("open", 180.0), ("getattr", 40.0)):
                done = random.poisson(900, times.size)
                each = us * random.normal(1, 0.05, times.size) * (1 + 0.1 * random.random())
                if mdt == 4 and operation == "open":
                    each[times.size // 2 :] *= 3
                counts[mdt, operation] = done.cumsum().tolist()
                counts[mdt, operation + " us"] = (done * each).cumsum().astype(int).tolist()
        for name, kind, unit in (
            ("lustre_stats", "counter", ""),
            ("lustre_stats_time_total", "unknown", " us"),
        ):
            yield f"# TYPE {name} {kind}\n"
            shown = "lustre_stats_total" if kind == "counter" else name
            for mdt in range(6):
                for operation in ("getattr", "open"):
                    labels = f'component="mdt",operation="{operation}",target="ai400x2-MDT000{mdt}"'
                    scraped = f'{labels},instance="mds{mdt % 2}:32221",job="lustre"'
                    for at, value in zip(times, counts[mdt, operation + unit], strict=True):
                        yield f"{shown}{{{scraped}}} {value} {at:.3f}\n"
        yield "# EOF\n"


@dataclass(frozen=True)
class Smart:
    """An NVMe and a SAS disk as smartctl_exporter prints them; both have more errors after half the time."""

    end: float
    start: float
    known: str = "smartctl_device_media_errors"

    def lines(self) -> Iterator[str]:
        model = 'model_family="",model_name="ST8000NM0185",serial_number="ZA1"'
        series = {
            "smartctl_device_media_errors": ('device="nvme0"', 0, 4),
            "smartctl_device_num_err_log_entries": ('device="nvme0"', 117, 117),
            "smartctl_scsi_grown_defect_list": (f'device="sdc",{model}', 8, 10),
            "smartctl_read_total_uncorrected_errors": (f'device="sdc",{model}', 1, 3),
            "smartctl_write_total_uncorrected_errors": (f'device="sdc",{model}', 0, 1),
            "smartctl_device_percentage_used": ('device="nvme0"', 3, 3),
        }
        for name, (labels, before, after) in series.items():
            yield f"# TYPE {name} unknown\n"
            for at in np.arange(self.start, self.end, 60.0):
                value = after if at >= (self.start + self.end) / 2 else before
                yield f'{name}{{{labels},instance="oss1:9633",job="smart"}} {value} {at:.3f}\n'
        yield "# EOF\n"


@dataclass(frozen=True)
class OsdCommits:
    """OSDs as managers export them: of Ceph 16, and of 17, which renamed the commits of BlueStore."""

    end: float
    start: float
    known: str = "ceph_osd_op_r_latency_count"

    def lines(self) -> Iterator[str]:
        for osd, commits in (("osd.0", "commit_lat"), ("osd.1", "txc_commit_lat")):
            for name, value in (
                ("ceph_osd_op_r_latency_count", "7.0"),
                (f"ceph_bluestore_{commits}_sum", "4.087775037"),
                (f"ceph_bluestore_{commits}_count", "145.0"),
            ):
                yield f"# TYPE {name} unknown\n"
                for at in np.arange(self.start, self.end, 60.0):
                    yield f'{name}{{ceph_daemon="{osd}"}} {value} {at:.3f}\n'
        yield "# EOF\n"


@dataclass(frozen=True)
class BusyOsds:
    """OSDs of a manager of Ceph 16 and one of 17: in 15 s each reads 30 times and commits 90 times."""

    end: float
    start: float
    known: str = "ceph_osd_op_r_latency_count"

    def lines(self) -> Iterator[str]:
        times = np.arange(self.start, self.end, 15.0)
        for osd, commits in (("osd.0", "commit_lat"), ("osd.1", "txc_commit_lat")):
            for name, rise in (
                ("ceph_osd_op_r_latency_count", 30),
                ("ceph_osd_op_r_latency_sum", 0.09),
                (f"ceph_bluestore_{commits}_count", 90),
            ):
                yield f"# TYPE {name} unknown\n"
                for number, at in enumerate(times):
                    yield f'{name}{{ceph_daemon="{osd}"}} {rise * number:.2f} {at:.3f}\n'
        yield "# EOF\n"


MANAGER = Path(__file__).resolve().parents[2] / "fixtures" / "ceph" / "manager-16.2.15.txt"


@dataclass(frozen=True)
class OsdsOfManager:
    """What a real manager answered, scraped again and again."""

    end: float
    start: float
    known: str = "ceph_osd_metadata"

    def lines(self) -> Iterator[str]:
        for line in MANAGER.read_text().splitlines():
            if line.startswith("# TYPE"):
                yield f"{line.rpartition(' ')[0]} unknown\n"
            elif not line.startswith("#"):
                yield from (f"{line} {at:.3f}\n" for at in np.arange(self.start, self.end, 60.0))
        yield "# EOF\n"


@pytest.fixture
def end() -> float:
    return time.time() // 7200 * 7200 - 4 * HOUR


def test_the_slow_mdt_of_lustrefs_exporter_is_found(
    end: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported = Mdts(end, end - 12 * HOUR)
    with serving(exported, tmp_path) as url:
        span = [f"--from={exported.start:.0f}", f"--to={end:.0f}"]
        assert main(["diagnose", "--prometheus", url, *span, "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = [record for record in records if record.get("straggler") and record["record"] == "component"]
    assert [(record["group"], record["component"]) for record in found] == [("mdt open", "ai400x2-MDT0004")]
    assert found[0]["severity"] == pytest.approx(3.0, rel=0.15)
    assert {record["group"] for record in records if "component" in record} == {"mdt open", "mdt getattr"}


def test_microseconds_are_milliseconds_in_the_daemon(end: float, tmp_path: Path) -> None:
    """The mean of the latest hour, from the readings and from the text's own numbers."""
    exported = Mdts(end, end - 2 * HOUR)
    source = next(s for s in load_map("lustrefs_exporter").sources if s.comparison == "mdt open")
    with serving(exported, tmp_path) as url:
        readings = ScrapeReader(source, 60.0).read(
            PrometheusServer(url), round(end / 60) - 59, round(end / 60)
        )
    fields = [field.name for field in source.fields]
    values = {
        name: [one.values for of in readings.values() for one in of if one.component.name.startswith(name)]
        for name in ("ai400x2-MDT0000", "ai400x2-MDT0004")
    }
    text = [line for line in exported.lines() if 'operation="open",target="ai400x2-MDT0000"' in line]
    half = len(text) // 2
    counts, us = ([int(line.split()[-2]) for line in part] for part in (text[:half], text[half:]))
    busy, operations = fields.index("busy_us"), fields.index("operations")
    first, *_, last = values["ai400x2-MDT0000"]
    assert last[operations] - first[operations] == counts[-1] - counts[-60]  # type: ignore[operator]
    assert last[busy] - first[busy] == us[-1] - us[-60]  # type: ignore[operator]
    assert len(values["ai400x2-MDT0004"]) == 60


def test_smartctl_exporters_errors_are_fields_of_the_evidence(end: float, tmp_path: Path) -> None:
    exported = Smart(end, end - HOUR)
    (source,) = load_map("smartctl_exporter").sources
    with serving(exported, tmp_path) as url:
        readings = ScrapeReader(source, 60.0).read(
            PrometheusServer(url), round(end / 60) - 59, round(end / 60)
        )
    of = {one.component.name: one for one in readings[max(readings)]}
    assert {name: one.values for name, one in of.items()} == {
        "nvme0": (4, 117, None, None),
        "sdc": (None, None, 10, 4),
    }
    assert {one.component.node for one in of.values()} == {"oss1"}
    assert {field.name for field in source.fields} < {one.field for one in EVIDENCE[source.name].counts}


def test_commits_of_old_and_new_managers_are_one_field(end: float, tmp_path: Path) -> None:
    (source,) = load_map("ceph").sources
    with serving(OsdCommits(end, end - HOUR), tmp_path) as url:
        interval = round(end / 60)
        readings = ScrapeReader(source, 60.0).read(PrometheusServer(url), interval - 5, interval)
    names = [field.name for field in source.fields]
    for one in readings[max(readings)]:
        told = dict(zip(names, one.values, strict=True))
        assert (told["bluestore_commit_lat_count"], told["bluestore_commit_lat_us"]) == (145, 4087775)
        assert told["subop_w_latency_us"] is None
    assert {one.component.name for one in readings[max(readings)]} == {"osd.0", "osd.1"}


def test_the_load_of_reads_has_all_that_an_osd_commits(end: float, tmp_path: Path) -> None:
    """Requests of clients do not tell it: the primary of few placement groups may have the most to write."""
    table = next(one for one in load_map("ceph").compare if one.name == "osd reads")
    with serving(BusyOsds(end, end - HOUR), tmp_path) as url:
        span = Span(end - HOUR + 60, end - 60, 60.0)
        (grid,) = read_prometheus(PrometheusServer(url), CompareMap((table,)), span, 10, [])
    assert grid.components == ("osd.0", "osd.1")
    known = np.isfinite(grid.metrics["op_r_latency"])
    assert known.sum() >= 2 * 50
    assert np.allclose(grid.load["operations"][known], 4 * (30 + 90))
    assert np.allclose(grid.metrics["op_r_latency"][known], 3.0)


def test_every_number_of_a_manager_is_that_of_its_text(end: float, tmp_path: Path) -> None:
    """All that the map names, of all OSDs, by a regular expression on the text."""
    (source,) = load_map("ceph").sources
    text = {
        (name, osd): Decimal(number)
        for name, osd, number in re.findall(
            r'^(\w+)\{ceph_daemon="(osd\.\d+)"\} (\S+)$', MANAGER.read_text(), re.MULTILINE
        )
    }
    with serving(OsdsOfManager(end, end - HOUR), tmp_path) as url:
        interval = round(end / 60)
        readings = ScrapeReader(source, 60.0).read(PrometheusServer(url), interval - 5, interval)
    used = set()
    for one in readings[max(readings)]:
        assert ("device_class", "hdd") in one.component.labels
        for field, value in zip(source.fields, one.values, strict=True):
            (name,), (older,) = field.counters, field.older or field.counters
            key = next(
                (key for key in ((name, one.component.name), (older, one.component.name)) if key in text),
                None,
            )
            wanted = None if key is None else text[key] * Decimal(field.scale)
            assert (value is None) == (wanted is None), field.name
            assert value is None or wanted is None or abs(value - wanted) <= Decimal("0.51"), field.name
            used.add(key)
    assert used - {None} == set(text)
    assert len({osd for _, osd in text}) == len(readings[max(readings)]) == 6


def test_a_map_of_evidence_alone_judges_nothing(
    end: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(Smart(end, end - HOUR), tmp_path) as url:
        span = [f"--from={end - HOUR:.0f}", f"--to={end:.0f}"]
        assert main(["diagnose", "--prometheus", url, *span, "--map", "smartctl_exporter"]) == 2
        assert "no [[compare]]" in capsys.readouterr().err
        assert main(["diagnose", "--prometheus", url, *span]) == 2
        assert "has no series of the shipped maps" in capsys.readouterr().err
