"""The files that one sample passes on its way: `python -m bench.data_path`.

Agents and an aggregator run in this process, on fake /proc trees and a broker that is not part of the
product. After every group was judged more than once, one LUN becomes slow. From then on `sys.setprofile`
notes, in all threads, each file of `laggard_common`, `laggard_agent` and `laggard_aggregator` of which a
function is entered, until the alarm is raised, its mail has arrived, the page shows it and the archive has
it.

A file belongs to the way on which it is entered first. The ways are told apart by the name of the asyncio
task, which threads and callbacks inherit: WAYS for mail, page and archive; BESIDE for tasks that carry no
samples (watchdog, acknowledgements, snapshots), which are listed and not counted; all others lead to the
alarm. Templates count as files. Types are dataclasses and named tuples of which instances are made on these
ways.

Only the two `App`s, the loader of configurations and HTTP are named, so it runs on any version. Exits with
1 when there are more files than --most and --most-to-alarm allow.
"""

import argparse
import asyncio
import contextlib
import contextvars
import dataclasses
import json
import logging
import sys
import tempfile
import threading
import time
import typing
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from aiosmtpd.smtp import SMTP, Envelope, Session
from amqtt.broker import Broker
from amqtt.contexts import BrokerConfig, ListenerConfig

import laggard_agent
import laggard_aggregator
import laggard_common
from laggard_agent.app import App as AgentApp
from laggard_aggregator.app import App as AggregatorApp
from laggard_common.config import load

NODES = 6
SLOW = "oss-3"
TICK_SECONDS = 0.1
PATIENCE_SECONDS = 120.0
HEALTHY_WINDOWS = 3
ALARM, LATER, ASIDE = "alarm", "after the alarm", "beside"
WAYS = {"notify": "mail", "mail": "mail", "http": "page", "archive": "archive"}
# Stages behind the alarm, on whichever task they are entered.
ROOMS = {"notify": "mail", "status": "page", "web": "page", "archive": "archive"}
# Handling of acknowledgements, which travel back: the names before and after the move.
BACK = {"laggard_agent/transport/redelivery.py", "laggard_agent/losses.py"}
BESIDE = {
    *("liveness", "watchdog", "watch", "acknowledge", "housekeeping", "snapshots", "release", "http heads"),
}
PACKAGES = {
    Path(package.__file__).parent: package.__name__
    for package in (laggard_common, laggard_agent, laggard_aggregator)
    if package.__file__
}
OF_A_FUNCTION = 0x2  # CO_NEWLOCALS: bodies of modules and classes have it not

AGENT = """\
node = "{node}"
interval_seconds = {tick}
batch_samples = 5
collectors = ["diskstats"]
[mqtt]
port = {port}
[spool]
directory = {spool}
"""
AGGREGATOR = """\
[mqtt]
port = {port}
[http]
listen = "127.0.0.1:0"
[detect]
interval_seconds = 0.2
window_samples = 20
shift_samples = 10
confirm = 2
lateness_seconds = 0.5
[[group]]
name = "luns"
role = "storage"
[archive]
directory = {archive}
[state]
directory = {state}
catch_up_seconds = 0
[mail]
server = "127.0.0.1"
port = {smtp}
sender = "laggard@example.org"
recipients = ["storage@example.org"]
after_seconds = 0
learning_seconds = 0
gather_seconds = 0
"""


class Origin:
    """The task to which a piece of work belongs, by the context that it inherits."""

    current: contextvars.ContextVar["Origin | None"] = contextvars.ContextVar("origin", default=None)

    def __init__(self, parent: "Origin | None") -> None:
        self._parent = parent
        self.task: asyncio.Task[Any] | None = None

    @property
    def way(self) -> str:
        """The way that the task, or the one that made it, is on."""
        name = self.task.get_name() if self.task is not None else ""
        if name in WAYS:
            return WAYS[name]
        if name in BESIDE:
            return ASIDE
        return self._parent.way if self._parent is not None else ALARM

    @classmethod
    def follow(cls, loop: asyncio.AbstractEventLoop) -> None:
        """Lets tasks and executors of `loop` hand their origin on."""
        run_in_executor = loop.run_in_executor

        def create(
            loop: asyncio.AbstractEventLoop, coro: Any, context: contextvars.Context | None = None
        ) -> asyncio.Task[Any]:
            context = contextvars.copy_context() if context is None else context
            origin = cls(context.get(cls.current))
            context.run(cls.current.set, origin)
            origin.task = asyncio.Task(coro, loop=loop, context=context)
            return origin.task

        def run(executor: Any, function: Callable[..., Any], *args: Any) -> Any:
            return run_in_executor(executor, contextvars.copy_context().run, function, *args)

        loop.set_task_factory(create)
        setattr(loop, "run_in_executor", run)  # noqa: B010 - a method, replaced for this loop alone


class Trace:
    """Files and types of the product by the way on which they are passed, while `on`."""

    def __init__(self) -> None:
        self.on = self.raised = False
        self.files: dict[str, dict[str, None]] = {way: {} for way in (ALARM, LATER, *WAYS.values(), ASIDE)}
        self.types: dict[str, dict[str, None]] = {way: {} for way in self.files}
        self._known: dict[CodeType, str] = {}

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Watches this thread and those that begin in the block."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def passed(self, found: dict[str, dict[str, None]]) -> Iterator[tuple[str, str]]:
        """Way and name, each name once, in the order of the ways."""
        seen: set[str] = set()
        for way, some in found.items():
            for name in some:
                if name not in seen:
                    seen.add(name)
                    yield way, name

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not self.on:
            return
        code = frame.f_code
        file = self._known.get(code)
        if file is None:
            file = self._known[code] = _file(code)
        if file:
            self.files[self._way(file)][file] = None
        elif code.co_filename == "<string>":  # made by dataclasses and namedtuple
            self._made(frame)

    def _way(self, file: str = "") -> str:
        origin = Origin.current.get()
        way = ALARM if origin is None else origin.way
        if file in BACK:
            return ASIDE
        if way == ALARM and file:
            way = ROOMS.get(file.split("/")[1], ALARM)
        return LATER if way == ALARM and self.raised else way

    def _made(self, frame: FrameType) -> None:
        names = frame.f_locals
        made = names["_cls"] if "_cls" in names else type(names.get("self"))
        if not isinstance(made, type) or made.__module__.partition(".")[0] not in PACKAGES.values():
            return
        if dataclasses.is_dataclass(made) or issubclass(made, tuple):
            way = self._way(made.__module__.replace(".", "/"))
            self.types[way][f"{made.__module__}.{made.__qualname__}"] = None


def _file(code: CodeType) -> str:
    """The file of a function of the product, below its package's folder; empty for all else."""
    if not code.co_flags & OF_A_FUNCTION:
        return ""
    path = Path(code.co_filename)
    for folder, name in PACKAGES.items():
        if path.is_relative_to(folder):
            return str(Path(name) / path.relative_to(folder))
    return ""


class Disks:
    """The fake /proc of each node: one LUN with 200 reads a second of 5 ms, the slow one of 60 ms."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ms = dict.fromkeys(names(), 0.0)
        self._reads = 0
        self.slow = False

    def procfs(self, node: str) -> Path:
        """Where the node's /proc is."""
        return self._folder / node / "proc"

    def go_on(self) -> None:
        """Counts the reads of one tick, and puts the files in place whole."""
        self._reads += round(200 * TICK_SECONDS)
        for at, node in enumerate(self._ms):
            each = 60.0 if self.slow and node == SLOW else 5.0 + (self._reads // 20 + at) % 7 / 10
            self._ms[node] += 200 * TICK_SECONDS * each
            ms = round(self._ms[node])
            line = (
                f"   8       0 sda {self._reads} 0 {128 * self._reads} {ms} 0 0 0 0 1 {ms} {ms} 0 0 0 0 0 0\n"
            )
            temporary = self.procfs(node) / "new"
            temporary.write_text(line)
            temporary.replace(self.procfs(node) / "diskstats")


class Mailbox:
    """Takes mail."""

    def __init__(self) -> None:
        self.mails = 0

    async def handle_DATA(self, _: SMTP, __: Session, ___: Envelope) -> str:  # noqa: N802
        """The name is that of aiosmtpd's hook."""
        self.mails += 1
        return "250 OK"


class Alarms(logging.Handler):
    """Sees the warning that names the slow component."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(logging.WARNING)
        self._trace = trace
        self.raised = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """The alarm's way ends here."""
        if self._trace.on and SLOW in record.getMessage():
            self._trace.raised = True
            self.raised.set()


def names() -> list[str]:
    """The nodes."""
    return [f"oss-{n}" for n in range(1, NODES + 1)]


@contextlib.asynccontextmanager
async def broker() -> AsyncIterator[int]:
    """The port of a broker on loopback that lets everyone in."""
    for name in ("amqtt", "transitions"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    server = await asyncio.start_server(lambda _, __: None, "127.0.0.1", 0)
    port = int(server.sockets[0].getsockname()[1])
    server.close()
    await server.wait_closed()
    plugins: dict[str, Any] = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
    config = BrokerConfig(listeners={"default": ListenerConfig(bind=f"127.0.0.1:{port}")}, plugins=plugins)
    running = Broker(config, loop=asyncio.get_running_loop())
    await running.start()
    try:
        yield port
    finally:
        await running.shutdown()


async def follow(folder: Path, trace: Trace) -> float:
    """Lets a LUN become slow while everything runs, and follows the alarm; the seconds to it."""
    disks, box, alarms = Disks(folder), Mailbox(), Alarms(trace)
    for node in names():
        disks.procfs(node).mkdir(parents=True)
    disks.go_on()
    logging.getLogger().addHandler(alarms)
    loop = asyncio.get_running_loop()
    Origin.follow(loop)
    smtp = await loop.create_server(lambda: SMTP(box, hostname="mail.example.org"), "127.0.0.1", 0)
    async with broker() as port:
        aggregator = AggregatorApp(
            load(
                settings_of(AggregatorApp),
                written(
                    folder / "aggregator.toml",
                    AGGREGATOR,
                    port=port,
                    smtp=smtp.sockets[0].getsockname()[1],
                    archive=json.dumps(str(folder / "archive")),
                    state=json.dumps(str(folder / "state")),
                ),
            )
        )
        roots = typing.get_type_hints(AgentApp.__init__)["roots"]
        agents = []
        for node in names():
            spool = json.dumps(str(folder / node / "spool"))
            path = folder / node / "agent.toml"
            written(path, AGENT, node=node, tick=TICK_SECONDS, port=port, spool=spool)
            agents.append(AgentApp(load(settings_of(AgentApp), path), roots(disks.procfs(node), None, None)))
        stop, started = asyncio.Event(), asyncio.Event()
        running = [
            asyncio.create_task(aggregator.run(stop, started)),
            asyncio.create_task(ticking(disks, stop)),
        ]
        await until(started.is_set, *running)
        running += [asyncio.create_task(agent.run(stop)) for agent in agents]
        try:
            url = aggregator.url
            await until(lambda: windows(url) >= HEALTHY_WINDOWS, *running)
            begun, trace.on, disks.slow = time.monotonic(), True, True
            await until(alarms.raised.is_set, *running)
            seconds = time.monotonic() - begun
            await until(lambda: box.mails > 0, *running)
            for place in ("/", f"/component/luns/{SLOW}/sda"):
                page = await asyncio.to_thread(fetched, url + place)
                assert SLOW in page, place
            await until(lambda: any((folder / "archive" / "kind=alarms").rglob("*.parquet")), *running)
            trace.on = False
        finally:
            stop.set()
            await asyncio.gather(*running)
    smtp.close()
    await smtp.wait_closed()
    return seconds


def settings_of(app: type) -> Any:
    """The class of settings that an App takes."""
    return typing.get_type_hints(app.__init__)["settings"]  # type: ignore[misc]


def written(path: Path, template: str, **values: object) -> Path:
    """A configuration at `path`."""
    path.write_text(template.format(**values))
    return path


async def ticking(disks: Disks, stop: asyncio.Event) -> None:
    """Lets the disks count until `stop`."""
    while not stop.is_set():
        disks.go_on()
        await asyncio.sleep(TICK_SECONDS)


async def until(condition: Callable[[], bool], *running: asyncio.Task[None]) -> None:
    """Polls in a thread until `condition` holds; raises what one of the `running` failed with."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await asyncio.to_thread(condition):
            for task in running:
                if task.done():
                    task.result()
            await asyncio.sleep(0.1)


def windows(url: str) -> float:
    """How many windows were judged; counts only once all nodes are there."""
    lines = dict(line.rsplit(" ", 1) for line in fetched(url + "/metrics").splitlines() if line[0] != "#")
    live = float(lines.get('laggard_group_components{group="luns",state="live"}', 0))
    return float(lines.get("laggard_windows_total", 0)) if live == NODES else 0.0


def fetched(url: str) -> str:
    """The page at `url`."""
    with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
        return str(answer.read().decode())


def main() -> int:
    """Prints files and types; 1 when there are too many files."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], prog="python -m bench.data_path")
    parser.add_argument("--most", type=int, default=75, help="files in all (default %(default)s)")
    parser.add_argument("--most-to-alarm", type=int, default=40, help="default %(default)s")
    args = parser.parse_args()
    trace = Trace()
    with tempfile.TemporaryDirectory() as folder, trace.installed():
        seconds = asyncio.run(follow(Path(folder), trace))
    files, types = list(trace.passed(trace.files)), list(trace.passed(trace.types))
    for heading, rows in (("file", files), ("type", types)):
        print(f"| way | {heading} |\n|---|---|")
        for way, name in rows:
            print(f"| {way} | {name} |")
        print()
    counted = [name for way, name in files if way != ASIDE]
    templates = [name for name in counted if not name.endswith(".py")]
    to_alarm = len(trace.files[ALARM])
    print(f"the alarm was raised after {seconds:.1f} s")
    print(f"{len(counted)} files ({len(templates)} of them templates), {to_alarm} to the alarm")
    print(f"{sum(way != ASIDE for way, _ in types)} types, {len(trace.types[ALARM])} to the alarm")
    return 1 if len(counted) > args.most or to_alarm > args.most_to_alarm else 0


if __name__ == "__main__":
    sys.exit(main())
