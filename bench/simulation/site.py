"""A simulated site: its hosts, the programs on them, and the faults that happen to them."""

import asyncio
import contextlib
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

from bench.simulation.archived import archived_rows
from bench.simulation.broker import SimulatedBroker
from bench.simulation.check_jobs import check_jobs
from bench.simulation.jobs import PlannedJob
from bench.simulation.plan import NODES, SHIFT_SAMPLES, Fault, Plan
from bench.simulation.processes import SECOND, Host, Process
from bench.simulation.programs import MON, Monitor, Node
from bench.simulation.queues import check_idle_queues, check_queues
from bench.simulation.record import Record
from laggard_agent.spool.segments import SpoolSegment
from laggard_aggregator.app import App
from laggard_common.errors import LaggardError, SpoolError

QUIET_SAMPLES = 80
"""Longest time after the last fault until everything must be delivered."""
RESTART_SECONDS = 5.0
"""`RestartSec` of the units, multiplied by the pace of a simulation."""
ENDED = "ended with"
_SUFFIXES = {"state": (".journal", ".snapshot"), "archive": (".parquet",), "spool": (".segment",)}


class Site:
    """A site that runs a plan below `folder`.

    `restarts`: programs that end with an error of their own are started again.
    """

    def __init__(
        self, plan: Plan, folder: Path, broker: SimulatedBroker, record: Record, *, restarts: bool = False
    ) -> None:
        self.plan = plan
        self._restarts = restarts
        self.record = record
        self.broker = broker
        loop = asyncio.get_running_loop()
        self.nodes: dict[str, Node] = {}
        for number in range(1, NODES + 1):
            host = Host(f"oss-{number}", folder / f"oss-{number}", str(plan.seed), loop.time)
            host.disk.make_folders("spool", "outbox")
            self.nodes[host.name] = Node(self, host)
        host = Host(MON, folder / MON, str(plan.seed), loop.time)
        host.disk.make_folders("state", "archive")
        self.monitor = Monitor(self, host)
        self.undamaged = folder / "undamaged"
        """An archive with the files of the site's archive from before they were damaged on purpose."""
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
        ends = [asyncio.ensure_future(self._end_job(job)) for job in self.plan.jobs]
        for fault in self.plan.faults:
            await asyncio.sleep(max(begun + fault.at * interval - asyncio.get_running_loop().time(), 0))
            self._repairs.append(asyncio.ensure_future(self._happen(fault)))
        await asyncio.sleep(max(begun + self.plan.samples * interval - asyncio.get_running_loop().time(), 0))
        await asyncio.gather(*self._repairs, *ends)
        self._heal()
        self.record.note("all faults are over", "site")
        await asyncio.sleep(2 * interval)
        for node in self.nodes.values():
            node.note_sent()
        await self._all_zero(lambda node: node.behind)  # what a broker lost is sent again as others arrive
        self.record.muted = True
        await self._all_zero(lambda node: node.waiting)
        await asyncio.sleep((SHIFT_SAMPLES + 1) * interval)
        self._watcher.cancel()
        if self.plan.jobs:
            behind = self.monitor.seconds_behind
            await asyncio.sleep(self.plan.seconds_to_settle(self.monitor.host.now()) + behind)
            check_jobs(self)
        await check_idle_queues(self)
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
        if exc is None and process in self._ends_wanted:
            process.kill()  # whatever a thread had not done: its files are closed
        if exc is not None and self._restarts and isinstance(_root(exc), LaggardError):
            self.record.note(f"{ENDED} {_described(exc)}", process.name)
            if process is self.monitor.process and self.monitor.app is not None:
                self.counted(self.monitor.app)
            process.kill()
            self._repairs.append(asyncio.ensure_future(self._start_again(process.name)))
        elif exc is not None:
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

    async def _start_again(self, name: str) -> None:
        """As a service manager does."""
        await asyncio.sleep(self.plan.pace * RESTART_SECONDS)
        program = self.monitor if name == MON else self.nodes[name]
        if not self._down.get(name) and (program.process is None or not program.process.alive):
            program.start()

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
            "mail server down": self._mails_fail,
            "mails unconfirmed": self._mails_fail,
            "sacct fails": self._sacct_fails,
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
            gone = {
                name
                for stream in {stream for stream, _ in newest}
                for name in takewhile(
                    lambda name: name not in left, reversed([name for name in newest if name[0] == stream])
                )
            }  # as a crash tears the end of a stream
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
            if top == "archive":
                self._flip_bit_of_archive()
            else:
                self.record.note(f"bit flipped: {disk.flip_bit(top, _SUFFIXES[top])}", "site")
        await self._revive(monitor, fault)

    def _flip_bit_of_archive(self) -> None:
        """Keeps the file as it was below `undamaged`."""
        disk = self.monitor.host.disk
        archive = disk.folder / "archive"
        before = archived_rows(archive, self.record)
        contents = {path: path.read_bytes() for path in archive.rglob("*.parquet")}
        self.record.note(f"bit flipped: {disk.flip_bit('archive', _SUFFIXES['archive'])}", "site")
        for path, content in contents.items():
            if path.read_bytes() != content:
                kept = self.undamaged / path.relative_to(archive)
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_bytes(content)
        left = archived_rows(archive, self.record)
        self.record.damaged_rows |= {(row[0], row[1]) for row in before.keys() - left.keys()}

    async def _kill(self, program: Node | Monitor, fault: Fault) -> bool:
        """Kills a program, if it runs; within its n-th operation on the disk for a fault of that amount."""
        process, name = program.process, program.host.name
        if process is None or not process.alive or process in self._ends_wanted:
            return False
        self._down[name] = self._down.get(name, 0) + 1
        if fault.amount:
            process.killed_after = int(fault.amount)
            for _ in range(20):
                if not process.doomed:
                    break
                await asyncio.sleep(self.plan.interval_seconds / 4)
            process.killed_after = None
        if isinstance(program, Monitor) and program.app is not None:
            self.counted(program.app)
        process.kill()
        if name == MON:
            self.record.kills.append(asyncio.get_running_loop().time())
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
        disk.slowness, disk.was_slow = fault.amount, True
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

    async def _mails_fail(self, fault: Fault) -> None:
        mails = self.record.mails
        mails.down, mails.unconfirmed = fault.kind == "mail server down", fault.amount
        await asyncio.sleep(fault.samples * self.plan.interval_seconds)
        mails.down, mails.unconfirmed = False, 0.0

    async def _sacct_fails(self, fault: Fault) -> None:
        self.record.sacct_fails = True
        await asyncio.sleep(fault.samples * self.plan.interval_seconds)
        self.record.sacct_fails = False

    async def _end_job(self, job: PlannedJob) -> None:
        """Leaves the hook's document in the outbox of the job's first node, when it ends."""
        host = self.nodes[job.nodes[0]].host
        await asyncio.sleep(max(job.end - host.now(), 0.0))
        host.disk.place("outbox", f"{job.number}.jobs", job.document)

    # -- the end

    def _heal(self) -> None:
        programs: list[Node | Monitor] = [*self.nodes.values(), self.monitor]
        for program in programs:
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
            check_queues(self)

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


def _root(exc: BaseException) -> BaseException:
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return exc


def _described(exc: BaseException) -> str:
    return f"{type(_root(exc)).__name__}: {_root(exc)}"
