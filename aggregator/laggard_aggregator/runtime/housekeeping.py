"""Periodic work: acknowledgements every second, the clock every few seconds, sweeps every minute."""

import asyncio
import logging

from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.ingest.ingest_queue import FloodDetector
from laggard_aggregator.ingest.mqtt.subscriber import Subscriber
from laggard_aggregator.runtime.loops import Results
from laggard_aggregator.windows.schedule import WindowClock
from laggard_common.daemon import memory

_log = logging.getLogger(__name__)

ACK_SECONDS = 1.0
MAX_ACKS = 3000
"""Nodes acknowledged at a time: at a very large site several batches share one acknowledgement."""
MAX_NAMED = 10
"""Log lines a second about nodes of one name."""
CLOCK_SECONDS = 5.0
SWEEP_SECONDS = 60.0
FORGET_SWEEPS = 60
"""Number of sweeps after which silent nodes and components are dropped."""


async def keep_house(
    machine: Machine,
    clock: WindowClock,
    locks: tuple[asyncio.Lock, asyncio.Lock],
    results: Results,
    *,
    subscriber: Subscriber,
    senders: FloodDetector,
) -> None:
    """Publishes acknowledgements, checks the clock, and sweeps the machine, until cancelled.

    A sweep holds both of `locks`; `results` gets the alarms that it cleared. It gives up old data, and
    waits until the clock is confirmed.
    """
    swept_ns, sweep_due_ns, clock_due_ns, sweeps = 0, 0, 0, 0
    named: set[str] = set()
    while True:
        await asyncio.sleep(ACK_SECONDS)
        if subscriber.connected:
            await subscriber.publish(machine.admission.acks.messages(MAX_ACKS))
        named &= machine.admission.nodes_twice
        for node in sorted(machine.admission.nodes_twice - named)[:MAX_NAMED]:
            _log.warning("two agents publish as node %s, or its spool was copied", node)
            named.add(node)
        now_ns = clock.monotonic_ns()
        if now_ns >= clock_due_ns:
            clock_due_ns = now_ns + round(CLOCK_SECONDS * 1e9)
            nodes = machine.admission.nodes
            offsets = nodes.latest_offsets(now_ns)
            spread_ns = nodes.median_interval_ns if offsets else 0
            if clock.check(offsets, known=nodes.with_clock > 0, spread_ns=spread_ns):
                nodes.clock_set(clock.wall_ns())
        if now_ns < sweep_due_ns or not clock.confirmed:
            continue
        if sweeps:
            senders.end_period((now_ns - swept_ns) / 1e9)
        swept_ns, sweep_due_ns = now_ns, now_ns + round(SWEEP_SECONDS * 1e9)
        sweeps += 1
        async with locks[0], locks[1]:
            cleared = machine.sweep(clock.wall_ns(), forget=sweeps % FORGET_SWEEPS == 0)
        results.cleared(cleared)
        await asyncio.to_thread(memory.trim)  # memory that a burst or a compaction needed
