"""Laggard and all that it stands on as wheels in one folder: what is built from them needs no network.

`python packaging/wheels.py DIRECTORY`: for the minor version of this Python, its machine's architecture, and
any Linux with glibc 2.28 or later (EL 8, Debian 10). The only step of packaging that reads a package index,
for the versions in `requirements.txt`, whose hashes it checks.
"""

import argparse
import platform
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[1]
LOCK = PROJECT / "packaging" / "requirements.txt"
"""Versions and hashes of all that agent, aggregator and broker stand on; `make lock` writes it."""
GLIBC = ("2_28", "2_27", "2_26", "2_24", "2_17", "2_12", "2_5")
"""Versions of glibc that wheels may be built for; pip does not know that what runs on 2.5 runs on 2.28."""


def gather(folder: Path) -> None:
    """Fills `folder`, which is emptied before. Raises CalledProcessError when pip lacks a wheel."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(PROJECT))
    machine = platform.machine()
    tags = [f"manylinux_{version}_{machine}" for version in GLIBC]
    tags += [f"manylinux{year}_{machine}" for year in (2014, 2010, 1)]
    _pip(
        *("download", "--only-binary=:all:", "--no-deps", "--require-hashes", "--dest", str(folder)),
        *("--python-version", f"3.{sys.version_info.minor}", "--implementation", "cp"),
        *(f"--platform={tag}" for tag in tags),
        *("--requirement", str(LOCK)),
    )


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *arguments], check=True)


def main() -> int:
    """Gathers the wheels into the folder that the command line names."""
    parser = argparse.ArgumentParser(description="Gathers Laggard and all that it stands on as wheels.")
    parser.add_argument("directory", type=Path)
    try:
        gather(parser.parse_args().directory)
    except subprocess.CalledProcessError as exc:
        return int(exc.returncode)
    return 0


if __name__ == "__main__":
    sys.exit(main())
