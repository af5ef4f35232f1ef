"""Published detectors of slow drives beside Laggard's: `python -m bench.leaderboard [DIR]`, two tables.

DIR is that of `bench.accuracy.perseus`: labelled drives, and healthy ones to be made slow. With `--scraped`
one table has both, as they are in the files and through a real Prometheus server, as the counters of each
exporter that a shipped map compares. With `--labels` and `--csv` or
`--prometheus` the first table is of other series, in the formats of `laggard diagnose`.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bench.accuracy.injected import BUDGET_DRIVES, blocks, days_of, healthy_part
from bench.accuracy.perseus import (
    SETTINGS,
    cluster_of,
    delay_text,
    grids_of,
    trained_on_healthy_hosts,
    truth_of,
)
from bench.leaderboard.by_source import drives_of, source_table
from bench.leaderboard.entries import Entry, own, published, usable
from bench.leaderboard.labels import UNITS, read_labels, read_series
from bench.leaderboard.ranking import ClusterOf, Row, rank
from bench.leaderboard.scoring import Fault
from bench.leaderboard.scraped import read_server
from bench.leaderboard.series import Series
from bench.leaderboard.slowed import Slowed, cases
from bench.machine import machine
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.offline.csv_columns import CsvColumns
from laggard_aggregator.offline.sample_grid import NS, Grid
from laggard_aggregator.status.text_table import TableColumn, text_table
from laggard_common.errors import LaggardError

TRIALS, QUICK_TRIALS = 20, 1
CSV_SECONDS = 15.0
HEADINGS = (
    "detector",
    "drives: precision / recall / F1",
    "F1 by cluster",
    "windows F1",
    "first alarm, min: median / 90 %",
    "false alarms a drive-week",
    "training or look-back",
    "CPU s a million samples",
)
"""The third is left out where there is one cluster."""


@dataclass(frozen=True, slots=True)
class Data:
    """Groups, when their drives are slow, the entries that can judge them, and the cluster of a group."""

    grids: Sequence[Grid]
    faults: Sequence[Fault]
    entries: Sequence[Entry]
    cluster_of: ClusterOf


def labelled_drives(directory: Path, *, quick: bool) -> Data:
    """The PERSEUS drives; `quick`: of some hosts, the faulty first."""
    truth, grids = truth_of(directory), grids_of(directory)
    if quick:
        grids = quick_choice(grids, {group for group, _ in truth})
    settings = replace(SETTINGS, tests_at_once=BUDGET_DRIVES)
    trained = trained_on_healthy_hosts(grids, truth)
    entries = [*own(settings, trained), *published()]
    return Data(grids, [Fault(*drive) for drive in sorted(truth)], entries, cluster_of)


def show_by_source(args: argparse.Namespace) -> None:
    """Prints the table of `--scraped`. Raises OSError."""
    truth, grids = truth_of(args.directory), grids_of(args.directory)
    if args.quick:
        grids = quick_choice(grids, {group for group, _ in truth})
    if args.evenings:
        grids = [blocks(grid, slice(0, days_of(grid)[: args.evenings][-1].stop)) for grid in grids]
    drives = drives_of(grids, truth, trials_of(args), args.seed)
    table = []
    for row in source_table(drives, replace(SETTINGS, tests_at_once=BUDGET_DRIVES), args.only):
        print(" | ".join(row), file=sys.stderr)  # a source takes minutes
        table.append(row)
    labelled = sum(len(grid.components) for grid in grids)
    print(f"{len(grids)} groups, {labelled} drives, {len(drives.faults)} of them slow; ", end="")
    print(f"{len(drives.onsets)} healthy drives made slow, each in a group of its own\n")
    show(table, markdown=args.markdown)


def trials_of(args: argparse.Namespace) -> int:
    """Drives made slow a case."""
    return (QUICK_TRIALS if args.quick else TRIALS) if args.trials is None else int(args.trials)


def quick_choice(grids: Sequence[Grid], ill: set[str]) -> list[Grid]:
    """Three groups of each cluster, up to two with faulty drives."""
    chosen = []
    for cluster in sorted({cluster_of(grid.group) for grid in grids}):
        hosts = [grid for grid in grids if cluster_of(grid.group) == cluster]
        hosts.sort(key=lambda grid: grid.group not in ill)
        chosen += [*hosts[:2], hosts[-1]] if len(hosts) > 2 else hosts
    return chosen


def other_series(args: argparse.Namespace) -> Data:
    """The series of `--csv` or `--prometheus`. Raises LaggardError."""
    if args.prometheus:
        grids = read_server(args)
        interval = grids[0].interval_ns / NS if grids else CSV_SECONDS
    else:
        interval = args.interval or CSV_SECONDS
    settings = DetectSettings(
        interval_seconds=interval, window_samples=args.window, shift_samples=args.window
    )
    if args.csv:
        columns = CsvColumns(
            args.time_column, args.component_column, (args.metric,), args.load, args.group_by
        )
        grids = read_series(args.csv, columns, settings, args.unit)
    settings = replace(settings, tests_at_once=sum(len(grid.components) for grid in grids))
    entries = usable([*own(settings), *published()], with_load=all(grid.load for grid in grids))
    return Data(grids, read_labels(args.labels, grids), entries, lambda _group: "all")


def ranking_table(rows: Sequence[Row]) -> list[list[str]]:
    """The cells of the first table, headings first."""
    clusters = list(rows[0].clusters)
    headings = list(HEADINGS)
    headings[2] += f": {' / '.join(name.removeprefix('cluster_') for name in clusters)}"
    table = [headings]
    for row in rows:
        total = row.total
        cells = [row.entry.name, str(total.drives)]
        cells.append(" / ".join(f"{row.clusters[name].drives.f1:.3f}" for name in clusters))
        cells += [
            f"{total.windows.f1:.3f}",
            delay_text(total.delays, (0.5, 0.9)),
            f"{total.false_alarms_a_week:.2f}",
        ]
        table.append([*cells, row.entry.look_back, f"{row.cpu_seconds:.2f}"])
    return table if len(clusters) > 1 else [[*cells[:2], *cells[3:]] for cells in table]


def slowed_table(data: Data, rows: Sequence[Row], trials: int, seed: int) -> list[list[str]]:
    """The cells of the second table, headings first; the rows in the order of the first."""
    truth = {(fault.group, fault.component) for fault in data.faults}
    slowed = Slowed([healthy_part(grid, truth) for grid in data.grids], rows, data.cluster_of)
    table = [["detector"], *([row.entry.name] for row in rows)]
    for number, case in enumerate(cases(trials)):
        found = slowed.run(case, np.random.default_rng((seed, number)))
        table[0].append(case.name)
        for cells in table[1:]:
            cells.append(str(found[cells[0]]))
    return table


def show(table: Sequence[Sequence[str]], *, markdown: bool) -> None:
    """Prints a table whose first row has the headings."""
    if markdown:
        lines = [f"| {' | '.join(row)} |" for row in [table[0], ["---"] * len(table[0]), *table[1:]]]
    else:
        plain = [[cell.replace("*", "").replace("`", "") for cell in row] for row in table]
        lines = text_table([TableColumn(heading) for heading in plain[0]], plain[1:])
    print("\n".join(lines), flush=True)


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.leaderboard", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("directory", type=Path, nargs="?", default=Path("../shared/data/perseus_failslow"))
    add("--quick", action="store_true", help="three hosts a cluster and one drive a case made slow")
    add("--markdown", action="store_true", help="Markdown, as in docs/leaderboard.md")
    add("--only", default="", metavar="TEXT", help="only detectors with TEXT in their name")
    add(
        "--trials",
        type=int,
        metavar="N",
        help=f"drives made slow a case (default {TRIALS}; 0: no second table)",
    )
    add("--seed", type=int, default=1, help="draws these drives")
    add("--scraped", action="store_true", help="a table by source: files, and a real Prometheus")
    add("--evenings", type=int, default=0, metavar="N", help="with --scraped: only the first N of each host")
    csv = parser.add_argument_group("other series, as laggard diagnose reads them")
    add = csv.add_argument
    add("--csv", type=Path, nargs="+", metavar="FILE", help="series instead of DIR; no second table")
    add("--prometheus", metavar="URL", help="a server's series instead of DIR; no second table")
    add("--map", metavar="NAME", help="a shipped map or a map file (default: all that fit)")
    add("--from", dest="since", metavar="TIME", help="as of laggard diagnose (default a day ago)")
    add("--to", dest="until", metavar="TIME")
    add("--labels", type=Path, metavar="FILE", help="CSV: component,start,end, and group where names repeat")
    add("--time-column", default="ts", metavar="NAME")
    add("--component-column", default="disk_id", metavar="NAME")
    add("--metric", default="latency", metavar="NAME", help="larger is worse")
    add("--unit", choices=tuple(UNITS), default="us", help="of the metric (default %(default)s)")
    add("--load", metavar="NAME", help="bytes a second; without it PERSEUS and CSR cannot judge")
    add("--group-by", metavar="file|NAME", help="peers are of one file, or have one value of a column")
    add("--interval", type=float, metavar="S", help="seconds (default 15, or two scrapes of the server)")
    add("--window", type=int, default=20, metavar="N", help="intervals a window (default 20)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables; 2 for input that cannot be read."""
    parser = options()
    args = parser.parse_args(arguments)
    if (args.csv is None and args.prometheus is None) != (args.labels is None):
        parser.error("--labels and one of --csv and --prometheus go together")
    if args.csv and args.prometheus:
        parser.error("--csv or --prometheus, not both")
    began = time.process_time()
    try:
        if args.scraped:
            show_by_source(args)
            print(f"\n{machine('numpy', 'scipy')}; {time.process_time() - began:.0f} s of CPU")
            return 0
        data = other_series(args) if args.labels else labelled_drives(args.directory, quick=args.quick)
    except (LaggardError, OSError) as exc:
        print(f"bench.leaderboard: {exc}", file=sys.stderr)
        return 2
    entries = [entry for entry in data.entries if args.only.lower() in entry.name.lower()]
    if not entries:
        parser.error(f"--only: no detector has {args.only!r} in its name")
    rows = rank([Series(grid) for grid in data.grids], data.faults, entries, data.cluster_of)
    drives = sum(len(grid.components) for grid in data.grids)
    slow = len({(fault.group, fault.component) for fault in data.faults})
    print(f"{len(data.grids)} groups, {drives} drives, {slow} of them slow\n")
    show(ranking_table(rows), markdown=args.markdown)
    trials = trials_of(args)
    if trials and not args.labels:
        print(
            f"\n{trials} healthy drives a column made slow: found (minutes: median / 90 %), others blamed\n"
        )
        show(slowed_table(data, rows, trials, args.seed), markdown=args.markdown)
    print(f"\n{machine('numpy', 'scipy')}; {time.process_time() - began:.0f} s of CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main())
