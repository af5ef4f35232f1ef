"""A site that has only IPv6: the embedded broker, an agent and HTTP on ::1."""

import sys
from pathlib import Path

import pytest

from tests.support.ports import free_port, has_ipv6
from tests.support.processes import get_json, running
from tests.support.wait import wait_until

PYTHON = [sys.executable, "-P", "-m"]
DISK = " 8 0 sda 1 0 8 1 0 0 0 0 0 1 1\n"

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not has_ipv6(), reason="no IPv6 loopback here")]


@pytest.mark.parametrize("host", ["::1", "::"])
def test_samples_arrive_and_are_served_over_ipv6(tmp_path: Path, host: str) -> None:
    """`::`, every address, IPv4 too, is for HTTP alone: the embedded broker stays on loopback without TLS."""
    mqtt, http = free_port("::1"), free_port("::1")
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
        wait_until(lambda: (get_json(nodes) or {}).get("nodes") == up, "the node's samples")
        assert (get_json(nodes.replace("[::1]", "127.0.0.1")) is not None) == (host == "::")
