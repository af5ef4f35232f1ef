"""Laggard on the peers; training, and the judgement afterwards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.testbed import site as testbed
from bench.testbed.hotdep.peers import Peer, Service
from bench.testbed.luns import process, run
from bench.testbed.site import READY_SECONDS, Site, python

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


def site(
    made: Service, windows: Windows, thresholds: Path | None, folder: Path
) -> AbstractContextManager[Site]:
    """Laggard at work, once all peers are known to it by both kinds of profiles. Raises TestbedError."""
    agents = [_agent(peer, windows) for peer in made.peers]

    def all_known(there: Site) -> bool:
        return all(there.live(source) == len(made.peers) for source in METRICS)

    seconds = READY_SECONDS + 2 * windows.window_seconds
    return testbed.site(folder, _detection_toml(windows, thresholds), agents, all_known, seconds)


def train(archive: Path, thresholds: Path) -> None:
    """Write the thresholds that an archive without faults gives. Raises TestbedError."""
    laggard = python("laggard_aggregator.cli.main", "train", str(archive))
    run(*laggard, "--detector", "manhattan", "-o", str(thresholds))


def diagnose(archive: Path) -> list[Mapping[str, Any]]:
    """Return what `laggard diagnose` says of an archive: a record for each component that had an alarm."""
    said = run(*python("laggard_aggregator.cli.main", "diagnose", str(archive), "--json"))
    records = [json.loads(line) for line in said.splitlines()]
    return [each for each in records if each["record"] == "component" and each["first_alarm"] is not None]


def _agent(peer: Peer, windows: Windows) -> testbed.Agent:
    tables = f"""\
[diskstats]
include = ["{peer.lun.sampled}"]

[fnprofile]
vector_seconds = {windows.interval_seconds}
cgroup = {json.dumps(str(peer.profiled))}

[fntrace]
directory = {json.dumps(str(peer.tables))}
"""
    collectors = ["diskstats", "fnprofile", "fntrace"]
    return testbed.Agent(
        peer.name, "storage", collectors, tables, lambda command, log: process(peer.agent(*command), log)
    )


def _detection_toml(windows: Windows, thresholds: Path | None) -> str:
    """The aggregator's detection; with the paper's windows, which are the default, no group."""
    trained = json.dumps(str(thresholds or ""))
    if windows == PAPER:
        default, groups = f"function_thresholds = {trained}", ""
    else:
        default, groups = "", "\n".join(_group_toml(source, windows, trained) for source in METRICS)
    return f"""\
[detect]
interval_seconds = 1.0
window_samples = {windows.window_seconds}
shift_samples = {windows.shift_seconds}
confirm = {windows.confirm}
{default}

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
