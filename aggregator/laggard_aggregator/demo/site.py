"""The demo's site on disk: a procfs root and agent.toml per LUN, and one aggregator.toml."""

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SITE = "demo"
LUNS = "luns"
OWN = "this-machine"

WINDOW_SAMPLES = 60
SHIFT_SAMPLES = 30
CONFIRM = 3
BATCH_SAMPLES = 5
OWN_WINDOW_SAMPLES = 10

HTTP_PORT = 9464  # where `laggard top` looks, if nobody else is there


@dataclass(frozen=True, slots=True)
class Site:
    """The site's folder and TCP ports. `nodes`: the node of each LUN; its agent sees only that LUN."""

    folder: Path
    nodes: Mapping[str, str]
    mqtt_port: int
    http_port: int
    tick_seconds: float

    @property
    def aggregator_toml(self) -> Path:
        """The aggregator's configuration."""
        return self.folder / "aggregator.toml"

    @property
    def archive(self) -> Path:
        """The archive's folder."""
        return self.folder / "archive"

    @property
    def state(self) -> Path:
        """The state's folder, for decisions such as a silence."""
        return self.folder / "state"

    def agent_toml(self, node: str) -> Path:
        """The configuration of a node's agent."""
        return self.folder / node / "agent.toml"

    def log(self, node: str) -> Path:
        """The log of a node's agent."""
        return self.folder / node / "agent.log"

    def procfs(self, node: str) -> Path:
        """The procfs root of a node's agent."""
        return self.folder / node / "proc"

    def component(self, lun: str) -> str:
        """The component name of a LUN."""
        return f"{self.nodes[lun]}/{lun}"

    def roots(self) -> dict[str, Path]:
        """The procfs root of each LUN's node."""
        return {lun: self.procfs(node) for lun, node in self.nodes.items()}

    def write(self) -> None:
        """Writes all configuration files."""
        for node in (*self.nodes.values(), OWN):
            self.agent_toml(node).parent.mkdir(parents=True, exist_ok=True)
            self.agent_toml(node).write_text(_agent_toml(self, node))
        self.aggregator_toml.write_text(_aggregator_toml(self))


def make_site(
    folder: Path, luns: tuple[str, ...], tick_seconds: float, mqtt_port: int = 0, http_port: int = 0
) -> Site:
    """Creates a site with one node per LUN: `oss-01`, `oss-02` and so on. Port 0: one that is free."""
    nodes = {lun: f"oss-{number:02d}" for number, lun in enumerate(luns, 1)}
    return Site(folder, nodes, mqtt_port or free_port(), http_port or free_port(HTTP_PORT), tick_seconds)


def free_port(wanted: int = 0) -> int:
    """A free TCP port of 127.0.0.1: `wanted` if it is free."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("no free port on 127.0.0.1")


def _agent_toml(site: Site, node: str) -> str:
    own = node == OWN
    return f"""\
site = "{SITE}"
node = {json.dumps(node)}
role = "storage"
interval_seconds = {1.0 if own else site.tick_seconds!r}
batch_samples = {BATCH_SAMPLES}
collectors = ["diskstats"]

[mqtt]
host = "127.0.0.1"
port = {site.mqtt_port}

[spool]
directory = {json.dumps(str(site.folder / node / "spool"))}

[diskstats]
{"" if own else 'include = ["loop.*"]'}
"""


def _aggregator_toml(site: Site) -> str:
    return f"""\
site = "{SITE}"

[mqtt]
host = "127.0.0.1"
port = {site.mqtt_port}
topics = ["laggard/1/{SITE}/#"]
embedded = true

[http]
listen = "127.0.0.1:{site.http_port}"

[detect]
interval_seconds = {site.tick_seconds!r}
window_samples = {WINDOW_SAMPLES}
shift_samples = {SHIFT_SAMPLES}
confirm = {CONFIRM}

[[group]]
name = "{LUNS}"
source = "diskstats"
role = "storage"
components = "oss-[0-9]+/.*"
metrics = ["await"]

[[group]]
name = "{OWN}"
source = "diskstats"
role = "storage"
components = "{OWN}/.*"
metrics = ["await"]
interval_seconds = 1.0
window_samples = {OWN_WINDOW_SAMPLES}
shift_samples = {OWN_WINDOW_SAMPLES // 2}

[archive]
directory = {json.dumps(str(site.archive))}

[state]
directory = {json.dumps(str(site.state))}

[jobs]
enabled = false

[identity]
anyone_reads = true
"""
