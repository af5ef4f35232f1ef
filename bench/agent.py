"""What a whole agent process costs with a fake /proc, without root: `python -m bench.agent`.

`bench.agent_cost` measures it on real devices beside other programs.

128 disks with 17 counters in a fake /proc that is rewritten twice an interval; sampled every second in
batches of the default size, spooled to disk, published with QoS 1. CPU is the scheduler's own count over all
threads.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.agent_cost.cost import cpu_ns
from bench.machine import machine

DISKS = 128
PORT = 18_839
SETTLE_SECONDS = 5.0
SECONDS = 30.0
COUNTERS = 17
IN_FLIGHT = 8


@dataclass(frozen=True, slots=True)
class Cost:
    """`cpu_ms` a second of wall time; memory in MiB, `private_mib` without pages of files (libraries)."""

    cpu_ms: float
    resident_mib: float
    private_mib: float


class FakeProc:
    """A /proc whose first `busy` disks do I/O; everything else is this machine's."""

    def __init__(self, root: Path, busy: int, disks: int = DISKS) -> None:
        self.root = root
        self._busy = busy
        self._chance = random.Random(1)
        self._disks = [[self._chance.randrange(10**9) for _ in range(COUNTERS)] for _ in range(disks)]
        root.mkdir()
        for name in ("net", "stat", "meminfo", "loadavg"):
            (root / name).symlink_to(f"/proc/{name}")
        self.advance()

    def advance(self) -> None:
        """Some I/O, and the file in one piece."""
        for values in self._disks[: self._busy]:
            for i in range(COUNTERS):
                values[i] += self._chance.randrange(1, 3000) if i != IN_FLIGHT else 0
        lines = (f"   8 {i:7d} sd{i} {' '.join(map(str, values))}\n" for i, values in enumerate(self._disks))
        (self.root / "new").write_text("".join(lines))
        (self.root / "new").rename(self.root / "diskstats")

    def run(self, seconds: float) -> None:
        """Goes on like that for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.advance()
            time.sleep(0.5)


def measure(collectors: Sequence[str], busy: int) -> Cost:
    """The cost of an agent with these collectors, `busy` of its disks changing."""
    broker = shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    if broker is None:
        sys.exit("bench.agent: needs mosquitto")
    with ExitStack() as ended:
        folder = Path(ended.enter_context(tempfile.TemporaryDirectory()))
        proc = FakeProc(folder / "proc", busy)
        (folder / "mosquitto.conf").write_text(f"listener {PORT} 127.0.0.1\nallow_anonymous true\n")
        (folder / "agent.toml").write_text(
            f'node = "n1"\ncollectors = {list(collectors)}\n[mqtt]\nport = {PORT}\n'
            f'[spool]\ndirectory = "{folder}/spool"\n'
        )
        config, root = str(folder / "agent.toml"), str(proc.root)
        _start(ended, [broker, "-c", str(folder / "mosquitto.conf")])
        agent = _start(ended, [sys.executable, "-m", "laggard_agent", "--config", config, "--procfs", root])
        proc.run(SETTLE_SECONDS)
        before, started = cpu_ns(agent.pid), time.monotonic()
        proc.run(SECONDS)
        cpu = (cpu_ns(agent.pid) - before) / 1e6 / (time.monotonic() - started)
        if agent.poll() is not None:
            sys.exit("bench.agent: the agent ended")
        memory = _memory_mib(agent.pid)
        return Cost(cpu, memory["VmRSS"], memory["RssAnon"])


def _start(ended: ExitStack, command: Sequence[str]) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    ended.callback(process.wait)
    ended.callback(process.terminate)
    return process


def _memory_mib(pid: int) -> dict[str, float]:
    lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {line[0].rstrip(":"): int(line[1]) / 1024 for line in lines if line[-1:] == ["kB"]}


def table() -> list[str]:
    """The lines of the table, in Markdown."""
    lines = [
        f"| {DISKS} disks, 1 s | CPU, ms a second | resident, MiB | of it private |",
        "|---|---|---|---|",
    ]
    for collectors, busy, what in (
        (("diskstats",), DISKS, "diskstats, all busy"),
        (("diskstats", "net", "host"), DISKS, "diskstats, net, host, all busy"),
        (("diskstats", "net", "host"), 4, "diskstats, net, host, 4 busy"),
    ):
        cost = measure(collectors, busy)
        lines.append(f"| {what} | {cost.cpu_ms:.1f} | {cost.resident_mib:.0f} | {cost.private_mib:.0f} |")
    return lines


def main() -> None:
    """Prints the table."""
    argparse.ArgumentParser(prog="python -m bench.agent", description=__doc__).parse_args()
    print("\n".join(table()))
    print(f"\n{machine('aiomqtt', 'zstandard')}; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
