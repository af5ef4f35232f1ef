"""Runs the README's two commands on a bare machine: Debian with Python, pip, make and git, and nothing else.

`python packaging/try_bare.py` as root, with debootstrap. A root made by debootstrap gets clones of the
project (what is committed), in which root and an ordinary user run `make demo DEMO_ARGS=--once` and
`make test`, each in a process namespace of its own. Prints exit codes and the processes that were left; exit
code 1 when a command failed or left a process. `--busy 4` runs four processes beside them that take all the
CPU they get.
"""

import argparse
import ast
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).parents[1]
SUITE = "bookworm"
PACKAGES = "python3,python3-venv,python3-pip,make,git"
COMMANDS = ("make demo DEMO_ARGS=--once", "make test")
USERS = {"root": (0, "/root"), "user": (1000, "/home/user")}
INIT = """
import json, os, subprocess, sys, time
root, home, uid, environment, commands, shown = json.loads(sys.argv[1])
def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)
mount("--bind", root, root)  # a machine has its root on a mount point
mount("-t", "proc", "proc", root + "/proc")
mount("-t", "sysfs", "-o", "ro", "sysfs", root + "/sys")
mount("--rbind", "/dev", root + "/dev")
mount("-t", "tmpfs", "tmpfs", root + "/dev/shm")
for path in shown:
    mount("--bind", "-o", "ro", path, root + path)
os.chroot(root)
os.chdir(home + "/laggard")
def processes():
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and name != "1":
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    found[name] = file.read().replace(b"\\0", b" ").decode(errors="replace")
            except OSError:
                pass
    return [f"{pid}: {command}" for pid, command in found.items() if command]  # zombies have no command line
def become():
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
wrong = False
for command in commands:
    began = time.monotonic()
    options = {"preexec_fn": become, "env": environment, "stdin": subprocess.DEVNULL}
    code = subprocess.run(["sh", "-c", command], **options).returncode
    seconds, left = time.monotonic() - began, processes()
    user = environment["USER"]
    print(f"=== {user}: {command}: exit code {code}, {seconds:.0f} s, processes left: {left}", flush=True)
    wrong = wrong or code != 0 or bool(left)
sys.exit(wrong)
"""
"""The first process of the namespace: sees every process that outlives its command."""


def output(*command: object) -> str:
    """What a command printed. Raises CalledProcessError when it fails."""
    return subprocess.run([*map(str, command)], check=True, stdout=subprocess.PIPE, text=True).stdout


def base(archive: Path, mirror: tuple[str, ...]) -> Path:
    """The bare machine as an archive, made once."""
    if not archive.exists():
        print(f"making {archive} (debootstrap {SUITE})", flush=True)
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            root = f"{folder}/root"
            output("debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, root, *mirror)
            output("tar", "--directory", root, "--create", "--file", archive, ".")
    return archive


def pip_environment() -> dict[str, str]:
    """This machine's configuration of pip, its proxies too, as environment variables."""
    found = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    for line in output(sys.executable, "-m", "pip", "config", "list").splitlines():
        name, value = line.split("=", 1)
        key = name.rpartition(".")[2].upper().replace("-", "_")
        found[f"PIP_{key}"] = str(ast.literal_eval(value)).replace("\n", " ").strip()
    return found


def shown(environment: dict[str, str]) -> list[str]:
    """Files and folders of this machine that the configuration of pip names: certificates, packages."""
    values = "\n".join(environment.values())
    paths = {Path(path) for path in re.findall(r"(?:^|\s)(/\S+)", values, re.MULTILINE)}
    # An index on the disk refers to files beside it.
    paths |= {Path(path).parent for path in re.findall(r"file://(/\S+)", values)}
    return sorted(str(path) for path in paths if path.exists())


def prepare(root: Path, archive: Path, environment: dict[str, str]) -> None:
    """Unpacks the bare machine and clones the project for each user."""
    root.mkdir()
    output("tar", "--directory", root, "--extract", "--file", archive)
    for name in ("etc/resolv.conf", "etc/hosts"):
        (root / name).write_bytes(Path("/", name).read_bytes())
    for path in map(Path, shown(environment)):
        place = root / path.relative_to("/")
        (place if path.is_dir() else place.parent).mkdir(parents=True, exist_ok=True)
        if path.is_file():
            place.touch()
    with (root / "etc/passwd").open("a") as file:
        file.write("user:x:1000:1000::/home/user:/bin/sh\n")
    for uid, home in USERS.values():
        clone = root / home.lstrip("/") / "laggard"
        clone.parent.mkdir(parents=True, exist_ok=True)
        output("git", "clone", "--quiet", "--no-hardlinks", PROJECT, clone)
        output("chown", "-R", f"{uid}:{uid}", clone.parent)


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """`count` processes that take all the CPU they get, while the block lasts."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(process.kill)
        yield


def run(root: Path, user: str, environment: dict[str, str], commands: list[str]) -> int:
    """Runs the commands in the root as a user; exit code 0 when all was as it should be."""
    uid, home = USERS[user]
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    inside = {"PATH": path, "HOME": home, "USER": user, "LANG": "C.UTF-8", **environment}
    options = ("--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")
    arguments = json.dumps([str(root), home, uid, inside, commands, shown(environment)])
    # The interpreter of this machine: the first process starts outside of the root.
    return subprocess.run(
        ["unshare", *options, sys.executable, "-c", INIT, arguments], check=False
    ).returncode


def main() -> int:
    """Tries the commands; the exit code says whether all was as it should be."""
    parser = argparse.ArgumentParser(description="Runs the README's two commands on a bare machine.")
    parser.add_argument("--cache", type=Path, default=PROJECT / "build/try", help="where the machine is kept")
    parser.add_argument("--mirror", help="mirror for debootstrap (default: its own)")
    parser.add_argument("--user", choices=USERS, action="append", help="only as this user")
    parser.add_argument("--command", action="append", help="only this command")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="run N busy processes beside")
    parser.add_argument("--cores", type=int, metavar="N", help="use the first N cores only")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))  # so that nothing outlives it
    cache = options.cache.resolve()
    archive = base(cache / f"bare-{SUITE}.tar", (options.mirror,) if options.mirror else ())
    environment = pip_environment()
    if options.cores:
        os.sched_setaffinity(0, range(options.cores))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        root = Path(folder, "root")
        prepare(root, archive, environment)
        with busy(options.busy):
            commands = options.command or list(COMMANDS)
            codes = [run(root, user, environment, commands) for user in options.user or USERS]
    print(f"{'WRONG' if any(codes) else 'all as it should be'}, {time.monotonic() - began:.0f} s")
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
