"""Answers about an archive that the bench kept, by the code as it is now, beside the stored truth.

    python -m bench.beacon_site.again results.json FOLDER

Each job is judged now, as the daemon does; the join and the counters are those of the archive. Minutes less
than the whole way, for work on verdicts. The last line has the time that a verdict on a slow job took.
"""

import argparse
import csv
import json
import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.beacon_site.plan import Cause, make_plan
from bench.beacon_site.score import judge, numbers, numbers_table, rows, table
from bench.beacon_site.shape import SHAPES, hardware
from bench.beacon_site.truth import Truth
from bench.machine import machine
from laggard_aggregator.jobs.access.principals import Principal, Role
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.access.visible_job import VisibleJob
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.show import full_record
from laggard_aggregator.jobs.verdict.judge import JobJudge

_ADMIN = Principal("", Role.ADMIN)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables; 0."""
    parser = argparse.ArgumentParser(prog="python -m bench.beacon_site.again", description=__doc__)
    parser.add_argument("results", type=Path, help="what --json wrote")
    parser.add_argument("folder", type=Path, help="what --folder kept")
    parser.add_argument("--healthy", type=int, default=40, help="of the healthy jobs so many, drawn")
    parser.add_argument("--show", action="store_true", help="a line for each slow job that is not right")
    options = parser.parse_args(arguments)
    results = json.loads(options.results.read_text())
    shape = SHAPES[results["size"]]
    plan = make_plan(shape, results["seed"], hardware(shape))
    runs = {run.number: run for run in plan.runs}
    drawn = random.Random(results["seed"])
    healthy = [stored for stored in results["runs"] if stored["kind"] == "none"]
    chosen = [stored for stored in results["runs"] if stored["kind"] != "none"]
    chosen += drawn.sample(healthy, min(options.healthy, len(healthy)))
    with (options.folder / "forwarders.csv").open(newline="") as lines:
        served_by = dict(csv.reader(lines))
    archive = options.folder / "archive"
    index = JobIndex(archive)
    index.refresh()
    queries = JobQueries(index)
    judging = JobJudge(archive, queries, served_by)
    pairs: list[tuple[Truth, Mapping[str, Any]]] = []
    seconds: list[float] = []
    for stored in chosen:
        causes = tuple(
            Cause(c["kind"], c["victim"], 0, 0, c["target"], c["job"], login=c["login"])
            for c in stored["causes"]
        )
        run = runs[stored["job"]]
        truth = Truth(run, stored["kind"], causes, stored["slowdown"], stored["truth"])
        (job,) = queries.find(_ADMIN, str(stored["job"]))
        began = time.process_time()
        answer = full_record(queries, judging, VisibleJob({**job, "verdict": None}, _ADMIN))
        if answer["verdict"] == "slow":
            seconds.append(time.process_time() - began)
        pairs.append((truth, answer))
    queries.close()
    judged = [judge(truth, answer, plan) for truth, answer in pairs]
    print(f"# {machine('numpy', 'pyarrow')}")
    print(table(rows(judged)))
    print(numbers_table(numbers(pairs)))
    for verdict in judged if options.show else ():
        if verdict.judged not in ("", "right"):
            named = {} if verdict.first is None else verdict.first
            of = [(c.kind, c.target, c.run, c.login) for c in verdict.truth.causes]
            print(verdict.truth.run.number, verdict.truth.run.application.name, of, verdict.judged)
            print(f"    {verdict.verdict}: {named.get('kind')}: {named.get('text')}")
    if seconds:
        middle, most = statistics.median(seconds), max(seconds)
        print(f"# CPU of {len(seconds)} slow verdicts: median {middle:.2f} s, most {most:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
