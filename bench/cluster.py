"""A cluster of three NATS servers, as shipped, that loses one after another: `python -m bench.cluster`.

Six real agents sample ten times a second, two connected to each server; a real aggregator with journal and
archive is connected to the first. One server after another is killed with -9 while the others go on, and
started again. At the end no sample may be in the archive twice, and of each agent's batches only the last
few, made while it ended, may not be acknowledged; acknowledged is what is in the journal.
"""

import argparse
import re
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.agent import FakeProc
from bench.machine import machine
from laggard_agent.spool.recovery import recover
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.demo.site import free_port
from laggard_common.mqtt.settings import MqttSettings
from tests.support.shipped_brokers import AGGREGATOR, Authority, nats

SERVERS = 3
NODES = tuple(f"oss-{number}" for number in range(1, 7))
BEGIN_SECONDS = 10.0
SETTLE_SECONDS = 150.0
LAST_BATCHES = 3


def main() -> int:
    """Prints a table; 1 when a batch is missing or there twice."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=2, help="how often each server is killed (default 2)")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long it is away, and then there")
    options = parser.parse_args()
    print(machine("msgpack"))
    with TemporaryDirectory() as folder:
        here = Path(folder)
        kills = _run(here, options.rounds, options.seconds)
        ticks, twice = _archived(here / "archive")
        missing = sum(_not_acknowledged(here / f"spool-{node}", node) for node in NODES)
    print("\n| servers killed | agents | samples archived | twice | batches never acknowledged |")
    print("|---:|---:|---:|---:|---:|")
    print(f"| {kills} | {len(ticks)} | {sum(ticks.values()):,} | {twice} | {missing} |")
    return 0 if missing <= LAST_BATCHES * len(NODES) and not twice and len(ticks) == len(NODES) else 1


def _archived(archive: Path) -> tuple[Counter[str], int]:
    """How many samples of each node there are, and how many more than once."""
    seen: Counter[tuple[str, bytes, int]] = Counter()
    for _, taken in ArchiveReader(archive).batches():
        seen.update((taken.schema.node, taken.stream, tick) for tick in taken.counters.tick_ns.tolist())
    return Counter(node for node, _, _ in seen), sum(seen.values()) - len(seen)


def _not_acknowledged(spool: Path, node: str) -> int:
    """How many of its batches an agent that ended in order never heard to be safe."""
    found = recover(spool, node)
    streams = found.header.streams if found.header is not None else ()
    given = {stream.key: stream.next_seq for stream in streams}
    safe = {(ack.stream, ack.source): sum(b - a + 1 for a, b in ack.ranges) for ack in found.acks}
    return sum(count - safe.get(key, 0) for key, count in given.items())


def _run(folder: Path, rounds: int, seconds: float) -> int:
    """Runs everything; how many servers were killed."""
    authority = Authority(folder / "ca")
    authority.begin("localhost", list(NODES))
    ports = [free_port() for _ in range(SERVERS)]
    routes = [free_port() for _ in range(SERVERS)]
    commands = [_server(folder, authority, index, ports, routes) for index in range(SERVERS)]
    proc = FakeProc(folder / "proc", 8, 8)
    kills = 0
    with ExitStack() as stack:
        servers = [_started(stack, command, folder / f"nats-{i}.log") for i, command in enumerate(commands)]
        proc.run(BEGIN_SECONDS)
        judge = _started(stack, _aggregator(folder, authority, ports[0]), folder / "aggregator.log")
        agents = [
            _started(
                stack, _agent(folder, authority, ports[at % SERVERS], node, proc.root), folder / f"{node}.log"
            )
            for at, node in enumerate(NODES)
        ]
        proc.run(seconds)
        for index in [*range(SERVERS)] * rounds:
            servers[index].kill()
            servers[index].wait()
            kills += 1
            proc.run(seconds)
            servers[index] = _started(stack, commands[index], folder / f"nats-{index}.log")
            proc.run(seconds)
        proc.run(SETTLE_SECONDS)
        for process in (*agents, judge):
            process.terminate()
            process.wait(30)
    return kills


def _aggregator(folder: Path, authority: Authority, port: int) -> list[str]:
    config = folder / "aggregator.toml"
    broker = authority.client("localhost", port, AGGREGATOR)
    config.write_text(
        f'{_mqtt(broker)}[http]\nlisten = "127.0.0.1:{free_port()}"\n'
        f'[state]\ndirectory = "{folder}/state"\n[archive]\ndirectory = "{folder}/archive"\n'
    )
    return _python("laggard_aggregator.cli.daemon", config)


def _agent(folder: Path, authority: Authority, port: int, node: str, proc: Path) -> list[str]:
    config = folder / f"{node}.toml"
    config.write_text(
        f'node = "{node}"\ninterval_seconds = 0.1\ncollectors = ["diskstats"]\n'
        f'{_mqtt(authority.client("localhost", port, node))}[spool]\ndirectory = "{folder}/spool-{node}"\n'
    )
    return [*_python("laggard_agent", config), "--procfs", str(proc)]


def _server(folder: Path, authority: Authority, index: int, ports: list[int], routes: list[int]) -> list[str]:
    """The command of one server, with the shipped cluster on ports of loopback."""
    here = folder / f"nats-{index}"
    here.mkdir()
    command = nats(here, authority, "127.0.0.1", ports[index])
    shipped = (Path(__file__).parents[1] / "deploy" / "nats" / "nats-server.conf").read_text()
    (cluster,) = re.findall(r"(?ms)^cluster \{.*?^\}\n", shipped)
    cluster = cluster.replace("port: 6222", f"listen: 127.0.0.1:{routes[index]}")
    others = ", ".join(f"nats://127.0.0.1:{port}" for port in routes)
    cluster = re.sub(r"routes: \[.*?\]", f"routes: [{others}]", cluster)
    cluster = cluster.replace("/etc/nats/certs/broker", f"{authority.folder}/issued/laggard-broker")
    cluster = cluster.replace("/etc/nats/certs", str(authority.folder))
    conf = here / "nats-server.conf"
    conf.write_text(
        conf.read_text().replace("server_name: nats-1", f"server_name: nats-{index + 1}") + cluster
    )
    return command


def _mqtt(s: MqttSettings) -> str:
    return (
        f'[mqtt]\nhost = "{s.host}"\nport = {s.port}\nca_file = "{s.ca_file}"\n'
        f'cert_file = "{s.cert_file}"\nkey_file = "{s.key_file}"\n'
    )


def _python(module: str, config: Path) -> list[str]:
    return [sys.executable, "-P", "-m", module, "--config", str(config)]


def _started(stack: ExitStack, command: list[str], log: Path) -> "subprocess.Popen[bytes]":
    with log.open("ab") as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


if __name__ == "__main__":
    sys.exit(main())
