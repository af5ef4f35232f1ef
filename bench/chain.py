"""From fault to notification, timed: `python -m bench.chain`.

The recorded fault of the demo is replayed to one agent process a LUN; an aggregator, a real Prometheus and a
real Alertmanager work on what they send, with the rules and routes of `deploy/` and their scrape and waiting
times; an SMTP server takes the mail. Only addresses are exchanged. Needs Debian's prometheus and
prometheus-alertmanager.
"""

import argparse
import asyncio
import email
import json
import re
import shutil
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from statistics import median
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from bench.machine import machine
from laggard_aggregator.demo.children import Children
from laggard_aggregator.demo.recording import SPEEDS, Recording, read_recording
from laggard_aggregator.demo.replay import Replay
from laggard_aggregator.demo.site import SHIFT_SAMPLES, Site, free_port, make_site
from laggard_common.clock import SystemClock
from tests.support.loop_thread import beside

DEPLOY = Path(__file__).parents[1] / "deploy"
POLL_SECONDS = 0.2
PATIENCE_SECONDS = 1200.0
AGGREGATOR = """\
site = "demo"
[mqtt]
embedded = true
port = {mqtt}
[http]
listen = "127.0.0.1:{http}"
nodes = {listed}
[detect]
interval_seconds = {interval}
[[group]]
name = "luns"
role = "storage"
components = "oss-[0-9]+/.*"
[archive]
directory = {archive}
[state]
directory = {state}
"""
ALERT = "LaggardStraggler"
STAGES = (
    ("aggregator", "alarm raised or cleared in the aggregator's API"),
    ("prometheus", "Prometheus has scraped it"),
    ("firing", "its alerting rule fires or resolves"),
    ("alertmanager", "Alertmanager has it"),
    ("mail", "Alertmanager's mail is at the SMTP server"),
)


@dataclass
class Run:
    """Epoch seconds of one run: `begun` and `ended` the fault, `on` and `off` when each stage saw that."""

    begun: float
    ended: float
    on: dict[str, float] = field(default_factory=dict)
    off: dict[str, float] = field(default_factory=dict)


class Mailbox:
    """Takes mail, and remembers when each came."""

    def __init__(self) -> None:
        self.came: list[tuple[float, Message]] = []

    async def handle_DATA(self, _: SMTP, __: Session, envelope: Envelope) -> str:  # noqa: N802
        """The name is that of aiosmtpd's hook."""
        content = envelope.content
        self.came.append(
            (time.time(), email.message_from_bytes(content if isinstance(content, bytes) else b""))
        )
        return "250 OK"

    def first(self, word: str) -> float | None:
        """When the first mail with `word` in its subject came."""
        return next((at for at, mail in self.came if word in str(mail["Subject"])), None)


@contextmanager
def mailbox() -> Iterator[tuple[Mailbox, int]]:
    """A mailbox at an SMTP server on loopback, and its port."""
    box = Mailbox()
    controller = Controller(box, hostname="127.0.0.1", port=free_port())
    controller.start()
    try:
        yield box, controller.port
    finally:
        controller.stop()


@dataclass(frozen=True)
class Ports:
    """Where Prometheus and Alertmanager listen."""

    prometheus: int
    alertmanager: int


def written(
    folder: Path, site: Site, ports: Ports, smtp: int, scrape: str = "15s", listed: Sequence[str] = ()
) -> None:
    """The configuration files of deploy/ with this run's addresses in them.

    `scrape`: how often Prometheus scrapes and looks at rules; `listed`: `[http] nodes`.
    """
    rules = DEPLOY / "prometheus" / "laggard.rules.yml"
    prometheus = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
    prometheus = prometheus.replace("mon:9464", f"127.0.0.1:{site.http_port}")
    prometheus = prometheus.replace("- laggard.rules.yml", f"- {rules}")
    prometheus = prometheus.replace("localhost:9093", f"127.0.0.1:{ports.alertmanager}")
    prometheus = prometheus.replace("_interval: 15s", f"_interval: {scrape}")
    (folder / "prometheus.yml").write_text(prometheus)
    alertmanager = (DEPLOY / "alertmanager" / "alertmanager.yml").read_text()
    alertmanager = alertmanager.replace(
        "mail.example.org:587", f"127.0.0.1:{smtp}\n  smtp_require_tls: false"
    )
    alertmanager = re.sub(r"  smtp_auth_.*\n", "", alertmanager)
    (folder / "alertmanager.yml").write_text(alertmanager)
    text = AGGREGATOR.format(
        mqtt=site.mqtt_port,
        http=site.http_port,
        interval=site.tick_seconds,
        listed=json.dumps(list(listed)),
        archive=json.dumps(str(folder / "archive")),
        state=json.dumps(str(folder / "state")),
    )
    (folder / "aggregator.toml").write_text(text)


@asynccontextmanager
async def chain(folder: Path, site: Site, ports: Ports) -> AsyncIterator[None]:
    """All processes while the block lasts, ready to see the fault."""
    prometheus, alertmanager = _program("prometheus"), _program("prometheus-alertmanager")
    python = (sys.executable, "-P", "-m")
    async with Children() as children:
        daemon = (*python, "laggard_aggregator.cli.daemon", "--config", str(folder / "aggregator.toml"))
        await children.start(daemon, folder / "aggregator.log")
        await children.start(
            (
                prometheus,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{ports.prometheus}",
            ),
            folder / "prometheus.log",
        )
        await children.start(
            (
                alertmanager,
                f"--config.file={folder / 'alertmanager.yml'}",
                f"--storage.path={folder / 'alerts'}",
                f"--web.listen-address=127.0.0.1:{ports.alertmanager}",
                "--cluster.listen-address=",
            ),
            folder / "alertmanager.log",
        )
        await until(lambda: _json(f"http://127.0.0.1:{site.http_port}/readyz"))
        await until(lambda: _json(f"http://127.0.0.1:{ports.prometheus}/api/v1/status/buildinfo"))
        await until(lambda: _json(f"http://127.0.0.1:{ports.alertmanager}/api/v2/status"))
        for node in site.nodes.values():
            config = ("--config", str(site.agent_toml(node)), "--procfs", str(site.procfs(node)))
            await children.start((*python, "laggard_agent", *config), site.log(node))
            await asyncio.sleep(0.2)
        yield


@dataclass(frozen=True)
class Played:
    """A site whose agents see the recording from now on."""

    site: Site
    ports: Ports
    replay: Replay
    box: Mailbox


@asynccontextmanager
async def played(
    recording: Recording, speed: int, scrape: str = "15s", listed: Sequence[str] = ()
) -> AsyncIterator[Played]:
    """All of it at work while the block lasts; `scrape` and `listed` as in `written`."""
    with tempfile.TemporaryDirectory(prefix="laggard-chain-") as name:
        folder = Path(name)
        site = make_site(folder, recording.luns, 1 / speed)
        site.write()
        ports = Ports(free_port(), free_port())
        replay = Replay(recording, site.roots(), speed, SystemClock(), align_ticks=SHIFT_SAMPLES)
        replay.prepare()
        async with AsyncExitStack() as stack:
            box, smtp = stack.enter_context(mailbox())
            written(folder, site, ports, smtp, scrape, listed)
            await stack.enter_async_context(chain(folder, site, ports))
            stack.enter_context(beside(replay.run))
            yield Played(site, ports, replay, box)


async def run(recording: Recording, speed: int) -> Run:
    """One fault from its beginning to the mail that says that it is over."""
    async with played(recording, speed) as on:
        return await _observed(recording, on.replay, on.site, on.ports, on.box)


async def _observed(recording: Recording, replay: Replay, site: Site, ports: Ports, box: Mailbox) -> Run:
    await until(lambda: replay.begun_ns)
    assert replay.begun_ns is not None

    def at(recorded: float) -> float:
        assert replay.begun_ns is not None
        return (replay.begun_ns + (recorded - recording.start) * replay.tick_ns) / 1e9

    seen = Run(at(recording.fault_start), at(recording.fault_end))
    asks = _asks(site, ports)
    for wanted, found, word in ((True, seen.on, "FIRING"), (False, seen.off, "RESOLVED")):
        while len(found) < len(STAGES):
            for stage, ask in asks.items():
                if stage not in found and await asyncio.to_thread(ask) is wanted:
                    found[stage] = time.time()
            came = box.first(word)
            if came is not None:
                found.setdefault("mail", came)
            if time.time() > seen.ended + PATIENCE_SECONDS:
                raise SystemExit(f"no {word.lower()} mail; seen: {', '.join(found)}")
            await asyncio.sleep(POLL_SECONDS)
    return seen


def _asks(site: Site, ports: Ports) -> dict[str, Callable[[], bool | None]]:
    """Whether the alarm is there, by stage; None while nobody answers."""
    api = f"http://127.0.0.1:{site.http_port}/api/v1/stragglers"
    alerts = f"http://127.0.0.1:{ports.alertmanager}/api/v2/alerts?active=true"

    def standing() -> bool | None:
        answer = _json(api)
        return None if answer is None else any(one["alarm"] for one in answer["stragglers"])

    def query(expression: str) -> bool | None:
        asked = urllib.parse.quote(expression)
        answer = _json(f"http://127.0.0.1:{ports.prometheus}/api/v1/query?query={asked}")
        return None if answer is None else bool(answer["data"]["result"])

    def alerted() -> bool | None:
        answer = _json(alerts)
        return None if answer is None else any(one["labels"]["alertname"] == ALERT for one in answer)

    return {
        "aggregator": standing,
        "prometheus": lambda: query("laggard_alarm_active == 1"),
        "firing": lambda: query(f'ALERTS{{alertname="{ALERT}",alertstate="firing"}}'),
        "alertmanager": alerted,
    }


def table(runs: list[Run], speed: int) -> str:
    """The stages' seconds after the fault's beginning and end: median, least and most."""
    lines = [
        "| stage | after the fault began, s | after it ended, s |",
        "|---|---|---|",
    ]
    for stage, what in STAGES:
        on = [run.on[stage] - run.begun for run in runs]
        off = [run.off[stage] - run.ended for run in runs]
        lines.append(f"| {what} | {_spread(on)} | {_spread(off)} |")
    windows = (
        f"windows of {60 / speed:g} s, a new one every {30 / speed:g} s, three of five have to be anomalous"
    )
    lines += ["", f"{len(runs)} runs; {windows}; {machine()}"]
    return "\n".join(lines)


def _spread(seconds: list[float]) -> str:
    if len(seconds) == 1:
        return f"{seconds[0]:.0f}"
    return f"{median(seconds):.0f} ({min(seconds):.0f}-{max(seconds):.0f})"


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Waits until `condition`, asked in a thread, is true; TimeoutError after `seconds`."""
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110 - of other processes
            await asyncio.sleep(POLL_SECONDS)


def _json(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise SystemExit(f"{name} is not installed")
    return found


def main(argv: list[str] | None = None) -> int:
    """Runs and prints the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.chain", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--speed", type=int, choices=SPEEDS, default=1, help="recorded seconds a second")
    args = parser.parse_args(argv)
    recording = read_recording()
    runs = [asyncio.run(run(recording, args.speed)) for _ in range(args.runs)]
    print(table(runs, args.speed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
