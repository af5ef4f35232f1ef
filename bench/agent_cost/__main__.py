"""CPU a sample and memory of the whole agent beside sadc, node_exporter and collectd. Needs root.

All run at the same time on the same real devices, at one sample a second, and are measured over the same
windows, so what else the machine does hits all alike. The agents do everything: collect, compress, encode,
spool, publish to a mosquitto on loopback, and take the acknowledgements of a real aggregator. node_exporter
is scraped as Prometheus scrapes, collectd writes CSV. Devices are loop devices: all changing every second, or
one in sixteen.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.agent_cost.cost import Memory, cpu_ns, memory
from bench.agent_cost.devices import load_on, loop_devices
from bench.agent_cost.programs import Program, programs
from bench.machine import machine
from bench.testbed.luns import TestbedError, stop_on_signals

IDLE_SHARE = 16  # mostly idle: one in so many devices is busy
MIB = 1 << 20


@dataclass(slots=True)
class Measured:
    """Of one program: CPU milliseconds a second in each window, memory at the end of the last."""

    cpu_ms: list[float] = field(default_factory=list)
    memory: Memory = field(default_factory=lambda: Memory(0, 0))


def measure(running: Sequence[Program], repeats: int, seconds: float) -> dict[str, Measured]:
    """The cost of all programs in the same windows. Raises TestbedError when one has ended."""
    found = {program.name: Measured() for program in running}
    for _ in range(repeats):
        before = [(time.monotonic_ns(), cpu_ns(program.pid)) for program in running]
        time.sleep(seconds)
        for program, (began, spent) in zip(running, before, strict=True):
            if not program.is_alive():
                said = program.log.read_text(errors="replace").strip().splitlines()[-1:]
                raise TestbedError(f"{program.name} has ended: {' '.join(said) or 'without a word'}")
            share = (cpu_ns(program.pid) - spent) / (time.monotonic_ns() - began)
            found[program.name].cpu_ms.append(share * 1e3)
    for program in running:
        found[program.name].memory = memory(program.pid)
    return found


def table(count: int, options: argparse.Namespace, folder: Path) -> list[str]:
    """The rows of one number of devices, all busy and mostly idle."""
    lines = []
    with loop_devices(count, folder) as names:
        with load_on(names):  # sadc passes over a device that never did any I/O
            time.sleep(2.0)
        for what, busy in (("all changing", names), ("mostly idle", names[::IDLE_SHARE])):
            with (
                tempfile.TemporaryDirectory(prefix="programs-", dir=folder) as own,
                load_on(busy),
                programs(Path(own), options.python, options.before) as running,
            ):
                time.sleep(options.settle)
                for name, cost in measure(running, options.repeats, options.seconds).items():
                    cpu = cost.cpu_ms
                    lines.append(
                        f"| {count}, {what} | {name} | {min(cpu):.2f} | {median(cpu):.2f} | {max(cpu):.2f} "
                        f"| {cost.memory.resident / MIB:.1f} | {cost.memory.proportional / MIB:.1f} |"
                    )
                    print(lines[-1], flush=True)
    return lines


def main() -> int:
    """Prints the table; 1 when the machine cannot carry it."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.agent_cost",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--devices", type=int, nargs="+", default=[16, 128], help="default: 16 128")
    parser.add_argument("--seconds", type=float, default=20.0, help="of a window (default: 20)")
    parser.add_argument("--repeats", type=int, default=5, help="windows (default: 5)")
    parser.add_argument("--settle", type=float, default=20.0, help="seconds before the first (default: 20)")
    parser.add_argument(
        "--python",
        default=sys.executable,
        help="runs the agents; of the same version as this one, which is the default. Distributions build "
        "theirs with optimizations that a plain build lacks",
    )
    parser.add_argument(
        "--before", type=Path, metavar="CHECKOUT", help="also measure the agent of another checkout"
    )
    options = parser.parse_args()
    stop_on_signals()
    print(
        f"{machine('msgpack', 'zstandard')}; agents on {options.python}; load {os.getloadavg()[0]:.1f} before"
    )
    print(f"{options.repeats} windows of {options.seconds:g} s, one sample a second\n")
    print("| devices | program | CPU ms a sample, min | median | max | RSS, MiB | PSS, MiB |")
    print("|---|---|---|---|---|---|---|")
    try:
        with tempfile.TemporaryDirectory(prefix="agent-cost-") as folder:
            for count in options.devices:
                table(count, options, Path(folder))
    except TestbedError as exc:
        print(f"bench.agent_cost: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
