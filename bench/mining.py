"""Cost of `laggard mine`, and its verdicts beside Drishti's and PyDarshan's.

`python -m bench.mining [PART] [--logs DIR]`. Parts: `intervals` (critical files of 10 million intervals),
`trace` (a log with 5 million traced requests), `log` (the command on a log of 2,000 files), `peers` (a table
of all logs below --logs; needs `pip install drishti-io`).
"""

import argparse
import json
import os
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
from laggard_aggregator.jobs.darshan.engines import open_engine
from laggard_aggregator.jobs.darshan.job_list import intervals_sql
from laggard_aggregator.jobs.darshan.store import MineStore, StoreWriter
from laggard_aggregator.jobs.darshan.tables import DARSHAN_FILE
from tests.support.builders.darshan_log import DXT_POSIX, LogWriter

JOBS = 20_000
INTERVALS = 10_000_000
SEGMENTS = 5_000_000
MIB = 1 << 20
NOTHING_TO_GAIN = "nothing to gain: "
KNOWN = {
    "sample-badost": "OST 14 is 50 times slower than the others",
    "sample-goodost": "nothing wrong: the same benchmark on healthy OSTs",
    "sample.darshan": "nothing wrong: 94.5 % of its file system's traffic in that time was its own, by LMT",
    "noposix.darshan": NOTHING_TO_GAIN + "I/O took 6 of 39,212 s, all STDIO",
    "noposixopens": NOTHING_TO_GAIN + "I/O took 20 of 1,110 s, all STDIO",
    "ior_id66186300": "nothing wrong: 1 KiB reads in order, 643.7 MiB/s",
    "ior_id66186433": "the same reads out of order, 64.3 MiB/s",
    "ior_id66197729": "the same reads out of order, 93.4 MiB/s",
    "ior_id66184525": "unknown: one run of 0.7 s, none to compare it with",
    "openpmd": "1,024 processes on one OST",
    "tmatch": "one of 25 files took half of the time; why is unknown: one run",
    "write_3d_nc4": "unknown: one run of 0.4 s, none to compare it with",
    "apmpi": NOTHING_TO_GAIN + "I/O took 0.3 of 591 s",
    "snyder_python3": "4 of 12 processes spent 97 % of their I/O time in opens and stats",
    "example-dxt": "unknown: reads and writes took 0.5 of 1,468 s, but its times of opens cannot be right",
    "jlbez": "unknown: one run, none to compare it with",
    "sample-dxt-simple": NOTHING_TO_GAIN + "two writes",
    "shane_macsio": NOTHING_TO_GAIN + "I/O took 58 ms of 3 s",
    "empty_log": "no I/O was recorded",
    "write_1_byte_dxt": NOTHING_TO_GAIN + "I/O took 39 ms of 3 s",
    "write_bytes_range_dxt": NOTHING_TO_GAIN + "I/O took 0.3 of 3 s, Python's own modules",
    "imbalanced": "one file on OST 29 alone is 96 % of the time",
    "ior-DFS": "unknown: DAOS objects, of which POSIX has no time",
    "ior-POSIX": NOTHING_TO_GAIN + "I/O took 25 ms",
    "treddy_mpi-io-test": "unknown: one run, none to compare it with",
    "nonmpi": NOTHING_TO_GAIN + "I/O took 1.5 of 29 s",
    "partial_data_stdio": "nothing wrong: a test of Darshan's limit of records, at 3,019 MiB/s by STDIO",
    "mpi-io-test-ppc64-3": "nothing wrong: reads at 147 to 149 MiB/s in all six runs on this machine",
    "mpi-io-test-x86_64-3": NOTHING_TO_GAIN + "128 MiB in less than 80 ms",
    "runtime_and_dxt_heatmaps": NOTHING_TO_GAIN + "32 writes of one byte",
    "laytonjb": NOTHING_TO_GAIN + "ten writes",
    "pq_app": NOTHING_TO_GAIN + "I/O took 14 ms at most",
    "2.2.0_id100": "not to be read: Darshan 2.x",
    "2.3.1_id13154": "not to be read: Darshan 2.x",
}
"""Known of public logs, by a part of their names: from their origin, other runs, LMT, raw counters."""
_ISSUES = re.compile(
    r"misaligned \w+ requests|small \w+ requests(?: to a shared file)?|random \w+ operations"
    r"|(?:data transfer|time) imbalance caused by stragglers|\w+ imbalance|STDIO"
)


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
    """Findings on every log beside Drishti's critical issues and PyDarshan's estimate, by job."""
    print("| log | what is true | Laggard | Drishti: critical | MiB/s: Laggard | MiB/s: PyDarshan |")
    print("|---|---|---|---|---|---|")
    jobs: dict[str, list[Path]] = {}
    for path in sorted(path for suffix in ("", ".gz") for path in logs.rglob(f"*.darshan{suffix}")):
        number = re.search(r"_id(\d+)[-_]", path.name)
        jobs.setdefault(number[1] if number else path.name, []).append(path)
    counts = dict.fromkeys(("logs", "Laggard", "Drishti"), 0)
    with ThreadPoolExecutor(3) as threads:  # the tools run side by side, which changes no answer
        answers = [
            (
                threads.submit(_laggard, paths),
                [threads.submit(_drishti, path) for path in paths],
                [threads.submit(_pydarshan, path) for path in paths],
            )
            for paths in jobs.values()
        ]
        for paths, (laggard, drishti, pydarshan) in zip(jobs.values(), answers, strict=True):
            own, rates = laggard.result()
            known = next(
                (text for part, text in KNOWN.items() if part in paths[0].name), "unknown: not listed"
            )
            issues = _together([each.result() for each in drishti])
            estimate = pydarshan[0].result() if len(paths) == 1 else "one a log"
            name = re.sub(r"_id(\d+)[-_].*", r" \1", paths[0].stem)
            name = re.sub(r"^(dbin|snyder|treddy|jlbez|pq|laytonjb|p?carns)_", "", name)
            name += f" ({len(paths)} logs)" if len(paths) > 1 else ""
            print(f"| {name} | {known} | {own} | {issues} | {rates} | {estimate} |", flush=True)
            if known.startswith("nothing"):
                counts["logs"] += 1
                counts["Laggard"] += not own.startswith(("none", "not"))
                counts["Drishti"] += issues not in {"none", "fails"}
    print(
        f"{counts['logs']} logs where nothing is wrong or to be gained: Drishti names critical issues of "
        f"{counts['Drishti']}, Laggard a cause for {counts['Laggard']}"
    )


def _together(found: list[list[str] | None]) -> str:
    """Issues of the logs of a job, each with the number of its logs."""
    issues = [issue for each in found for issue in each or ()]
    if not issues:
        return "fails" if None in found else "none"
    several = {issue: issues.count(issue) for issue in issues}
    return ", ".join(
        f"{issue} ({count} logs)" if len(found) > 1 else issue for issue, count in several.items()
    )


def _laggard(paths: list[Path]) -> tuple[str, str]:
    """Findings, and bandwidths of POSIX on the critical path."""
    command = [sys.executable, "-m", "laggard_aggregator.cli.main", "mine", "--json", *map(str, paths)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        return f"not read: {done.stderr.strip().rpartition(': ')[0].rpartition(': ')[2]}", "–"
    records = [json.loads(line) for line in done.stdout.splitlines()]
    timed = [each for each in records if each["record"] == "io" and each["mib_per_second"] is not None]
    named = [
        f"{each['kind']} {each['component'] or ''}".strip() for each in records if each["record"] == "finding"
    ]
    rates = [
        f"{each['direction']} {each['mib_per_second']:,.1f}" for each in timed if each["module"] == "POSIX"
    ]
    nothing = "none" if rates else "none (STDIO only)" if timed else "not judged"
    return ", ".join(dict.fromkeys(named)) or nothing, ", ".join(rates) or "–"


def _drishti(path: Path) -> list[str] | None:
    """The issues that Drishti calls critical, by its own words; None where it prints no count of them."""
    program = shutil.which("drishti") or str(Path(sys.executable).with_name("drishti"))
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "--issues", "--size", "200", str(path)]
        environment = {**os.environ, "FORCE_COLOR": "1"}  # it tells the grade of an issue by red alone
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, cwd=folder, env=environment
        )
    found = re.search(r"(\d+)\s*critical issues?", re.sub(r"\x1b\[[0-9;]*m", "", done.stdout))
    if found is None:
        return None
    issues = re.findall(r"\x1b\[31m▶ ([^\x1b]*)", done.stdout)
    words = [(match[0] if (match := _ISSUES.search(issue)) else issue.strip()) for issue in issues]
    return words if len(words) == int(found[1]) else [f"{found[1]} critical"]


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
