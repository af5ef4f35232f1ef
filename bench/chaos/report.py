"""The tables of bench/README.md."""

from collections.abc import Mapping, Sequence
from math import inf, isnan
from statistics import median

from bench.chaos.attempts import WELL_SECONDS
from bench.chaos.faults import FAULTS, VERSION_CHANGED
from bench.chaos.runner import Result
from bench.chaos.soak import Memory

_HEAD = (
    "| fault | tries | samples sent | lost | twice | refused | alarm "
    "| data after, s: least, median, most | verdicts after, s: least, median, most |\n"
    "|---|---:|---:|---:|---:|---:|---|---:|---:|"
)


def table(results: Sequence[Result]) -> str:
    """A row for each fault that was tried, and one for all of them."""
    by_name: Mapping[str, list[Result]] = {name: [] for name in (*FAULTS, VERSION_CHANGED.name)}
    for result in results:
        by_name[result.attempt.fault].append(result)
    rows = [_row(name, found) for name, found in by_name.items() if found]
    return "\n".join([_HEAD, *rows, *([_row("**all**", results)] if results else [])])


def memory_table(memory: Sequence[Memory]) -> str:
    """A row for each process that lived through the soak."""
    head = (
        "| resident memory | warm, MiB | at the end, MiB | growth | trend, KiB a minute | most, MiB "
        "| by tenths of the time, MiB | descriptors, warm | at the end | trend an hour |"
        "\n|---|---:|---:|---:|---:|---:|---|---:|---:|---:|"
    )
    rows = (
        f"| {m.name} | {m.warm_mib:.1f} | {m.end_mib:.1f} | {m.growth:+.1%} | {m.kib_a_minute:+.1f} "
        f"| {m.most_mib:.1f} | {', '.join(f'{mib:.1f}' for mib in m.course)} "
        f"| {m.warm_files:.0f} | {m.end_files:.0f} | {m.files_an_hour:+.1f} |"
        for m in memory
    )
    return "\n".join([head, *rows])


def _row(name: str, found: Sequence[Result]) -> str:
    tries = [result.attempt for result in found]
    figures = [
        str(len(found)),
        *(f"{sum(getattr(result, what) for result in found):,}" for what in ("came", "lost", "twice")),
        f"{sum(each.came_again for each in tries):,}",
        "as before" if not any(each.alarm_changed for each in tries) else "**changed**",
        _seconds([each.data_seconds for each in tries]),
        _seconds([each.verdict_seconds for each in tries]),
    ]
    return f"| {name} | {' | '.join(figures)} |"


def _seconds(found: Sequence[float]) -> str:
    """Least, median and most; NaN, which is what was not seen, is more than anything."""
    ordered = [inf if isnan(seconds) else seconds for seconds in found]
    return ", ".join(
        f"{seconds:.1f}" if seconds < inf else f"**more than {WELL_SECONDS:.0f}**"
        for seconds in (min(ordered), median(ordered), max(ordered))
    )
