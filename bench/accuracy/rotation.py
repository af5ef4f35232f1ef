"""Scrubs that rotate over all members: `python -m bench.accuracy.rotation`, a table in Markdown.

The series of `bench.accuracy.load_grid`: each member 1.8 times slower for two hours, one after the other;
and the same where the fourth does not move on for eight hours. For each, as a group that is not declared and
as one with `rotating = true`: alarms raised on members that moved on, whether the one that stays has one and
after how many hours, and whether the pattern is told in the end.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bench.accuracy.load_grid.judge import METRIC, rows_of, settings_of
from bench.accuracy.load_grid.maintenance import ScrubCase, scrub
from bench.accuracy.load_grid.scenario import HALF_MINUTES
from bench.accuracy.load_grid.series import EPOCH, Series
from laggard_aggregator.offline.regrid import binned
from laggard_aggregator.offline.run import run_grids
from laggard_aggregator.offline.sample_grid import NS

TRIES = 3
CASES: tuple[tuple[str, ScrubCase], ...] = (
    ("12 members, common load", ScrubCase("common", 12)),
    ("12 members, jobs", ScrubCase("jobs", 12)),
    ("24 members, common load", ScrubCase("common", 24)),
    ("12 members, the fourth stays", ScrubCase("common", 12, stays=True)),
)


def row(make: Callable[[np.random.Generator], Series], *, rotating: bool) -> str:
    """Alarms of members that moved on, hours to those of the ones that stay, and windows with the pattern."""
    others, hours, told, most = 0, [], 0, ""
    for seed in range(TRIES):
        series = make(np.random.default_rng(seed))
        settings = replace(settings_of(HALF_MINUTES), rotating=rotating)
        grid = binned(
            rows_of(series, ("operations", "read_share")),
            round(HALF_MINUTES.interval_seconds * NS),
            HALF_MINUTES.shift,
        )
        begins = {episode.component: EPOCH + episode.begin for episode in series.ill}
        text = ""
        for judged in run_grids([grid], settings).judgements:
            text = judged.rotation or text
            for event in judged.transitions:
                if event.kind != "raised":
                    continue
                begin = begins.get(event.alarm.component)
                if begin is None or event.at < begin:
                    others += 1
                else:
                    hours.append((event.at - begin) / 3600.0)
        told += bool(text)
        most = text or most
    stays = ", ".join(f"{hour:.1f}" for hour in hours) or "-"
    return f"{others} | {stays} | {told} of {TRIES} | {most or '-'}"


def main() -> None:
    """Prints the table."""
    print(f"by {METRIC}\n")
    print("| case | rotating | alarms on those that moved on | hours to that of one that stays | told | as |")
    print("|---|---|---|---|---|---|")
    for name, case in CASES:
        for rotating in (False, True):
            cells = row(lambda rng, case=case: scrub(case, rng), rotating=rotating)  # type: ignore[misc]
            print(f"| {name} | {'yes' if rotating else 'no'} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
