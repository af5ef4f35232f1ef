"""Laggard on a testbed: a mosquitto, an aggregator and agents; all of them real processes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.testbed.hosts import BRIDGE_ADDRESS
from bench.testbed.luns import CannotRunError, process
from bench.testbed.running import Running, until

MQTT_PORT = 1883
HTTP_PORT = 9464
SITE = "testbed"
READY_SECONDS = 120.0
ASK_SECONDS = 10.0

MOSQUITTO = f"""\
listener {MQTT_PORT} {BRIDGE_ADDRESS}
allow_anonymous true
user root
persistence false
max_queued_messages 100000
max_inflight_messages 1000
"""


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent: its node, its tables beside `[mqtt]` and `[spool]`, and how its command is started."""

    name: str
    role: str
    collectors: Sequence[str]
    tables: str
    start: Callable[[list[str], Path], AbstractContextManager[subprocess.Popen[bytes]]]


class Site(Running):
    """The running Laggard. `archive`: the archive of its aggregator."""

    def __init__(self, archive: Path) -> None:
        super().__init__()
        self.archive = archive

    def stragglers(self) -> list[dict[str, Any]]:
        """The stragglers and alarms in the aggregator's API."""
        found: list[dict[str, Any]] = (ask("/api/v1/stragglers") or {}).get("stragglers", [])
        return found

    def groups(self) -> dict[str, dict[str, Any]]:
        """The peer groups by name."""
        return {group["group"]: group for group in (ask("/api/v1/groups") or {}).get("groups", [])}

    def live(self, source: str) -> int:
        """Number of components of a source that the aggregator knows to be live."""
        return sum(group["live"] for group in self.groups().values() if group["source"] == source)


@contextmanager
def site(
    folder: Path,
    detection: str,
    agents: Sequence[Agent],
    all_known: Callable[[Site], bool],
    known_seconds: float = READY_SECONDS,
) -> Iterator[Site]:
    """Yields Laggard at work, once `all_known` holds. Raises TestbedError.

    `folder` has configuration, logs, spools and archive; `detection`: the aggregator's `[detect]` and groups.
    """
    mosquitto = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    if mosquitto is None:
        raise CannotRunError("mosquitto is not installed (package mosquitto)")
    broker, aggregator = folder / "mosquitto.conf", folder / "aggregator.toml"
    broker.write_text(MOSQUITTO)
    aggregator.write_text(_aggregator_toml(detection, folder))
    made = Site(folder / "archive")

    def holds(condition: Callable[[], bool]) -> bool:
        made.check()
        return condition()

    with ExitStack() as stack:

        def start(
            name: str,
            command: list[str],
            by: Callable[[list[str], Path], AbstractContextManager[subprocess.Popen[bytes]]] = leashed,
        ) -> None:
            log = folder / f"{name}.log"
            made.add(stack.enter_context(by(command, log)), log)

        start("mosquitto", [mosquitto, "-c", str(broker)])
        start("aggregator", python("laggard_aggregator.cli.daemon", "--config", str(aggregator)))
        until("the aggregator", lambda: holds(lambda: bool(ask("/readyz"))), READY_SECONDS)
        for agent in agents:
            config = folder / f"{agent.name}.toml"
            config.write_text(_agent_toml(agent, folder))
            start(agent.name, python("laggard_agent", "--config", str(config)), agent.start)
        until("all components", lambda: holds(lambda: all_known(made)), known_seconds)
        yield made


def ask(path: str) -> Any:
    """The JSON at a path of the aggregator, None while it does not answer with 200."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{HTTP_PORT}{path}", timeout=ASK_SECONDS) as answer:
            return json.load(answer)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of this project."""
    return [sys.executable, "-P", "-m", module, *arguments]


def leashed(command: list[str], log: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A process that the kernel kills when this one ends."""
    return process(["setpriv", "--pdeathsig=KILL", *command], log)


def _agent_toml(agent: Agent, folder: Path) -> str:
    return f"""\
site = "{SITE}"
node = "{agent.name}"
role = "{agent.role}"
batch_samples = 2
collectors = {json.dumps(agent.collectors)}

[mqtt]
host = "{BRIDGE_ADDRESS}"
port = {MQTT_PORT}

[spool]
directory = {json.dumps(str(folder / f"{agent.name}.spool"))}

{agent.tables}"""


def _aggregator_toml(detection: str, folder: Path) -> str:
    return f"""\
site = "{SITE}"

[mqtt]
host = "{BRIDGE_ADDRESS}"
port = {MQTT_PORT}

[http]
listen = "127.0.0.1:{HTTP_PORT}"

[archive]
directory = {json.dumps(str(folder / "archive"))}

[state]
directory = {json.dumps(str(folder / "state"))}

{detection}"""
