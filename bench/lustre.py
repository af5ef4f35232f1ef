"""What a sample of the `lustre` collector costs on a large OSS: `python -m bench.lustre`.

Writes the files of a 2.15 server with 100 OSTs and 1,000 job ids, ten on each OST, into a temporary folder,
then measures `LustreCollector.read`, with opening and reading the files, in the CPU time of this process.
Between samples the files of the OSTs that are active are written anew, with other numbers in every place.
"""

from __future__ import annotations

import argparse
import gc
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bench.machine import machine
from laggard_agent.cli import freeze
from laggard_agent.collectors.interface import Context, Roots
from laggard_agent.collectors.lustre.collector import LustreCollector, LustreSettings
from laggard_agent.collectors.lustre.param_paths import Trees

OSTS = 100
JOBS_AN_OST = 10
SAMPLES = 100

_OPS = ("read", "write", "punch", "sync", "destroy", "create", "statfs", "get_info", "set_info", "setattr")
_JOB_OPS = (*_OPS, "getattr", "quotactl", "prealloc")
_SERVICES = ("ost", "ost_io", "ost_create", "ost_seq", "ost_out")
_HISTOGRAMS = (
    ("pages per bulk r/w     rpcs", [1 << i for i in range(11)]),
    ("discontiguous pages    rpcs", list(range(32))),
    ("disk I/Os in flight    ios ", list(range(1, 32))),
    ("I/O time (1/1000s)     ios ", [1 << i for i in range(14)]),
    ("disk I/O size          ios ", [1 << i for i in range(12, 23)]),
    ("block maps msec        maps", [1 << i for i in range(8)]),
)


class Server:
    """A made-up OSS whose counters only rise."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root = root
        self._rng = rng
        self._seconds = 1_704_411_148
        self._total = 100_000

    def write(self, osts: Sequence[int]) -> None:
        """Writes the files of these OSTs and of all services, a second later than before."""
        self._seconds += 1
        self._total += self._rng.randrange(1_000, 5_000)
        for ost in osts:
            name = f"scratch-OST{ost:04x}"
            folder = self.root / "proc/fs/lustre/obdfilter" / name
            self._put(folder / "stats", self._stats(_OPS))
            self._put(folder / "job_stats", self._job_stats(ost))
            self._put(self.root / "debug/lustre/osd-ldiskfs" / name / "brw_stats", self._brw())
        for service in _SERVICES:
            names = ("req_waittime", "req_qdepth", "req_active", "req_timeout", "reqbuf_avail", "ost_write")
            self._put(self.root / "debug/lustre/ost/OSS" / service / "stats", self._stats(names))

    def _put(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def _number(self) -> int:
        return self._total + self._rng.randrange(1000)

    def _header(self, colon: str = "", indent: str = "") -> str:
        return (
            f"{indent}{'snapshot_time' + colon:<25} {self._seconds}.123456789 secs.nsecs\n"
            f"{indent}{'start_time' + colon:<25} 1704411148.063790068 secs.nsecs\n"
            f"{indent}{'elapsed_time' + colon:<25} {self._seconds - 1704411148}.059666721 secs.nsecs\n"
        )

    def _stats(self, names: Sequence[str]) -> str:
        lines = [
            f"{name:<25} {self._number()} samples [usecs] 1 {self._number()} {self._number() * 977} "
            f"{self._number() * 977 * 977}\n"
            for name in names
        ]
        return self._header() + "".join(lines)

    def _job_stats(self, ost: int) -> str:
        text = "job_stats:\n"
        for job in range(JOBS_AN_OST):
            text += f"- job_id:          app.{ost * JOBS_AN_OST + job + 4_000_000}\n" + self._header(
                ":", "  "
            )
            for name in _JOB_OPS:
                text += (
                    f"  {name + ':':<16} {{ samples: {self._number():11d}, unit: usecs, min: {3:8d}, "
                    f"max: {self._number():8d}, sum: {self._number() * 977:16d}, "
                    f"sumsq: {self._number() * 977 * 977:18d} }}\n"
                )
        return text

    def _brw(self) -> str:
        text = self._header(":")
        for title, bins in _HISTOGRAMS:
            text += f"\n{'read':>31}      |     write\n{title}  % cum % |  rpcs        % cum %\n"
            text += "".join(
                f"{key}:\t\t{self._number():10d} {3:3d} {50:3d}   | {self._number():4d} {3:3d} {50:3d}\n"
                for key in bins
            )
        return text


def measure(active: float, *, job_stats: bool) -> tuple[list[float], int, int]:
    """CPU seconds of each sample, rows and values of one; `active`: share of the OSTs."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        server = Server(root, random.Random(7))
        server.write(range(OSTS))
        context = Context(Roots(), time.time_ns, time.monotonic_ns)
        trees = Trees(root / "proc", root / "sys", root / "debug")
        collector = LustreCollector(LustreSettings(job_stats), context, trees)
        list(collector.read())
        thresholds = gc.get_threshold()
        freeze()  # as the daemon does once it has settled
        costs = []
        for _ in range(SAMPLES):
            server.write(range(round(active * OSTS)))
            started = time.process_time()
            readings = list(collector.read())
            costs.append(time.process_time() - started)
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        assert not collector.leftovers
        rows = sum(len(reading.rows) for reading in readings)
        values = sum(len(reading.rows) * len(reading.fields) for reading in readings)
    return costs, rows, values


def main() -> None:
    """Prints the table."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(f"{OSTS} OSTs, {OSTS * JOBS_AN_OST} job ids, {SAMPLES} samples; {machine()}\n")
    print("| job_stats | OSTs that change | rows | values | CPU ms a sample, least | median | most |")
    print("|---|---|---|---|---|---|---|")
    for job_stats in (False, True):
        for active in (0.0, 0.1, 1.0):
            costs, rows, values = measure(active, job_stats=job_stats)
            what = "yes" if job_stats else "no"
            shown = " | ".join(f"{cost * 1e3:.1f}" for cost in (min(costs), median(costs), max(costs)))
            print(f"| {what} | {active:.0%} | {rows} | {values} | {shown} |")


if __name__ == "__main__":
    main()
