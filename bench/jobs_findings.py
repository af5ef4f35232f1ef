"""Cost of stored verdicts on jobs: `python -m bench.jobs_findings`.

An archive of runs of some applications at 10 s a value, an hour each; every tenth run takes three times as
long for its I/O beside a flood on its MDT, so its causes are looked for.
"""

import argparse
import secrets
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

from bench.machine import machine
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.verdict.findings_pass import MAX_JOBS, FindingsPass
from laggard_aggregator.jobs.verdict.judge import RunReport
from tests.support.builders.job_tables import (
    DAY,
    EPOCH,
    component_row,
    job_row,
    node_rows,
    summary_row,
    write_rows,
)

RUNS = 24
VOLUME = 1e11


def add_run(rng: np.random.Generator, folder: Path, number: int, application: int, run: int) -> None:
    """A run, its results, and beside a slow one a job that floods its MDT."""
    start = int(EPOCH) + 3600 * run
    is_slow = run > 10 and rng.random() < 0.1
    mine = job_row(number, submit=start, user=f"u{application}", application=f"a{application}", node_count=8)
    other = job_row(number + 10**6, submit=start, user="otto", application="flood")
    values = np.zeros(360)
    count = int(30 * rng.lognormal(0, 0.08) * (3 if is_slow else 1))
    values[60 : 60 + count] = VOLUME / count
    series = {"job_key": mine["job_key"], "revision_at": 1, "layer": "client", "resolution_seconds": 10.0}
    series |= {"start": mine["start"], "written_bytes": values.tolist()}
    series |= {"read_bytes": [0.0] * 360, "metadata_operations": [0.0] * 360}
    day = mine["end"] // DAY * DAY
    of_mdt = {"direction": "metadata", "operations": 36_000.0}
    target = f"fs-MDT{application:04x}"
    rows = [component_row(mine, target, "metadata") | of_mdt]
    jobs = [mine, other] if is_slow else [mine]
    if is_slow:
        rows.append(component_row(other, target, "metadata") | of_mdt | {"operations": 2e7})
    write_rows(folder, "job_nodes", [row for job in jobs for row in node_rows(job, [f"n{application}"])], day)
    write_rows(folder, "jobs", jobs, day)
    write_rows(folder, "job_components", rows, day)
    write_rows(folder, "job_series", [series], day)
    joined = {"job_key": mine["job_key"], "revision_at": int((EPOCH + 2 * DAY) * 1e9)}
    write_rows(folder, "job_summaries", [summary_row(joined, written_bytes=VOLUME, mdops=10.0)], day)


def main() -> int:
    """Prints the time of a verdict."""
    parser = argparse.ArgumentParser(prog="python -m bench.jobs_findings", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the generator (default: drawn, and printed)")
    parser.add_argument("--applications", type=int, default=8, help="(default %(default)s)")
    args = parser.parse_args()
    seed = secrets.randbits(32) if args.seed is None else args.seed
    rng = np.random.default_rng(seed)
    print(f"{machine('numpy', 'pyarrow')}\nseed {seed}, {args.applications} applications, {RUNS} runs each\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for run in range(RUNS):
            for application in range(args.applications):
                add_run(rng, folder, run * 100 + application, application, run)
        index = JobIndex(folder)
        index.refresh()
        found: Counter[str] = Counter()
        causes: Counter[str] = Counter()

        def judged(_job: object, report: RunReport) -> None:
            found[report.verdict] += 1
            causes[str(report.has_cause)] += 1

        work = FindingsPass(folder, "s", index, judged)
        before, jobs = time.process_time(), 0
        while count := work.run(int((EPOCH + 3 * DAY) * 1e9)):
            jobs += count
        seconds = time.process_time() - before
    print(f"{jobs} verdicts, {1000 * seconds / jobs:.1f} ms of CPU each, at most {MAX_JOBS} a pass")
    print(", ".join(f"{verdict} {number}" for verdict, number in sorted(found.items())))
    print(f"with a cause {causes['True']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
