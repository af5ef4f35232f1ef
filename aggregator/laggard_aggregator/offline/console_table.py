"""Prints findings as a table."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from laggard_aggregator.detect import LEVEL_OF_GROUPS, LEVEL_OF_SPLITS
from laggard_aggregator.offline.findings import MAX_NAMED, Finding, Findings
from laggard_aggregator.status.formatting import counted, score, zoned
from laggard_aggregator.status.text_table import TableColumn, text_table, wrapped

_NO_MEMBERS = (LEVEL_OF_GROUPS, LEVEL_OF_SPLITS)
_COLUMNS = (
    TableColumn("group", dispensable=2),
    TableColumn("component"),
    TableColumn("straggler"),
    TableColumn("x its peers", right=True),
    TableColumn("score", right=True, dispensable=5),
    TableColumn("anomalous", right=True, dispensable=3),
    TableColumn("persistence", right=True, dispensable=4),
    TableColumn("first alarm", dispensable=1),
)


def findings_lines(
    findings: Findings,
    compared: Sequence[Finding],
    names: Mapping[str, str],
    *,
    local: bool = False,
    width: int | None = None,
) -> Iterator[str]:
    """The components with an alarm as lines of a table, worst first, and a summary; `names`: current names.

    `width`: columns of the terminal, None for a pipe. Times are in UTC unless `local`.
    """
    ranked = sorted(
        (f for f in compared if f.anomalous_windows),
        key=lambda f: (not f.straggler, -f.persistence, -f.anomalous_windows, f.group, f.component),
    )
    shown = [f for f in ranked if f.straggler or f.first_alarm is not None]
    members = sum(f.level not in _NO_MEMBERS for f in compared)
    if shown:
        yield from text_table(_COLUMNS, [_row(f, names, local) for f in shown], width)
        for f in shown:
            for metric, causes in f.causes.items():
                yield f"{f.group} {names.get(f.component, f.component)}: what differs most in {metric}"
                yield from (f"  {amount:12.6g}  {cause}" for cause, amount in causes)
            if f.stops:
                yield f"{f.group} {names.get(f.component, f.component)}: {f.stops}"
    summary = (
        f"{counted(sum(f.straggler for f in compared), 'straggler')}, "
        f"{counted(len(shown), 'component')} with an alarm, {len(ranked)} ever anomalous, "
        f"of {members} in {counted(len({f.group for f in compared}), 'group')}; "
        f"{counted(findings.windows, 'window')}"
    )
    yield from wrapped(summary, width)
    quiet = [f for f in ranked if f not in shown]
    if quiet:
        named = [
            f"{f.group} {names.get(f.component, f.component)} ({f.anomalous_windows} of {f.windows})"
            for f in quiet[:MAX_NAMED]
        ]
        more = [f"{len(quiet) - MAX_NAMED} more"] if len(quiet) > MAX_NAMED else []
        yield from wrapped(f"anomalous in some windows, without an alarm: {', '.join(named + more)}", width)


def window_line(record: Mapping[str, Any], *, local: bool = False) -> str:
    """One window of one component as a line of text."""
    severity = record["severity"]
    return (
        f"{zoned(record['start'], local)} - {zoned(record['end'], local)}  "
        f"{record['group']} {record['component']} "
        f"{record['metric']}: score {score(record['score'])}, "
        f"{'' if severity is None else f'{severity:.2f} x its peers, '}"
        f"{'ANOMALOUS' if record['anomalous'] else 'normal'}"
    )


def _row(f: Finding, names: Mapping[str, str], local: bool) -> tuple[str, ...]:
    return (
        f.group,
        names.get(f.component, f.component),
        "yes" if f.straggler else "no",
        "" if math.isnan(f.severity) else f"{f.severity:.2f}",
        score(f.score),
        f"{f.anomalous_windows}/{f.windows}",
        str(f.persistence),
        "" if f.first_alarm is None else zoned(f.first_alarm, local),
    )
