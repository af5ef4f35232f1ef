"""Conditions that operators reported, with the real processes: disks that share or exchange identifiers or
are made again, a mail server that wants a full name, a node in maintenance, a header with weights.
"""

import asyncio
import http.client
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import aiomqtt
import pytest

from laggard_common import wire
from laggard_common.wire.schema import Schema
from tests import naive_wire
from tests.naive_coalesce import apart
from tests.support.builders.trees import disk_line, tree
from tests.support.loop_thread import beside
from tests.support.ports import free_port, is_listening
from tests.support.processes import run_command, started
from tests.support.smtp import Box, served
from tests.support.wait import LIMIT_SECONDS, time_limit, wait_until

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"
MOSQUITTO = shutil.which("mosquitto", path=_PATH)

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(MOSQUITTO is None, reason="needs mosquitto")]

Reads = tuple[int, bool]
"""Reads since the boot, and whether another device came under the ID."""


class Node:
    """A node whose disks a test makes, and the samples of an agent on it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.samples: dict[str, list[Reads]] = defaultdict(list)
        self._schemas: dict[tuple[bytes, int], Schema] = {}
        (folder / "agent.toml").write_text(
            'node = "oss-1"\ninterval_seconds = 0.1\nbatch_samples = 2\ncollectors = ["diskstats"]\n'
            f'[mqtt]\nport = {self.port}\n[spool]\ndirectory = "{folder}/spool"\n'
        )
        (folder / "mosquitto.conf").write_text(f"listener {self.port} 127.0.0.1\nallow_anonymous true\n")

    def disks(self, files: dict[str, str], **reads: int) -> None:
        """Puts other devices in /sys/block, then other counters in /proc/diskstats, each at one moment."""
        new, block = self.folder / "new", self.folder / "sys" / "block"
        tree(new, {"x": "", **files})
        block.parent.mkdir(exist_ok=True)
        if block.exists():
            block.rename(self.folder / f"old{time.monotonic_ns()}")
        new.rename(block)
        lines = "".join(disk_line(name.replace("_", "-"), *[n] * 11) for name, n in reads.items())
        written = tree(self.folder, {"proc/new": lines}) / "proc/new"
        written.rename(written.with_name("diskstats"))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Takes samples until a condition on them holds."""
        async with time_limit(), aiomqtt.Client("127.0.0.1", self.port, timeout=LIMIT_SECONDS) as client:
            await client.subscribe("laggard/1/site/#", qos=1)
            async for message in client.messages:
                payload, topic = message.payload, str(message.topic)
                assert isinstance(payload, bytes)
                if topic.endswith("/schema/diskstats"):
                    schema = wire.decode_schema(payload)
                    self._schemas[schema.stream, schema.epoch] = schema
                elif topic.endswith("/data/diskstats"):
                    for batch in apart(wire.decode_envelope(payload)):
                        self._take(batch)
                if condition():
                    return

    def _take(self, batch: wire.Envelope) -> None:
        schema = self._schemas.get((batch.stream, batch.schema_epoch))
        if schema is None:
            return
        names = [field.name for field in schema.fields]
        started = names.index("start_time") if "start_time" in names else None
        decoded = naive_wire.decode(batch)
        for tick in decoded.values:
            for index, row in zip(decoded.indexes, tick, strict=True):
                reads = row[names.index("rd_ios")]
                if reads is not None:
                    is_other = started is not None and row[started] is not None
                    self.samples[schema.components[index].id].append((reads, is_other))

    def look(self, *steps: tuple[dict[str, str], dict[str, int]]) -> dict[str, list[Reads]]:
        """The different samples by ID, in order, over several states of the node."""
        command = [sys.executable, "-m", "laggard_agent.cli", "--config", str(self.folder / "agent.toml")]
        command += ["--procfs", str(self.folder / "proc"), "--sysfs", str(self.folder / "sys")]
        files, reads = steps[0]
        self.disks(files, **reads)
        broker = [str(MOSQUITTO), "-c", self.folder / "mosquitto.conf"]
        with started(broker, stderr=subprocess.DEVNULL), (self.folder / "agent.log").open("w") as log:
            wait_until(lambda: is_listening(self.port), "mosquitto")
            with started(command, stderr=log):
                for files, reads in steps:
                    self.disks(files, **reads)
                    highest = max(reads.values())
                    seen = lambda most=highest: any(  # noqa: E731
                        [n for n, _ in some].count(most) >= 4 for some in self.samples.values()
                    )
                    asyncio.run(self.until(seen))
        return {id_: list(dict.fromkeys(some)) for id_, some in self.samples.items()}


def wwids(**ids: str) -> dict[str, str]:
    return {f"{name}/device/wwid": wwid for name, wwid in ids.items()}


def test_of_two_disks_with_one_identifier_the_one_that_stays_keeps_its_own(tmp_path: Path) -> None:
    both = wwids(sda="naa.5000c500a1b2c3d4", sdb="naa.5000c500a1b2c3d4")
    found = Node(tmp_path).look(
        (both, {"sda": 100, "sdb": 9_000_000}),
        (wwids(sdb="naa.5000c500a1b2c3d4"), {"sdb": 9_000_010}),
    )
    assert found == {
        "naa.5000c500a1b2c3d4@sda": [(100, False)],
        "naa.5000c500a1b2c3d4@sdb": [(9_000_000, False), (9_000_010, False)],
    }


def test_disks_that_exchange_their_names_keep_their_counters(tmp_path: Path) -> None:
    found = Node(tmp_path).look(
        (wwids(sda="naa.a1", sdb="naa.b2", sdc="naa.c3"), {"sda": 100, "sdb": 9_000_000, "sdc": 7}),
        (wwids(sda="naa.b2", sdb="naa.a1", sdc="naa.c3"), {"sda": 9_000_010, "sdb": 101, "sdc": 8}),
    )
    counts = {id_: [reads for reads, _ in some] for id_, some in found.items()}
    assert counts == {"naa.a1": [100, 101], "naa.b2": [9_000_000, 9_000_010], "naa.c3": [7, 8]}


@pytest.mark.parametrize("uuid", ["LVM-Zb3kQ0000000000000000000000000a1", "mpath-3600a0b800012345"])
def test_a_device_that_is_made_again_does_not_go_on_where_the_one_before_was(
    tmp_path: Path, uuid: str
) -> None:
    disk = wwids(sda="naa.a1")
    found = Node(tmp_path).look(
        ({**disk, "dm-0/dm/uuid": uuid}, {"sda": 50, "dm_0": 100}),
        (disk, {"sda": 5_000}),
        ({**disk, "dm-1/dm/uuid": uuid}, {"sda": 5_001, "dm_1": 900_000}),
    )
    assert found[uuid] == [(100, False), (900_000, True)]
    assert [reads for reads, _ in found["naa.a1"]] == [50, 5_000, 5_001]


# -- the aggregator


class FullNames(Box):
    """A mail server that refuses recipients of a client without a full name, as Postfix does."""

    async def handle_RCPT(self, server, session, envelope, address, options):  # type: ignore[no-untyped-def]
        if "." not in session.host_name or session.host_name.startswith("localhost"):
            return "504 5.5.2 <localhost>: Helo command rejected: need fully-qualified hostname"
        return await super().handle_RCPT(server, session, envelope, address, options)


@pytest.mark.skipif(
    os.geteuid() != 0 or any(shutil.which(name, path=_PATH) is None for name in ("unshare", "hostname")),
    reason="needs root, unshare and hostname",
)
@pytest.mark.parametrize("host", ["localhost", "mgmt1"])
def test_a_mail_server_that_wants_a_full_name(tmp_path: Path, host: str) -> None:
    box, port = FullNames(), free_port()
    config = tmp_path / "aggregator.toml"
    config.write_text(
        f'[mail]\nserver = "127.0.0.1"\nport = {port}\n'
        'sender = "laggard@storage.example.org"\nrecipients = ["ops@example.org"]\n'
    )
    command = ["unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', host]
    command += [sys.executable, "-m", "laggard_aggregator.cli.daemon", "--config", str(config), "--test-mail"]

    async def serve(stop: asyncio.Event) -> None:
        async with served(box, port=port):
            await stop.wait()

    with beside(serve):
        wait_until(lambda: is_listening(port), "the mail server")
        sent = run_command(command, check=False)
    assert (sent.returncode, len(box.mails)) == (0, 1), sent.stderr
    assert box.hello_names == ["storage.example.org"]


def test_a_drained_node_and_a_header_with_weights(tmp_path: Path) -> None:
    port, web = free_port(), free_port()
    (tmp_path / "mosquitto.conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    (tmp_path / "aggregator.toml").write_text(
        f'[mqtt]\nport = {port}\n[http]\nlisten = "127.0.0.1:{web}"\n'
        f'[state]\ndirectory = "{tmp_path}/state"\n'
    )
    tree(tmp_path, {"proc/diskstats": disk_line("sda", *range(17))})
    (tmp_path / "agent.toml").write_text(
        'node = "oss-5"\ninterval_seconds = 0.1\nbatch_samples = 2\ncollectors = ["diskstats"]\n'
        f'[mqtt]\nport = {port}\n[spool]\ndirectory = "{tmp_path}/spool"\n'
    )
    python = [sys.executable, "-m"]
    daemon = [*python, "laggard_aggregator.cli.daemon", "--config", str(tmp_path / "aggregator.toml")]
    agent = [*python, "laggard_agent.cli", "--config", str(tmp_path / "agent.toml")]

    def has(line: str) -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{web}/metrics", timeout=LIMIT_SECONDS) as answer:
            return line in answer.read().decode().splitlines()

    broker = [str(MOSQUITTO), "-c", tmp_path / "mosquitto.conf"]
    with (
        started(broker, stderr=subprocess.DEVNULL),
        started(daemon, stderr=subprocess.DEVNULL),
    ):
        wait_until(lambda: is_listening(web), "the aggregator")
        command = [*agent, "--procfs", str(tmp_path / "proc")]
        with started(command, stderr=subprocess.DEVNULL):
            wait_until(lambda: has('laggard_nodes{role="storage",state="up"} 1.0'), "the node")
            drain = [*python, "laggard_aggregator.cli.main", "drain", "oss-5"]
            run_command([*drain, "--state", str(tmp_path / "state"), "--comment", "controller swap"])
        wait_until(lambda: has('laggard_nodes{role="storage",state="drained"} 1.0'), "its end")
        assert has('laggard_node_drained{node="oss-5",role="storage"} 1.0')
        encodings = {}
        for weights in ("gzip;q=0", "gzip", "gzip;q=0, *", "identity, *;q=0"):
            link = http.client.HTTPConnection("127.0.0.1", web, timeout=LIMIT_SECONDS)
            link.request("GET", "/metrics", headers={"Accept-Encoding": weights})
            encodings[weights] = link.getresponse().getheader("Content-Encoding")
            link.close()
    assert encodings == {
        "gzip;q=0": None,
        "gzip": "gzip",
        "gzip;q=0, *": None,
        "identity, *;q=0": None,
    }
