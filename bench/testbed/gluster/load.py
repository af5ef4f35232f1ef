"""The applications: one fio a client, on files of which every brick has as many.

As on the LUNs alone (`bench.testbed.load`) pauses hold the rate down, and every job waits for its answer.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.testbed.gluster.cluster import MOUNT, Brick, Cluster, spread_files
from bench.testbed.hosts import Host, running
from bench.testbed.luns import CannotRunError, TestbedError, run

COMMON = {
    "direct": "1",
    "ioengine": "psync",
    "size": "8m",
    "fallocate": "none",
    "time_based": "1",
    "thread": "1",
    "group_reporting": "1",
    "thinktime_blocks": "1",
}
JOBS: Mapping[str, Mapping[str, str]] = {
    "read": {"rw": "randread", "bs": "16k", "thinktime": "60ms"},
    "write": {"rw": "randwrite", "bs": "64k", "thinktime": "60ms"},
}
Files = Mapping[Host, Mapping[Brick, Sequence[str]]]


def lay_out(made: Cluster) -> Files:
    """Return the files of each client by brick, one a job of JOBS, written in full. Raises TestbedError."""
    if shutil.which("fio") is None:
        raise CannotRunError("fio is not installed (package fio)")
    files = {client: spread_files(made, client, client.name, len(JOBS)) for client in made.clients}
    for client in made.clients:
        names = [str(MOUNT / name) for chosen in files[client].values() for name in chosen]
        fill = 'for name; do dd if=/dev/zero of="$name" bs=1M count=8 conv=notrunc status=none || exit; done'
        run(*client.command("sh", "-c", fill, "sh", *names))
    return files


@contextmanager
def load(files: Files, jobs: Sequence[str], folder: Path, seconds: float) -> Iterator[None]:
    """Keep fio at work on every client while the context lasts; it ends by itself after `seconds`.

    `jobs`: which of JOBS. `folder` takes the job files and what fio says. Raises TestbedError when one of
    them did not last as long as the context.
    """
    with ExitStack() as stack:
        started = []
        for number, (client, of_brick) in enumerate(files.items()):
            path = folder / f"{client.name}.fio"
            path.write_text(_job_file(of_brick, jobs, seconds, 1000 * number))
            log = folder / f"{client.name}.fio.log"
            command = ["fio", "--output", str(folder / f"{client.name}.fio.out"), str(path)]
            started.append(stack.enter_context(running(client, command, log)))
        yield
        for fio in started:
            if fio.poll() is not None:
                raise TestbedError(f"fio ended early with {fio.returncode}")


def _job_file(files: Mapping[Brick, Sequence[str]], jobs: Sequence[str], seconds: float, seed: int) -> str:
    """Return a fio job file: each job on the file that is its own, on every brick."""
    sections = [_section("global", {**COMMON, "runtime": f"{seconds:.0f}"})]
    for at, (brick, names) in enumerate(files.items()):
        for name, (job, options) in zip(names, JOBS.items(), strict=True):
            if job in jobs:
                where = {"filename": str(MOUNT / name), "randseed": str(seed + 10 * at + len(sections))}
                sections.append(_section(f"{brick.server}-{brick.folder}-{job}", {**options, **where}))
    return "\n\n".join(sections) + "\n"


def _section(name: str, options: Mapping[str, str]) -> str:
    return f"[{name}]\n" + "\n".join(f"{key}={value}" for key, value in options.items())
