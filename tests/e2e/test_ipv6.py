"""A site that has only IPv6: the embedded broker, an agent and HTTP on ::1."""

import socket
import sys
from pathlib import Path

import pytest

from tests.e2e.processes import get_json, running, until

PYTHON = [sys.executable, "-P", "-m"]
DISK = " 8 0 sda 1 0 8 1 0 0 0 0 0 1 1\n"

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]


def free_port() -> int:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("no IPv6 loopback here")
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("host", ["::1", "::"])
def test_samples_arrive_and_are_served_over_ipv6(tmp_path: Path, host: str) -> None:
    """`::`, every address, IPv4 too, is for HTTP alone: the embedded broker stays on loopback without TLS."""
    mqtt, http = free_port(), free_port()
    aggregator, agent = tmp_path / "aggregator.toml", tmp_path / "agent.toml"
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/diskstats").write_text(DISK)
    table = f'[mqtt]\nhost = "::1"\nport = {mqtt}\n'
    aggregator.write_text(f'{table}embedded = true\n[http]\nlisten = "[{host}]:{http}"\n')
    agent.write_text(
        'node = "oss-1"\ninterval_seconds = 0.1\ncollectors = ["diskstats"]\n'
        f'{table}[spool]\ndirectory = "{tmp_path}/spool"\n'
    )
    procfs = ("--procfs", str(tmp_path / "proc"))
    with (
        running([*PYTHON, "laggard_aggregator.cli.daemon", "--config", str(aggregator)], tmp_path / "a.log"),
        running([*PYTHON, "laggard_agent", "--config", str(agent), *procfs], tmp_path / "b.log"),
    ):
        nodes = f"http://[::1]:{http}/api/v1/nodes"
        up = {"storage": {"up": 1}}
        until("the node's samples", lambda: (get_json(nodes) or {}).get("nodes") == up, 40)
        assert (get_json(nodes.replace("[::1]", "127.0.0.1")) is not None) == (host == "::")
