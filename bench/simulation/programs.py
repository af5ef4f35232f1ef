"""The programs of a simulated site: an agent on each node, the aggregator on the monitoring host."""

import asyncio
import random
from functools import partial
from typing import TYPE_CHECKING

from bench.simulation.plan import BATCH_SAMPLES, SHIFT_SAMPLES, WINDOW_SAMPLES
from bench.simulation.processes import SECOND, Host, Process
from laggard_agent.app import App as AgentApp
from laggard_agent.collectors.interface import Roots
from laggard_agent.settings import AgentSettings, OutboxSettings, SpoolSettings
from laggard_agent.spool.segments import Key
from laggard_aggregator.app import App
from laggard_aggregator.notify.email.channel import MailSettings
from laggard_aggregator.settings.aggregator import (
    AggregatorSettings,
    ArchiveTable,
    BrokerSettings,
    DetectTable,
    StateTable,
)
from laggard_aggregator.settings.http import HttpSettings
from laggard_aggregator.settings.jobs import LEAST_GRACE_SECONDS, JobsTable
from laggard_aggregator.windows import schedule

if TYPE_CHECKING:
    from bench.simulation.site import Site

MON = "mon"


class Node:
    """A host with an agent."""

    def __init__(self, site: "Site", host: Host) -> None:
        self.host = host
        self._site = site
        self.process: Process | None = None
        self.app: AgentApp | None = None
        self._stop = asyncio.Event()
        self._sent: dict[Key, int] = {}
        plan = site.plan
        self.settings = AgentSettings(
            node=host.name,
            interval_seconds=float(plan.interval_seconds),
            batch_samples=BATCH_SAMPLES,
            collectors=("diskstats",),
            spool=SpoolSettings(host.disk.folder / "spool", plan.spool_bytes),
            outbox=OutboxSettings(host.disk.folder / "outbox" if plan.jobs else None),
        )

    def start(self) -> None:
        """Starts the agent."""
        self.process = Process(self.host.name, self.host)
        self._stop = asyncio.Event()
        task = self.process.spawn(self._run(self._stop))
        task.add_done_callback(partial(self._site.ended, self.process))

    async def _run(self, stop: asyncio.Event) -> None:
        rng = random.Random(self.host.rng.random())
        app = self.app = AgentApp(self.settings, Roots(), self.host, rng)
        await app.run(stop)

    async def end(self) -> None:
        """Stops the agent in order."""
        process = self.process
        self._stop.set()
        while process is not None and process.alive and process.tasks:
            await asyncio.wait(set(process.tasks), timeout=10.0)

    @property
    def waiting(self) -> int:
        """Unacknowledged batches in the spool of the running agent; -1 without one."""
        spool = getattr(self.app, "_spool", None)
        if spool is None or self.process is None or not self.process.alive:
            return -1
        return sum(spool.queue._unacked(segment) for segment in spool.queue)

    @property
    def dropped_samples(self) -> int:
        """Samples and documents that the running agent counts as dropped."""
        spool = getattr(self.app, "_spool", None)
        return 0 if spool is None else spool.status()["dropped_samples"]

    def note_sent(self) -> None:
        """What is in the spool now may have been lost by a broker, and must be sent again as more arrives."""
        if self.app is not None and hasattr(self.app, "_spool"):
            keys = [(each.stream, each.source) for each in self.app._spool.current_schemas()]
            self._sent = {key: self.app._spool.next_seq(key) for key in keys}

    @property
    def behind(self) -> int:
        """The same without the newest two batches since `note_sent`, which may be on their way."""
        waiting = self.waiting
        if waiting <= 0 or self.app is None:
            return waiting
        newest = 0
        for schema in self.app._spool.current_schemas():
            key = schema.stream, schema.source
            last = self.app._spool.next_seq(key) - 1
            newest += sum(
                not self.app._spool.queue.acked[key].covers(seq, seq)
                for seq in (last - 1, last)
                if seq >= self._sent.get(key, 0)
            )
        return waiting - newest


class Monitor:
    """The host with the aggregator."""

    def __init__(self, site: "Site", host: Host) -> None:
        self.host = host
        self._site = site
        self.process: Process | None = None
        self.app: App | None = None
        self._stop = asyncio.Event()
        plan = site.plan
        interval, whole = float(plan.interval_seconds), bool(plan.jobs)
        mail = MailSettings(
            server="mail.example.org",
            sender="laggard@example.org",
            recipients=("operator@example.org",),
            after_seconds=0.0,
            learning_seconds=0.0,
            gather_seconds=0.0,
            most_per_hour=1000,
        )
        self.settings = AggregatorSettings(
            mqtt=BrokerSettings(),
            http=HttpSettings("127.0.0.1:0"),
            detect=DetectTable(
                interval_seconds=interval,
                window_samples=WINDOW_SAMPLES,
                shift_samples=SHIFT_SAMPLES,
                confirm=2,
                lateness_seconds=interval,
            ),
            archive=ArchiveTable(host.disk.folder / "archive", rollups=whole),
            jobs=JobsTable(
                sacct=whole,
                poll_seconds=4 * interval,
                enabled=whole,
                grace_seconds=LEAST_GRACE_SECONDS,
                owner_mail="{user}@example.org" if whole else "",
            ),
            channels={"mail": mail} if whole else {},
            state=StateTable(
                host.disk.folder / "state",
                snapshot_seconds=plan.snapshot_seconds,
                journal_max_bytes=plan.journal_bytes,
                catch_up_seconds=5.0 * plan.pace,
            ),
        )

    def start(self) -> None:
        """Starts the aggregator."""
        self.process = Process(MON, self.host)
        self._stop = asyncio.Event()
        task = self.process.spawn(self._run(self._stop))
        task.add_done_callback(partial(self._site.ended, self.process))

    async def _run(self, stop: asyncio.Event) -> None:
        app = self.app = App(self.settings, self.host, random.Random(self.host.rng.random()))
        self._site.record.note("starts")
        await app.run(stop)

    @property
    def seconds_behind(self) -> float:
        """By how much the aggregator's clock is behind the right time, as far as nodes let it be."""
        assert self.app is not None
        behind = self.host.now() - self.app._clock.wall_ns() / SECOND
        return min(max(behind, 0.0), schedule.DOUBT_NS / SECOND)

    async def end(self) -> None:
        """Stops the aggregator in order."""
        process, app = self.process, self.app
        self._stop.set()
        while process is not None and process.alive and process.tasks:
            await asyncio.wait(set(process.tasks), timeout=10.0)
        if app is not None and app._archive is not None:
            self._site.counted(app)
