"""Sizes and bounds of the queues in a simulated site's programs."""

import asyncio
from typing import TYPE_CHECKING

from bench.simulation.broker import MAX_IN_FLIGHT
from bench.simulation.processes import SECOND
from laggard_aggregator.ingest import schema_wait
from laggard_aggregator.runtime import loops

if TYPE_CHECKING:
    from bench.simulation.site import Site

_MOMENTS = 5
"""A status message may be on its way at any of them."""
_EXPIRES = "messages without a schema"
"""What a broker lost the schema of, and an agent's damaged spool has no longer, leaves when it is too old."""
_IDLE = {"spool's disk": 1 << 21, "records for the archive": 8}
"""Bounds of queues that may have something although all is delivered: whole segments, the last verdicts."""


def check_queues(site: "Site") -> None:
    """Notes queues beyond their bounds."""
    for name, (found, most) in _queues(site).items():
        if found > most:
            site.record.problem(f"memory: {name} has {found}, of at most {most}")


async def check_idle_queues(site: "Site") -> None:
    """Notes queues that have something while nothing is to be done, at several moments in a row."""
    always = await _filled_on(site)
    if always == {_EXPIRES}:
        await asyncio.sleep(schema_wait.HELD_NS / SECOND + loops.SWEEP_SECONDS)
        always = await _filled_on(site)
    if always:
        site.record.problem(f"memory: although all is delivered, there are {', '.join(sorted(always))}")


async def _filled_on(site: "Site") -> set[str]:
    always: set[str] | None = None
    for _ in range(_MOMENTS):
        filled = {
            name
            for name, (found, _) in _queues(site).items()
            if found > _IDLE.get(name.partition(" of ")[0], 0)
        }
        always = filled if always is None else always & filled
        if not always:
            break
        await asyncio.sleep(1.3 * site.plan.pace)
    return always or set()


def _queues(site: "Site") -> dict[str, tuple[int, int]]:
    """Size and bound of each queue of the programs that run."""
    found: dict[str, tuple[int, int]] = {}
    for node in site.nodes.values():
        app = node.app
        if app is not None and node.process is not None and node.process.alive and hasattr(app, "_publisher"):
            spool, most = app._spool.queue, site.plan.spool_bytes
            on_disk = sum(each.size_bytes for each in spool if each.path is not None)
            found[f"live queue of {node.host.name}"] = (len(app._publisher._live), 64)
            found[f"spool's disk of {node.host.name}"] = (on_disk, most + 2 * spool.segment_bytes + 2048)
    aggregator, process = site.monitor.app, site.monitor.process
    if aggregator is None or process is None or not process.alive or aggregator.view.recovery is None:
        return found
    journal = aggregator.view.recovery.journal
    found["ingest queue"] = (len(aggregator._queue), 2 * site.monitor.settings.mqtt.queue_messages)
    found["messages without PUBACK"] = (len(aggregator._subscriber._not_done), MAX_IN_FLIGHT)
    found["messages for the journal"] = (len(journal._waiting) if journal.whole else 0, 10_000)
    found["batches without acknowledgement"] = (len(aggregator._machine.admission.acks._pending), 10_000)
    if aggregator._archive is not None:
        found["records for the archive"] = (len(aggregator._archive._records), 10_000)
    found["messages held by the broker"] = (
        site.broker.held if aggregator._subscriber.connected else 0,
        MAX_IN_FLIGHT,
    )
    found["messages without a schema"] = (aggregator._machine.admission.held, 1000)
    return found
