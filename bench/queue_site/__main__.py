"""A site as a closed queueing network, its truth counterfactual: `python -m bench.queue_site --seed 101`.

    python -m bench.queue_site --seed 101 --keep DIR --jobs-out wrong.jsonl
    python -m bench.queue_site --again DIR          # verdicts by the code as it is now, on a kept archive

Through mosquitto, the daemon in the site's time, `laggard jobs import` and the API. 1 where a goal is missed.
"""

import argparse
import asyncio
import csv
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench.beacon_site.messages import SECOND_NS, Agents
from bench.beacon_site.product import Batch, Product, ProductError, all_archived, last_answers, product
from bench.beacon_site.shape import START_SECONDS, forwarder_name, node_name
from bench.machine import machine
from bench.queue_site.counters import CUT_SECONDS, Counted, Traces, tables
from bench.queue_site.hardware import NODES_A_HALF, SIZES
from bench.queue_site.kept import FILE, Kept
from bench.queue_site.plan import Plan, make_plan
from bench.queue_site.score import alarms_line, causes_table, goals, line, numbers_table, score
from bench.queue_site.simulate import Done, Past, Simulation, keep_moments
from bench.queue_site.truth import truths
from laggard_aggregator.jobs.access.principals import Principal, Role
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.access.visible_job import VisibleJob
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.show import full_record
from laggard_aggregator.jobs.verdict.judge import JobJudge

_SETTLING_SECONDS = 1200
_ADMIN = Principal("", Role.ADMIN)
Answers = Mapping[int, Mapping[str, Any]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables; 1 where a goal is missed, or the product does not do what is waited for."""
    parser = argparse.ArgumentParser(prog="python -m bench.queue_site", description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="quick")
    parser.add_argument("--seed", type=int, default=101)
    parser.add_argument(
        "--clients", choices=("both", "traces"), help="what compute nodes send; else by the seed"
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep archive, logs and truth; must be empty"
    )
    parser.add_argument(
        "--again", type=Path, metavar="DIR", help="judge the jobs of a kept folder by the code now"
    )
    parser.add_argument(
        "--jobs-out", type=Path, metavar="FILE", help="a line of JSON for each run that is not right"
    )
    parser.add_argument("--truth", action="store_true", help="only the truth, without the product")
    options = parser.parse_args(arguments)
    clients = options.clients or random.Random(options.seed).choice(("both", "traces"))
    if options.again:
        kept = Kept.read((options.again / FILE).read_text())
        return _told(
            kept, _judged_now(options.again, [truth.run.number for truth in kept.truths]), options.jobs_out
        )
    with tempfile.TemporaryDirectory(prefix="queue_site.") as temporary:
        folder = (options.keep or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        plan = make_plan(SIZES[options.size], options.seed)
        if options.truth:
            simulation, moments = Simulation(plan), {0: Simulation(plan)}
            while not simulation.over:
                keep_moments(simulation, moments, simulation.now + 600)
            known = truths(Past(plan, simulation.done, simulation.started, moments))
            return _told(Kept("truth alone", options.seed, plan, known, ()), {}, options.jobs_out)
        try:
            kept, answers = asyncio.run(_run(folder, plan, options.seed, clients))
        except ProductError as exc:
            print(f"bench.queue_site: {exc}", file=sys.stderr)
            return 1
        (folder / FILE).write_text(kept.json())
    return _told(kept, answers, options.jobs_out)


def _told(kept: Kept, answers: Answers, jobs_out: Path | None) -> int:
    """Prints the tables; 1 where a goal is missed."""
    scored = [score(truth, answers.get(truth.run.number, {}), kept.plan) for truth in kept.truths]
    print(f"# {machine('numpy', 'pyarrow')}\n# {kept.header}")
    print(causes_table(scored))
    print(numbers_table([(truth, answers.get(truth.run.number, {})) for truth in kept.truths]))
    print(alarms_line(kept.plan, kept.raised))
    met = goals(scored)
    for name, holds in met.items():
        print(f"{'holds ' if holds else 'MISSED'} {name}")
    if jobs_out:
        with jobs_out.open("w") as lines:
            for one in scored:
                wrong = one.judged in ("none", "wrong") or one.innocent
                if wrong or (one.called == "slow" and one.truth.state == "healthy"):
                    answer = answers.get(one.truth.run.number, {})
                    lines.write(json.dumps(line(one, answer, kept.plan), default=str) + "\n")
    return 0 if all(met.values()) else 1


async def _run(folder: Path, plan: Plan, seed: int, clients: str) -> tuple[Kept, Answers]:
    began = time.monotonic()
    shape = plan.shape
    (folder / "forwarders.csv").write_text(
        "".join(f"{node_name(n)},{forwarder_name(n // (2 * NODES_A_HALF))}\n" for n in range(shape.nodes))
    )
    simulation, moments = Simulation(plan), {0: Simulation(plan)}
    async with product(folder, START_SECONDS * SECOND_NS) as site:
        agents = await _feed(site, simulation, moments, seed, clients)
        fed = time.monotonic()
        now = await all_archived(site, simulation.now, agents.samples + agents.records)
        _import_jobs(site, simulation)
        past = Past(plan, simulation.done, simulation.started, moments)
        known, answers = await asyncio.gather(
            asyncio.to_thread(truths, past), last_answers(site, now, list(simulation.done))
        )
    header = (
        f"seed {seed}, clients {clients}: {shape.nodes} compute nodes, {shape.logins} login nodes, "
        f"{shape.forwarders} forwarders, {shape.osts} OSTs, {shape.mdts} MDTs, "
        f"{simulation.now / 3600:.1f} h, {len(known)} jobs, "
        f"{agents.samples:,} samples, {agents.records:,} trace records; fed in {fed - began:.0f} s, "
        f"answered in {time.monotonic() - fed:.0f} s"
    )
    return Kept(header, seed, plan, known, _raised(folder / "archive")), answers


async def _feed(
    site: Product, simulation: Simulation, moments: dict[int, Simulation], seed: int, clients: str
) -> Agents:
    """The whole site's time into the daemon, batch by batch."""
    counted, traces = Counted(simulation.plan.shape), Traces()
    simulation.follower = counted.follow
    simulation.phase_ended = lambda doing: traces.end(doing, simulation.now)
    agents = Agents(simulation.plan.shape, seed, tables(counted, of_compute=clients == "both"))
    await site.publish(agents.schemas())
    agents.read(0)
    await site.feed(_batches(agents, simulation, moments, traces))
    return agents


def _batches(
    agents: Agents, simulation: Simulation, moments: dict[int, Simulation], traces: Traces
) -> Iterator[Batch]:
    """Yields what all agents send, until a while after the last run."""
    shape = simulation.plan.shape
    settled = 0
    while settled < _SETTLING_SECONDS:
        for _ in range(shape.batch_seconds // shape.interval_seconds):
            keep_moments(simulation, moments, simulation.now + shape.interval_seconds)
            agents.read(simulation.now)
            if simulation.now % CUT_SECONDS == 0:
                traces.cut(simulation)
        settled = settled + shape.batch_seconds if simulation.over else 0
        counters, documents = list(agents.batches()), list(agents.traces(traces.parts(), simulation.now))
        statuses = list(agents.statuses(simulation.now))
        yield Batch(simulation.now, statuses, counters, documents, agents.samples, agents.documents)


def _import_jobs(site: Product, simulation: Simulation) -> None:
    """All jobs as neutral records, with `laggard jobs import`."""
    records = site.folder / "jobs.jsonl"
    lines = [
        json.dumps(_record(done, simulation.started[number]))
        for number, done in sorted(simulation.done.items())
    ]
    records.write_text("\n".join(lines) + "\n")
    site.command("jobs", "import", "--jsonl", str(records), "--archive", str(site.archive))


def _record(done: Done, started: int) -> dict[str, Any]:
    name = done.run.program.name
    return {
        "cluster": "queues", "job": str(done.run.number), "submit": START_SECONDS + started - 90,
        "user": f"u-{name}", "account": "science", "name": name, "state": "COMPLETED",
        "start": START_SECONDS + started, "end": START_SECONDS + done.end,
        "nodes": [node_name(node) for node in done.run.nodes], "exclusive": True,
        "cpus": 64 * len(done.run.nodes),
    }  # fmt: skip


def _raised(archive: Path) -> list[tuple[str, float, float]]:
    """Alarms: component, and the site's seconds from when to when."""
    events = []
    for file in archive.glob("kind=alarms/**/[!.]*.parquet"):
        events += pq.read_table(file, columns=["component", "transition", "at"]).to_pylist()
    begun: dict[str, float] = {}
    raised = []
    for event in sorted(events, key=lambda e: e["at"]):
        second = event["at"] - START_SECONDS
        if event["transition"] == "raised":
            begun[event["component"]] = second
        elif event["component"] in begun:
            raised.append((event["component"], begun.pop(event["component"]), second))
    return raised + [(name, begin, float("inf")) for name, begin in begun.items()]


def _judged_now(folder: Path, jobs: Sequence[int]) -> Answers:
    """Verdicts on the archive of a kept folder, by the code as it is now."""
    with (folder / "forwarders.csv").open(newline="") as lines:
        served_by = dict(csv.reader(lines))
    index = JobIndex(folder / "archive")
    index.refresh()
    queries = JobQueries(index)
    judging = JobJudge(folder / "archive", queries, served_by)
    answers = {}
    for number in jobs:
        (job,) = queries.find(_ADMIN, str(number))
        answers[number] = full_record(queries, judging, VisibleJob({**job, "verdict": None}, _ADMIN))
    queries.close()
    return answers


if __name__ == "__main__":
    sys.exit(main())
