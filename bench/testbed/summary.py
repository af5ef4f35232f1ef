"""Print a recording's medians by phase as a Markdown table: `python -m bench.testbed.summary FILE [--luns]`."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from bench.testbed import recording

# Indices into a row's counters, after major, minor and name (kernel's Documentation/admin-guide/iostats.rst).
READS, READ_SECTORS, READ_MS, WRITES, WRITE_SECTORS, WRITE_MS = 0, 2, 3, 4, 6, 7
NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Phase:
    """A LUN in a phase, medians over its one-second intervals: awaits in ms (NaN without I/O), tps, MB/s."""

    await_ms: float
    r_await_ms: float
    w_await_ms: float
    tps: float
    megabytes_per_second: float


def phases(made: recording.Recording) -> dict[str, dict[str, Phase]]:
    """Return, by phase and LUN, what /proc/diskstats says of it; intervals across a phase's border are left out."""
    start, end = (round(float(made.header[key]) * NS) for key in ("fault_start", "fault_end"))
    names = made.header["luns"].split()
    spans = {"healthy": (0, start), "fault": (start, end), "recovery": (end, sys.maxsize)}
    return {
        phase: {name: _phase(made, name, first, last) for name in names}
        for phase, (first, last) in spans.items()
    }


def table(made: recording.Recording) -> str:
    """Return the faulty LUN against its peers by phase, as a Markdown table; peers are medians over LUNs."""
    faulty = made.header["faulty"]
    lines = [
        f"| phase | {faulty} await | peers' await (lowest to highest) | factor | {faulty} r/w await | peers' r/w await "
        f"| {faulty} tps, MB/s | peers' tps, MB/s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for phase, luns in phases(made).items():
        slow = luns[faulty]
        peers = [lun for name, lun in luns.items() if name != faulty]
        awaits = [peer.await_ms for peer in peers]
        usual = Phase(*(median(getattr(peer, field) for peer in peers) for field in Phase.__slots__))
        lines.append(
            f"| {phase} | {slow.await_ms:.2f} ms | {usual.await_ms:.2f} ms ({min(awaits):.2f} to {max(awaits):.2f}) "
            f"| {slow.await_ms / usual.await_ms:.1f} | {slow.r_await_ms:.2f} / {slow.w_await_ms:.2f} ms "
            f"| {usual.r_await_ms:.2f} / {usual.w_await_ms:.2f} ms | {slow.tps:.0f}, {slow.megabytes_per_second:.2f} "
            f"| {usual.tps:.0f}, {usual.megabytes_per_second:.2f} |"
        )
    return "\n".join(lines)


def lun_table(made: recording.Recording) -> str:
    """Return every LUN's median await in ms by phase, as a Markdown table."""
    by_phase = phases(made)
    lines = ["| LUN | " + " | ".join(by_phase) + " |", "|---" * (len(by_phase) + 1) + "|"]
    for name in made.header["luns"].split():
        lines.append(
            f"| {name} | " + " | ".join(f"{luns[name].await_ms:.2f}" for luns in by_phase.values()) + " |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 once the table is printed."""
    parser = argparse.ArgumentParser(prog="bench.testbed.summary", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--luns", action="store_true", help="every LUN's median await as well")
    options = parser.parse_args(arguments)
    made = recording.read(options.file)
    print(table(made))
    if options.luns:
        print("\n" + lun_table(made))
    return 0


def _phase(made: recording.Recording, name: str, first_ns: int, last_ns: int) -> Phase:
    intervals: list[tuple[float, float, float, float, float]] = []
    for before, after in pairwise(made.samples):
        if not (first_ns <= before.time_ns and after.time_ns <= last_ns):
            continue
        old, new = (recording.column(sample.rows, [name])[name] for sample in (before, after))
        delta = [b - a for a, b in zip(old, new, strict=True)]
        seconds = (after.time_ns - before.time_ns) / NS
        requests = delta[READS] + delta[WRITES]
        intervals.append(
            (
                _ratio(delta[READ_MS] + delta[WRITE_MS], requests),
                _ratio(delta[READ_MS], delta[READS]),
                _ratio(delta[WRITE_MS], delta[WRITES]),
                requests / seconds,
                (delta[READ_SECTORS] + delta[WRITE_SECTORS]) * 512 / 1e6 / seconds,
            )
        )
    return Phase(*(_median(values) for values in zip(*intervals, strict=True)))


def _ratio(milliseconds: int, requests: int) -> float:
    return milliseconds / requests if requests else math.nan


def _median(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return median(known) if known else math.nan


if __name__ == "__main__":
    sys.exit(main())
