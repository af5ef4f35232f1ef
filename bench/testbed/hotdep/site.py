"""Laggard on the peers: agents, a mosquitto, an aggregator; training, and the judgement afterwards."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.testbed.gluster.cluster import until
from bench.testbed.gluster.hosts import BRIDGE_ADDRESS
from bench.testbed.gluster.site import (
    HTTP_PORT,
    MOSQUITTO,
    MQTT_PORT,
    READY_SECONDS,
    SITE,
    Site,
    ask,
    leashed,
    python,
)
from bench.testbed.hotdep.peers import Peer, Service
from bench.testbed.luns import CannotRunError, process, run

METRICS = {"fnprofile": ("samples",), "fntrace": ("count", "time")}


@dataclass(frozen=True, slots=True)
class Windows:
    """How functions are compared: intervals of so many seconds, windows and shifts in intervals."""

    interval_seconds: float
    window: int
    shift: int
    confirm: int

    @property
    def window_seconds(self) -> int:
        """The length of a window."""
        return round(self.interval_seconds * self.window)

    @property
    def shift_seconds(self) -> int:
        """From window to window."""
        return max(1, round(self.interval_seconds * self.shift))


PAPER = Windows(10.0, 6, 3, 3)


@contextmanager
def site(made: Service, windows: Windows, thresholds: Path | None, folder: Path) -> Iterator[Site]:
    """Yield Laggard at work, all peers known to it by both kinds of profiles. Raises TestbedError.

    `folder` takes configuration, logs, spools and archive.
    """
    mosquitto = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    if mosquitto is None:
        raise CannotRunError("mosquitto is not installed (package mosquitto)")
    broker, aggregator = folder / "mosquitto.conf", folder / "aggregator.toml"
    broker.write_text(MOSQUITTO)
    aggregator.write_text(_aggregator_toml(windows, thresholds, folder))
    there = Site(folder / "archive")

    def ready() -> bool:
        there.check()
        return bool(ask("/readyz"))

    def all_known() -> bool:
        there.check()
        groups = there.groups().values()
        return all(
            sum(group["live"] for group in groups if group["source"] == source) == len(made.peers)
            for source in METRICS
        )

    with ExitStack() as stack:

        def start(name: str, command: list[str]) -> None:
            log = folder / f"{name}.log"
            there.add(stack.enter_context(process(command, log)), log)

        start("mosquitto", leashed([mosquitto, "-c", str(broker)]))
        start("aggregator", leashed(python("laggard_aggregator.cli.daemon", "--config", str(aggregator))))
        until("the aggregator", ready, READY_SECONDS)
        for peer in made.peers:
            config = folder / f"{peer.name}.toml"
            config.write_text(_agent_toml(peer, windows, folder))
            start(peer.name, peer.agent(*python("laggard_agent", "--config", str(config))))
        until("the functions of all peers", all_known, READY_SECONDS + 2 * windows.window_seconds)
        yield there


def train(archive: Path, thresholds: Path) -> None:
    """Write the thresholds that an archive without faults gives. Raises TestbedError."""
    laggard = python("laggard_aggregator.cli.main", "train", str(archive))
    run(*laggard, "--detector", "manhattan", "-o", str(thresholds))


def diagnose(archive: Path) -> list[Mapping[str, Any]]:
    """Return what `laggard diagnose` says of an archive: a record for each component that had an alarm."""
    said = run(*python("laggard_aggregator.cli.main", "diagnose", str(archive), "--format", "json"))
    records = [json.loads(line) for line in said.splitlines()]
    return [each for each in records if each["record"] == "component" and each["first_alarm"] is not None]


def _agent_toml(peer: Peer, windows: Windows, folder: Path) -> str:
    return f"""\
site = "{SITE}"
node = "{peer.name}"
role = "storage"
batch_samples = 2
collectors = ["diskstats", "fnprofile", "fntrace"]

[mqtt]
host = "{BRIDGE_ADDRESS}"
port = {MQTT_PORT}

[spool]
directory = {json.dumps(str(folder / f"{peer.name}.spool"))}

[diskstats]
include = ["{peer.lun.sampled}"]

[fnprofile]
vector_seconds = {windows.interval_seconds}
cgroup = {json.dumps(str(peer.profiled))}

[fntrace]
directory = {json.dumps(str(peer.tables))}
"""


def _aggregator_toml(windows: Windows, thresholds: Path | None, folder: Path) -> str:
    """Return the aggregator's configuration; with the paper's windows, which are the default, no group."""
    trained = json.dumps(str(thresholds or ""))
    if windows == PAPER:
        default, groups = f"function_thresholds = {trained}", ""
    else:
        default, groups = "", "\n".join(_group_toml(source, windows, trained) for source in METRICS)
    return f"""\
site = "{SITE}"

[mqtt]
host = "{BRIDGE_ADDRESS}"
port = {MQTT_PORT}

[http]
listen = "127.0.0.1:{HTTP_PORT}"

[detect]
interval_seconds = 1.0
window_samples = {windows.window_seconds}
shift_samples = {windows.shift_seconds}
confirm = {windows.confirm}
{default}

[archive]
directory = {json.dumps(str(folder / "archive"))}

[state]
directory = {json.dumps(str(folder / "state"))}

{groups}"""


def _group_toml(source: str, windows: Windows, thresholds: str) -> str:
    return f"""\
[[group]]
name = "storage/{source}"
source = "{source}"
role = "storage"
metrics = {json.dumps(METRICS[source])}
interval_seconds = {windows.interval_seconds}
window_samples = {windows.window}
shift_samples = {windows.shift}
thresholds = {thresholds}
"""
