"""Puts simulated parts in the place of the product's edges: network, threads, kernel, pace of polls.

All between these edges is the product: both `App`s with their loops, queues, spool, journal, snapshots,
archive, windows, detectors and alarms.
"""

import asyncio
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeVar
from unittest import mock

from bench.simulation.broker import AgentConnection, ReaderConnection, SimulatedBroker
from bench.simulation.jobs import SimulatedSlurm
from bench.simulation.mails import SimulatedOutbox
from bench.simulation.plan import FLUSH_SECONDS, PASS_SECONDS, WHOLE_SHAPE
from bench.simulation.processes import Killed, current
from bench.simulation.record import Record, RecordedRecovery, RecordedResults, RecordedSpool
from bench.simulation.system_calls import check_room, interposed
from laggard_agent.sampling.sampler import Sampler
from laggard_aggregator.archive import layout
from laggard_aggregator.engine.checkpoint import capture
from laggard_aggregator.log import snapshots

T = TypeVar("T")
A = TypeVar("A")

_PERIODS: Mapping[str, Sequence[str]] = {
    "laggard_aggregator.runtime.loops": (
        *("DURABLE_SECONDS", "RELEASE_SECONDS", "ACK_SECONDS", "CLOCK_SECONDS", "SWEEP_SECONDS"),
    ),
    "laggard_aggregator.engine.recovery": ("RETRY_SECONDS", "DURABLE_SECONDS"),
    "laggard_aggregator.archive.write_queue": ("RETAIN_SECONDS",),
    "laggard_aggregator.ingest.nodes": ("OFFSETS_NS",),
    "laggard_aggregator.ingest.schema_wait": ("HELD_NS",),
    "laggard_aggregator.windows.schedule": ("DOUBT_NS", "UNCONFIRMED_NS"),
    "laggard_agent.transport.pacing": (
        "LATE_SECONDS",
        "_SHORT_OUTAGE_SECONDS",
        "_MAX_PAUSE_SECONDS",
        "_NO_ACK_SECONDS",
        "_LOST_SECONDS",
        "_LEAST_SECONDS",
        "_MOST_SECONDS",
        "_STABLE_SECONDS",
    ),
    "laggard_agent.transport.redelivery": ("_LEAST_SECONDS", "_MOST_SECONDS"),
    "laggard_agent.transport.publisher": ("STATUS_SECONDS",),
}
"""Periods of the product, which are multiplied by the pace of a simulation."""

_POLLS: Mapping[str, Mapping[str, float]] = {
    "laggard_aggregator.runtime.loops": {"POLL_SECONDS": 3.0, "STATUS_SECONDS": 60.0},
    "laggard_aggregator.engine.recovery": {"POLL_SECONDS": 5.0},
    "laggard_aggregator.archive.write_queue": {"WRITE_SECONDS": 5.0, "FLUSH_SECONDS": FLUSH_SECONDS},
    "laggard_aggregator.notify.dispatcher": {"POLL_SECONDS": 0.55},
    "laggard_aggregator.notify.worker": {"IDLE_SECONDS": 60.0},
    "laggard_aggregator.jobs.background": {"PASS_SECONDS": PASS_SECONDS / WHOLE_SHAPE[0]},
    "laggard_agent.app": {"_WATCH_SECONDS": 60.0, "POLL_SECONDS": 2.0},
}
"""Periods in place of the product's, seconds, multiplied too: a poll without work, or a flush of a few rows,
takes the most CPU time of a simulation."""

SEGMENT_BYTES = 512
"""Least size of a spool's segment: a small spool has several."""


@contextmanager
def at_the_edges(broker: SimulatedBroker, record: Record, pace: float) -> Iterator[None]:
    """The product runs in a simulation while the block does. `pace`: factor of its periods."""
    agent, aggregator = "laggard_agent.app", "laggard_aggregator.app"
    recovery = "laggard_aggregator.engine.recovery"
    replaced: dict[str, dict[str, Any]] = {
        agent: {
            "Worker": SimulatedWorker,
            "Sampler": SimulatedSampler,
            "Spool": partial(RecordedSpool, record),
            "make_collector": lambda *_: record.collector(current()),
            "boot_id": lambda: current().host.boot_id,
            "self_usage": _Usage,
        },
        "laggard_agent.transport.publisher": {
            "MqttClient": partial(AgentConnection, broker=broker),
            "gc": _NoGarbage,
        },
        "laggard_agent.spool.segment_queue": {"_LEAST_SEGMENT_BYTES": SEGMENT_BYTES},
        aggregator: {
            "make_app": lambda *_, **__: None,
            "authenticated": lambda app, *_: app,
            "HttpServer": _NoServer,
            "Control": _no_control,
            "Results": partial(RecordedResults, record),
            "Recovery": partial(RecordedRecovery, record),
        },
        "laggard_aggregator.ingest.mqtt.subscriber": {"MqttReader": partial(ReaderConnection, broker=broker)},
        recovery: {"capture": partial(record.captured, capture)},
        "laggard_aggregator.log.snapshots": {"write": partial(record.snapshot_written, snapshots.write)},
        "laggard_aggregator.archive.layout": {"_DigestedFile": _SimulatedPart},
        "laggard_aggregator.notify.dispatcher": {"Outbox": SimulatedOutbox},
        "laggard_aggregator.notify.email.channel": {"drawn": _no_plot},
        "laggard_aggregator.notify.email.channel.MailChannel": {
            "send": lambda _, *arguments: record.mails.send(*arguments)
        },
        "laggard_aggregator.jobs.verdict.judge.RunReport": {"has_cause": True},
        "laggard_aggregator.jobs.records.poll_task": {"SlurmCommands": _slurm(record)},
        "laggard_common.daemon.memory": {"trim": lambda: None},
    }
    with ExitStack() as stack:
        for module, values in replaced.items():
            stack.enter_context(mock.patch.multiple(resolve_name(module), **values))
        for name in sorted(_PERIODS.keys() | _POLLS.keys()):
            edge = importlib.import_module(name)
            scaled: dict[str, Any] = {each: getattr(edge, each) * pace for each in _PERIODS.get(name, ())}
            scaled |= {each: seconds * pace for each, seconds in _POLLS.get(name, {}).items()}
            stack.enter_context(mock.patch.multiple(edge, **scaled))
        stack.enter_context(interposed())
        yield


class SimulatedWorker:
    """In the place of `Worker`: jobs run one after the other, each for the time that the disk needs."""

    def __init__(self, _name: str, failed: Callable[[BaseException], None]) -> None:
        self._process = current()
        self._loop = asyncio.get_running_loop()
        self._failed = failed
        self._jobs: list[Callable[[], object]] = []
        self._piggybacked: list[Callable[[], object]] = []
        self._running = False

    @property
    def waiting(self) -> int:
        """Number of jobs that have not started."""
        return len(self._jobs)

    @property
    def busy_seconds(self) -> float:
        """0, as a job runs in an instant of virtual time."""
        return 0.0

    @property
    def has_ended(self) -> bool:
        """True: there is no thread."""
        return True

    def submit(self, job: Callable[[], object]) -> None:
        """Queues `job`."""
        self._jobs.append(job)
        if not self._running:
            self._running = True
            self._loop.call_later(self._process.host.disk.seconds(), self._next)

    def piggyback(self, job: Callable[[], object]) -> None:
        """Runs `job` before the next submitted one."""
        self._piggybacked.append(job)

    def wait_for(self, function: Callable[[A], T], argument: A) -> T:
        """Result of `function` for another worker, at once, as that one's job is an instant."""
        return function(argument)

    async def call(self, job: Callable[[], T]) -> T:
        """Runs `job`; its result."""
        future: asyncio.Future[T] = self._loop.create_future()

        def run() -> None:
            try:
                result = job()
            except Exception as exc:
                if not future.done():
                    future.set_exception(exc)
            else:
                if not future.done():
                    future.set_result(result)

        self.submit(run)
        return await future

    def run_on_loop(self, callback: Callable[[], object]) -> None:
        """Runs `callback` soon."""
        self._loop.call_soon(callback)

    def end(self) -> None:
        """Nothing is to be ended."""

    def _next(self) -> None:
        if not self._process.alive:
            return
        try:
            for each in self._piggybacked:
                each()
            self._piggybacked.clear()
            self._jobs.pop(0)()
        except Killed:
            return
        except Exception as exc:
            self._failed(exc)
            return
        if self._jobs:
            self._loop.call_later(self._process.host.disk.seconds(), self._next)
        else:
            self._running = False


class SimulatedSampler(Sampler):
    """A sampler whose thread is a task."""

    def start(self) -> None:
        """Starts the task."""
        self._task = asyncio.create_task(self._sample_on())

    def stop(self) -> None:
        """Ends the task."""
        self._task.cancel()

    def join(self, _timeout_seconds: float) -> None:
        """The task is ended."""

    async def _sample_on(self) -> None:
        while True:
            await asyncio.sleep(self.timeline.wait_seconds())
            tick_ns = self.timeline.due_tick_ns()
            if tick_ns is not None:
                self._sample(tick_ns)


class _SimulatedPart(layout._DigestedFile):
    """A file of the archive on a simulated disk, which may be full. It is written in one piece at its end."""

    def __init__(self, path: Path) -> None:
        check_room(str(path))
        super().__init__(path)
        self._held = bytearray()

    def write(self, data: Any) -> int:
        """Holds `data`; raises OSError where there is no room."""
        check_room(str(self.name))
        view = memoryview(data).cast("B")
        self._held += view
        return len(view)

    def tell(self) -> int:
        """Number of bytes so far."""
        return len(self._held)

    def fileno(self) -> int:
        """The descriptor, once all is written."""
        held, self._held = self._held, bytearray()
        if held:
            super().write(held)
        return super().fileno()


class _Usage:
    """Resources of an agent, the same in every run."""

    @staticmethod
    def cpu_ns() -> int:
        """CPU time."""
        return 1_000_000

    @staticmethod
    def resident_bytes() -> int:
        """Memory."""
        return 20_000_000


class _NoGarbage:
    @staticmethod
    def collect() -> int:
        """Nothing: all processes share one heap."""
        return 0


class _NoServer:
    """In the place of the HTTP server, which only reads."""

    url = "http://simulated"

    def __init__(self, *_: Any) -> None:
        pass

    def bind(self) -> None:
        """Nothing to bind."""

    def close(self) -> None:
        """Nothing to close."""

    async def run(self, ended: asyncio.Event) -> None:
        """Waits for the end."""
        await ended.wait()


def _slurm(record: Record) -> type[SimulatedSlurm]:
    class Slurm(SimulatedSlurm):
        def __init__(self) -> None:
            super().__init__(record.jobs, current().host, lambda: record.sacct_fails)

    return Slurm


async def _no_plot(_: Any) -> None:
    """A mail without a plot, which a child process draws."""


@asynccontextmanager
async def _no_control(*_: Any) -> Any:
    yield
