"""The aggregator's MQTT reader beside aiomqtt: CPU time a message, and messages lost in a crash.

    python -m bench.mqtt_readers

Both readers subscribe to one mosquitto with the limits of `deploy/mosquitto`, each in a process of its own on
uvloop, and receive the same messages at QoS 1 at the same time. The cost is CPU time from the first message
to the last one, acknowledgements to the broker included. For the crash each reader holds a persistent
session, receives messages, ends without having processed them, and connects again: the broker redelivers the
messages that it has no acknowledgement for.
"""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from statistics import median

import aiomqtt
import uvloop

from bench.machine import machine
from laggard_aggregator.demo.site import free_port
from laggard_aggregator.ingest.mqtt.connection import MqttReader
from laggard_aggregator.ingest.mqtt.packets import Message
from laggard_common.mqtt.settings import MqttSettings, client_arguments
from tests.support.shipped_brokers import program

TOPIC = "laggard/1/site/storage/oss-{}/data/diskstats"
FILTER = "laggard/1/site/+/+/data/+"
NODES = 200
SECONDS = 30.0
QUIET_SECONDS = 0.5
IN_CRASH = 1000
CONFIG = """\
listener {port} 127.0.0.1
allow_anonymous true
max_inflight_messages 5000
max_queued_messages 1000000
max_queued_bytes 1073741824
set_tcp_nodelay true
"""


class OwnReader:
    """The aggregator's reader; acknowledges a message after `received`, or never."""

    def __init__(self, port: int, name: str, *, clean: bool, processes: bool) -> None:
        self.received = 0
        self._port, self._name, self._clean, self._processes = port, name, clean, processes
        self._connection = MqttReader(self._on_messages)

    async def run(self) -> None:
        arguments = client_arguments(MqttSettings(port=self._port))
        await self._connection.open(arguments, self._name, clean=self._clean, seconds=SECONDS)
        await self._connection.subscribe([FILTER], SECONDS)
        print("ready", flush=True)
        await self._connection.lost()

    def _on_messages(self, messages: list[Message]) -> None:
        self.received += len(messages)
        if self._processes:
            self._connection.acknowledge([number for _, _, number in messages])


class AiomqttReader:
    """aiomqtt as its documentation shows it; it acknowledges a message before the application sees it."""

    def __init__(self, port: int, name: str, *, clean: bool, processes: bool) -> None:  # noqa: ARG002
        self.received = 0
        self._client = aiomqtt.Client("127.0.0.1", port, identifier=name, clean_session=clean)

    async def run(self) -> None:
        async with self._client as client:
            await client.subscribe(FILTER, qos=1)
            print("ready", flush=True)
            async for _ in client.messages:
                self.received += 1


READERS: dict[str, type[OwnReader] | type[AiomqttReader]] = {
    "Laggard's reader": OwnReader,
    "aiomqtt": AiomqttReader,
}


async def cost(name: str, port: int, count: int) -> dict[str, float]:
    """Receives `count` messages; CPU seconds from the first one to the last one."""
    reader = READERS[name](port, name, clean=True, processes=True)
    running = asyncio.ensure_future(reader.run())
    cpu = start = 0.0
    while reader.received < count:
        await asyncio.sleep(0.005)
        if not reader.received:
            cpu, start = time.process_time(), time.perf_counter()
    found = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - start}
    running.cancel()
    return found


async def crash(name: str, port: int, count: int) -> dict[str, float]:
    """Messages received until the session is quiet; `count` 0 makes the session only."""
    reader = READERS[name](port, f"{name}, crash", clean=False, processes=False)
    running = asyncio.ensure_future(reader.run())
    before = -1
    while reader.received < count or before != reader.received:
        before = reader.received
        await asyncio.sleep(QUIET_SECONDS)
    running.cancel()
    return {"received": reader.received}


JOBS = {"cost": cost, "crash": crash}


class Child:
    """One reader in a process of its own."""

    def __init__(self, job: str, name: str, port: int, count: int) -> None:
        command = [sys.executable, "-m", "bench.mqtt_readers", "--job", job, name, str(port), str(count)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def result(self) -> dict[str, float]:
        """The outcome of the job; waits for the end of the process."""
        said, _ = self._process.communicate(timeout=4 * SECONDS)
        found: dict[str, float] = json.loads(said)
        return found


@contextlib.contextmanager
def broker(folder: Path) -> Iterator[int]:
    """A mosquitto; its port."""
    port = free_port()
    (folder / "mosquitto.conf").write_text(
        CONFIG.format(port=port) + ("user root\n" if os.getuid() == 0 else "")
    )
    command = [program("mosquitto"), "-c", str(folder / "mosquitto.conf")]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        yield port
    finally:
        running.terminate()
        running.wait()


@contextlib.asynccontextmanager
async def sender(port: int) -> AsyncIterator[MqttReader]:
    """A connection that publishes."""
    connection = MqttReader(lambda _: None)
    arguments = client_arguments(MqttSettings(port=port))
    await connection.open(arguments, "sender", clean=True, seconds=SECONDS)
    try:
        yield connection
    finally:
        connection.close()


async def publish(port: int, count: int, payload_bytes: int) -> None:
    """Publishes `count` messages of NODES nodes."""
    payload = os.urandom(payload_bytes)
    async with sender(port) as connection:
        await connection.publish([(TOPIC.format(i % NODES), payload) for i in range(count)], SECONDS)


def measure_cost(port: int, rounds: int, count: int, payload_bytes: int) -> list[str]:
    """Table rows: microseconds a message of each reader."""
    taken: dict[str, list[float]] = {name: [] for name in READERS}
    for _ in range(rounds):
        children = {name: Child("cost", name, port, count) for name in READERS}
        asyncio.run(publish(port, count, payload_bytes))
        for name, child in children.items():
            taken[name].append(child.result()["cpu"] / count * 1e6)
    return [
        f"| {payload_bytes:,} bytes | {name} | {min(us):.1f} / {median(us):.1f} / {max(us):.1f} |"
        for name, us in taken.items()
    ]


def measure_crash(port: int) -> list[str]:
    """Table rows: messages that a reader received, had not processed at its end, and received again."""
    lines = []
    for name in READERS:
        Child("crash", name, port, 0).result()
        first = Child("crash", name, port, IN_CRASH)
        asyncio.run(publish(port, IN_CRASH, 400))
        received = first.result()["received"]
        again = Child("crash", name, port, 0).result()["received"]
        lines.append(f"| {name} | {received:,.0f} | {again:,.0f} | {received - again:,.0f} |")
    return lines


def main() -> int:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=20_000, help="of each size, in each round")
    parser.add_argument("--job", nargs=4, metavar=("JOB", "READER", "PORT", "COUNT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job is not None:
        job, name, port, count = options.job
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(json.dumps(runner.run(JOBS[job](name, int(port), int(count)))), flush=True)
        os._exit(0)
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder)) as port:
        print("| payload | reader | CPU us a message, least / median / most |\n|---|---|---|")
        for payload_bytes in (400, 4000):
            print(*measure_cost(port, options.rounds, options.messages, payload_bytes), sep="\n", flush=True)
        print("\n| reader | received, not processed | redelivered | lost |\n|---|---|---|---|")
        print(*measure_crash(port), sep="\n")
    where = machine("aiomqtt", "paho-mqtt", "uvloop")
    print(f"\n{where}; {options.messages:,} messages, {options.rounds} rounds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
