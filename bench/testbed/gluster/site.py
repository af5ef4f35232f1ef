"""Laggard on the cluster: an agent on every host, a mosquitto, an aggregator; all of them real processes."""

from __future__ import annotations

import json
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.testbed.gluster.cluster import Cluster, until
from bench.testbed.gluster.hosts import BRIDGE_ADDRESS, Host, running
from bench.testbed.luns import CannotRunError, process
from bench.testbed.running import Running

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
class Detection:
    """How windows are made, in intervals of a second; everything else is the aggregator's default."""

    window: int
    shift: int
    confirm: int


class Site(Running):
    """The running Laggard. `archive`: where its aggregator keeps everything."""

    def __init__(self, archive: Path) -> None:
        super().__init__()
        self.archive = archive

    def stragglers(self) -> list[dict[str, Any]]:
        """Return what the aggregator's API says of stragglers and alarms."""
        found: list[dict[str, Any]] = (ask("/api/v1/stragglers") or {}).get("stragglers", [])
        return found

    def groups(self) -> dict[str, dict[str, Any]]:
        """Return the peer groups by name."""
        return {group["group"]: group for group in (ask("/api/v1/groups") or {}).get("groups", [])}


@contextmanager
def site(made: Cluster, detection: Detection, folder: Path) -> Iterator[Site]:
    """Yield Laggard at work on the cluster, every brick of it seen. Raises TestbedError.

    `folder` takes configuration, logs, spools and archive.
    """
    mosquitto = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    if mosquitto is None:
        raise CannotRunError("mosquitto is not installed (package mosquitto)")
    broker, aggregator = folder / "mosquitto.conf", folder / "aggregator.toml"
    broker.write_text(MOSQUITTO)
    aggregator.write_text(_aggregator_toml(detection, folder))
    there = Site(folder / "archive")
    with ExitStack() as stack:

        def start(name: str, command: Sequence[str], on: Host | None = None) -> None:
            log = folder / f"{name}.log"
            ran = process(leashed(command), log) if on is None else running(on, command, log)
            there.add(stack.enter_context(ran), log)

        start("mosquitto", [mosquitto, "-c", str(broker)])
        start("aggregator", python("laggard_aggregator.cli.daemon", "--config", str(aggregator)))
        until("the aggregator", lambda: bool(_alive(there) and ask("/readyz")), READY_SECONDS)
        for each in (*made.servers, *made.clients):
            config = folder / f"{each.name}.toml"
            config.write_text(_agent_toml(made, each, folder))
            start(each.name, python("laggard_agent", "--config", str(config)), each)
        until("all bricks", lambda: _alive(there) and _live(there) == len(made.bricks), READY_SECONDS)
        yield there


def _live(there: Site) -> int:
    """How many bricks the aggregator knows to be live."""
    return sum(g["live"] for g in there.groups().values() if g["source"] == "gluster_brick")


def _alive(there: Site) -> bool:
    there.check()
    return True


def ask(path: str) -> Any:
    """Return the JSON at a path of the aggregator, None while it does not answer with 200."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{HTTP_PORT}{path}", timeout=ASK_SECONDS) as answer:
            return json.load(answer)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None


def python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", module, *arguments]


def leashed(command: Sequence[str]) -> list[str]:
    return ["setpriv", "--pdeathsig=KILL", *command]


def _agent_toml(made: Cluster, each: Host, folder: Path) -> str:
    """Return an agent's configuration: a server's reads its bricks' disks alone, a client's TCP by server."""
    disks = [brick.lun.sampled for brick in made.bricks_of(each.name)]
    collectors = ["gluster", "net", *(["diskstats", "host"] if disks else [])]
    destinations = [] if disks else [f"{server.address}/32" for server in made.servers]
    return f"""\
site = "{SITE}"
node = "{each.name}"
role = "{"storage" if disks else "compute"}"
batch_samples = 2
collectors = {json.dumps(collectors)}

[mqtt]
host = "{BRIDGE_ADDRESS}"
port = {MQTT_PORT}

[spool]
directory = {json.dumps(str(folder / f"{each.name}.spool"))}

[diskstats]
include = {json.dumps(disks)}

[net]
destinations = {json.dumps(destinations)}
"""


def _aggregator_toml(detection: Detection, folder: Path) -> str:
    """Return the aggregator's configuration: no group and no parent is told, it finds them itself."""
    return f"""\
site = "{SITE}"

[mqtt]
host = "{BRIDGE_ADDRESS}"
port = {MQTT_PORT}

[http]
listen = "127.0.0.1:{HTTP_PORT}"

[detect]
interval_seconds = 1.0
window_samples = {detection.window}
shift_samples = {detection.shift}
confirm = {detection.confirm}

[archive]
directory = {json.dumps(str(folder / "archive"))}

[state]
directory = {json.dumps(str(folder / "state"))}
"""
