"""A booted systemd of its own: systemd-nspawn over an overlay of this host, thrown away afterwards."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import run_command, running
from tests.support.wait import LONG_TEST_LIMIT_SECONDS, wait_until

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

    def run(self, *command: str) -> str:
        """What a command inside printed. When it fails, fails with what it and the units said."""
        tried = run_command([*self._enter, *command], check=False, seconds=LONG_TEST_LIMIT_SECONDS)
        if tried.returncode != 0:
            logs = ("journalctl", "--no-pager", "--lines=60", "--unit=laggard-*", "--unit=mosquitto")
            journal = run_command([*self._enter, *logs], check=False).stdout
            raise AssertionError(f"{command}: exit code {tried.returncode}\n{tried.stderr}{journal}")
        return tried.stdout

    def unit(self, name: str) -> dict[str, str]:
        """The properties of a unit."""
        return dict(line.split("=", 1) for line in self.run("systemctl", "show", name).splitlines())


@contextlib.contextmanager
def overlaid(folder: Path) -> Iterator[Path]:
    """This host's root with a layer above it that takes all changes, in memory."""
    run_command(["mount", "-t", "tmpfs", "tmpfs", folder])
    try:
        upper, work, root = (folder / name for name in ("upper", "work", "root"))
        for made in (upper, work, root):
            made.mkdir()
        layers = f"lowerdir=/,upperdir={upper},workdir={work}"
        mounted = run_command(["mount", "-t", "overlay", "overlay", "-o", layers, root], check=False)
        if mounted.returncode:
            pytest.skip(f"no overlay of this host's root: {mounted.stderr.strip()}")
        try:
            yield root
        finally:
            run_command(["umount", "--lazy", root])
    finally:
        run_command(["umount", "--lazy", folder])


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
    tried = run_command([nspawn, *options, "/bin/true"], check=False)
    if tried.returncode:
        pytest.skip(f"no containers here: {tried.stderr.strip().splitlines()[-1:]}")
    cgroups: list[Path] = []
    try:
        with running([nspawn, *options, "--boot", "systemd.unit=basic.target"], log) as machine:
            try:
                yield Container(_leader(machine))
            finally:
                cgroups = _cgroups(machine.pid)
    finally:
        for cgroup in cgroups:
            _remove_empty(cgroup)


def _leader(machine: "subprocess.Popen[Any]") -> int:
    """The process id of the systemd inside, once it has reached its target."""

    def up() -> int:
        assert machine.poll() is None, "the container ended"
        children = Path(f"/proc/{machine.pid}/task/{machine.pid}/children").read_text().split()
        if not children:
            return 0
        enter = ("nsenter", "--target", children[0], "--mount", "--pid", "--")
        asked = run_command([*enter, "systemctl", "is-active", "basic.target"], check=False)
        return int(children[0]) if asked.returncode == 0 else 0

    return int(wait_until(up, "systemd to have booted"))


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
