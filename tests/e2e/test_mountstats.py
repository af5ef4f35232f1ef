"""Five NFS clients of one export over real agents, broker and aggregator; one of them becomes slow."""

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port
from tests.support.processes import get_json, running
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e

PYTHON = [sys.executable, "-P", "-m"]
CLIENTS = [f"c{number}" for number in range(1, 6)]
SLOW = "c4"
GROUP = "compute/nfs_mount/filer/_scratch"
BETWEEN_SECONDS = 0.1
MOUNTSTATS = """\
device proc mounted on /proc with fstype proc
device filer:/scratch mounted on /scratch with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,proto=tcp
\tage:\t100
\tevents:\t0 0 0
\tbytes:\t0 0 0 0 0 0 0 0
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 0 0 1 0 0 {ops} {ops} 0 0 0 64 0 0
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: {ops} {ops} 0 {sent} {received} 0 {rtt} {rtt} 0
\t       WRITE: 0 0 0 0 0 0 0 0 0
\t     GETATTR: {ops} {ops} 0 {sent} {sent} 0 {ops} {ops} 0
"""


class Client:
    """A fake /proc: `count` adds operations whose round trips took `rtt_ms` in the mean."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.file = folder / "proc/self/mountstats"
        self.file.parent.mkdir(parents=True)
        self._chance = chance
        self._ops, self._rtt = 1000, 4000.0

    def count(self, rtt_ms: float) -> None:
        ops = self._chance.randrange(30, 50)
        self._ops += ops
        self._rtt += ops * rtt_ms * self._chance.uniform(0.9, 1.1)
        sent = 200 * self._ops
        values = {"ops": self._ops, "rtt": round(self._rtt), "sent": sent, "received": 5000 * sent}
        new = self.file.with_name("new")
        new.write_text(MOUNTSTATS.format(**values))
        new.rename(self.file)


@contextmanager
def counting(clients: dict[str, Client], slow: threading.Event) -> Iterator[None]:
    """All clients work while the block lasts; SLOW does so slowly once `slow` is set."""
    done = threading.Event()

    def work() -> None:
        while not done.wait(BETWEEN_SECONDS):
            for name, client in clients.items():
                client.count(40.0 if name == SLOW and slow.is_set() else 4.0)

    for client in clients.values():
        client.count(4.0)
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_the_alarm_names_the_slow_client(tmp_path: Path) -> None:
    mqtt, http = free_port(), free_port()
    aggregator = tmp_path / "aggregator.toml"
    aggregator.write_text(
        f'[mqtt]\nport = {mqtt}\nembedded = true\n[http]\nlisten = "127.0.0.1:{http}"\n'
        "[detect]\ninterval_seconds = 0.5\nwindow_samples = 10\nshift_samples = 5\nconfirm = 2\n"
    )
    clients = {name: Client(tmp_path / name, random.Random(name)) for name in CLIENTS}
    slow = threading.Event()
    with ExitStack() as stack:
        stack.enter_context(counting(clients, slow))
        daemon = [*PYTHON, "laggard_aggregator.cli.daemon", "--config", aggregator]
        stack.enter_context(running(daemon, tmp_path / "aggregator.log"))
        for name in CLIENTS:
            config = tmp_path / name / "agent.toml"
            config.write_text(
                f'node = "{name}"\nrole = "compute"\ninterval_seconds = 0.25\nbatch_samples = 2\n'
                f'collectors = ["mountstats"]\n[mqtt]\nport = {mqtt}\n'
                f'[spool]\ndirectory = "{tmp_path}/{name}/spool"\n'
            )
            agent = [*PYTHON, "laggard_agent", "--config", config, "--procfs", tmp_path / name / "proc"]
            stack.enter_context(running(agent, tmp_path / f"{name}.log"))

        def get(path: str) -> dict[str, Any]:
            return get_json(f"http://127.0.0.1:{http}/api/v1/{path}") or {}

        def alarms() -> list[dict[str, Any]]:
            return [one for one in get("stragglers").get("stragglers", []) if one.get("alarm")]

        healthy = f"components/{GROUP.replace('/', '%2F')}/c1%2Ffiler:%2Fscratch"
        wait_until(lambda: get(healthy), "verdicts on healthy clients")
        assert alarms() == []
        slow.set()
        found = wait_until(alarms, "an alarm")
        assert {(one["group"], one["component"]) for one in found} == {(GROUP, f"{SLOW}/filer:/scratch")}
        assert {one["metric"] for one in found} <= {"read_rtt"}
