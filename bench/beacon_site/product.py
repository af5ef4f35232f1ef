"""The product as a site runs it: mosquitto, the daemon in the site's time, `laggard jobs import`, the API."""

import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiomqtt
import pyarrow.parquet as pq

from bench.beacon_site.messages import SECOND_NS, SITE, Message
from bench.beacon_site.past_daemon import passes_file, set_time
from bench.beacon_site.shape import START_SECONDS
from bench.chaos.processes import Process
from laggard_aggregator.demo.site import free_port

PATIENCE_SECONDS = 1800.0
_AGAIN_SECONDS = 60.0
_POLL_SECONDS = 0.02
_AT_ONCE = 500
_LOOKS = 200
_LOOK_SECONDS = 900
_STILL = 4
"""Looks at which nothing has changed, after which the verdicts are complete."""
_CONFIG = """\
site = "{site}"
[mqtt]
port = {mqtt}
[http]
listen = "127.0.0.1:{http}"
[archive]
directory = "{folder}/archive"
[state]
directory = "{folder}/state"
[jobs]
forwarders = "{folder}/forwarders.csv"
[identity]
anyone_reads = true
"""
_BROKER = """\
listener {mqtt} 127.0.0.1
allow_anonymous true
max_inflight_messages 5000
max_queued_messages 1000000
"""


class ProductError(RuntimeError):
    """The product did not do what the driver waits for."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages up to a second of the site, and how many samples and documents have been made until then."""

    second: int
    statuses: Sequence[Message]
    counters: Sequence[Message]
    traces: Sequence[Message]
    samples: int
    documents: int


@dataclass(slots=True)
class Product:
    """Broker and daemon with their files in `folder`."""

    folder: Path
    clock: Path
    http: int
    client: aiomqtt.Client
    daemon: Process

    @property
    def archive(self) -> Path:
        """The daemon's archive."""
        return self.folder / "archive"

    def set_time(self, time_ns: int) -> None:
        """Moves the daemon's clocks."""
        set_time(self.clock, time_ns)

    async def passed(self) -> None:
        """Waits until a pass over the archive has ended that began after this call."""
        ended, deadline = passes_file(self.clock), time.monotonic() + PATIENCE_SECONDS
        least = (ended.stat().st_size if ended.exists() else 0) + 2
        while not ended.exists() or ended.stat().st_size < least:
            if time.monotonic() > deadline or not self.daemon.runs:
                raise ProductError(f"no pass over the archive ends: see {self.daemon.log}")
            await asyncio.sleep(_POLL_SECONDS)

    async def publish(self, messages: Iterable[Message]) -> None:
        """Publishes at QoS 1, many at once."""
        waiting: list[Message] = []
        for message in messages:
            waiting.append(message)
            if len(waiting) == _AT_ONCE:
                await self._publish(waiting)
                waiting = []
        await self._publish(waiting)

    async def deliver(self, messages: Sequence[Message], metric: str, least: float) -> None:
        """Publishes until a metric has reached a value: again after a minute, as agents do.

        The daemon accepts no more documents than it has room for until the archive has written some.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline and self.daemon.runs:
            await self.publish(messages)
            again = time.monotonic() + _AGAIN_SECONDS
            while time.monotonic() < again:
                if await asyncio.to_thread(self.metric, metric) >= least:
                    return
                await asyncio.sleep(_POLL_SECONDS)
        raise ProductError(f"{metric} does not reach {least:.0f}: see {self.daemon.log}")

    async def feed(self, batches: Iterator[Batch]) -> None:
        """Sends all batches, each when the daemon's clock shows its end.

        The next batch is made while the daemon works on one.
        """
        ready = await asyncio.to_thread(next, batches, None)
        while ready is not None:
            batch, upcoming = ready, asyncio.create_task(asyncio.to_thread(next, batches, None))
            self.set_time((START_SECONDS + batch.second) * SECOND_NS + SECOND_NS // 100)
            await self.publish(batch.statuses)
            await self.deliver(batch.counters, "laggard_samples_total", batch.samples)
            if batch.documents:
                await self.deliver(batch.traces, "laggard_documents_total", batch.documents)
            ready = await upcoming

    async def _publish(self, messages: Sequence[Message]) -> None:
        await asyncio.gather(
            *(self.client.publish(topic, body, qos=1, retain="/schema/" in topic) for topic, body in messages)
        )

    def metric(self, name: str) -> float:
        """The value of a metric without labels."""
        for line in self.get("/metrics").decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
        return 0.0

    def get(self, path: str) -> bytes:
        """The answer to a GET."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=60) as answer:
            return bytes(answer.read())

    def json(self, path: str) -> Any:
        """The answer to a GET, None where there is no such thing or not yet."""
        try:
            answer = self.get(path)
            return json.loads(answer) if answer.startswith((b"{", b"[")) else answer.decode()
        except urllib.error.HTTPError as exc:
            if exc.code in (404, 503):
                return None
            raise

    def archived(self) -> int:
        """Rows of counters and events in the archive's files."""
        rows = 0
        for kind in ("counters", "events"):
            for file in self.archive.glob(f"kind={kind}/**/[!.]*.parquet"):
                with contextlib.suppress(FileNotFoundError):  # merged meanwhile
                    rows += pq.read_metadata(file).num_rows
        return rows

    def judged(self) -> set[str]:
        """Keys of the jobs with a stored verdict; without one a job is judged for the answer alone."""
        keys: set[str] = set()
        for file in self.archive.glob("kind=job_findings/**/[!.]*.parquet"):
            with contextlib.suppress(FileNotFoundError):  # merged meanwhile
                keys |= set(pq.read_table(file, columns=["job_key"])["job_key"].to_pylist())
        return keys

    def command(self, *arguments: str) -> str:
        """What `laggard` prints."""
        program = Path(sys.executable).with_name("laggard")
        ended = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            raise ProductError(f"laggard {' '.join(arguments)}: {ended.stderr.strip()}")
        return ended.stdout


@contextlib.asynccontextmanager
async def product(folder: Path, time_ns: int) -> AsyncIterator[Product]:
    """A broker and a daemon whose clocks show `time_ns`, while the block lasts."""
    broker = shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    if broker is None:
        raise ProductError("mosquitto is not installed")
    mqtt, http = free_port(), free_port()
    clock = folder / "clock"
    set_time(clock, time_ns)
    (folder / "mosquitto.conf").write_text(_BROKER.format(mqtt=mqtt))
    config = folder / "aggregator.toml"
    config.write_text(_CONFIG.format(site=SITE, mqtt=mqtt, http=http, folder=folder))
    processes = [
        Process("broker", (broker, "-c", str(folder / "mosquitto.conf")), folder / "broker.log"),
        Process(
            "daemon",
            (sys.executable, "-m", "bench.beacon_site.past_daemon", str(clock), str(config)),
            folder / "daemon.log",
        ),
    ]
    try:
        processes[0].start()
        await _until_answered(mqtt, processes[0])
        processes[1].start()
        await _until_answered(http, processes[1])
        async with aiomqtt.Client("127.0.0.1", mqtt, identifier="agents", timeout=60) as client:
            client.pending_calls_threshold = 10 * _AT_ONCE
            site = Product(folder, clock, http, client, processes[1])
            await _until_ready(site)
            yield site
    finally:
        for process in reversed(processes):
            process.stop()


async def _until_answered(port: int, process: Process) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        if time.monotonic() > deadline or not process.runs:
            raise ProductError(f"{process.name} does not start: see {process.log}")
        await asyncio.sleep(_POLL_SECONDS)


async def _until_ready(site: Product) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while await asyncio.to_thread(site.json, "/readyz") is None:
        if time.monotonic() > deadline or not site.daemon.runs:
            raise ProductError(f"the daemon is not ready: see {site.daemon.log}")
        await asyncio.sleep(_POLL_SECONDS)


async def all_archived(site: Product, second: int, rows: int) -> int:
    """The site's second at which the archive's files have all rows."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (written := await asyncio.to_thread(site.archived)) < rows:
        if time.monotonic() > deadline:
            raise ProductError(f"the archive has {written:,} of {rows:,} rows")
        second += 20
        site.set_time((START_SECONDS + second) * SECOND_NS)
        await asyncio.sleep(2.0)
    return second


async def last_answers(site: Product, second: int, jobs: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    """The answer about each job, once no stored verdict changes any more while the site's time goes on."""
    now = START_SECONDS + second
    before: dict[str, Any] = {}
    still = 0
    for _ in range(_LOOKS):
        now += _LOOK_SECONDS
        site.set_time(now * SECOND_NS)
        await site.passed()
        stored: dict[str, Any] = {}
        listed = await asyncio.to_thread(site.json, "/api/v1/jobs?limit=1000")
        while listed is not None:
            stored |= {job["job"]: (job["verdict"], job["findings"]) for job in listed["jobs"]}
            if listed["next"] is None:
                break
            listed = await asyncio.to_thread(site.json, f"/api/v1/jobs?limit=1000&cursor={listed['next']}")
        complete = len(stored) == len(jobs) == len(await asyncio.to_thread(site.judged))
        waiting = await asyncio.to_thread(site.metric, "laggard_waiting_jobs")
        still = still + 1 if complete and not waiting and stored == before else 0
        before = stored
        if still == _STILL:
            break
    else:
        print(f"# verdicts of {len(before)} of {len(jobs)} jobs still change", file=sys.stderr)
    found = {}
    for job in jobs:
        answer = await asyncio.to_thread(site.json, f"/api/v1/jobs/{job}")
        if answer is not None:
            found[job] = answer["jobs"][0]
    return found
