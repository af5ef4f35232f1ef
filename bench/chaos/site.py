"""A small site of real processes: agents in a network of their own, a broker, an aggregator, two disks."""

import contextlib
import json
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.chaos import stepped_daemon
from bench.chaos.feed import Feed, Procfs
from bench.chaos.ground_truth import Spooled, Witness
from bench.chaos.host import Disk, Network
from bench.chaos.processes import Process
from laggard_aggregator.demo.site import BATCH_SAMPLES, CONFIRM, SHIFT_SAMPLES, WINDOW_SAMPLES, free_port
from laggard_common.mqtt.settings import MqttSettings, client_arguments
from tests.support import shipped_brokers as brokers
from tests.support.shipped_brokers import Authority

SITE = "chaos"
WITNESS, HOSTILE = "witness", "evil"
"""Who looks on, and who attacks."""
SPOOL_MAX_BYTES = 4 * 1024 * 1024
_START_SECONDS = 120.0
_END_SECONDS = 120.0
_LAST_SECONDS = 5.0
_AGE_OF_VERDICTS = 2.5  # times the shift between windows
_STORE_MIB, _SPOOL_MIB = 96, 48


@dataclass(frozen=True, slots=True)
class Alarm:
    """The alarm that stands: whose, since when, raised when; epoch seconds."""

    name: str
    group: str
    metric: str
    since: float
    raised_at: float


class Site:
    """A site in `folder`, fed by `feed`, with a broker of that kind.

    `earlier`: a checkout of another version, with which agents and aggregator begin.
    """

    def __init__(self, folder: Path, feed: Feed, broker: str, earlier: Path | None = None) -> None:
        self.folder = folder
        self.earlier = earlier
        self.feed = feed
        self.kind = broker
        self.network = Network() if broker != "embedded" else None
        self.store = Disk(folder / "store", _STORE_MIB)
        self.spools = Disk(folder / "spools", _SPOOL_MIB)
        self.authority = Authority(folder / "ca")
        self.host = "127.0.0.1"
        self.port = free_port()
        self.http = free_port()
        self.nodes = {lun: f"oss-{at}" for at, lun in enumerate(feed.recording.luns, 1)}
        self.slow = self.nodes[feed.recording.faulty]
        self.stepped: tuple[str, ...] = ()
        """The nodes whose clock can be stepped: a healthy one, and that of the slow LUN."""
        self.procfs: dict[str, Procfs] = {}
        self.agents: dict[str, Process] = {}
        self.broker: Process | None = None
        self.aggregator: Process
        self.witness: Witness

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Everything while the body runs, the alarm standing at its beginning; then all ends in order."""
        self.folder.mkdir(parents=True)
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.store.made())
            stack.enter_context(self.spools.made())
            if self.network is not None:
                stack.enter_context(self.network.made())
                self.host = self.network.host
            self._write()
            self.witness = Witness(client_arguments(self._client(WITNESS)))
            stack.callback(self._end)
            if self.broker is not None:
                self.broker.start()
            self.aggregator.start()
            self.until("the aggregator", self.is_ready, _START_SECONDS)
            stack.enter_context(self.witness.listening())
            for one in self.agents.values():
                one.start()
            self.until("the alarm", lambda: self.alarm() is not None and self.has_all(), _START_SECONDS)
            yield
            with contextlib.suppress(TimeoutError):
                self.until("everything to be there", self.has_all, _END_SECONDS)
            for one in self.agents.values():
                one.stop()
            with contextlib.suppress(TimeoutError):  # their last batches and status go through
                self.until("the rest", self._nothing_waits, _LAST_SECONDS)
            self.aggregator.stop()
            shutil.copytree(self.store.path / "archive", self.archive)
            shutil.copytree(self.spools.path, self.folder / "left")

    # -- how it is

    def is_ready(self) -> bool:
        """Whether the aggregator says so."""
        return self._get("/readyz") is not None

    def alarm(self) -> Alarm | None:
        """The one alarm that stands, None when there is not exactly one."""
        standing = [one for one in self._stragglers() if one["alarm"]]
        if len(standing) != 1:
            return None
        names = ("name", "group", "metric", "since", "raised_at")
        return Alarm(**{name: standing[0][name] for name in names})

    def is_current(self, since: float) -> bool:
        """Whether the slow LUN's verdict is of a window that ended after `since` and just now."""
        seconds = _AGE_OF_VERDICTS * SHIFT_SAMPLES * self.feed.tick_seconds
        ends = [one["window_end"] for one in self._stragglers() if one["alarm"]]
        return bool(ends) and min(ends) > max(since, time.time() - seconds)

    def has_all(self, marks: Mapping[str, Spooled | None] | None = None) -> bool:
        """Whether the aggregator has acknowledged what all agents have, but for what is under way.

        With `marks`, of an earlier time, that must include something newer of each agent.
        """
        return not self.lacking(marks)

    def lacking(self, marks: Mapping[str, Spooled | None] | None = None) -> str:
        """What `has_all` waits for."""
        since = marks or {}
        found = (self.witness.lacks(node, self.spool(node), since.get(node)) for node in self.agents)
        return ", ".join(filter(None, found))

    def figures(self) -> dict[str, float]:
        """The exposition's series that have no labels; empty while nobody answers."""
        text = self._text("/metrics") or ""
        rows = (line.split() for line in text.splitlines() if not line.startswith("#") and "{" not in line)
        return {row[0]: float(row[1]) for row in rows}

    def dead(self) -> list[str]:
        """The processes that ended without being asked to."""
        every = [*self.agents.values(), self.aggregator, *([self.broker] if self.broker else [])]
        return [one.name for one in every if not one.runs]

    @property
    def archive(self) -> Path:
        """The archive, when all has ended."""
        return self.folder / "archive"

    def left(self, node: str) -> Path:
        """That node's spool, when all has ended."""
        return self.folder / "left" / node

    def _nothing_waits(self) -> bool:
        """Whether everything on the agents' disks is acknowledged."""
        return all(
            self.witness.is_acked(node, batch)
            for node in self.agents
            for batch in self.witness.look(node, self.spool(node))[1]
        )

    def spool(self, node: str) -> Path:
        """Where that node's agent keeps its batches."""
        return self.spools.path / node

    def step(self, node: str, seconds: float) -> None:
        """Sets the clock of one of `stepped` ahead of the host's."""
        stepped_daemon.step(self._clock(node), round(seconds * 1e9))

    def step_aggregator(self, seconds: float) -> None:
        """Sets the aggregator's clock ahead of the host's."""
        stepped_daemon.step(self.folder / "clock", round(seconds * 1e9))

    def kill_agent(self, node: str) -> None:
        """Kills an agent, and notes what it leaves on its disk."""
        self.agents[node].kill()
        self.witness.look(node, self.spool(node))

    def change_version(self, of: Process) -> None:
        """The next start of an agent or the aggregator is of the other version."""
        assert self.earlier is not None
        prefix = _of_version(self.earlier)
        if of.command[: len(prefix)] == prefix:
            of.command = of.command[len(prefix) :]
        else:
            of.command = [*prefix, *of.command]

    def marks(self) -> dict[str, Spooled | None]:
        """The newest batch on each agent's disk."""
        held = {node: self.witness.look(node, self.spool(node))[1] for node in self.agents}
        return {node: batches[-1] if batches else None for node, batches in held.items()}

    @staticmethod
    def until(what: str, condition: Any, seconds: float) -> None:
        """Asks five times a second. Raises TimeoutError when the answer does not come."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {seconds:.0f} s for {what}")
            time.sleep(0.2)

    # -- making it

    def _write(self) -> None:
        if self.network is not None:
            self.authority.begin(self.host, [*self.nodes.values(), WITNESS, HOSTILE])
        if self.kind != "embedded":
            make = {"mosquitto": brokers.mosquitto, "nats": brokers.nats}[self.kind]
            command = make(self.folder, self.authority, self.host, self.port, WITNESS)
            self.broker = Process("broker", command, self.folder / "broker.log")
        config = self.folder / "aggregator.toml"
        config.write_text(self._aggregator_toml())
        self.step_aggregator(0.0)
        clock = str(self.folder / "clock")
        stepped = (sys.executable, "-P", stepped_daemon.__file__)
        command = [*stepped, "aggregator", clock, str(config)]
        self.aggregator = Process("aggregator", command, self.folder / "aggregator.log")
        self.stepped = (next(iter(self.nodes.values())), self.slow)
        for lun, node in self.nodes.items():
            self._write_agent(lun, node)
        if self.earlier is not None:
            for one in (self.aggregator, *self.agents.values()):
                self.change_version(one)

    def _write_agent(self, lun: str, node: str) -> None:
        folder = self.folder / node
        procfs = self.procfs[node] = self.feed.procfs(lun, folder / "proc")
        config = folder / "agent.toml"
        config.write_text(self._agent_toml(node))
        command = [sys.executable, "-P", "-m", "laggard_agent", "--config", str(config), "--procfs"]
        command.append(str(procfs.root))
        if node in self.stepped:
            self.step(node, 0.0)
            command = [sys.executable, "-P", stepped_daemon.__file__, "agent", str(self._clock(node))]
            command += [str(config), str(procfs.root)]
        if self.network is not None:
            command = self.network.within(command)
        self.agents[node] = Process(node, command, folder / "agent.log")

    def _clock(self, node: str) -> Path:
        return self.folder / node / "clock"

    def _client(self, name: str) -> MqttSettings:
        if self.network is None:
            return MqttSettings(self.host, self.port)
        return self.authority.client(self.host, self.port, name)

    def _mqtt(self, name: str) -> str:
        made = self._client(name)
        lines = [f'host = "{made.host}"', f"port = {made.port}"]
        files = {key: getattr(made, key) for key in ("ca_file", "cert_file", "key_file")}
        lines += [f"{key} = {json.dumps(str(path))}" for key, path in files.items() if path is not None]
        return "[mqtt]\n" + "\n".join(lines) + "\n"

    def _agent_toml(self, node: str) -> str:
        return f"""\
site = "{SITE}"
node = "{node}"
role = "storage"
interval_seconds = {self.feed.tick_seconds!r}
batch_samples = {BATCH_SAMPLES}
collectors = ["diskstats"]
{self._mqtt(node)}
[spool]
directory = {json.dumps(str(self.spool(node)))}
max_bytes = {SPOOL_MAX_BYTES}
[diskstats]
include = ["loop.*"]
"""

    def _aggregator_toml(self) -> str:
        return f"""\
site = "{SITE}"
{self._mqtt(brokers.AGGREGATOR)}{"embedded = true" if self.kind == "embedded" else ""}
[http]
listen = "127.0.0.1:{self.http}"
[detect]
interval_seconds = {self.feed.tick_seconds!r}
window_samples = {WINDOW_SAMPLES}
shift_samples = {SHIFT_SAMPLES}
confirm = {CONFIRM}
[[group]]
name = "luns"
source = "diskstats"
role = "storage"
metrics = ["await"]
[archive]
directory = {json.dumps(str(self.store.path / "archive"))}
[state]
directory = {json.dumps(str(self.store.path / "state"))}
snapshot_seconds = 5.0
catch_up_seconds = 2.0
"""

    def _end(self) -> None:
        """Ends what runs still, as after a failure."""
        for one in (*self.agents.values(), self.aggregator):
            one.stop()
        if self.broker is not None:
            self.broker.stop()

    def _stragglers(self) -> list[Mapping[str, Any]]:
        answer = self._get("/api/v1/stragglers")
        return [] if answer is None else list(answer["stragglers"])

    def _get(self, path: str) -> Any:
        text = self._text(path)
        return None if text is None else json.loads(text)

    def _text(self, path: str) -> str | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=5) as answer:
                return str(answer.read(), "utf-8")
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None


def _of_version(tree: Path) -> list[str]:
    """The beginning of a command that runs with the code in `tree` in place of the installed one."""
    places = ":".join(str(tree / part) for part in ("common", "agent", "aggregator"))
    return ["/usr/bin/env", f"PYTHONPATH={places}"]
