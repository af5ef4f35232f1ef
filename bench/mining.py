"""Cost of `laggard mine`, and its verdicts beside Drishti's and PyDarshan's.

`python -m bench.mining [PART] [--logs DIR]`. Parts: `intervals` (critical files of 10 million intervals),
`trace` (a log with 5 million traced requests), `log` (the command on a log of 2,000 files), `peers` (a table
of all logs below --logs; needs `pip install drishti-io`).
"""

import argparse
import json
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.machine import machine
from laggard_aggregator.mining.engines import open_engine
from laggard_aggregator.mining.job_list import intervals_sql
from laggard_aggregator.mining.store import MineStore, StoreWriter
from laggard_aggregator.mining.tables import DARSHAN_FILE
from tests.support.builders.darshan_log import DXT_POSIX, LogWriter

JOBS = 20_000
INTERVALS = 10_000_000
SEGMENTS = 5_000_000
MIB = 1 << 20
KNOWN = {
    "sample-badost": "OST 14 is 50 times slower than the others",
    "sample-goodost": "nothing wrong",
    "ior_id66186300": "nothing wrong: 1 KiB reads in order, 643.7 MiB/s",
    "ior_id66186433": "the same reads out of order, 64.3 MiB/s",
    "openpmd": "1,024 processes on one OST",
    "imbalanced": "one file on OST 29 alone is 96 % of the time",
    "noposix": "not to be judged",
    "empty_log": "not to be judged",
}
"""Answers that are known of public logs, by a part of their names."""


def intervals() -> None:
    """Critical files of 10 million intervals of 20,000 jobs, read from Parquet."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder)
        subprocess.run([sys.executable, "-m", "bench.mining", "fill", "--logs", str(store)], check=True)
        begin = time.process_time()
        engine = open_engine(MineStore(store))
        found = engine.critical(intervals_sql("write"))
        seconds = time.process_time() - begin
        engine.close()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"critical files of {INTERVALS:,} intervals of {JOBS:,} jobs: {seconds:.1f} s of CPU, "
            f"peak memory {peak:,.0f} MiB, {len(found):,} critical"
        )


def _fill(store: Path) -> None:
    writer = StoreWriter(store)
    chance = np.random.default_rng(1)
    per_job, jobs_a_part = INTERVALS // JOBS, 500
    parts = []
    for first in range(0, JOBS, jobs_a_part):
        rows = per_job * jobs_a_part
        starts = 1_750_000_000_000_000 + chance.integers(0, 3_600_000_000, rows)
        columns = {
            "log": np.repeat(np.arange(first, first + jobs_a_part), per_job),
            "job_id": np.repeat(np.arange(first, first + jobs_a_part), per_job),
            "module": pa.array(["POSIX"]).take(pa.array(np.zeros(rows, np.int64))),
            "file_id": chance.integers(-(1 << 62), 1 << 62, rows),
            "rank": np.tile(np.arange(per_job), jobs_a_part),
            "writes": np.ones(rows, np.int64),
            "write_start_us": starts,
            "write_end_us": starts + chance.integers(0, 20_000_000, rows),
        }
        arrays = [
            pa.nulls(rows, each.type) if each.name not in columns else pa.array(columns[each.name], each.type)
            for each in DARSHAN_FILE
        ]
        parts.append(
            pa.table(arrays, schema=DARSHAN_FILE).replace_schema_metadata({"start_us": "1750000000000000"})
        )
        if len(parts) == 4:
            writer.commit("darshan", [], {"darshan_file": parts})
            parts = []


def trace() -> None:
    """A log with 5 million traced requests through the command."""
    with tempfile.TemporaryDirectory() as folder:
        log = LogWriter(processes=64, seconds=6000)
        each = SEGMENTS // 64
        layout = np.dtype([("offset", "<i8"), ("length", "<i8"), ("start", "<f8"), ("end", "<f8")])
        for rank in range(64):
            name = f"/scratch/out.{rank}"
            log.posix(name, rank, "write", 1.0, 5001.0, requests=each, bytes=each * 4096)
            log.trace(name, rank, f"node{rank // 8}", [])
            rows = np.zeros(each, layout)
            rows["length"], rows["offset"] = 4096, np.arange(each) * 4096
            rows["start"] = np.sort(np.random.default_rng(rank).uniform(1, 5000, each))
            rows["end"] = rows["start"] + 0.01
            region = log.region(DXT_POSIX)
            region[-16:-8] = each.to_bytes(8, "little")
            region.extend(rows.tobytes())
        path = log.write(Path(folder) / "trace.darshan")
        del log, region, rows
        _command(path, "5 million traced requests")


def one_log() -> None:
    """The command on a log of 2,000 files."""
    with tempfile.TemporaryDirectory() as folder:
        log = LogWriter(processes=2000)
        for rank in range(2000):
            log.posix(f"/scratch/out.{rank}", rank, "write", 1.0, 9.0 + rank % 7, requests=64, bytes=64 * MIB)
            log.stripes(f"/scratch/out.{rank}", [rank % 24], rank)
        path = log.write(Path(folder) / "files.darshan")
        _command(path, "2,000 files")


def _command(path: Path, named: str) -> None:
    begin = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "laggard_aggregator.cli.main", "mine", str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(
        f"laggard mine, {named}: {time.monotonic() - begin:.1f} s, {cpu:.1f} s of CPU, largest process "
        f"{after.ru_maxrss / 1024:,.0f} MiB, {len(done.stdout.splitlines())} lines"
    )


def peers(logs: Path) -> None:
    """Findings on every log beside Drishti's critical issues and PyDarshan's estimate."""
    print("| log | known | Laggard | Drishti | MiB/s: Laggard | MiB/s: PyDarshan |")
    print("|---|---|---|---|---|---|")
    paths = sorted(logs.rglob("*.darshan"))
    with ThreadPoolExecutor(3) as threads:  # the tools run side by side, which changes no answer
        answers = [
            [threads.submit(tool, path) for tool in (_laggard, _drishti, _pydarshan)] for path in paths
        ]
        for path, (laggard, drishti, pydarshan) in zip(paths, answers, strict=True):
            own, rates = laggard.result()
            known = next((text for part, text in KNOWN.items() if part in path.name), "")
            name = re.sub(r"_id(\d+)[-_].*", r" \1", path.stem).removeprefix("dbin_").removeprefix("snyder_")
            print(
                f"| {name} | {known} | {own} | {drishti.result()} | {rates} | {pydarshan.result()} |",
                flush=True,
            )


def _laggard(path: Path) -> tuple[str, str]:
    """Findings, and bandwidths of POSIX on the critical path."""
    command = [sys.executable, "-m", "laggard_aggregator.cli.main", "mine", "--json", str(path)]
    lines = subprocess.run(command, check=False, capture_output=True, text=True).stdout.splitlines()
    records = [json.loads(line) for line in lines]
    every = [each for each in records if each["record"] == "io"]
    named = [
        f"{each['kind']} {each['component'] or ''}".strip() for each in records if each["record"] == "finding"
    ]
    rates = [
        f"{each['direction']} {each['mib_per_second']:,.1f}"
        for each in every
        if each["module"] == "POSIX" and each["mib_per_second"] is not None
    ]
    return ", ".join(dict.fromkeys(named)) or ("none" if rates else "not judged"), ", ".join(rates) or "–"


def _drishti(path: Path) -> str:
    """The number of issues that Drishti calls critical."""
    program = shutil.which("drishti") or str(Path(sys.executable).with_name("drishti"))
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "--issues", "--size", "200", str(path)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder)
        found = re.search(r"(\d+)\s*critical issues?", done.stdout)
        return "fails" if found is None else "none" if found[1] == "0" else f"{found[1]} critical"


def _pydarshan(path: Path) -> str:
    """Its bandwidth of reads and writes together, by the slowest rank."""
    program = (
        "import sys, darshan; from darshan.backend.cffi_backend import accumulate_records;"
        "r = darshan.DarshanReport(sys.argv[1], read_all=False);"
        "'POSIX' in r.modules or sys.exit('no POSIX module');"
        "r.mod_read_all_records('POSIX'); d = r.records['POSIX'].to_df(); n = r.metadata['job']['nprocs'];"
        "print(accumulate_records(d, 'POSIX', n).derived_metrics.agg_perf_by_slowest)"
    )
    command = [sys.executable, "-W", "ignore", "-c", program, str(path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if "no POSIX module" in done.stderr:
        return "–"
    found = done.stdout.split()
    return f"{float(found[-1]):,.1f}" if done.returncode == 0 and found else "fails"


def _in_child(part: str) -> None:
    """Runs a part in a process of its own, so that its memory is its own."""
    subprocess.run([sys.executable, "-m", "bench.mining", part, "--here"], check=True)


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts: dict[str, Callable[[], None]] = {"intervals": intervals, "trace": trace, "log": one_log}
    parser.add_argument("part", choices=(*parts, "peers", "fill"), nargs="?")
    parser.add_argument(
        "--logs", type=Path, help="a folder of Darshan logs, for the table beside other tools"
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part == "fill":
        _fill(args.logs)
        return
    if args.part == "peers" or (args.part is None and args.logs):
        peers(args.logs)
    for name, run in parts.items():
        if args.part in (None, name):
            if name == "intervals" and not args.here:
                _in_child(name)
            else:
                run()
    print(machine("darshan", "duckdb", "pyarrow"))


if __name__ == "__main__":
    main()
