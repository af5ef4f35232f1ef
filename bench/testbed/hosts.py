"""Hosts made of Linux namespaces: network, mounts, processes and name of their own, on one bridge.

The bench moves into a network and mount namespace of its own first, so that nothing of it shows on the
machine. A host ends when its first process does, and with it every process, mount and interface of it; should
the bench be killed, the kernel ends the first processes too.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.testbed.luns import STOP_SECONDS, CannotRunError, TestbedError, process, run

CLONE_NEWNS = 0x00020000  # include/uapi/linux/sched.h
CLONE_NEWNET = 0x40000000
BRIDGE = "bridge0"
INTERFACE = "eth0"
NETWORK = "10.77.0."
BRIDGE_ADDRESS = f"{NETWORK}1"
START_SECONDS = 20.0

# The first process of a host; it collects those whose parents have ended. Arguments: its name, then pairs of
# a folder outside and a folder below /srv that it is to appear as.
FIRST_PROCESS = """
set -e
hostname "$0"
for folder in /var/lib/glusterd /var/log/glusterfs /run /srv; do
    mkdir -p "$folder"
    mount -t tmpfs -o size=64m tmpfs "$folder"
done
mkdir /var/lib/glusterd/stats /run/gluster
while [ $# -gt 0 ]; do
    mkdir "/srv/$2"
    mount --bind "$1" "/srv/$2"
    shift 2
done
ip link set lo up
echo ready
set +e
while :; do
    sleep 3600 &
    wait $!
done
"""


@dataclass(frozen=True, slots=True)
class Host:
    """A host: its name, its address on the bridge, and its first process as this process numbers it."""

    name: str
    address: str
    pid: int

    def command(self, *command: str) -> list[str]:
        """Return the command line that runs `command` on this host."""
        return ["nsenter", f"--target={self.pid}", "--net", "--mount", "--uts", "--pid", *command]


def own_namespaces() -> None:
    """Move this process into a network and a mount namespace of its own, with a bridge for hosts.

    To be called once, before any thread is started. Raises CannotRunError where the kernel refuses.
    """
    if os.geteuid() != 0:
        raise CannotRunError("network namespaces, mounts, loop devices and throttling need root")
    for tool in ("ip", "unshare", "nsenter", "setpriv"):
        if shutil.which(tool) is None:
            raise CannotRunError(f"{tool} is not installed (packages iproute2, util-linux)")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET | CLONE_NEWNS) != 0:
        raise CannotRunError(f"no network namespace: {os.strerror(ctypes.get_errno())}")
    run("mount", "--make-rprivate", "/")
    run("ip", "link", "set", "lo", "up")
    try:
        run("ip", "link", "add", BRIDGE, "type", "bridge")
    except TestbedError as exc:
        raise CannotRunError(f"no bridge between hosts: {exc}") from exc
    run("ip", "address", "add", f"{BRIDGE_ADDRESS}/24", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")


@contextmanager
def host(name: str, number: int, log: Path, folders: Sequence[tuple[Path, str]] = ()) -> Iterator[Host]:
    """Yield a host with the address that ends in `number`; `folders` appear as /srv/<second>.

    /var/lib/glusterd, /var/log/glusterfs and /run are its own and empty. `log` takes what goes wrong with its
    first process. Needs `own_namespaces`.
    """
    pairs = [text for outside, inside in folders for text in (str(outside), inside)]
    unshare = ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = ["setpriv", "--pdeathsig=KILL", *unshare, "sh", "-c", FIRST_PROCESS, name, *pairs]
    with ExitStack() as stack:
        outer = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stack.enter_context(log.open("ab")),
            start_new_session=True,
        )
        stack.callback(_end, outer)
        _wait_ready(outer, name)
        first = _first_process(outer)
        made = Host(name, f"{NETWORK}{number}", int(first))
        port = f"port{number}"
        peer = ["peer", "name", INTERFACE, "netns", first]
        run("ip", "link", "add", port, "type", "veth", *peer)
        run("ip", "link", "set", port, "master", BRIDGE, "up")
        run(*made.command("ip", "address", "add", f"{made.address}/24", "dev", INTERFACE))
        run(*made.command("ip", "link", "set", INTERFACE, "up"))
        yield made


@contextmanager
def running(made: Host, command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Yield `command` at work on a host while the context lasts; it speaks into `log`."""
    with process(["setpriv", "--pdeathsig=KILL", *made.command(*command)], log) as started:
        yield started


def _wait_ready(outer: subprocess.Popen[bytes], name: str) -> None:
    """Wait until a host's first process has its mounts. Raises TestbedError when it does not get there."""
    assert outer.stdout is not None
    with outer.stdout as said:
        heard, _, _ = select.select([said], [], [], START_SECONDS)
        if not heard or said.readline() != b"ready\n":
            raise TestbedError(f"host {name} did not start")


def _first_process(outer: subprocess.Popen[bytes]) -> str:
    """Return the id of a host's first process, the only child of `outer`; empty without one."""
    return Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().strip()


def _end(outer: subprocess.Popen[bytes]) -> None:
    """End a host by its first process: the kernel ends all others, then that one, then `outer` returns."""
    if outer.poll() is None:
        first = _first_process(outer)
        os.kill(int(first) if first else outer.pid, signal.SIGKILL)
    outer.wait(STOP_SECONDS)
