"""Equal servers, one with a macvlan and a VLAN on a bond on a bridge, one with a team: no alarm for any."""

import json
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.builders.trees import disk_line, tree
from tests.support.ports import free_port, is_listening
from tests.support.processes import started
from tests.support.wait import LIMIT_SECONDS, wait_until

MOSQUITTO = shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin")
WINDOWS = 48
_OTHERS = ("snmp", "netstat", "softnet_stat")

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(MOSQUITTO is None, reason="needs mosquitto")]

LAYERS: dict[str, dict[str, list[str]]] = {
    **{f"oss-{at}": {} for at in (1, 2, 3, 4, 6, 8)},
    "oss-5": {"br0": ["bond0.7"], "bond0.7": ["bond0"], "bond0": ["eth0"], "mv0": ["eth0"]},
    "oss-7": {"team0": ["eth0"]},
}


class Server:
    """The trees of a server whose disks and network do the same as those of all others."""

    def __init__(self, folder: Path, layers: dict[str, list[str]]) -> None:
        self.folder, self.names = folder, ("eth0", *layers)
        tree(folder, {"sys/block/sda/size": "8", "sys/class/net/eth0/device/x": ""})
        for upper, lowers in layers.items():
            (folder / "sys/class/net" / upper).mkdir(parents=True, exist_ok=True)
            for lower in lowers:
                (folder / "sys/class/net" / upper / f"lower_{lower}").symlink_to(f"../{lower}")
        for file in _OTHERS:
            shutil.copy(f"/proc/net/{file}", folder / "sys" / file)
        self.move(0)

    def move(self, mib: int) -> None:
        """So many MiB have come by the network and gone to the disk."""
        size, packets = mib << 20, mib * 800
        counters = f"{size} {packets} 0 0 0 0 0 0 {size // 10} {packets} 0 0 0 0 0 0"
        lines = "".join(f"{name}: {counters}\n" for name in self.names)
        files = {
            "proc/net/dev": f"Inter-| Receive | Transmit\n face |bytes |bytes\n{lines}",
            "proc/diskstats": disk_line("sda", 0, 0, 0, 0, mib, 0, size // 512, mib * 2, 0, mib, mib),
            **{
                f"proc/net/{file}": (self.folder / "sys" / file).read_text()
                for file in ("snmp", "netstat", "softnet_stat")
            },
        }
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_suffix(".new")
            new.write_text(text)
            new.rename(path)


def test_each_byte_counts_once(tmp_path: Path) -> None:
    port, http = free_port(), free_port()
    (tmp_path / "mosquitto.conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    (tmp_path / "aggregator.toml").write_text(
        f'[mqtt]\nport = {port}\n[http]\nlisten = "127.0.0.1:{http}"\n'
        f'[state]\ndirectory = "{tmp_path}/state"\n'
        "[detect]\ninterval_seconds = 0.5\nwindow_samples = 10\nshift_samples = 5\nconfirm = 2\n"
    )
    servers = [Server(tmp_path / name, layers) for name, layers in LAYERS.items()]
    ended = threading.Event()

    def work() -> None:
        began = time.monotonic()
        while not ended.wait(0.1):
            for server in servers:
                server.move(int((time.monotonic() - began) * 200))

    def windows() -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{http}/metrics", timeout=LIMIT_SECONDS) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("laggard_windows_total "))

    log = tmp_path / "aggregator.log"
    with ExitStack() as stack:
        stack.enter_context(
            started([str(MOSQUITTO), "-c", tmp_path / "mosquitto.conf"], stderr=subprocess.DEVNULL)
        )
        wait_until(lambda: is_listening(port), "mosquitto")
        opened = stack.enter_context(log.open("w"))
        command = [
            sys.executable,
            "-m",
            "laggard_aggregator.cli.daemon",
            "--config",
            tmp_path / "aggregator.toml",
        ]
        stack.enter_context(started(command, stderr=opened))
        wait_until(lambda: is_listening(http), "the aggregator")
        for server in servers:
            name = server.folder.name
            config = server.folder / "agent.toml"
            config.write_text(
                f'node = "{name}"\ninterval_seconds = 0.25\nbatch_samples = 2\n'
                'collectors = ["diskstats", "net"]\n'
                f'[mqtt]\nport = {port}\n[spool]\ndirectory = "{server.folder}/spool"\n'
            )
            command = [sys.executable, "-m", "laggard_agent.cli", "--config", str(config)]
            command += ["--procfs", str(server.folder / "proc"), "--sysfs", str(server.folder / "sys")]
            stack.enter_context(started(command, stderr=subprocess.DEVNULL))
        thread = threading.Thread(target=work)
        thread.start()
        stack.callback(thread.join)
        stack.callback(ended.set)
        wait_until(lambda: windows() >= WINDOWS, "windows")
        with urllib.request.urlopen(
            f"http://127.0.0.1:{http}/api/v1/stragglers", timeout=LIMIT_SECONDS
        ) as answer:
            stragglers = json.load(answer)["stragglers"]
    assert "alarm raised" not in log.read_text(), log.read_text()
    assert stragglers == []
