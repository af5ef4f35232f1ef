"""The load on the LUNs: one fio process, the same profile on every LUN.

Pauses (`thinktime`) hold the rate down, not `rate_iops`: fio's rate limiter makes up for lost time, so a LUN
that was slow for five minutes would get a flood as soon as it recovers. The pauses do not, and each job has
one request in flight, as an application that waits for its data.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.testbed.luns import Lun, TestbedError, process

LAYOUT_SECONDS = 180.0
SETTLE_SECONDS = 5.0

COMMON = {
    "direct": "1",
    "ioengine": "psync",
    "size": "32m",
    "fallocate": "none",  # unwritten extents would be read without touching the disk
    "time_based": "1",
    "thread": "1",
    "group_reporting": "1",
}

# Per LUN: a reader and a writer of large blocks in bursts, and two jobs of small mixed requests.
JOBS: dict[str, dict[str, str]] = {
    "stream-read": {"rw": "read", "bs": "128k", "thinktime": "400ms", "thinktime_blocks": "4"},
    "stream-write": {"rw": "write", "bs": "256k", "thinktime": "1200ms", "thinktime_blocks": "4"},
    "random-mix": {
        "rw": "randrw",
        "rwmixread": "70",
        "bssplit": "4k/50:16k/30:64k/20",
        "thinktime": "25ms",
        "numjobs": "2",
    },
}


def profile() -> str:
    """Return the profile on one line, as it goes into a recording's header."""
    jobs = (f"[{name}] {_options(options)}" for name, options in JOBS.items())
    return f"{_options(COMMON)} " + " ".join(jobs)


@contextmanager
def fio_load(luns: Sequence[Lun], folder: Path, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    """Yield fio at work on every LUN, its files laid out and its load settled; it ends by itself
    after `seconds`.

    `folder` takes the job file. Raises TestbedError without fio, or when laying out the files fails.
    """
    if shutil.which("fio") is None:
        raise TestbedError("fio is not installed")
    layout = _job_file(luns, folder / "layout.fio", {**COMMON, "create_only": "1"})
    try:
        subprocess.run(["fio", layout], check=True, capture_output=True, timeout=LAYOUT_SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as exc:
        raise TestbedError(f"fio could not lay out its files: {exc}") from exc
    runtime = {**COMMON, "runtime": f"{seconds + SETTLE_SECONDS:.0f}"}
    with process(["fio", "--output=/dev/null", _job_file(luns, folder / "load.fio", runtime)]) as running:
        time.sleep(SETTLE_SECONDS)
        yield running


def _job_file(luns: Sequence[Lun], path: Path, common: dict[str, str]) -> str:
    """Write a fio job file, every job on every LUN with a seed of its own, and return its path."""
    sections = ["[global]\n" + _options(common, "\n")]
    for lun in luns:
        for number, (name, options) in enumerate(JOBS.items()):
            seed = {"directory": str(lun.mount), "randseed": str(1000 * (lun.index + 1) + number)}
            sections.append(f"[lun{lun.index}-{name}]\n" + _options({**options, **seed}, "\n"))
    path.write_text("\n\n".join(sections) + "\n")
    return str(path)


def _options(options: dict[str, str], separator: str = " ") -> str:
    return separator.join(f"{key}={value}" for key, value in options.items())
