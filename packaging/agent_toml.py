"""Writes deploy/agent.toml from its general part and the collectors' samples; run without arguments."""

import re
from pathlib import Path

from laggard_agent import collectors
from laggard_agent.collectors import registry

SAMPLE = Path(__file__).parents[1] / "deploy" / "agent.toml"


def assembled(sample: str) -> str:
    """The text of `sample` up to the first table of a collector, and the samples of all collectors."""
    tables = re.compile(rf"^\[(?:{'|'.join(registry.names())})\]$", re.MULTILINE)
    first = tables.search(sample)
    general = sample[: first.start() if first else None].rstrip("\n")
    folders = (Path(collectors.__path__[0]) / name / "sample.toml" for name in registry.names())
    return "\n".join(
        f"{part}\n" for part in (general, *(f.read_text().rstrip() for f in folders if f.exists()))
    )


if __name__ == "__main__":
    SAMPLE.write_text(assembled(SAMPLE.read_text()))
