"""A booted systemd of its own: systemd-nspawn over an overlay of this host, thrown away afterwards."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.processes import until

PROJECT = Path(__file__).parents[2]
CGROUPS = Path("/sys/fs/cgroup")
SITE_PACKAGES = Path(pytest.__file__).parents[1]
PROGRAM = """\
#!/bin/sh
export PYTHONPATH=/opt/laggard/src/common:/opt/laggard/src/agent:/opt/laggard/src/aggregator:/opt/laggard/site
export PYTHONDONTWRITEBYTECODE=1 LD_LIBRARY_PATH=/opt/laggard/python/lib
exec /opt/laggard/python/bin/{python} -c 'import sys; from {module} import main; sys.exit(main())' "$@"
"""
PROGRAMS = {
    "laggard": "laggard_aggregator.cli.main",
    "laggard-agent": "laggard_agent.__main__",
    "laggard-aggregator": "laggard_aggregator.cli.daemon",
}


BINDS = (
    f"--bind-ro={sys.base_prefix}:/opt/laggard/python",
    f"--bind-ro={PROJECT}:/opt/laggard/src",
    f"--bind-ro={SITE_PACKAGES}:/opt/laggard/site",
)
"""What the programs of `install_programs` run from."""


class Container:
    """A machine that has booted. `leader`: its systemd, as this host numbers it."""

    def __init__(self, leader: int) -> None:
        self.network = f"/proc/{leader}/ns/net"
        self._enter = (
            "nsenter",
            "--target",
            str(leader),
            "--mount",
            "--uts",
            "--ipc",
            "--net",
            "--pid",
            "--",
        )

    def run(self, *command: str, seconds: float = 60) -> str:
        """What a command inside printed. Fails with what it said when it fails."""
        done = subprocess.run(
            [*self._enter, *command], capture_output=True, text=True, timeout=seconds, check=False
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def unit(self, name: str) -> dict[str, str]:
        """The properties of a unit."""
        return dict(line.split("=", 1) for line in self.run("systemctl", "show", name).splitlines())


@contextlib.contextmanager
def overlaid(folder: Path) -> Iterator[Path]:
    """This host's root with a layer above it that takes all changes, in memory."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(folder)], check=True)
    try:
        upper, work, root = (folder / name for name in ("upper", "work", "root"))
        for made in (upper, work, root):
            made.mkdir()
        layers = f"lowerdir=/,upperdir={upper},workdir={work}"
        mounted = subprocess.run(
            ["mount", "-t", "overlay", "overlay", "-o", layers, str(root)], capture_output=True, check=False
        )
        if mounted.returncode:
            pytest.skip(f"no overlay of this host's root: {mounted.stderr.decode().strip()}")
        try:
            yield root
        finally:
            subprocess.run(["umount", "--lazy", str(root)], check=True)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def install_programs(root: Path) -> None:
    """Puts the programs of this tree where the units expect them."""
    for name, module in PROGRAMS.items():
        program = root / "opt" / "laggard" / "bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(PROGRAM.format(module=module, python=f"python3.{sys.version_info.minor}"))
        program.chmod(0o755)
    for name in ("python", "src", "site"):
        (root / "opt" / "laggard" / name).mkdir()


@contextlib.contextmanager
def booted(root: Path, log: Path, *binds: str) -> Iterator[Container]:
    """A machine on `root`, without a network but its loopback, until the block ends. Its console is `log`.

    `binds`: options of systemd-nspawn that show it folders of this host.
    """
    nspawn = shutil.which("systemd-nspawn")
    assert nspawn is not None
    options = [
        f"--directory={root}",
        f"--machine=laggard-{os.getpid()}",
        "--register=no",
        "--keep-unit",
        "--private-network",
        "--link-journal=no",
        "--console=pipe",
        "--capability=CAP_PERFMON,CAP_SYSLOG",
        "--system-call-filter=perf_event_open",
        *binds,
    ]
    tried = subprocess.run(
        [nspawn, *options, "/bin/true"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )
    if tried.returncode:
        pytest.skip(f"no containers here: {tried.stderr.decode().strip().splitlines()[-1:]}")
    with log.open("wb") as console:
        machine = subprocess.Popen(
            [nspawn, *options, "--boot", "systemd.unit=basic.target"],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
        )
    try:
        yield Container(_leader(machine))
    except BaseException:
        print(log.read_text(errors="replace")[-4000:])
        raise
    finally:
        cgroups = _cgroups(machine.pid)
        machine.send_signal(signal.SIGTERM)
        try:
            machine.wait(20)
        except subprocess.TimeoutExpired:
            machine.kill()
            machine.wait()
        for cgroup in cgroups:
            _remove_empty(cgroup)


def _leader(machine: "subprocess.Popen[bytes]") -> int:
    """The process id of the systemd inside, once it has reached its target."""

    def up() -> int:
        assert machine.poll() is None, "the container ended"
        children = Path(f"/proc/{machine.pid}/task/{machine.pid}/children").read_text().split()
        if not children:
            return 0
        enter = ("nsenter", "--target", children[0], "--mount", "--pid", "--")
        asked = subprocess.run(
            [*enter, "systemctl", "is-active", "basic.target"], capture_output=True, timeout=20, check=False
        )
        return int(children[0]) if asked.returncode == 0 else 0

    return int(until("systemd to have booted", up, 60))


def _cgroups(nspawn: int) -> list[Path]:
    """The control groups that systemd-nspawn made for itself and the container, which it leaves behind."""
    try:
        lines = Path(f"/proc/{nspawn}/cgroup").read_text().splitlines()
    except FileNotFoundError:  # it ended by itself
        return []
    own = {line.split(":", 2)[2] for line in lines if line.endswith("/supervisor")}
    roots = [root for root in (CGROUPS, CGROUPS / "systemd", CGROUPS / "unified") if root.is_dir()]
    parents = {Path(f"{root}{path}").parent for root in roots for path in own}
    return [parent / name for parent in parents for name in ("payload", "supervisor")]


def _remove_empty(cgroup: Path) -> None:
    """Removes a control group and those below, but none in which a process is."""
    for folder in sorted((cgroup, *cgroup.glob("**/")), key=lambda path: -len(path.parts)):
        with contextlib.suppress(OSError):
            folder.rmdir()
