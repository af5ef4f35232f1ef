"""The process that fuzzes one target: everything of Laggard is instrumented when it is imported."""

import os
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["laggard_common", "laggard_agent", "laggard_aggregator"]):
    from bench.fuzz.targets import TARGETS


def fuzz(name: str, corpus: Path, seconds: int, longest: int, most_mib: int) -> None:
    """Fuzzes for so long, and exits: with 0 when nothing was found."""
    target = TARGETS[name]
    seeds = corpus / "seeds"
    seeds.mkdir()
    for number, seed in enumerate(target.seeds):
        (seeds / str(number)).write_bytes(seed[:longest])
    atheris.Setup(
        [
            sys.argv[0],
            f"-max_total_time={seconds}",
            f"-max_len={longest}",
            f"-rss_limit_mb={most_mib}",
            "-timeout=10",
            *(["-seed=1"] if os.environ.get("CI") else []),  # as Hypothesis: the same inputs
            "-print_final_stats=1",
            f"-artifact_prefix={corpus}/found-",
            str(seeds),
        ],
        target.run,
    )
    atheris.Fuzz()
