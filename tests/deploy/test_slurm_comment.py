"""The script that writes a verdict into Slurm's comment, with programs that note how they are called."""

from pathlib import Path

import pytest

from tests.support.processes import run_command
from tests.support.wait import wait_until

SCRIPT = Path(__file__).resolve().parents[2] / "deploy/slurm/laggard-comment"
VERDICT = 'Writing took 3.1 times; "job 7" & $(others)'


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("variables", "asked"),
    [
        ({}, "job 42 --url http://127.0.0.1:9464 --sentence"),
        (
            {"LAGGARD_URL": "https://l.example.org", "LAGGARD_TOKEN_FILE": "/a b"},
            "job 42 --url https://l.example.org --token-file /a b --sentence",
        ),
    ],
)
def test_the_verdict_becomes_the_comment(tmp_path: Path, variables: dict[str, str], asked: str) -> None:
    (tmp_path / "verdict").write_text(VERDICT)
    program(tmp_path, "laggard", f'echo "$*" > {tmp_path}/asked; cat {tmp_path}/verdict')
    program(
        tmp_path,
        "scontrol",
        f'printf "%s\\n" "$@" > {tmp_path}/told.part; mv {tmp_path}/told.part {tmp_path}/told',
    )
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "LAGGARD_COMMENT_SECONDS": "0", **variables}
    run_command([SCRIPT, "42"], env=environment)
    told = tmp_path / "told"
    wait_until(told.exists, "a comment")
    assert told.read_text().splitlines() == ["update", "JobId=42", f"AdminComment={VERDICT}"]
    assert (tmp_path / "asked").read_text().strip() == asked


def test_a_job_that_slurmctld_calls_finished(tmp_path: Path) -> None:
    program(tmp_path, "laggard", f"echo '{VERDICT}'")
    program(tmp_path, "scontrol", "echo Job has already finished >&2; exit 1")
    program(tmp_path, "sacctmgr", f'printf "%s\\n" "$@" > {tmp_path}/told')
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "LAGGARD_COMMENT_SECONDS": "0"}
    run_command([SCRIPT, "42", "write"], env=environment)
    told = (tmp_path / "told").read_text().splitlines()
    assert told == ["-i", "-Q", "modify", "job", "where", "jobid=42", "set", f"AdminComment={VERDICT}"]


def test_no_comment_without_an_answer(tmp_path: Path) -> None:
    program(tmp_path, "laggard", f"touch {tmp_path}/asked; exit 1")
    program(tmp_path, "scontrol", f"touch {tmp_path}/told")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "LAGGARD_COMMENT_SECONDS": "0"}
    run_command([SCRIPT, "42", "write"], env=environment)
    assert (tmp_path / "asked").exists()
    assert not (tmp_path / "told").exists()
