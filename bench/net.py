"""What TCP by destination costs a sample, on real sockets of this host: `python -m bench.net`."""

import argparse
import resource
import socket
import statistics
import time

from bench.machine import machine
from laggard_agent.collectors.net.destinations import MOST_SOCKETS, Destinations
from laggard_agent.collectors.net.inet_diag import ask

SOCKETS = (20, 200, 2000, 8000)
SAMPLES = 10


def own_address() -> str:
    """An address of this host that is not loopback, which is no destination."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return str(probe.getsockname()[0])


def connections(server: socket.socket, count: int) -> list[socket.socket]:
    """Both ends of `count` / 2 connections."""
    ends = []
    for _ in range(count // 2):
        near = socket.create_connection(server.getsockname())
        ends += [near, server.accept()[0]]
    return ends


def measure(count: int) -> tuple[float, float]:
    """CPU seconds of a sample, with `count` sockets that all sent since the sample before, and with none."""
    with socket.create_server((own_address(), 0), backlog=64) as server:
        ends = connections(server, count)
        found = Destinations(["0.0.0.0/0", "::/0"], 1024)
        busy: list[float] = []
        idle: list[float] = []
        for n in range(SAMPLES):
            for end in ends:
                end.send(b"x")
            for seconds in (busy, idle):
                started = time.thread_time()
                found.update(ask(MOST_SOCKETS), n)
                seconds.append(time.thread_time() - started)
        for end in ends:
            end.close()
    return statistics.median(busy), statistics.median(idle)


def main() -> None:
    """Prints the table."""
    argparse.ArgumentParser(prog="python -m bench.net", description=__doc__).parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print("| sockets of the node | all sent, ms a sample | none sent, ms a sample |\n|---|---|---|")
    for count in SOCKETS:
        busy, idle = measure(count)
        print(f"| {count:,} | {busy * 1e3:.1f} | {idle * 1e3:.1f} |")
    print(f"\n{machine()}")


if __name__ == "__main__":
    main()
