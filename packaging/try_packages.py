"""Installs, uses, upgrades and purges the two Debian packages on a clean machine, as an operator would.

`python packaging/try_packages.py` as root, with debootstrap, systemd-container, debhelper, lintian, curl,
mosquitto, prometheus, and wheels that `make wheels` gathered. It builds the packages twice (five minutes),
boots a clean Debian in a container without a network, and says of every step what was seen; exit code 1 when
one is not as it should be. No part of the tests: those take seconds.
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

from trial import PACKAGES, Trial, WrongError, beside, expect, listing, output, say  # noqa: E402

from laggard_aggregator.demo.recording import Recording, read_recording  # noqa: E402
from laggard_aggregator.demo.replay import Replay  # noqa: E402
from laggard_common.clock import SystemClock  # noqa: E402
from tests.support.container import booted  # noqa: E402
from tests.support.processes import running  # noqa: E402

SUITE = "bookworm"
BASE_PACKAGES = "systemd,systemd-sysv,dbus,iproute2,curl,python3,zlib1g"
"""The clean machine: what the packages depend on is there, as the container has no network to fetch it."""
MOST_COMPRESSED = 15e6
"""The agent's package in bytes, without Python."""
SPEED = 10
SHIFT_SAMPLES = 30


def build(project: Path, wheels: Path, revision: int, out: Path) -> None:
    """Builds the packages of a project with this Debian revision."""
    say(f"building revision {revision}")
    output(
        *(str(project / "packaging/deb/build"), str(wheels), str(out)),
        DEB_REVISION=str(revision),
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


def check_packages(debs: list[Path]) -> None:
    """Sizes, and what lintian says."""
    agent = debs[0]
    size = agent.stat().st_size
    expect(f"the agent's package has {size / 1e6:.1f} MB, at most 15", size <= MOST_COMPRESSED)
    say(f"  the aggregator's package has {debs[1].stat().st_size / 1e6:.0f} MB")
    for deb in debs:
        said = output("lintian", "--allow-root", "--fail-on", "error,warning", str(deb))
        expect(f"lintian has nothing to say of {deb.name}", not said.strip())


def base(archive: Path, mirror: tuple[str, ...]) -> Path:
    """The clean machine as an archive, made once."""
    if not archive.exists():
        say(f"making {archive} (debootstrap {SUITE})")
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            root = f"{folder}/root"
            output("debootstrap", "--variant=minbase", f"--include={BASE_PACKAGES}", SUITE, root, *mirror)
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
    trial.upgrade(second)
    trial.purge(before)


async def attempt(first: list[Path], second: list[Path], archive: Path, work: Path) -> None:
    """All steps, on a machine in `work`. Raises WrongError or AssertionError."""
    root = work / "root"
    prepare(root, archive)
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
            trial = Trial(root, work, machine, begin, f"oss-1/{recording.faulty}")
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
    parser = argparse.ArgumentParser(description="Installs, uses, upgrades and purges the Debian packages.")
    parser.add_argument(
        "--wheels", type=Path, default=PROJECT / "build/wheels", help="what wheels.py gathered"
    )
    parser.add_argument(
        "--cache", type=Path, default=PROJECT / "build/try", help="packages and clean machine"
    )
    parser.add_argument("--mirror", help="mirror for debootstrap (default: its own)")
    parser.add_argument("--as-built", action="store_true", help="take the packages of the last time")
    options = parser.parse_args()
    debs = options.cache / "debs"
    debs.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    try:
        if not options.as_built:
            for old in debs.iterdir():
                old.unlink()
            with tempfile.TemporaryDirectory() as folder:
                build(PROJECT, options.wheels, 1, debs)
                build(next_version(Path(folder)), options.wheels, 2, debs)
        first, second = ([next(debs.glob(f"{name}_*-{n}_*.deb")) for name in PACKAGES] for n in (1, 2))
        say("packages")
        check_packages(first)
        archive = base(options.cache.resolve() / "base.tar", (options.mirror,) if options.mirror else ())
        with tempfile.TemporaryDirectory(dir=options.cache.resolve(), ignore_cleanup_errors=True) as folder:
            asyncio.run(attempt(first, second, archive, Path(folder)))
    except (WrongError, AssertionError) as exc:
        say(f"  WRONG: {exc}")
        return 1
    say(f"all as it should be, {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
