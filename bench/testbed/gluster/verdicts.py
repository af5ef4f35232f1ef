"""The verdicts on jobs of a testbed, by the commands that a user has."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from bench.testbed.luns import run
from bench.testbed.site import SITE, python
from laggard_aggregator.jobs.join.join_pass import JoinPass, JoinSettings


class Job(Protocol):
    """A job that ran: its id, and its line of `jobs.jsonl`."""

    @property
    def job(self) -> int:
        """Its id."""

    def record(self) -> dict[str, Any]:
        """Its line."""


def lines(jobs: Sequence[Job]) -> str:
    """The jobs as `jobs.jsonl`."""
    return "".join(json.dumps(each.record()) + "\n" for each in jobs)


def verdicts(folder: Path, jobs: Sequence[Job]) -> dict[int, dict[str, Any]]:
    """The record of each job by its id, with its verdict, from the archive that a site left in `folder`.

    The aggregator joins jobs a quarter of an hour after their ends; here this is done at once.
    """
    archive, listed = folder / "archive", folder / "jobs.jsonl"
    listed.write_text(lines(jobs))
    cli = python("laggard_aggregator.cli.main")
    run(*cli, "jobs", "import", "--jsonl", str(listed), "--archive", str(archive), "--site", SITE)
    JoinPass(archive, SITE, JoinSettings(grace_seconds=0.0)).run(time.time_ns(), 30)
    found = {}
    for each in jobs:
        said = run(*cli, "job", str(each.job), "--archive", str(archive), "--json")
        found[each.job] = json.loads(said)
    return found
