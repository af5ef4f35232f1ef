"""Periodic work: acknowledgements every second, sweeps every minute."""

import asyncio

from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.ingest.ingest_queue import FloodDetector
from laggard_aggregator.ingest.mqtt.subscriber import Subscriber
from laggard_aggregator.runtime.window_loop import Results
from laggard_common.clock import Clock
from laggard_common.daemon import memory

ACK_SECONDS = 1.0
MAX_ACKS = 3000
"""Nodes acknowledged at a time: at a very large site several batches share one acknowledgement."""
SWEEP_SECONDS = 60.0
FORGET_SWEEPS = 60
"""Every so many sweeps silent nodes and components are dropped."""


class Housekeeping:
    """Publishes acknowledgements and sweeps the machine, while it holds both of `locks`.

    `results` gets the alarms that a sweep cleared.
    """

    def __init__(
        self,
        machine: Machine,
        clock: Clock,
        locks: tuple[asyncio.Lock, asyncio.Lock],
        results: Results,
        *,
        subscriber: Subscriber,
        senders: FloodDetector,
    ) -> None:
        self._machine = machine
        self._clock = clock
        self._judging, self._order = locks
        self._results = results
        self._subscriber = subscriber
        self._senders = senders

    async def run(self) -> None:
        """Runs until cancelled."""
        swept_ns, sweep_due_ns, sweeps = 0, 0, 0
        while True:
            await asyncio.sleep(ACK_SECONDS)
            if self._subscriber.connected:
                await self._subscriber.publish(self._machine.admission.acks.messages(MAX_ACKS))
            now_ns = self._clock.monotonic_ns()
            if now_ns < sweep_due_ns:
                continue
            if sweeps:
                self._senders.end_period((now_ns - swept_ns) / 1e9)
            swept_ns, sweep_due_ns = now_ns, now_ns + round(SWEEP_SECONDS * 1e9)
            sweeps += 1
            async with self._judging, self._order:
                cleared = self._machine.sweep(self._clock.wall_ns(), forget=sweeps % FORGET_SWEEPS == 0)
            self._results.cleared(cleared)
            await asyncio.to_thread(memory.give_back)  # memory that a burst or a compaction needed
