"""What is done every second and every minute beside closing windows: acknowledging, and forgetting."""

import asyncio

from laggard_aggregator.engine.machine import Core
from laggard_aggregator.ingest.flood_detector import Senders
from laggard_aggregator.ingest.mqtt.subscriber import Subscriber
from laggard_aggregator.runtime.results import Announcer
from laggard_common.clock import Clock
from laggard_common.daemon import memory

ACK_SECONDS = 1.0
ACKS_AT_ONCE = 3000
"""Nodes that are told at a time what is safe: at a very large site several batches share one message then."""
SWEEP_SECONDS = 60.0
FORGET_SWEEPS = 60
"""What is silent for too long is looked for in every so many sweeps."""


class Upkeep:
    """Tells agents what is safe, and looks after what `core` holds, while it holds both of `locked`.

    `senders` are told that a minute is over, and `announcer` of alarms that ended with what was forgotten.
    """

    def __init__(
        self,
        core: Core,
        clock: Clock,
        locked: tuple[asyncio.Lock, asyncio.Lock],
        announcer: Announcer,
        *,
        subscriber: Subscriber,
        senders: Senders,
    ) -> None:
        self._core = core
        self._clock = clock
        self._judging, self._order = locked
        self._announcer = announcer
        self._subscriber = subscriber
        self._senders = senders

    async def run(self) -> None:
        """Publishes acknowledgements at most once a second until cancelled."""
        swept_ns, sweep_due_ns, sweeps = 0, 0, 0
        while True:
            await asyncio.sleep(ACK_SECONDS)
            if self._subscriber.connected:
                await self._subscriber.publish(self._core.intake.acks.messages(ACKS_AT_ONCE))
            now_ns = self._clock.monotonic_ns()
            if now_ns >= sweep_due_ns:
                if sweeps:
                    self._senders.turn((now_ns - swept_ns) / 1e9)
                swept_ns, sweep_due_ns = now_ns, now_ns + round(SWEEP_SECONDS * 1e9)
                sweeps += 1
                async with self._judging, self._order:
                    ended = self._core.sweep(self._clock.wall_ns(), forget=sweeps % FORGET_SWEEPS == 0)
                self._announcer.ended(ended)
                # What a burst, or merging files, took at its worst.
                await asyncio.to_thread(memory.give_back)
