"""Broker and aggregator of a site under load, and what they take of the machine."""

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.hostile_clients.site import Site
from bench.scale.fleet import SHARED_USER
from bench.scale.shapes import SITE
from tests.support.shipped_brokers import DEPLOY, program

_TLS = (
    "cafile",
    "certfile",
    "keyfile",
    "crlfile",
    "tls_version",
    "require_certificate",
    "use_identity_as_username",
)


@dataclass(frozen=True, slots=True)
class Detection:
    """The aggregator's windows, in the words of its `[detect]`."""

    interval_seconds: float = 15.0
    window_samples: int = 60
    shift_samples: int = 4


class LoadedSite(Site):
    """A broker with the shipped configuration and ACL, and an aggregator with journal and snapshots.

    Without TLS clients say who they are by a user name, which is believed.
    """

    def __init__(
        self, folder: Path, detection: Detection, *, tls: bool = False, archive: bool = False
    ) -> None:
        super().__init__(folder, tls=tls)
        self._detection = detection
        self._archive = archive
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Broker and aggregator while the body runs."""
        broker = self._shipped() if self.tls else self._plain()
        toml = self.folder / "aggregator.toml"
        toml.write_text(self._aggregator())
        command = [sys.executable, "-P", "-m", "laggard_aggregator.cli.daemon", "--config", str(toml)]
        with ExitStack() as stack:
            self.processes["broker"] = stack.enter_context(self.process(broker, "broker"))
            self.processes["aggregator"] = stack.enter_context(self.process(command, "aggregator"))
            self.until("the aggregator", lambda: self.figures().get("laggard_ready") == 1)
            yield

    def log(self, name: str) -> str:
        """What a process wrote to its standard error."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _plain(self) -> list[str]:
        shutil.copy(DEPLOY / "mosquitto" / "acl", self.folder / "acl")
        with (self.folder / "acl").open("a") as acl:
            acl.write(f"\nuser {SHARED_USER}\ntopic readwrite laggard/1/#\n")
        (self.folder / "persistence").mkdir()
        lines = (DEPLOY / "mosquitto" / "mosquitto.conf").read_text().splitlines()
        text = "\n".join(line for line in lines if not line.startswith(_TLS))
        for there, here in {
            "listener 8883": f"listener {self.port} 127.0.0.1",
            "allow_anonymous false": "allow_anonymous true",
            "use_username_as_clientid true": "",
            "/etc/mosquitto/acl": f"{self.folder}/acl",
            "/var/lib/mosquitto/": f"{self.folder}/persistence/",
        }.items():
            if there not in text:
                raise SystemExit(f"bench.scale: the shipped mosquitto.conf has no {there!r}")
            text = text.replace(there, here)
        conf = self.folder / "mosquitto.conf"
        conf.write_text(f"{text}\nuser root\n")
        return [program("mosquitto"), "-c", str(conf)]

    def _aggregator(self) -> str:
        d = self._detection
        mqtt = self._mqtt("laggard-aggregator")
        if not self.tls:
            mqtt += 'username = "laggard-aggregator"\n'
        archive = f'[archive]\ndirectory = "{self.folder}/archive"\n' if self._archive else ""
        return (
            f'site = "{SITE}"\n{mqtt}[http]\nlisten = "127.0.0.1:{self.http}"\n'
            f"[detect]\ninterval_seconds = {d.interval_seconds}\nwindow_samples = {d.window_samples}\n"
            f"shift_samples = {d.shift_samples}\nlateness_seconds = 5.0\n"
            f'[state]\ndirectory = "{self.folder}/state"\n{archive}'
        )
