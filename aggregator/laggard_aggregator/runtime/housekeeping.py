"""Periodic work: acknowledgements every second, sweeps every minute."""

import asyncio

from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.ingest.ingest_queue import FloodDetector
from laggard_aggregator.ingest.mqtt.subscriber import Subscriber
from laggard_aggregator.runtime.loops import Results
from laggard_common.clock import Clock
from laggard_common.daemon import memory

ACK_SECONDS = 1.0
MAX_ACKS = 3000
"""Nodes acknowledged at a time: at a very large site several batches share one acknowledgement."""
SWEEP_SECONDS = 60.0
FORGET_SWEEPS = 60
"""Number of sweeps after which silent nodes and components are dropped."""


async def keep_house(
    machine: Machine,
    clock: Clock,
    locks: tuple[asyncio.Lock, asyncio.Lock],
    results: Results,
    *,
    subscriber: Subscriber,
    senders: FloodDetector,
) -> None:
    """Publishes acknowledgements, and sweeps the machine while it holds both of `locks`, until cancelled.

    `results` gets the alarms that a sweep cleared.
    """
    swept_ns, sweep_due_ns, sweeps = 0, 0, 0
    while True:
        await asyncio.sleep(ACK_SECONDS)
        if subscriber.connected:
            await subscriber.publish(machine.admission.acks.messages(MAX_ACKS))
        now_ns = clock.monotonic_ns()
        if now_ns < sweep_due_ns:
            continue
        if sweeps:
            senders.end_period((now_ns - swept_ns) / 1e9)
        swept_ns, sweep_due_ns = now_ns, now_ns + round(SWEEP_SECONDS * 1e9)
        sweeps += 1
        async with locks[0], locks[1]:
            cleared = machine.sweep(clock.wall_ns(), forget=sweeps % FORGET_SWEEPS == 0)
        results.cleared(cleared)
        await asyncio.to_thread(memory.trim)  # memory that a burst or a compaction needed
