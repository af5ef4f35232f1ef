"""A recording's report as records, as `laggard layers --json` prints it."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from laggard_aggregator.cli.main import main


class Analysed:
    """The records of one run."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self.records = records

    def layer(self, name: str, device: str | None = None) -> dict[str, Any]:
        """The record of a layer."""
        (found,) = (
            r
            for r in self.records
            if r["record"] == "layer" and r["layer"] == name and device in (None, r["device"])
        )
        return found

    def boundary(self, above: str, below: str) -> dict[str, Any]:
        """The record of a boundary, by the starts of the labels."""
        (found,) = (
            r
            for r in self.records
            if r["record"] == "boundary" and r["above"].startswith(above) and r["below"].startswith(below)
        )
        return found

    @property
    def findings(self) -> list[tuple[str, str]]:
        """Kind and candidate of each finding."""
        return [(r["kind"], r["candidate"]) for r in self.records if r["record"] == "finding"]

    @property
    def remarks(self) -> str:
        """All remarks."""
        return "\n".join(r["text"] for r in self.records if r["record"] == "remark")


def analysed(*arguments: Path | str) -> Analysed:
    """Runs `laggard layers ... --json`."""
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "stdout", out)
        assert main(["layers", *map(str, arguments), "--json"]) == 0
    return Analysed([json.loads(line) for line in out.getvalue().splitlines()])
