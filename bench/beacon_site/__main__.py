"""A Beacon site of known truth through the product's own path: `python -m bench.beacon_site`.

The generator shares nothing with the analyser. mosquitto, the daemon, `laggard jobs import` and the HTTP API
are the product's; the daemon's clock is that of the site.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from bench.beacon_site.messages import SECOND_NS, Agents
from bench.beacon_site.pages import SiteTruth, page_numbers
from bench.beacon_site.plan import Plan, make_plan
from bench.beacon_site.product import Batch, Product, ProductError, all_archived, last_answers, product
from bench.beacon_site.score import Verdict, judge, numbers, numbers_table, rows, table
from bench.beacon_site.shape import SHAPES, START_SECONDS, forwarder_name, hardware, node_name
from bench.beacon_site.simulate import Simulation
from bench.beacon_site.tables import tables
from bench.beacon_site.traces import Traces
from bench.beacon_site.truth import Truth, truths
from bench.machine import machine

CLIENTS = ("both", "counters", "traces")
_SETTLING_SECONDS = 1200
_HOUR = 3600


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the bench; 1 when the product does not do what is waited for."""
    parser = argparse.ArgumentParser(prog="python -m bench.beacon_site", description=__doc__)
    parser.add_argument("--size", choices=SHAPES, default="quick")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", choices=CLIENTS, default="both", help="what compute nodes send")
    parser.add_argument("--folder", type=Path, help="keep archive and logs here; must be empty")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="beacon_site.") as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            results = asyncio.run(_run(folder.resolve(), options.size, options.seed, options.clients))
        except ProductError as exc:
            print(f"bench.beacon_site: {exc}", file=sys.stderr)
            return 1
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


async def _run(folder: Path, size: str, seed: int, clients: str) -> dict[str, Any]:
    shape = SHAPES[size]
    parts = hardware(shape)
    plan = make_plan(shape, seed, parts)
    began = time.monotonic()
    (folder / "forwarders.csv").write_text(
        "".join(
            f"{node_name(n)},{forwarder_name(n // (2 * shape.nodes_per_lane))}\n" for n in range(shape.nodes)
        )
    )
    simulation = Simulation(plan, parts)
    with ProcessPoolExecutor(1) as other:
        twin = other.submit(_without_causes, plan)
        async with product(folder, START_SECONDS * SECOND_NS) as site:
            of_site = SiteTruth(simulation)
            agents = await _feed(site, of_site, seed, clients)
            fed = time.monotonic()
            now = await all_archived(site, simulation.now, agents.samples + agents.records)
            _import_jobs(site, simulation)
            found = truths(plan, simulation, await asyncio.to_thread(twin.result))
            answers = await last_answers(site, now, [truth.run.number for truth in found])
            of_pages = await asyncio.to_thread(
                page_numbers, site.get, of_site, of_compute=clients != "traces"
            )
    judged = [judge(truth, answers.get(truth.run.number, {}), plan) for truth in found]
    print(f"# {machine('numpy', 'pyarrow')}")
    print(
        f"# size {size}, seed {seed}, clients {clients}: {shape.nodes} compute nodes, "
        f"{shape.forwarders} forwarders, {shape.osts} OSTs, {shape.mdts} MDTs, "
        f"{simulation.now / _HOUR:.1f} h, {len(found)} jobs, "
        f"{agents.samples:,} samples, {agents.documents:,} parts of traces; fed in {fed - began:.0f} s, "
        f"answered in {time.monotonic() - fed:.0f} s"
    )
    print(table(rows(judged)))
    shown = numbers((truth, answers.get(truth.run.number, {})) for truth in found)
    print(numbers_table(shown))
    print(numbers_table(of_pages))
    return {
        "machine": machine(),
        "size": size,
        "seed": seed,
        "clients": clients,
        "runs": [_record(verdict, answers.get(verdict.truth.run.number, {})) for verdict in judged],
        "numbers": {
            name: {
                "within": n.within,
                "as_stated": n.stated if n.as_stated else None,
                "mean": n.mean,
                "worst": n.worst,
                "absent": n.absent,
            }
            for name, n in (shown | of_pages).items()
        },
    }


def _without_causes(plan: Plan) -> dict[int, float]:
    """Seconds in phases of each run when nothing is injected."""
    simulation = Simulation(plan, hardware(plan.shape), with_causes=False)
    while not simulation.over:
        simulation.step()
    return {number: outcome.io_seconds for number, outcome in simulation.outcomes.items()}


async def _feed(site: Product, of_site: SiteTruth, seed: int, clients: str) -> Agents:
    """The whole site's time into the daemon, batch by batch."""
    simulation = of_site.simulation
    agents = Agents(simulation.shape, seed, tables(simulation, compute_counters=clients != "traces"))
    traces = Traces(simulation) if clients != "counters" else None
    await site.publish(agents.schemas())
    agents.read(0)
    await site.feed(_batches(agents, of_site, traces))
    return agents


def _batches(agents: Agents, of_site: SiteTruth, traces: Traces | None) -> Iterator[Batch]:
    """Yields what all agents send, until a while after the last run."""
    simulation = of_site.simulation
    shape = simulation.shape
    settled = 0
    while settled < _SETTLING_SECONDS:
        for _ in range(shape.batch_seconds):
            simulation.step()
            of_site.follow()
            if traces is not None:
                traces.follow()
            if simulation.now % shape.interval_seconds == 0:
                agents.read(simulation.now)
        settled = settled + shape.batch_seconds if simulation.over else 0
        statuses, counters = list(agents.statuses(simulation.now)), list(agents.batches())
        parts = traces.parts() if traces is not None else []
        documents = list(agents.traces(parts, simulation.now))
        yield Batch(simulation.now, statuses, counters, documents, agents.samples, agents.documents)


def _import_jobs(site: Product, simulation: Simulation) -> None:
    """All jobs as neutral records, with `laggard jobs import`."""
    lines = []
    for number, outcome in sorted(simulation.outcomes.items()):
        application = outcome.run.application
        start = START_SECONDS + outcome.start
        lines.append(
            json.dumps(
                {
                    "cluster": "sunway",
                    "job": str(number),
                    "submit": start - 60,
                    "user": application.user,
                    "account": application.account,
                    "name": application.name,
                    "state": "COMPLETED",
                    "start": start,
                    "end": START_SECONDS + outcome.end,
                    "nodes": [node_name(node) for node in outcome.nodes],
                    "exclusive": True,
                    "cpus": 4 * len(outcome.nodes),
                }
            )
        )
    records = site.folder / "jobs.jsonl"
    records.write_text("\n".join(lines) + "\n")
    site.command("jobs", "import", "--jsonl", str(records), "--archive", str(site.archive))


def _record(verdict: Verdict, answer: Mapping[str, Any]) -> dict[str, Any]:
    truth: Truth = verdict.truth
    return {
        "job": truth.run.number,
        "application": truth.run.application.name,
        "kind": truth.kind,
        "slowdown": round(truth.slowdown, 3),
        "causes": [
            {"kind": c.kind, "target": c.target, "job": c.run, "login": c.login, "victim": c.victim}
            for c in truth.causes
        ],
        "truth": truth.numbers,
        "verdict": verdict.verdict,
        "judged": verdict.judged,
        "sentence": verdict.sentence,
        "answer": answer,
    }


if __name__ == "__main__":
    sys.exit(main())
