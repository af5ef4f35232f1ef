"""What faults need of the host, made for one site and taken away after it: a network, and small disks."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from laggard_common.errors import ServiceError

NETWORK = "198.18"  # set aside for benchmarks (RFC 2544)
_FILL_BYTES = 1024 * 1024
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"


def problem() -> str | None:
    """Why this host cannot be used, None when it can."""
    if os.getuid() != 0:
        return "namespaces and mounts need root"
    needed = ("ip", "nft", "nsenter", "mount", "openssl", "mosquitto", "nats-server")
    missing = [name for name in needed if shutil.which(name, path=_PATH) is None]
    return f"needs {', '.join(missing)}" if missing else None


class Network:
    """A network namespace that is joined to this one by one cable; `host` is this end of it."""

    def __init__(self) -> None:
        self.name = self.host = self._cable = ""

    @contextlib.contextmanager
    def made(self) -> Iterator[None]:
        """The namespace while the body runs."""
        with contextlib.ExitStack() as stack:
            number = self._take_number()
            stack.callback(run, "ip", "netns", "del", self.name)
            self.host, self._cable = f"{NETWORK}.{number}.1", f"lgch{number}"
            run("ip", "link", "add", self._cable, "type", "veth", "peer", "name", "up0", "netns", self.name)
            stack.callback(run, "ip", "link", "del", self._cable)
            run("ip", "addr", "add", f"{self.host}/30", "dev", self._cable)
            run("ip", "link", "set", self._cable, "up")
            run("ip", "-n", self.name, "addr", "add", f"{NETWORK}.{number}.2/30", "dev", "up0")
            run("ip", "-n", self.name, "link", "set", "up0", "up")
            yield

    def within(self, command: list[str]) -> list[str]:
        """`command` in the namespace; of mounts it sees what everybody sees."""
        return [str(shutil.which("nsenter")), f"--net=/run/netns/{self.name}", "--", *command]

    def unplug(self) -> None:
        """Takes the link down: both ends know at once."""
        run("ip", "link", "set", self._cable, "down")

    def plug(self) -> None:
        """Puts it up again."""
        run("ip", "link", "set", self._cable, "up")

    def swallow(self) -> None:
        """Drops every packet: nobody is told of it."""
        hooks = "".join(
            f"chain {hook} {{ type filter hook {hook} priority 0; policy drop; }}\n"
            for hook in ("input", "output")
        )
        self._nft(f"table inet chaos {{\n{hooks}}}\n")

    def pass_on(self) -> None:
        """Ends `swallow`."""
        self._nft("delete table inet chaos")

    def _take_number(self) -> int:
        """Makes the namespace under the first number that nobody has."""
        for number in range(1, 255):
            self.name = f"laggard-chaos-{number}"
            with contextlib.suppress(ServiceError):
                run("ip", "netns", "add", self.name)
                return number
        raise ServiceError("no network namespace can be made")

    def _nft(self, rules: str) -> None:
        command = self.within([str(shutil.which("nft")), "-f", "-"])
        subprocess.run(command, input=rules, text=True, check=True, capture_output=True, timeout=30)


class Disk:
    """A small file system of its own, in memory, at `path`."""

    def __init__(self, path: Path, size_mib: int) -> None:
        self.path = path
        self._size_mib = size_mib

    @contextlib.contextmanager
    def made(self) -> Iterator[None]:
        """The file system while the body runs."""
        self.path.mkdir()
        run("mount", "-t", "tmpfs", "-o", f"size={self._size_mib}m", "laggard-chaos", str(self.path))
        try:
            yield
        finally:
            run("umount", "-l", str(self.path))

    def fill(self) -> None:
        """Takes all space that is left."""
        with contextlib.suppress(OSError), self._filler.open("ab", buffering=0) as file:
            while True:
                file.write(bytes(_FILL_BYTES))

    def empty(self) -> None:
        """Gives it back."""
        self._filler.unlink(missing_ok=True)

    def freeze(self) -> None:
        """Makes it read-only. Nobody may have a file open for writing."""
        run("mount", "-o", "remount,ro", str(self.path))

    def thaw(self) -> None:
        """Ends `freeze`."""
        run("mount", "-o", "remount,rw", str(self.path))

    @property
    def _filler(self) -> Path:
        return self.path / "filler"


def run(*command: str) -> None:
    """Runs a command. Raises ServiceError when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise ServiceError(f"{' '.join(command)}: {done.stderr.strip()}")
