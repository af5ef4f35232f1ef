"""Runs the plan of a seed, and checks its record."""

import asyncio
import logging
import shutil
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.simulation.broker import SimulatedBroker
from bench.simulation.check import check, differences, windows_of
from bench.simulation.edges import at_the_edges
from bench.simulation.plan import DISKS, Plan, plan_of
from bench.simulation.record import Event, HistoryHandler, Record
from bench.simulation.site import Site
from bench.simulation.virtual_loop import START_SECONDS, StuckError, VirtualLoop
from laggard_aggregator.alarms.judge import Judgement

_MEMORY = Path("/dev/shm")


@dataclass(slots=True)
class Outcome:
    """The result of a seed. `problems`: broken invariants. `counts`: of samples, windows, alarms, losses."""

    plan: Plan
    problems: list[str]
    site_seconds: float
    cpu_seconds: float
    counts: Counter[str] = field(default_factory=Counter)
    history: list[Event] = field(default_factory=list)
    windows: dict[tuple[str, float], Judgement] = field(default_factory=dict)
    """Published judgements by group and end."""


def simulate(seed: int) -> Outcome:
    """Simulates a site by the plan of a seed; the outcome is the same each time.

    With harmless faults alone its verdicts are compared with those of the same site without any fault.
    """
    outcome = run(plan_of(seed))
    if outcome.plan.harmless:
        undisturbed = run(replace(outcome.plan, faults=()))
        outcome.problems += undisturbed.problems
        outcome.problems += differences(undisturbed.windows, outcome.windows, outcome.plan.end)
        outcome.site_seconds += undisturbed.site_seconds
        outcome.cpu_seconds += undisturbed.cpu_seconds
        outcome.counts["undisturbed runs"] += 1
    return outcome


def run(plan: Plan, *, restarts: bool = False) -> Outcome:
    """Runs a plan. `restarts`: as `Site`."""
    seed = plan.seed
    began = time.process_time()
    folder = Path(tempfile.mkdtemp(prefix="laggard-simulated-", dir=_MEMORY if _MEMORY.is_dir() else None))
    record = Record(plan.interval_seconds * 10**9, plan.slow, DISKS, plan.jobs)
    handler = HistoryHandler(record, folder)
    logger = logging.getLogger()
    level, handlers = logger.level, logger.handlers[:]
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    loop = VirtualLoop()
    counts: Counter[str] = Counter()
    try:
        with at_the_edges(broker := SimulatedBroker(str(seed)), record, plan.pace):
            loop.run_until_complete(_run(plan, folder, broker, record, counts, restarts=restarts))
    except StuckError as exc:
        record.problems.append(f"delivery: {exc}")
    finally:
        seconds = loop.time() - START_SECONDS
        loop.close()
        logger.handlers[:] = handlers
        logger.setLevel(level)
        shutil.rmtree(folder)
    counts.update(broker.counts)
    cpu_seconds = time.process_time() - began
    return Outcome(plan, record.problems, seconds, cpu_seconds, counts, record.history, windows_of(record))


async def _run(
    plan: Plan,
    folder: Path,
    broker: SimulatedBroker,
    record: Record,
    counts: Counter[str],
    *,
    restarts: bool,
) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda _, context: _unhandled(record, context))
    site = Site(plan, folder, broker, record, restarts=restarts)
    await site.run()
    check(site, counts)


def _unhandled(record: Record, context: dict[str, object]) -> None:
    record.note(f"unhandled: {context.get('message')}: {context.get('exception')!r}", "loop")
