"""The agent process against a real mosquitto that is killed and started again."""

import asyncio
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiomqtt
import pytest

from laggard_common import wire
from laggard_common.wire import Ack, Envelope
from laggard_common.wire.schema import Schema
from tests.naive_coalesce import apart
from tests.support.builders.trees import disk_line, tree
from tests.support.ports import free_port, is_listening
from tests.support.processes import started
from tests.support.wait import LIMIT_SECONDS, async_wait_until, time_limit

ASK_SECONDS = 0.5
"""Between two batches that are asked for by hand."""

MOSQUITTO = shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(MOSQUITTO is None, reason="needs mosquitto"),
]


@asynccontextmanager
async def mosquitto(folder: Path, port: int, more: str = "") -> AsyncIterator[None]:
    """A broker that listens on loopback, with `more` in its configuration; killed at the end."""
    config = folder / "mosquitto.conf"
    config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n{more}")
    with started([str(MOSQUITTO), "-c", config], stderr=subprocess.DEVNULL):
        await async_wait_until(lambda: is_listening(port), "mosquitto to listen")
        yield


class Aggregator:
    """Takes what comes and acknowledges it, as far as the test lets it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.data: list[Envelope] = []
        self.schemas: list[Schema] = []
        self.states: list[str] = []

    def has_all(self, count: int) -> bool:
        """At least so many batches, and none missing between the first of the stream and the latest."""
        seqs = {e.seq for e in self.data}
        return len(seqs) >= count and seqs == set(range(len(seqs)))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Connects, and returns once `condition` holds after a message."""
        async with time_limit(), aiomqtt.Client("127.0.0.1", self.port, timeout=LIMIT_SECONDS) as client:
            await client.subscribe("laggard/1/site/#", qos=1)
            async for message in client.messages:
                await self._take(client, message)
                if condition():
                    return

    async def _take(self, client: aiomqtt.Client, message: aiomqtt.Message) -> None:
        payload = message.payload
        assert isinstance(payload, bytes)
        channel = str(message.topic).split("/")[5:6]
        if channel == ["schema"]:
            self.schemas.append(wire.decode_schema(payload))
        elif channel == ["status"]:
            self.states.append(str(wire.decode_state(wire.decode_envelope(payload).payload)["state"]))
        elif channel == ["data"]:
            batches = apart(wire.decode_envelope(payload))
            self.data += batches
            ack = Ack(batches[0].stream, batches[0].source, ((batches[0].seq, batches[-1].seq),))
            await client.publish("laggard/1/site/ack/oss-1", wire.encode_ack([ack]), qos=1)


async def _killed_and_started_again(folder: Path) -> None:
    port = free_port()
    aggregator = Aggregator(port)
    tree(folder, {"proc/diskstats": disk_line("sda", *range(17))})
    (folder / "agent.toml").write_text(
        'node = "oss-1"\ninterval_seconds = 0.05\nbatch_samples = 4\ncollectors = ["diskstats"]\n'
        f'[mqtt]\nport = {port}\n[spool]\ndirectory = "{folder}/spool"\n'
    )
    command = [sys.executable, "-m", "laggard_agent.cli", "--config", str(folder / "agent.toml")]
    command += ["--procfs", str(folder / "proc")]
    with started(command, stderr=subprocess.PIPE, text=True) as agent:
        async with mosquitto(folder, port):
            await aggregator.until(lambda: len(aggregator.data) >= 5)
        async with mosquitto(folder, port):
            await aggregator.until(lambda: aggregator.has_all(20))
            aggregator.states.clear()
            agent.send_signal(signal.SIGTERM)
            _, log = agent.communicate(timeout=LIMIT_SECONDS)
            await aggregator.until(lambda: bool(aggregator.states))
    assert agent.returncode == 0
    assert aggregator.states[-1] == "stopped"
    assert {e.stream for e in aggregator.data} == {aggregator.schemas[0].stream}
    times = [e.t0_ns + i * e.dt_ns for e in {e.seq: e for e in aggregator.data}.values() for i in range(e.n)]
    assert len(times) == len(set(times))
    assert all(time % 50_000_000 == 0 for time in times)
    assert [line.split()[2] for line in log.splitlines()].count("WARNING") <= 2


def test_a_broker_that_is_killed_costs_nothing(tmp_path: Path) -> None:
    asyncio.run(_killed_and_started_again(tmp_path))


async def _without_retained_messages(folder: Path) -> None:
    port = free_port()
    tree(folder, {"proc/diskstats": disk_line("sda", *range(17))})
    (folder / "agent.toml").write_text(
        'node = "oss-1"\ninterval_seconds = 0.05\nbatch_samples = 4\ncollectors = ["diskstats"]\n'
        f'[mqtt]\nport = {port}\nretain = false\n[spool]\ndirectory = "{folder}/spool"\n'
    )
    command = [sys.executable, "-m", "laggard_agent.cli", "--config", str(folder / "agent.toml")]
    command += ["--procfs", str(folder / "proc")]
    aggregator = Aggregator(port)
    async with mosquitto(folder, port, "retain_available false\n"):
        with started(command, stderr=subprocess.DEVNULL):
            await aggregator.until(lambda: aggregator.has_all(3))
            aggregator.schemas.clear()
            async with time_limit(), aiomqtt.Client("127.0.0.1", port, timeout=LIMIT_SECONDS) as client:
                await client.subscribe("laggard/1/site/+/+/schema/+", qos=1)
                of = aggregator.data[0]
                ask = wire.encode_ack([Ack(of.stream, of.source, ())])
                schema = asyncio.ensure_future(anext(aiter(client.messages)))
                while not schema.done():  # an aggregator without the schema asks with every batch
                    await client.publish("laggard/1/site/ack/oss-1", ask, qos=1)
                    await asyncio.wait({schema}, timeout=ASK_SECONDS)
                payload = schema.result().payload
            assert isinstance(payload, bytes)
            assert wire.decode_schema(payload).stream == of.stream
        with pytest.raises(aiomqtt.MqttError):
            await _store("laggard/1/site/storage/evil/schema/a", port)


async def _store(topic: str, port: int) -> None:
    """Publishes a retained message."""
    async with aiomqtt.Client("127.0.0.1", port, timeout=LIMIT_SECONDS) as client:
        await client.publish(topic, bytes(1000), qos=1, retain=True)


def test_an_agent_works_with_a_broker_that_refuses_retained_messages(tmp_path: Path) -> None:
    asyncio.run(_without_retained_messages(tmp_path))
