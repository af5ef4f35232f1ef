"""A simulated site: its hosts, the programs on them, and the faults that happen to them."""

import asyncio
import contextlib
import random
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from pathlib import Path

from bench.simulation.archived import archived_rows
from bench.simulation.broker import MAX_IN_FLIGHT, SimulatedBroker
from bench.simulation.plan import BATCH_SAMPLES, NODES, SHIFT_SAMPLES, WINDOW_SAMPLES, Fault, Plan
from bench.simulation.processes import SECOND, Host, Process
from bench.simulation.record import Record
from laggard_agent.app import App as AgentApp
from laggard_agent.collectors.interface import Roots
from laggard_agent.settings import AgentSettings, SpoolSettings
from laggard_agent.spool.segments import SpoolSegment
from laggard_aggregator.app import App
from laggard_aggregator.settings.aggregator import (
    AggregatorSettings,
    ArchiveTable,
    BrokerSettings,
    DetectTable,
    StateTable,
)
from laggard_aggregator.settings.http import HttpSettings
from laggard_common.errors import SpoolError

MON = "mon"
QUIET_SAMPLES = 80
"""Longest time after the last fault until everything must be delivered."""
_IDLE = {"spool's disk": 1 << 21, "records for the archive": 8}
"""Bounds of queues that may have something although all is delivered: whole segments, the last verdicts."""
_SUFFIXES = {"state": (".journal", ".snapshot"), "archive": (".parquet",), "spool": (".segment",)}


class Node:
    """A host with an agent."""

    def __init__(self, site: "Site", host: Host) -> None:
        self.host = host
        self._site = site
        self.process: Process | None = None
        self.app: AgentApp | None = None
        self._stop = asyncio.Event()
        plan = site.plan
        self.settings = AgentSettings(
            node=host.name,
            interval_seconds=float(plan.interval_seconds),
            batch_samples=BATCH_SAMPLES,
            collectors=("diskstats",),
            spool=SpoolSettings(host.disk.folder / "spool", plan.spool_bytes),
        )

    def start(self) -> None:
        """Starts the agent."""
        self.process = Process(self.host.name, self.host)
        self._stop = asyncio.Event()
        task = self.process.spawn(self._run(self.process, self._stop))
        task.add_done_callback(partial(self._site.ended, self.process))

    async def _run(self, process: Process, stop: asyncio.Event) -> None:
        rng = random.Random(self.host.rng.random())
        app = self.app = AgentApp(self.settings, Roots(), self.host, rng)
        del process
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
    def behind(self) -> int:
        """The same without the newest two batches, which may be on their way."""
        waiting = self.waiting
        if waiting <= 0 or self.app is None:
            return waiting
        newest = 0
        for schema in self.app._spool.current_schemas():
            key = schema.stream, schema.source
            last = self.app._spool.next_seq(key) - 1
            newest += sum(not self.app._spool.queue.acked[key].covers(seq, seq) for seq in (last - 1, last))
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
        interval = float(plan.interval_seconds)
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
            archive=ArchiveTable(host.disk.folder / "archive"),
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

    async def end(self) -> None:
        """Stops the aggregator in order."""
        process, app = self.process, self.app
        self._stop.set()
        while process is not None and process.alive and process.tasks:
            await asyncio.wait(set(process.tasks), timeout=10.0)
        if app is not None and app._archive is not None:
            self._site.counted(app)


class Site:
    """A site that runs a plan below `folder`."""

    def __init__(self, plan: Plan, folder: Path, broker: SimulatedBroker, record: Record) -> None:
        self.plan = plan
        self.record = record
        self.broker = broker
        loop = asyncio.get_running_loop()
        self.nodes: dict[str, Node] = {}
        for number in range(1, NODES + 1):
            host = Host(f"oss-{number}", folder / f"oss-{number}", str(plan.seed), loop.time)
            host.disk.make_folders("spool")
            self.nodes[host.name] = Node(self, host)
        host = Host(MON, folder / MON, str(plan.seed), loop.time)
        host.disk.make_folders("state", "archive")
        self.monitor = Monitor(self, host)
        self._repairs: list[asyncio.Task[None]] = []
        self._down: dict[str, int] = {}
        self._ends_wanted: set[Process] = set()

    async def run(self) -> None:
        """Runs the plan, then waits until all is delivered, and ends all programs in order."""
        interval = self.plan.interval_seconds
        self.monitor.start()
        for node in self.nodes.values():
            node.start()
        begun = asyncio.get_running_loop().time()
        self._watcher = asyncio.ensure_future(self._watch_memory())
        for fault in self.plan.faults:
            await asyncio.sleep(max(begun + fault.at * interval - asyncio.get_running_loop().time(), 0))
            self._repairs.append(asyncio.ensure_future(self._happen(fault)))
        await asyncio.sleep(max(begun + self.plan.samples * interval - asyncio.get_running_loop().time(), 0))
        await asyncio.gather(*self._repairs)
        self._heal()
        self.record.note("all faults are over", "site")
        await asyncio.sleep(2 * interval)
        await self._all_zero(lambda node: node.behind)  # what a broker lost is sent again as others arrive
        self.record.muted = True
        await self._all_zero(lambda node: node.waiting)
        await asyncio.sleep((SHIFT_SAMPLES + 1) * interval)
        self._watcher.cancel()
        self._check_memory(idle=True)
        for node in self.nodes.values():
            self._expect_end(node.process)
            await node.end()
        self._expect_end(self.monitor.process)
        await self.monitor.end()

    def ended(self, process: Process, task: "asyncio.Task[None]") -> None:
        """The main task of a process is done."""
        if not process.alive or task.cancelled():
            return
        exc = task.exception()
        if exc is not None:
            self.record.problem(f"start: {process.name} ended with {_described(exc)}")
            process.kill()
        elif process not in self._ends_wanted:
            self.record.problem(f"start: {process.name} ended by itself")

    def counted(self, app: App) -> None:
        """Adds up losses that an aggregator counted; it ends now."""
        record = self.record
        if app._recovery is not None:
            record.counted_lost += app._recovery.lost
        if app._archive is not None:
            record.dropped_by_archive += app._archive.dropped

    # -- faults

    async def _happen(self, fault: Fault) -> None:
        self.record.note(f"FAULT {fault}", "site")
        happen = {
            "agent killed": self._agent_killed,
            "node lost power": self._agent_killed,
            "bit of the spool flipped": self._agent_killed,
            "agent restarted": self._agent_restarted,
            "aggregator killed": self._aggregator_killed,
            "aggregator lost power": self._aggregator_killed,
            "bit of the state flipped": self._aggregator_killed,
            "bit of the archive flipped": self._aggregator_killed,
            "aggregator restarted": self._aggregator_restarted,
            "node's clock set": self._clock_set,
            "aggregator's clock set": self._clock_set,
            "spool's disk full": self._disk_full,
            "state's disk full": self._disk_full,
            "archive's disk full": self._disk_full,
            "node's disk slow": self._disk_slow,
            "aggregator's disk slow": self._disk_slow,
            "broker crashed": self._broker_down,
            "broker down": self._broker_down,
            "connection cut": self._cut,
            "broker silent": self._silent,
        }.get(fault.kind, self._network)
        await happen(fault)

    async def _agent_killed(self, fault: Fault) -> None:
        node = self.nodes[fault.whom]
        if not await self._kill(node, fault):
            return
        if fault.kind == "node lost power":
            before = self._spooled(node)
            node.host.disk.lose_power(fault.detail)  # type: ignore[arg-type]
            node.host.boots += 1
            gone = before - self._spooled(node)
            kept = self.record.nodes[fault.whom]
            kept.excused.update(serial for serial, name in kept.spooled.items() if name in gone)
        if fault.kind == "bit of the spool flipped":
            newest = self._newest_batches(node)
            self.record.note(f"bit flipped: {node.host.disk.flip_bit('spool', _SUFFIXES['spool'])}", "site")
            left = self._spooled(node)
            gone = set(takewhile(lambda name: name not in left, reversed(newest)))  # as a crash tears it
            kept = self.record.nodes[fault.whom]
            kept.excused.update(serial for serial, name in kept.spooled.items() if name in gone)
        await self._revive(node, fault)

    async def _aggregator_killed(self, fault: Fault) -> None:
        monitor = self.monitor
        if not await self._kill(monitor, fault):
            return
        disk = monitor.host.disk
        if fault.kind == "aggregator lost power":
            disk.lose_power(fault.detail)  # type: ignore[arg-type]
        elif fault.kind.startswith("bit"):
            top = fault.kind.split()[3]
            self.record.damaged |= top == "state"
            before = archived_rows(disk.folder / "archive", self.record)
            self.record.note(f"bit flipped: {disk.flip_bit(top, _SUFFIXES[top])}", "site")
            if top == "archive":
                left = archived_rows(disk.folder / "archive", self.record)
                self.record.damaged_rows |= {(row[0], row[1]) for row in before.keys() - left.keys()}
        await self._revive(monitor, fault)

    async def _kill(self, program: Node | Monitor, fault: Fault) -> bool:
        """Kills a program, if it runs; within its n-th operation on the disk for a fault of that amount."""
        process, name = program.process, program.host.name
        if process is None or not process.alive or process in self._ends_wanted:
            return False
        self._down[name] = self._down.get(name, 0) + 1
        if fault.amount:
            process.killed_after = int(fault.amount)
            for _ in range(20):
                if not process.alive:
                    break
                await asyncio.sleep(self.plan.interval_seconds / 4)
            process.killed_after = None
        if isinstance(program, Monitor) and program.app is not None:
            self.counted(program.app)
        process.kill()
        self.record.note("killed", name)
        return True

    async def _revive(self, program: Node | Monitor, fault: Fault) -> None:
        await asyncio.sleep(fault.samples * self.plan.interval_seconds)
        name = program.host.name
        self._down[name] -= 1
        if not self._down[name]:
            program.start()

    async def _agent_restarted(self, fault: Fault) -> None:
        await self._restart(self.nodes[fault.whom], fault)

    async def _aggregator_restarted(self, fault: Fault) -> None:
        await self._restart(self.monitor, fault)

    async def _restart(self, program: Node | Monitor, fault: Fault) -> None:
        process, name = program.process, program.host.name
        if process is None or not process.alive or process in self._ends_wanted or self._down.get(name):
            return
        self._down[name] = 1
        self._expect_end(process)
        await program.end()
        self.record.note("stopped", name)
        await self._revive(program, fault)

    async def _clock_set(self, fault: Fault) -> None:
        host = self.nodes[fault.whom].host if fault.whom else self.monitor.host
        host.stepped_ns += round(fault.amount * SECOND)
        if fault.samples:
            await asyncio.sleep(fault.samples * self.plan.interval_seconds)
            host.stepped_ns -= round(fault.amount * SECOND)
            self.record.note(f"clock of {host.name} is set back", "site")

    async def _disk_full(self, fault: Fault) -> None:
        disk = (self.nodes[fault.whom] if fault.whom else self.monitor).host.disk
        top = fault.kind.partition("'")[0]
        disk.full.add(top)
        await asyncio.sleep(fault.samples * self.plan.interval_seconds)
        disk.full.discard(top)
        self.record.note(f"{top} has room again", "site")

    async def _disk_slow(self, fault: Fault) -> None:
        disk = (self.nodes[fault.whom] if fault.whom else self.monitor).host.disk
        disk.slowness = fault.amount
        await asyncio.sleep(fault.samples * self.plan.interval_seconds)
        disk.slowness = 1.0

    async def _broker_down(self, fault: Fault) -> None:
        self.broker.crash(fault.amount)
        await asyncio.sleep(fault.samples * self.plan.interval_seconds)
        self.broker.up = True

    async def _cut(self, fault: Fault) -> None:
        self.broker.faults.cut.add(fault.whom)
        self.broker.cut(fault.whom)
        await asyncio.sleep(fault.samples * self.plan.interval_seconds)
        self.broker.faults.cut.discard(fault.whom)

    async def _silent(self, fault: Fault) -> None:
        self.broker.faults.silent.add(fault.whom)
        await asyncio.sleep(fault.samples * self.plan.interval_seconds)
        self.broker.faults.silent.discard(fault.whom)

    async def _network(self, fault: Fault) -> None:
        faults = self.broker.faults
        setattr(faults, fault.kind, fault.amount)
        faults.delay_seconds = 3.0 * self.plan.interval_seconds
        await asyncio.sleep(fault.samples * self.plan.interval_seconds)
        setattr(faults, fault.kind, 0.0)

    # -- the end

    def _heal(self) -> None:
        for program in (*self.nodes.values(), self.monitor):
            assert program.process is not None
            if not program.process.alive:
                program.start()

    async def _all_zero(self, count: Callable[[Node], int]) -> None:
        """Waits until `count` is 0 for every node; a problem where it is not in time."""
        if self.record.problems:
            return
        for _ in range(QUIET_SAMPLES):
            await asyncio.sleep(self.plan.interval_seconds)
            if all(count(node) == 0 for node in self.nodes.values()):
                return
        waiting = {name: node.waiting for name, node in self.nodes.items() if node.waiting}
        self.record.problem(f"delivery: batches still wait long after the last fault: {waiting}")

    async def _watch_memory(self) -> None:
        while True:
            await asyncio.sleep(3.7 * self.plan.interval_seconds)
            self._check_memory(idle=False)

    def _check_memory(self, *, idle: bool) -> None:
        """Notes queues beyond their bounds, or with anything in them while nothing is to be done."""
        for name, (found, most) in self._queues().items():
            bound = _IDLE.get(name, 0) if idle else most
            if found > bound:
                self.record.problem(f"memory: {name} has {found}, of at most {bound}")

    def _queues(self) -> dict[str, tuple[int, int]]:
        """Size and bound of each queue of the programs that run."""
        found: dict[str, tuple[int, int]] = {}
        for node in self.nodes.values():
            app = node.app
            if (
                app is not None
                and node.process is not None
                and node.process.alive
                and hasattr(app, "_publisher")
            ):
                spool, most = app._spool.queue, self.plan.spool_bytes
                on_disk = sum(each.size_bytes for each in spool if each.path is not None)
                found[f"live queue of {node.host.name}"] = (len(app._publisher._live), 64)
                found["spool's disk"] = (on_disk, most + 2 * spool.segment_bytes + 2048)
        app, process = self.monitor.app, self.monitor.process
        if app is None or process is None or not process.alive or app.view.recovery is None:
            return found
        journal = app.view.recovery.journal
        found["ingest queue"] = (len(app._queue), 2 * self.monitor.settings.mqtt.queue_messages)
        found["messages without PUBACK"] = (len(app._subscriber._not_done), MAX_IN_FLIGHT)
        found["messages for the journal"] = (len(journal._waiting) if journal.whole else 0, 10_000)
        found["batches without acknowledgement"] = (len(app._machine.admission.acks._pending), 10_000)
        if app._archive is not None:
            found["records for the archive"] = (len(app._archive._records), 10_000)
        found["messages held by the broker"] = (
            self.broker.held if app._subscriber.connected else 0,
            MAX_IN_FLIGHT,
        )
        found["messages without a schema"] = (app._machine.admission.held, 1000)
        return found

    def _expect_end(self, process: Process | None) -> None:
        if process is not None:
            self._ends_wanted.add(process)

    @staticmethod
    def _spooled(node: Node) -> set[tuple[bytes, int]]:
        """Stream and sequence number of all batches in a node's spool."""
        return {name for path in _segments(node) for name in _batches(path)}

    @staticmethod
    def _newest_batches(node: Node) -> list[tuple[bytes, int]]:
        """The same of its newest segment, in order."""
        return [name for path in _segments(node)[-1:] for name in _batches(path)]


def _segments(node: Node) -> list[Path]:
    return sorted((node.host.disk.folder / "spool").glob("*.segment"))


def _batches(path: Path) -> list[tuple[bytes, int]]:
    with contextlib.suppress(SpoolError):
        return [(each.envelope.stream, each.envelope.seq) for each in SpoolSegment(path).batches()]
    return []


def _described(exc: BaseException) -> str:
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return f"{type(exc).__name__}: {exc}"
