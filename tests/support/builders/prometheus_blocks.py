"""Blocks of a Prometheus server: node_exporter's disk counters of some hosts, written by promtool.

Each disk serves requests of its own rate and size at 4 ms, with a little noise; `slow` ones by a factor from
a time on. Counters start again at `restarts`, and scrapes in `gaps` are missing.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from laggard_aggregator.prometheus.server import PrometheusServer
from tests.support.ports import free_port, is_listening
from tests.support.processes import run_command, started
from tests.support.wait import wait_until

SERVICE_MS = 4.0
COUNTERS = {
    "node_disk_reads_completed": (0.6, 1.0),
    "node_disk_writes_completed": (0.4, 1.0),
    "node_disk_read_bytes": (0.6, 65_536.0),
    "node_disk_written_bytes": (0.4, 65_536.0),
}
"""Share of the requests, and the amount that each adds."""
TIMES = {
    "node_disk_read_time_seconds": 0.6,
    "node_disk_write_time_seconds": 0.4,
    "node_disk_io_time_weighted_seconds": 1.0,
    "node_disk_io_time_seconds": 0.3,
}


@dataclass(frozen=True)
class Slow:
    """`disk` of `host` takes `factor` times as long from `since` on."""

    host: int
    disk: int
    factor: float
    since: float


@dataclass(frozen=True)
class Exported:
    """What exporters of `hosts` hosts with `disks` disks each said from `start` to `end`."""

    start: float
    end: float
    hosts: int = 4
    disks: int = 6
    scrape_seconds: float = 15.0
    slow: Collection[Slow] = ()
    restarts: Mapping[int, float] = field(default_factory=dict)
    gaps: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    replicas: Collection[str] = ("",)
    spread: bool = False
    seed: int = 1
    known: str = "node_disk_info"

    @property
    def times(self) -> "np.ndarray":
        """Times of the counters' values (T,); with `spread`, hosts are scraped somewhere in between."""
        return np.arange(self.start, self.end, self.scrape_seconds)

    def increases(self) -> "dict[str, np.ndarray]":
        """What each counter grew by since the time before: (hosts, disks, T)."""
        random = np.random.default_rng(self.seed)
        times = self.times
        shape = (self.hosts, self.disks, times.size)
        requests = random.poisson(random.uniform(200, 900, (*shape[:2], 1)), shape).astype(float)
        seconds = requests * SERVICE_MS / 1000 * np.exp(random.normal(0, 0.05, shape))
        for one in self.slow:
            seconds[one.host, one.disk, times >= one.since] *= one.factor
        counters = {name: requests * share * size for name, (share, size) in COUNTERS.items()}
        return counters | {name: seconds * share for name, share in TIMES.items()}

    def lines(self) -> Iterator[str]:
        """OpenMetrics text with times."""
        times = self.times
        for name, increases in self.increases().items():
            yield f"# TYPE {name} counter\n"
            for host in range(self.hosts):
                yield from self._host(name, host, times, increases[host])
        yield "# TYPE node_disk_info gauge\n"
        for host in range(self.hosts):
            for disk in range(self.disks):
                labels = f'instance="oss{host}:9100",job="storage",device="{_device(disk)}"'
                for at in times:
                    yield f'node_disk_info{{{labels},model="X1",rotational="1"}} 1 {at:.3f}\n'
        yield "# EOF\n"

    def _host(self, name: str, host: int, times: "np.ndarray", increases: "np.ndarray") -> Iterator[str]:
        restart = np.searchsorted(times, self.restarts.get(host, np.inf))
        low, high = self.gaps.get(host, (np.inf, np.inf))
        shown = ~((times >= low) & (times < high))
        for disk in range(self.disks):
            values = increases[disk].cumsum()
            values[restart:] -= values[restart - 1] if 0 < restart < times.size else 0.0
            scraped = times
            if self.spread:
                scraped = times + self.scrape_seconds * host / self.hosts
                values = np.interp(scraped, times, values)
            for replica in self.replicas:
                own = f',replica="{replica}"' if replica else ""
                labels = f'instance="oss{host}:9100",job="storage",device="{_device(disk)}"{own}'
                for at, value in zip(scraped[shown], values[shown], strict=True):
                    yield f"{name}_total{{{labels}}} {value:.6f} {at:.3f}\n"


def _device(disk: int) -> str:
    return "sd" + chr(ord("a") + disk)


class Exports(Protocol):
    """What exporters said until `end`, as OpenMetrics text; every series of `known` goes on until then."""

    @property
    def end(self) -> float: ...

    @property
    def known(self) -> str: ...

    def lines(self) -> Iterator[str]:
        """The text."""
        ...


def write_blocks(exported: Exports, folder: Path, longest: str = "54h", seconds: float = 240.0) -> Path:
    """The server's data folder in `folder`, with the exported blocks: none is longer than `longest`.

    promtool may take `seconds`.
    """
    text = folder / "metrics.txt"
    with text.open("w") as out:
        out.writelines(exported.lines())
    data = folder / "data"
    # promtool reads the text once for each block: few long ones.
    create = ["promtool", "tsdb", "create-blocks-from", "openmetrics", f"--max-block-duration={longest}"]
    run_command([*create, "-q", text, data], seconds=seconds)
    text.unlink()
    return data


@contextmanager
def serving(exported: Exports, folder: Path, longest: str = "54h", seconds: float = 240.0) -> Iterator[str]:
    """The URL of a Prometheus server with the exported blocks, while the block lasts."""
    data = write_blocks(exported, folder, longest, seconds)
    (folder / "prometheus.yml").write_text("scrape_configs: []\n")
    port = free_port()
    command = [
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={data}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--storage.tsdb.retention.time=100y",
    ]
    with (folder / "prometheus.log").open("w") as log, started(command, stdout=log, stderr=log):
        wait_until(lambda: is_listening(port), "prometheus")
        server = PrometheusServer(f"http://127.0.0.1:{port}")
        wait_until(lambda: server.instant(f"count({exported.known})", exported.end - 60), "the blocks")
        yield server.url
