"""The agent in a container: namespaces of its own, and the host's trees in folders (`docs/install.md`)."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import run_command

COLLECTORS = "diskstats,net,host"
# As a container engine does it: namespaces and a /proc of its own, the host's trees bound elsewhere.
ENTER = ("unshare", "--fork", "--pid", "--mount", "--uts")
WITHIN = """\
set -e
mount --bind /proc "$1/proc"
mount --rbind /sys "$1/sys"
mount -t proc proc /proc
shift
exec "$@"
"""

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make namespaces"),
    pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare (util-linux)"),
]


def once(*command: str) -> dict[str, dict[str, Any]]:
    """What `laggard-agent --once` said: for each collector its records by component."""
    done = run_command(command, check=False)
    if done.returncode and "Operation not permitted" in done.stderr:
        pytest.skip(f"no namespaces here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    said: dict[str, dict[str, Any]] = {}
    for line in done.stdout.splitlines():
        record = json.loads(line)
        said.setdefault(record["collector"], {})[record["component"]] = record["counters"]
    return said


def test_a_container_with_the_hosts_trees_sees_what_the_host_sees(tmp_path: Path) -> None:
    agent = (sys.executable, "-P", "-m", "laggard_agent", "--once", "--collectors", COLLECTORS)
    for name in ("proc", "sys"):
        (tmp_path / name).mkdir()
    roots = ("--procfs", str(tmp_path / "proc"), "--sysfs", str(tmp_path / "sys"))
    outside = once(*agent)
    inside = once(*ENTER, "sh", "-c", WITHIN, "sh", str(tmp_path), *agent, *roots)
    assert {name: set(rows) for name, rows in inside.items()} == {
        name: set(rows) for name, rows in outside.items()
    }
    for disk, counters in outside.get("diskstats", {}).items():
        assert inside["diskstats"][disk].keys() == counters.keys()
        assert inside["diskstats"][disk]["rd_ios"] >= counters["rd_ios"]
    (host,) = inside["host"].values()
    assert host["memory_total_bytes"] == outside["host"]["host"]["memory_total_bytes"]
