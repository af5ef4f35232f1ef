"""fio in control groups of a real kernel: the collector's bytes are those that fio moved."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from laggard_agent.collectors.cgroup.collector import Cgroup, CgroupSettings
from tests.support.processes import run_command, started
from tests.support.sampled import Sampled, surroundings

ROOT = Path("/sys/fs/cgroup")
FIO = shutil.which("fio")
V1 = (ROOT / "blkio/blkio.throttle.io_service_bytes_recursive").exists()
V2 = (ROOT / "cgroup.controllers").exists() and "io" in (ROOT / "cgroup.controllers").read_text().split()

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="control groups and loop devices need root"),
    pytest.mark.skipif(FIO is None, reason="needs fio"),
    pytest.mark.skipif(not V1 and not V2, reason="this kernel has neither blkio of v1 nor io of v2"),
]

VOLUMES = {"7101": (24, 8), "7102": (4, 48), "7103": (16, 0)}
"""MiB that each job reads and writes."""


@pytest.fixture
def loop_device(tmp_path: Path) -> Iterator[str]:
    file = tmp_path / "disk"
    with file.open("wb") as opened:
        opened.truncate(64 * 1024 * 1024)
    done = run_command(["losetup", "--find", "--show", str(file)], check=False)
    if done.returncode:
        pytest.skip(f"no loop device: {done.stderr.strip()}")
    device = done.stdout.strip()
    start_counting(device)
    yield device
    run_command(["losetup", "--detach", device])


@pytest.fixture
def jobs() -> Iterator[dict[str, list[Path]]]:
    """Folders of the jobs, one for each controller of v1; removed at the end."""
    name = f"laggardtest{os.getpid()}"
    with ExitStack() as stack:
        if not V1:
            control = ROOT / "system.slice/cgroup.subtree_control"
            _make(control.parent, stack)
            scope = ROOT / "system.slice" / f"{name}_slurmstepd.scope"
            _make(scope, stack)
            for each in (ROOT / "cgroup.subtree_control", control, scope / "cgroup.subtree_control"):
                each.write_text("+io")
        found: dict[str, list[Path]] = {}
        for job in VOLUMES:
            below = f"slurm_{name}/uid_4711/job_{job}"
            trees = [ROOT / each for each in ("freezer", "blkio", "cpuacct", "memory")]
            paths = [tree / below for tree in trees if tree.is_dir()] if V1 else [scope / f"job_{job}"]
            for path in paths:
                for folder in (path.parent.parent, path.parent, path) if V1 else (path,):
                    _make(folder, stack)
            found[f"{name}/{job}"] = paths
        yield found


def _make(folder: Path, stack: ExitStack) -> None:
    if not folder.exists():
        folder.mkdir()
        stack.callback(folder.rmdir)


def start_counting(device: str) -> None:
    """Sets and clears a limit: since Linux 6.10 blkio of v1 counts the I/O of a device from then on."""
    limit = ROOT / "blkio/blkio.throttle.read_bps_device"
    if limit.exists():
        number = (Path("/sys/block") / device.removeprefix("/dev/") / "dev").read_text().strip()
        limit.write_text(f"{number} {2**40}")
        limit.write_text(f"{number} 0")


def fio(stack: ExitStack, device: str, job: str, paths: list[Path]) -> "subprocess.Popen[str]":
    """A fio that enters the control group and then reads and writes as `VOLUMES` has it, with O_DIRECT."""
    enter = "".join(f"echo $$ > {path}/cgroup.procs; " for path in paths)
    command = f"{FIO} --output-format=json --direct=1 --ioengine=psync --bs=64k --filename={device}"
    for kind, mib in zip(("read", "write"), VOLUMES[job], strict=True):
        command += f" --name={kind} --rw={kind} --size={mib}m" if mib else ""
    return stack.enter_context(
        started(["sh", "-c", f"{enter} exec {command}"], stdout=subprocess.PIPE, text=True)
    )


def test_bytes_are_those_of_fio(loop_device: str, jobs: dict[str, list[Path]]) -> None:
    settings = CgroupSettings(include=(loop_device.removeprefix("/dev/"),))
    sampled = Sampled(lambda now, mono: Cgroup(settings, surroundings(now, mono))).sample()
    assert set(sampled.ids("cgroup")) >= set(jobs)
    moved = {}
    with ExitStack() as stack:
        running = {id_: fio(stack, loop_device, id_.partition("/")[2], paths) for id_, paths in jobs.items()}
        for id_, process in running.items():
            output, _ = process.communicate()
            assert process.returncode == 0
            done = json.loads(output[output.index("{") :])["jobs"]
            moved[id_] = [sum(job[way]["io_bytes"] for job in done) for way in ("read", "write")]
    for _ in range(11):
        sampled.sample()
    for id_, (read, written) in moved.items():
        row = sampled.row("cgroup", id_)
        print(f"{id_}: fio {read} {written}, collector {row['read_bytes']} {row['written_bytes']}")
        assert read + written >= 16 * 1024 * 1024
        assert row["read_bytes"] == pytest.approx(read, rel=0.01)
        assert row["written_bytes"] == pytest.approx(written, rel=0.01)
        assert row["read_ios"]


def test_a_job_in_place_of_another_is_seen_at_once(jobs: dict[str, list[Path]]) -> None:
    sampled = Sampled(lambda now, mono: Cgroup(CgroupSettings(), surroundings(now, mono))).sample().sample()
    (id_, paths), *others = jobs.items()
    new = [path.with_name("job_7200") for path in paths]
    with ExitStack() as stack:
        for old, path in zip(paths, new, strict=True):  # as many folders as before
            old.rmdir()
            stack.callback(old.mkdir)
            path.mkdir()
            stack.callback(path.rmdir)
        sampled.sample()
        seen = [each for each in sampled.ids("cgroup") if each.partition("/")[0] == id_.partition("/")[0]]
        assert sorted(seen) == sorted([*(name for name, _ in others), f"{id_.partition('/')[0]}/7200"])
    sampled.sample()
    assert set(sampled.ids("cgroup")) >= set(jobs)
