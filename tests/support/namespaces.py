"""Three network namespaces: the broker's, the honest nodes' and the strangers', at cables of their own."""

import contextlib
import ctypes
import os
from collections.abc import Iterator
from typing import Literal

from laggard_common.errors import ServiceError
from tests.support.processes import run_command
from tests.support.shipped_brokers import DEPLOY, program

NETWORK = "198.18"  # set aside for benchmarks (RFC 2544)
BROKER, BROKER6 = f"{NETWORK}.0.1", "fd00:198:18::1"
LIMITS = DEPLOY / "nftables" / "laggard-broker.nft"
_CLONE_NEWNET = 0x40000000

Place = Literal["site", "nodes", "strangers"]
_CABLES: dict[Place, int] = {"nodes": 1, "strangers": 2}


class Network:
    """The namespaces, while `made` lasts: nodes and strangers reach the site at BROKER and BROKER6."""

    def __init__(self) -> None:
        self._prefix = f"laggard-{os.getpid()}"

    @contextlib.contextmanager
    def made(self) -> Iterator[None]:
        """Makes them. Raises ServiceError where they cannot be made."""
        with contextlib.ExitStack() as stack:
            for place in ("site", *_CABLES):
                run("ip", "netns", "add", self._name(place))
                stack.callback(run, "ip", "netns", "del", self._name(place))
                self._ip(place, "link", "set", "lo", "up")
            for address in (f"{BROKER}/32", f"{BROKER6}/128"):
                self._ip("site", "addr", "add", address, "dev", "lo")
            for place, number in _CABLES.items():
                self._connect(place, number)
            yield

    @contextlib.contextmanager
    def inside(self, place: Place) -> Iterator[None]:
        """Sockets, processes and threads that this thread makes meanwhile are there."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        there = os.open(f"/run/netns/{self._name(place)}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _enter(there)
            try:
                yield
            finally:
                _enter(home)
        finally:
            os.close(there)
            os.close(home)

    def limit(self, several4: str = "") -> None:
        """Loads the shipped limits at the broker; `several4`: a network with many connections behind each."""
        rules = LIMITS.read_text()
        if several4:
            rules = rules.replace("192.0.2.0/24", several4)
        self.nft("-f", "-", rules=rules)

    def nft(self, *arguments: str, rules: str | None = None) -> str:
        """What nft says in the broker's namespace."""
        with self.inside("site"):
            return run_command([program("nft"), *arguments], stdin_text=rules).stdout

    def _name(self, place: Place) -> str:
        return f"{self._prefix}-{place}"

    def _ip(self, place: Place, *arguments: str) -> None:
        run("ip", "-n", self._name(place), *arguments)

    def _connect(self, place: Place, number: int) -> None:
        peer = ("peer", "name", "up0", "netns", self._name(place))
        self._ip("site", "link", "add", place, "type", "veth", *peer)
        ends: tuple[tuple[Place, str, int], ...] = (("site", place, 1), (place, "up0", 2))
        for where, device, last in ends:
            self._ip(where, "addr", "add", f"{NETWORK}.{number}.{last}/24", "dev", device)
            self._ip(where, "addr", "add", f"fd00:198:18:{number}::{last}/64", "dev", device, "nodad")
            self._ip(where, "link", "set", device, "up")
        self._ip(place, "route", "add", "default", "via", f"{NETWORK}.{number}.1")
        self._ip(place, "-6", "route", "add", "default", "via", f"fd00:198:18:{number}::1")


def run(*command: str) -> None:
    """Runs a command. Raises ServiceError when it fails."""
    done = run_command(command, check=False)
    if done.returncode:
        raise ServiceError(f"{' '.join(command)}: {done.stderr.strip()}")


def _enter(namespace: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")
