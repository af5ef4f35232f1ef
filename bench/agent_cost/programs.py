"""The programs that are compared, each at one sample a second, as they are meant to be run."""

from __future__ import annotations

import http.client
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.testbed.luns import TestbedError, process

BROKER_PORT = 18_841
HTTP_PORT = 18_842
EXPORTER_PORT = 18_843
"""Of the first node_exporter; the others' follow."""
START_SECONDS = 20.0
SBIN = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/usr/lib/sysstat:/usr/lib64/sa"
SCRAPE = {  # as Prometheus asks
    "Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
    "Accept-Encoding": "gzip",
}
EXPORTED = (("diskstats",), ("diskstats", "netdev", "netstat", "softnet", "cpu", "meminfo", "loadavg"))
"""Collectors of node_exporter: those of the agent's `diskstats`, and of its `diskstats`, `net` and `host`."""
COLLECTD = """\
Interval 1
FQDNLookup false
Hostname "n1"
BaseDir "{folder}"
PIDFile "{folder}/collectd.pid"
LoadPlugin disk
LoadPlugin csv
<Plugin csv>
  DataDir "{folder}/csv"
</Plugin>
"""
AGENT = """\
node = "{node}"
collectors = {collectors}
[mqtt]
port = {port}
[spool]
directory = "{folder}/spool"
[diskstats]
include = ["loop1[0-9][0-9][0-9]"]
"""
AGGREGATOR = """\
[mqtt]
port = {port}
[http]
listen = "127.0.0.1:{http}"
[archive]
directory = "{folder}/archive"
[state]
directory = "{folder}/state"
"""


@dataclass(frozen=True, slots=True)
class Program:
    """A running program to be measured; what it prints is in `log`."""

    name: str
    pid: int
    is_alive: Callable[[], bool]
    log: Path


@contextmanager
def programs(
    folder: Path, python: str = sys.executable, before: Path | None = None
) -> Iterator[tuple[Program, ...]]:
    """All programs, running side by side; the agents have a broker and an aggregator that acknowledges.

    `python` runs the agents, with the modules that this interpreter finds. `before`: another checkout, whose
    agent runs as well. Raises TestbedError when a program is not installed or does not start.
    """
    with ExitStack() as stack:
        started = _Started(stack, folder)
        broker = folder / "mosquitto.conf"
        broker.write_text(f"listener {BROKER_PORT} 127.0.0.1\nallow_anonymous true\n")
        started.run("mosquitto", [_found("mosquitto"), "-c", str(broker)])
        config = folder / "aggregator.toml"
        config.write_text(AGGREGATOR.format(port=BROKER_PORT, http=HTTP_PORT, folder=folder))
        aggregator = [sys.executable, "-m", "laggard_aggregator.cli.daemon", "--config", str(config)]
        started.run("aggregator", aggregator)
        _wait_for(HTTP_PORT, "/healthz")
        collectd = folder / "collectd.conf"
        collectd.write_text(COLLECTD.format(folder=folder))
        sadc = _found("sadc")
        agents = [
            _agent(started, python, "laggard-agent, diskstats", ("diskstats",)),
            _agent(started, python, "laggard-agent, diskstats net host", ("diskstats", "net", "host")),
        ]
        if before is not None:
            name = f"laggard-agent, diskstats, of {before}"
            agents.append(
                _agent(started, python, name, ("diskstats",), (before / "agent", before / "common"))
            )
        found = (
            *agents,
            started.run("sadc -S DISK", [sadc, "-S", "DISK", "1", str(folder / "sadc")]),
            started.run("sadc, disks only", [sadc, "-S", "A_NULL,A_DISK", "1", str(folder / "sadc-disks")]),
            *(_exporter(started, number, names) for number, names in enumerate(EXPORTED)),
            started.run("collectd, disk and csv", [_found("collectd"), "-f", "-C", str(collectd)]),
        )
        stop = threading.Event()
        for number in range(len(EXPORTED)):
            _wait_for(EXPORTER_PORT + number, "/metrics")
            scraper = threading.Thread(target=_scrape, args=(EXPORTER_PORT + number, stop))
            scraper.start()
            stack.callback(scraper.join)
        stack.callback(stop.set)
        yield found


class _Started:
    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        self.folder = folder

    def run(self, name: str, command: Sequence[str]) -> Program:
        log = self.folder / f"{name.replace(' ', '-').replace('/', '-')}.log"
        running = self._stack.enter_context(process(command, log))
        return Program(name, running.pid, lambda: running.poll() is None, log)


def _agent(
    started: _Started, python: str, name: str, collectors: Sequence[str], modules: Sequence[Path] = ()
) -> Program:
    """`modules`: where to look for modules first."""
    node = name.replace(",", "").replace(" ", "-").replace("/", "-")
    folder = started.folder / node
    folder.mkdir()
    config = folder / "agent.toml"
    config.write_text(AGENT.format(node=node, collectors=list(collectors), port=BROKER_PORT, folder=folder))
    path = os.pathsep.join(filter(None, [*map(str, modules), *sys.path]))
    return started.run(
        name, ["env", f"PYTHONPATH={path}", python, "-m", "laggard_agent", "--config", str(config)]
    )


def _exporter(started: _Started, number: int, names: Sequence[str]) -> Program:
    """A node_exporter with these collectors alone."""
    command = [
        _found("prometheus-node-exporter", "node_exporter"),
        "--collector.disable-defaults",
        *(f"--collector.{name}" for name in names),
        "--collector.diskstats.device-exclude=^$",
        "--web.disable-exporter-metrics",
        f"--web.listen-address=127.0.0.1:{EXPORTER_PORT + number}",
    ]
    return started.run(f"node_exporter, {' '.join(names)}", command)


def _found(*names: str) -> str:
    path = next(filter(None, (shutil.which(name, path=SBIN) for name in names)), None)
    if path is None:
        raise TestbedError(f"{' or '.join(names)} is not installed")
    return path


def _wait_for(port: int, path: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            _get(http.client.HTTPConnection("127.0.0.1", port, timeout=5), path)
        except (OSError, http.client.HTTPException) as exc:
            if time.monotonic() > deadline:
                raise TestbedError(f"nothing answers on port {port}: {exc}") from exc
            time.sleep(0.1)
        else:
            return


def _scrape(port: int, stop: threading.Event) -> None:
    """Scrapes a node_exporter every second over one connection until told to stop."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    while not stop.wait(1.0 - time.monotonic() % 1.0):
        try:
            _get(connection, "/metrics")
        except (OSError, http.client.HTTPException):  # it ended; `is_alive` tells
            connection.close()
    connection.close()


def _get(connection: http.client.HTTPConnection, path: str) -> bytes:
    connection.request("GET", path, headers=SCRAPE)
    return connection.getresponse().read()
