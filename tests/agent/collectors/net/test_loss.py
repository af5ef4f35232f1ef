"""Real TCP connections that lose packets, between two network namespaces: towards whom is sent again."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.processes import run_command, started

pytestmark = pytest.mark.root

CLIENT, SERVERS = "10.77.0.1", ("10.77.0.2", "10.77.0.3")
LOSS_PERCENT = 5
SENT_BYTES = 4_000_000

SINK = """
import socket, sys
size, *addresses = sys.argv[1:]
servers = [socket.create_server((address, 7000)) for address in addresses]
print("ready", flush=True)
connections = [server.accept()[0] for server in servers]
for connection in connections:
    left = int(size)
    while left:
        left -= len(connection.recv(1 << 20))
    connection.sendall(b"all")
sys.stdin.read()
"""
# One connection to each server; samples before, when all has arrived, and when they are closed.
SOURCE = """
import json, socket, sys
from pathlib import Path
from laggard_agent.collectors.interface import Context, Roots
from laggard_agent.collectors.net.collector import Net, NetSettings
from laggard_common.clock import SystemClock

size, *servers = sys.argv[1:]
clock = SystemClock()
net = Net(NetSettings((), (), ("10.77.0.0/16",), 10), Context(Roots(), clock.wall_ns, clock.monotonic_ns))

def sample():
    return {
        reading.source: {
            component.id: dict(zip((field.name for field in reading.fields), row, strict=True))
            for component, row in zip(reading.components, reading.rows, strict=True)
        }
        for reading in net.read()
    }

samples = [sample()]
connections = [socket.create_connection((server, 7000)) for server in servers]
for connection in connections:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)  # no more under way than queues take
    connection.sendall(bytes(int(size)))
    assert connection.recv(3, socket.MSG_WAITALL) == b"all"
samples.append(sample())
for connection in connections:
    connection.close()
samples.append(sample())
print(json.dumps(samples))
"""


def run(*command: str) -> None:
    done = run_command(command, check=False)
    if done.returncode:
        pytest.skip(f"{' '.join(command)}: {done.stderr.strip()}")


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str]]:
    """A client's and the servers' namespace, joined by a pair of veth; the first server loses packets."""
    for tool in ("ip", "nft"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    if os.geteuid() != 0:
        pytest.skip("needs root for network namespaces")
    near, far = (f"laggard-{os.getpid()}-{side}" for side in ("client", "server"))
    with ExitStack() as ended:
        for name in (near, far):
            run("ip", "netns", "add", name)
            ended.callback(run_command, ["ip", "netns", "del", name], check=False)
        run("ip", "-n", near, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", far)
        for name, addresses in ((near, (CLIENT,)), (far, SERVERS)):
            for address in addresses:
                run("ip", "-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            # One segment a packet, so that packets enough are there to lose some of.
            run("ip", "-n", name, "link", "set", "eth0", "up", "gso_max_segs", "1")
        inside = ("ip", "netns", "exec", far, "nft")
        run(*inside, "add", "table", "ip", "lossy")
        run(*inside, "add chain ip lossy input { type filter hook input priority 0 ; }")
        rule = f"add rule ip lossy input ip daddr {SERVERS[0]} numgen random mod 100 < {LOSS_PERCENT} drop"
        run(*inside, rule)
        yield near, far


def test_retransmits_are_counted_towards_the_server_that_loses(namespaces: tuple[str, str]) -> None:
    near, far = namespaces
    inside = ["ip", "netns", "exec"]
    command = [*inside, far, sys.executable, "-c", SINK, str(SENT_BYTES), *SERVERS]
    with started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sink:
        assert sink.stdout is not None
        assert sink.stdout.readline() == "ready\n"
        source = run_command(
            [*inside, near, sys.executable, "-c", SOURCE, str(SENT_BYTES), *SERVERS],
            cwd=Path(__file__).parents[4],
        )
    before, after, closed = json.loads(source.stdout)
    assert "tcp_destination" not in before
    lossy, sound = (after["tcp_destination"][server] for server in SERVERS)
    share, usual = (each["total_retrans"] / each["data_segs_out"] for each in (lossy, sound))
    assert LOSS_PERCENT / 5 < share * 100 < LOSS_PERCENT * 6  # what only came late is sent again, too
    assert lossy["bytes_retrans"] > 0
    assert lossy["bytes_sent"] == lossy["bytes_retrans"] + SENT_BYTES
    assert usual < share / 3
    assert sound["bytes_sent"] == sound["bytes_retrans"] + SENT_BYTES
    # The whole node's count is the sum, as these are all its connections.
    retransmitted = after["tcp"]["tcp"]["RetransSegs"] - before["tcp"]["tcp"]["RetransSegs"]
    assert retransmitted == lossy["total_retrans"] + sound["total_retrans"]
    assert after["inet_diag"]["inet_diag"]["available"] == 1
    assert closed["tcp_destination"][SERVERS[0]]["total_retrans"] >= lossy["total_retrans"]
