"""The hook of Slurm's prologs and epilogs: one complete document, exit code 0, no waiting."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import run_command
from tests.support.wait import wait_until

HOOK = Path(__file__).resolve().parents[2] / "deploy/slurm/laggard-job-hook"
HOSTILE = "a\"b\\c|d\n\te'$(touch x)`f`\x01;{}%s é"
SLURM = {
    "SLURM_CLUSTER_NAME": "lab",
    "SLURM_SCRIPT_CONTEXT": "prolog_slurmctld",
    "SLURM_JOB_ID": "42",
    "SLURM_JOB_UID": "2001",
    "SLURM_JOB_USER": "alice",
    "SLURM_JOB_NAME": HOSTILE,
    "SLURM_JOB_NODELIST": "node[01-02]",
    "SLURM_JOB_RESTART_COUNT": "0",
}


@pytest.fixture(autouse=True)
def syslog(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that stands for syslog; the hook's mark is in a folder of this test."""
    folder = tmp_path_factory.mktemp("host")
    (folder / "logger").write_text(f'#!/bin/sh\necho "$@" >>{folder}/syslog\n')
    (folder / "logger").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder / "syslog"


def call(outbox: Path, **variables: str) -> None:
    """A call as Slurm makes it: with few variables, and nothing on standard output."""
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR")}
    environment = {**kept, "LAGGARD_OUTBOX": str(outbox), **SLURM, **variables}
    done = run_command([HOOK], env=environment)
    assert (done.stdout, done.stderr) == ("", "")


def documents(outbox: Path) -> list[Path]:
    return sorted(path for path in outbox.iterdir() if not path.name.startswith("."))


def document(outbox: Path) -> dict[str, Any]:
    (path,) = wait_until(lambda: documents(outbox), "a document")
    assert path.suffix == ".jobs"
    return dict(json.loads(path.read_text()))


def test_a_document(tmp_path: Path) -> None:
    call(tmp_path)
    found = document(tmp_path)
    assert (found["hook"], found["script_context"], found["job_id"]) == (1, "prolog_slurmctld", "42")
    assert found["job_name"] == HOSTILE
    assert found["time"] > 1.7e9
    assert "array_job_id" not in found
    assert list(tmp_path.iterdir()) == documents(tmp_path)


@pytest.mark.parametrize("before", range(4))
def test_long_values_are_cut_between_characters_and_marked(tmp_path: Path, before: int) -> None:
    call(tmp_path, SLURM_JOB_NAME="x" * before + "😀" * 10_000, SLURM_JOB_ACCOUNT="a" * 4096)
    found = document(tmp_path)
    assert found["job_name"] == "x" * before + "😀" * ((4096 - before) // 4)
    assert (found["cut"], found["job_account"]) == (["job_name"], "a" * 4096)


def test_the_nodes_of_a_fragmented_job_are_whole(tmp_path: Path) -> None:
    nodes = f"node[{','.join(str(n) for n in range(1, 40_000, 2))}]"
    assert len(nodes) > 100_000
    call(tmp_path, SLURM_JOB_NODELIST=nodes)
    found = document(tmp_path)
    assert found["job_nodelist"] == nodes
    assert "cut" not in found


def test_lost_documents_are_told_once_until_one_is_written(tmp_path: Path, syslog: Path) -> None:
    outbox = tmp_path / "outbox"
    for _ in range(3):
        call(outbox)
    wait_until(syslog.exists, "a line in syslog")
    outbox.mkdir()
    call(outbox)
    document(outbox)
    wait_until(lambda: not list(syslog.parent.glob(".laggard*")), "the end of the mark")
    outbox.rename(tmp_path / "elsewhere")
    call(outbox)
    lines = wait_until(lambda: len(syslog.read_text().splitlines()) == 2 and syslog, "a second line")
    assert isinstance(lines, Path)
    assert all("job 42: its document is lost" in line for line in lines.read_text().splitlines())


def test_of_many_calls_each_leaves_one(tmp_path: Path) -> None:
    for number in range(20):
        call(tmp_path, SLURM_JOB_ID=str(number))
    paths = wait_until(lambda: len(documents(tmp_path)) == 20 and documents(tmp_path), "20 documents")
    assert isinstance(paths, list)
    assert sorted(int(json.loads(path.read_text())["job_id"]) for path in paths) == list(range(20))


def test_a_missing_folder(tmp_path: Path) -> None:
    call(tmp_path / "missing")


def test_a_folder_that_nobody_may_write(tmp_path: Path) -> None:
    (tmp_path / "outbox").write_text("a file in its place")
    call(tmp_path / "outbox")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_full_disk(tmp_path: Path, syslog: Path) -> None:
    """Nothing incomplete is left on a file system without room."""
    mounted = run_command(["mount", "-t", "tmpfs", "-o", "size=8k", "none", tmp_path], check=False)
    if mounted.returncode:
        pytest.skip("no tmpfs can be mounted")
    try:
        (tmp_path / "filler").write_bytes(bytes(4096))
        long = {
            f"SLURM_JOB_{name}": "x" * 4096 for name in ("NAME", "NODELIST", "ACCOUNT", "USER", "PARTITION")
        }
        call(tmp_path, **long)
        wait_until(syslog.exists, "a line in syslog")
        wait_until(lambda: not list(tmp_path.glob(".*")), "the end of the writer")
        assert "cannot write to" in syslog.read_text()
        assert all(json.loads(path.read_text()) for path in tmp_path.glob("*.jobs"))
    finally:
        wait_until(lambda: run_command(["umount", tmp_path], check=False).returncode == 0, "umount")


def test_a_folder_that_hangs(tmp_path: Path, syslog: Path) -> None:
    """A writer that blocks, as on a dead file server, ends by its own limit; the hook does not wait."""
    slow = tmp_path / "bin"
    slow.mkdir()
    (slow / "awk").write_text("#!/bin/sh\nexec sleep 600\n")
    (slow / "awk").chmod(0o755)
    outbox = tmp_path / "outbox"
    outbox.mkdir()
    call(outbox, PATH=f"{slow}:{os.environ['PATH']}")
    wait_until(lambda: list(outbox.glob(".*")), "the start of the writer")
    wait_until(lambda: not list(outbox.glob(".*")), "the end of the writer")
    assert documents(outbox) == []
    assert "does not answer" in syslog.read_text()
