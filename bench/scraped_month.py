"""Thirty days of node_exporter's disk counters from a pair of Prometheus servers, as blocks of one server.

Written without regard to the analyser: 64 hosts with 12 disks, each with a rate of its own that follows the
day, requests of 4 ms with noise of disk and host, three slow disks, bursts of load, one disk that is slow for
ten minutes. Hosts reboot (counters begin again), exporters are not scraped for an hour. Two replicas scrape
each at times of their own; one of them pauses for three hours, both for twenty minutes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.support.processes import run_command

DAY, HOUR, MINUTE = 86_400.0, 3600.0, 60.0
SCRAPE_SECONDS = 60.0
PIECE_SECONDS = 18 * HOUR
"""A length of Prometheus's blocks: 2 h times 3 twice."""
DISKS = 12
SERVICE_SECONDS = 0.004
READ_SHARE, READ_BYTES, WRITTEN_BYTES = 0.6, 131_072, 65_536
REPLICAS = "ab"
BUSY_SHARE = 0.3
READS, READ_TIME, WRITES, WRITE_TIME = range(4)
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SlowDisk:
    """`disk` of `host` takes `factor` times as long from `begin` to `end`."""

    host: int
    disk: int
    factor: float
    begin: float
    end: float = float("inf")

    @property
    def name(self) -> str:
        """As node_exporter's map names it."""
        return f"oss{self.host}/{device(self.disk)}"


def device(disk: int) -> str:
    """The kernel's name of a disk."""
    return "sd" + chr(ord("a") + disk)


@dataclass(frozen=True)
class Month:
    """`pieces` times PIECE_SECONDS before `end`, a multiple of it.

    `replicas`: places in REPLICAS of the servers whose scrapes these are. More than one were written into one
    server, with their external labels.
    """

    end: float
    pieces: int = 40
    hosts: int = 64
    seed: int = 41
    replicas: Sequence[int] = (0, 1)
    _random: np.random.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_random", np.random.default_rng(self.seed))

    @property
    def start(self) -> float:
        """Begin of the first piece."""
        return self.end - self.pieces * PIECE_SECONDS

    @property
    def slow(self) -> tuple[SlowDisk, ...]:
        """The three."""
        span, last = self.end - self.start, self.hosts - 1
        return (
            SlowDisk(0, 3, 3.0, self.start + 0.70 * span),
            SlowDisk(last // 2, 7, 2.0, self.start + 0.40 * span),
            SlowDisk(last, 0, 1.5, self.start + 0.15 * span),
        )

    @property
    def blip(self) -> SlowDisk:
        """Ten minutes that are no straggler."""
        begin = self.start + 0.5 * (self.end - self.start)
        return SlowDisk(self.hosts // 3, 5, 4.0, begin, begin + 10 * MINUTE)

    def boot(self, host: int) -> float:
        """When the host's counters begin again, after three minutes without the host; never for most."""
        return self.start + 0.41 * (self.end - self.start) + host * MINUTE if host % 8 == 1 else np.inf

    def is_scraped(self, replica: int, host: int, at: Floats) -> NDArray[np.bool_]:
        """At which of the times there is a scrape."""
        half = self.start + 0.5 * (self.end - self.start)
        missing = (at >= half + 2 * HOUR) & (at < half + 2 * HOUR + 20 * MINUTE)
        missing |= (at >= self.boot(host) - 3 * MINUTE) & (at < self.boot(host))
        if replica == 0:
            missing |= (at >= half + 5 * HOUR) & (at < half + 8 * HOUR)
        if host % 16 == 2:
            begin = self.start + 0.71 * (self.end - self.start)
            missing |= (at >= begin) & (at < begin + HOUR)
        return ~missing

    def counters(self) -> Iterator[tuple[float, Floats]]:
        """Begin, and counters (4, hosts, disks, T + 1) at its multiples of SCRAPE_SECONDS, of each piece."""
        random, shape = self._random, (self.hosts, DISKS)
        usual = random.uniform(15, 60, shape)  # requests a second
        phase = random.uniform(0, 2 * np.pi, (self.hosts, 1))
        own = np.exp(random.normal(0, 0.03, shape))
        total = np.zeros((4, *shape))
        begin = self.start
        while begin < self.end:
            times = np.arange(begin, min(begin + PIECE_SECONDS, self.end), SCRAPE_SECONDS)
            of_day = 1 + 0.5 * np.sin(2 * np.pi * times / DAY + phase)[:, None, :]
            bursts = np.where(random.random((self.hosts, 1, times.size)) < 0.03, 3.0, 1.0)
            requests = random.poisson(usual[..., None] * of_day * bursts * SCRAPE_SECONDS)
            noise = random.normal(0, 0.08, (*shape, times.size))
            of_host = random.normal(0, 0.05, (self.hosts, 1, times.size))
            service = SERVICE_SECONDS * own[..., None] * bursts**0.3 * np.exp(noise + of_host)
            for one in (*self.slow, self.blip):
                service[one.host, one.disk, (times >= one.begin) & (times < one.end)] *= one.factor
            reads = np.round(requests * READ_SHARE)
            writes = requests - reads
            rises = np.stack([reads, reads * service, writes, writes * service * 0.8])
            counters = np.concatenate([total[..., None], total[..., None] + rises.cumsum(axis=-1)], axis=-1)
            for host in range(self.hosts):
                step = np.searchsorted(times, self.boot(host))
                if 0 < step < times.size:
                    counters[:, host, :, step:] -= counters[:, host, :, step : step + 1].copy()
            yield begin, counters
            total = counters[..., -1]
            begin += PIECE_SECONDS

    def lines(self, begin: float, counters: Floats) -> Iterator[str]:
        """OpenMetrics text of a piece."""
        steps = counters.shape[-1] - 1
        grid = begin + SCRAPE_SECONDS * np.arange(steps + 1)
        for name, values in exported(counters).items():
            yield f"# TYPE node_disk_{name} counter\n"
            for host, replica in product(range(self.hosts), self.replicas):
                at = self._scrapes(replica, host, grid[:-1])
                shown = self.is_scraped(replica, host, at) & (at < begin + PIECE_SECONDS)
                stamps = [f" {time:.3f}\n" for time in at[shown].tolist()]
                for disk in range(DISKS):
                    scraped = np.interp(at, grid, values[host, disk])[shown]
                    prefix = f"node_disk_{name}_total{self._labels(host, disk, replica)} "
                    texts = [f"{value:.{3 * ('time' in name)}f}" for value in scraped.tolist()]
                    yield "".join([prefix + a + b for a, b in zip(texts, stamps, strict=True)])
        yield "# TYPE node_disk_info gauge\n"
        for host, replica, disk in product(range(self.hosts), self.replicas, range(DISKS)):
            labels = self._labels(host, disk, replica)[:-1] + ',model="X1",rotational="1"}'
            for at in grid[:-1:5].tolist():
                yield f"node_disk_info{labels} 1 {at + 1:.3f}\n"
        yield "# EOF\n"

    def _labels(self, host: int, disk: int, replica: int) -> str:
        external = f',cluster="hpc",replica="{REPLICAS[replica]}"' if len(self.replicas) > 1 else ""
        return f'{{instance="oss{host}:9100",job="storage",device="{device(disk)}"{external}}}'

    def _scrapes(self, replica: int, host: int, grid: Floats) -> Floats:
        """Times of scrapes: an offset of the replica and the host, and a jitter of milliseconds."""
        offset = (7.31 * host + 23.7 * replica) % (SCRAPE_SECONDS - 1)
        jitter = np.random.default_rng((host, replica, int(grid[0]))).uniform(0, 0.02, grid.size)
        return np.round(grid + offset + jitter, 3)


def exported(counters: Floats) -> dict[str, Floats]:
    """The counters as node_exporter names them, each (hosts, disks, T + 1)."""
    reads, read_time, writes, write_time = counters
    return {
        "reads_completed": reads,
        "read_time_seconds": read_time,
        "writes_completed": writes,
        "write_time_seconds": write_time,
        "read_bytes": reads * READ_BYTES,
        "written_bytes": writes * WRITTEN_BYTES,
        "io_time_seconds": BUSY_SHARE * (read_time + write_time),
    }


def write_month(month: Month, folder: Path, written: int = 0) -> None:
    """The blocks, in `folder`, but for the first `written`. Each piece's text is there for a while."""
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / "piece.txt"
    for number, (begin, counters) in enumerate(month.counters()):
        if number < written:
            continue
        with text.open("w") as out:
            out.writelines(month.lines(begin, counters))
        hours = f"--max-block-duration={PIECE_SECONDS / HOUR:.0f}h"
        create = ["promtool", "tsdb", "create-blocks-from", "openmetrics", hours]
        run_command([*create, "-q", text, folder], seconds=HOUR)
    text.unlink()
