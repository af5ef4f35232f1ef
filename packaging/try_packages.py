"""Installs, uses, upgrades, rolls back and purges the two packages on a clean machine, as an operator would.

`python packaging/try_packages.py` as root, with debootstrap, systemd-container, debhelper and lintian (or
rpm), curl, mosquitto, prometheus, and wheels that `make wheels` gathered. It builds the packages twice (five
minutes), boots a clean Debian in a container without a network, and prints the result of every step; exit
code 1 when one is not as it should be. RPMs are tried with Debian's rpm. No part of the tests: those take
seconds.
"""

import argparse
import asyncio
import dataclasses
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

PROJECT = Path(__file__).parents[1]
sys.path[:0] = [str(PROJECT), *(str(PROJECT / part) for part in ("common", "agent", "aggregator"))]

from trial import (  # noqa: E402
    MANAGERS,
    PACKAGES,
    PackageManager,
    Trial,
    WrongError,
    beside,
    expect,
    listing,
    output,
    say,
)

from laggard_aggregator.demo.recording import Recording, read_recording  # noqa: E402
from laggard_aggregator.demo.replay import Replay  # noqa: E402
from laggard_common.clock import SystemClock  # noqa: E402
from tests.support.container import booted  # noqa: E402
from tests.support.processes import running  # noqa: E402

SUITE = "bookworm"
BASE_PACKAGES = "systemd,systemd-sysv,dbus,iproute2,curl,python3,rpm,zlib1g"
"""The clean machine: what the packages depend on is there, as the container has no network to fetch it."""
MOST_COMPRESSED = 15e6
"""The agent's package in bytes, without Python."""
SPEED = 10
SHIFT_SAMPLES = 30


def build(project: Path, wheels: Path, out: Path, manager: PackageManager) -> None:
    """Builds the packages of a project, with the name of `out` as their revision."""
    say(f"building revision {out.name}")
    kind = manager.suffix.removeprefix(".")
    output(
        *(str(project / "packaging" / kind / "build"), str(wheels), str(out)),
        REVISION=out.name,
        PYTHON=sys.executable,
    )


def next_version(folder: Path) -> Path:
    """A copy of this project with another sample configuration: one that dpkg would ask about."""
    names = output("git", "-C", str(PROJECT), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, names.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / name, folder / name)
    for sample in ("agent.toml", "aggregator.toml"):
        path = folder / "deploy" / sample
        path.write_text("## The sample of the next version.\n" + path.read_text())
    return folder


def check_packages(packages: list[Path], manager: PackageManager) -> None:
    """Sizes, and the reports of lintian or rpm/check."""
    agent, aggregator = packages
    size = agent.stat().st_size
    expect(f"the agent's package has {size / 1e6:.1f} MB, at most 15", size <= MOST_COMPRESSED)
    say(f"  the aggregator's package has {aggregator.stat().st_size / 1e6:.0f} MB")
    if manager.suffix == ".rpm":
        say(output(str(PROJECT / "packaging/rpm/check"), str(agent.parent)))
        return
    for package in packages:
        said = output("lintian", "--allow-root", "--fail-on", "error,warning", str(package))
        expect(f"lintian reports nothing of {package.name}", not said.strip())


def base(archive: Path, mirror: tuple[str, ...] = (), packages: str = BASE_PACKAGES) -> Path:
    """The clean machine as an archive, made once."""
    if not archive.exists():
        say(f"making {archive} (debootstrap {SUITE})")
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            root = f"{folder}/root"
            output("debootstrap", "--variant=minbase", f"--include={packages}", SUITE, root, *mirror)
            output("tar", "--directory", root, "--create", "--file", str(archive), ".")
    return archive


def lasting(recording: Recording) -> Recording:
    """A recording whose fault goes on: what was recorded of it is repeated without end."""
    samples = tuple(sample for sample in recording.samples if sample.time <= recording.fault_end)
    return dataclasses.replace(recording, samples=samples, fault_end=recording.fault_start + 30)


def prepare(root: Path, archive: Path) -> None:
    """Unpacks the clean machine and tells it where its broker is."""
    root.mkdir()
    output("tar", "--directory", str(root), "--extract", "--file", str(archive))
    with (root / "etc/hosts").open("a") as file:
        file.write("127.0.0.1 localhost\n127.0.0.2 broker\n")


def walk(trial: Trial, first: list[Path], second: list[Path], others: ExitStack) -> None:
    """The steps in their order."""
    before = listing(trial.root)
    trial.first_installation(first)
    trial.sizes()
    trial.configure()
    for number, command in enumerate(beside(trial)):
        others.enter_context(running(command, trial.work / f"beside-{number}.log"))
    trial.start()
    trial.see()
    trial.back_up()
    trial.upgrade(second)
    trial.roll_back(first)
    trial.remove()
    trial.purge(before)


async def attempt(
    first: list[Path], second: list[Path], archive: Path, work: Path, manager: PackageManager
) -> None:
    """All steps, on a machine in `work`. Raises WrongError or AssertionError."""
    root = work / "root"
    prepare(root, archive)
    for folder in manager.folders:
        (root / folder).mkdir(parents=True, exist_ok=True)
    recording = lasting(read_recording())
    roots = dict.fromkeys(recording.luns, root / "srv/proc")
    replay = Replay(recording, roots, SPEED, SystemClock(), SHIFT_SAMPLES)
    replay.prepare()
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    replays: list[asyncio.Task[None]] = []

    def begin() -> None:
        loop.call_soon_threadsafe(lambda: replays.append(asyncio.create_task(replay.run(over))))

    def steps() -> None:
        with booted(root, work / "console.log") as machine, ExitStack() as others:
            trial = Trial(manager, root, work, machine, begin, f"oss-1/{recording.faulty}")
            try:
                walk(trial, first, second, others)
            except BaseException:
                say(trial.journal())
                raise

    try:
        await asyncio.to_thread(steps)
    finally:
        over.set()
        await asyncio.gather(*replays)


def main() -> int:
    """Tries the packages; the exit code says whether all was as it should be."""
    parser = argparse.ArgumentParser(description="Installs, uses, upgrades, rolls back and purges packages.")
    parser.add_argument(
        "--wheels", type=Path, default=PROJECT / "build/wheels", help="what wheels.py gathered"
    )
    parser.add_argument(
        "--cache", type=Path, default=PROJECT / "build/try", help="packages and clean machine"
    )
    parser.add_argument("--format", choices=MANAGERS, default="deb", help="format of the packages")
    parser.add_argument("--mirror", help="mirror for debootstrap (default: its own)")
    parser.add_argument("--as-built", action="store_true", help="take the packages of the last time")
    options = parser.parse_args()
    manager = MANAGERS[options.format]
    built = [options.cache / f"{options.format}s" / revision for revision in ("1", "2")]
    begun = time.monotonic()
    try:
        if not options.as_built:
            with tempfile.TemporaryDirectory() as folder:
                for project, out in zip((PROJECT, next_version(Path(folder))), built, strict=True):
                    shutil.rmtree(out, ignore_errors=True)
                    build(project, options.wheels, out, manager)
        first, second = ([next(out.glob(f"{name}*{manager.suffix}")) for name in PACKAGES] for out in built)
        say("packages")
        check_packages(first, manager)
        archive = base(options.cache.resolve() / "base.tar", (options.mirror,) if options.mirror else ())
        with tempfile.TemporaryDirectory(dir=options.cache.resolve(), ignore_cleanup_errors=True) as folder:
            asyncio.run(attempt(first, second, archive, Path(folder), manager))
    except (WrongError, AssertionError) as exc:
        say(f"  WRONG: {exc}")
        return 1
    say(f"all as it should be, {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
