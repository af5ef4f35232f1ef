"""Print a recording's medians by phase as a Markdown table: `python -m bench.testbed.summary FILE`."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from laggard_aggregator.demo.recording import Recording, read_recording

# Indices into a row's counters, after major, minor and name (kernel's Documentation/admin-guide/iostats.rst).
READS, READ_SECTORS, READ_MS, WRITES, WRITE_SECTORS, WRITE_MS = 0, 2, 3, 4, 6, 7
FIRST_COUNTER = 3  # of a row's columns


@dataclass(frozen=True, slots=True)
class Phase:
    """A LUN in a phase, medians over its one-second intervals: awaits in ms (NaN without I/O), tps, MB/s."""

    await_ms: float
    r_await_ms: float
    w_await_ms: float
    tps: float
    megabytes_per_second: float


def phases(made: Recording) -> dict[str, dict[str, Phase]]:
    """Return, by phase and LUN, what the counters say; intervals across a border are left out."""
    start, end = made.fault_start, made.fault_end
    spans = {"healthy": (0.0, start), "fault": (start, end), "recovery": (end, math.inf)}
    return {
        phase: {name: _phase(made, name, first, last) for name in made.luns}
        for phase, (first, last) in spans.items()
    }


def table(made: Recording) -> str:
    """Return the faulty LUN against its peers by phase, as a Markdown table.

    A peers' cell is the median over peers of their medians; in brackets the lowest and highest of those.
    """
    faulty = made.faulty
    columns = ["phase", "LUN", "await", "factor", "r_await", "w_await", "tps", "MB/s"]
    lines = [_row(columns), "|---" * len(columns) + "|"]
    for phase, luns in phases(made).items():
        slow = luns[faulty]
        peers = [lun for name, lun in luns.items() if name != faulty]
        usual = Phase(*(median(getattr(peer, field) for peer in peers) for field in Phase.__slots__))
        awaits = [peer.await_ms for peer in peers]
        span = f" ({min(awaits):.2f} to {max(awaits):.2f})"
        lines.append(_row([phase, faulty, *_cells(slow, "", f"{slow.await_ms / usual.await_ms:.1f}")]))
        lines.append(_row([phase, "peers", *_cells(usual, span, "")]))
    return "\n".join(lines)


def _cells(lun: Phase, span: str, factor: str) -> list[str]:
    return [
        f"{lun.await_ms:.2f} ms{span}",
        factor,
        f"{lun.r_await_ms:.2f} ms",
        f"{lun.w_await_ms:.2f} ms",
        f"{lun.tps:.0f}",
        f"{lun.megabytes_per_second:.2f}",
    ]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def lun_table(made: Recording) -> str:
    """Return every LUN's median await in ms by phase, as a Markdown table."""
    by_phase = phases(made)
    lines = [_row(["LUN", *by_phase]), "|---" * (len(by_phase) + 1) + "|"]
    for name in made.luns:
        lines += [_row([name, *(f"{luns[name].await_ms:.2f}" for luns in by_phase.values())])]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 once the table is printed."""
    parser = argparse.ArgumentParser(prog="bench.testbed.summary", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--luns", action="store_true", help="every LUN's median await as well")
    options = parser.parse_args(arguments)
    made = read_recording(options.file)
    print(table(made))
    if options.luns:
        print("\n" + lun_table(made))
    return 0


def _phase(made: Recording, name: str, first: float, last: float) -> Phase:
    intervals: list[tuple[float, float, float, float, float]] = []
    for before, after in pairwise(made.samples):
        if not (first <= before.time and after.time <= last):
            continue
        old, new = (sample.rows[name].split()[FIRST_COUNTER:] for sample in (before, after))
        delta = [int(b) - int(a) for a, b in zip(old, new, strict=True)]
        seconds = after.time - before.time
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
