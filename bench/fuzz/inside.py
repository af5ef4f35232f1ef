"""The process that fuzzes one target: everything of Laggard is instrumented when it is imported."""

import sys
from dataclasses import dataclass
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["laggard_common", "laggard_agent", "laggard_aggregator"]):
    from bench.fuzz.targets import TARGETS


@dataclass(frozen=True)
class FuzzLimits:
    """When a run ends, and how large an input and the process may be. With `runs` the seed is fixed."""

    seconds: int
    runs: int | None
    longest: int
    most_mib: int


def fuzz(name: str, corpus: Path, limits: FuzzLimits) -> None:
    """Fuzzes up to a limit, and exits: with 0 when nothing was found."""
    target = TARGETS[name]
    seeds = corpus / "seeds"
    seeds.mkdir()
    for number, seed in enumerate(target.seeds):
        (seeds / str(number)).write_bytes(seed[: limits.longest])
    atheris.Setup(
        [
            sys.argv[0],
            f"-max_total_time={limits.seconds}",
            f"-max_len={limits.longest}",
            f"-rss_limit_mb={limits.most_mib}",
            "-timeout=10",
            *([] if limits.runs is None else [f"-runs={limits.runs}", "-seed=1"]),
            "-print_final_stats=1",
            f"-artifact_prefix={corpus}/found-",
            str(seeds),
        ],
        target.run,
    )
    atheris.Fuzz()
