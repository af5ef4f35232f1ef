"""The verdict on one job as one screen of text."""

import textwrap
from collections.abc import Iterator, Sequence

from laggard_aggregator.jobs.darshan.findings import MIB, NotJudged, seconds
from laggard_aggregator.jobs.darshan.job_tables import texts
from laggard_aggregator.jobs.darshan.verdict import DirectionVerdict, JobVerdict
from laggard_aggregator.status.formatting import DASH, counted, figure, plain, zoned
from laggard_aggregator.status.text_table import TableColumn, text_table

MAX_FINDINGS = 5
MAX_CRITICAL = 3
MAX_NOT_JUDGED = 6
_NAME_CHARS = 70
_COLUMNS = (
    TableColumn("I/O"),
    TableColumn("MiB", right=True),
    TableColumn("busy s", right=True),
    TableColumn("at least", right=True, dispensable=2),
    TableColumn("first to last", right=True, dispensable=3),
    TableColumn("MiB/s", right=True),
    TableColumn("both by slowest rank", right=True, dispensable=6),
    TableColumn("files", right=True, dispensable=4),
    TableColumn("critical", right=True, dispensable=1),
    TableColumn("longest", right=True, dispensable=5),
)
_FACTORS = {
    "small": "below 1 MiB {:.0%}",
    "nonconsecutive": "non-consecutive {:.0%}",
    "collective": "collective {:.0f}",
    "osts": "OSTs {:.0f}",
    "processes_per_ost": "processes an OST {:.3g}",
    "metadata": "metadata {:.0%}",
}


def verdict_lines(verdict: JobVerdict, width: int | None = None) -> Iterator[str]:
    """Lines of the verdict; `width`: columns of the terminal, None for a pipe."""
    yield from _head(verdict)
    if verdict.directions:
        yield ""
        yield from text_table(_COLUMNS, [_row(direction) for direction in verdict.directions], width)
    yield ""
    if verdict.findings:
        for number, finding in enumerate(verdict.findings[:MAX_FINDINGS], 1):
            yield from _wrapped(f"{number}. {finding.text}", width)
            yield from _wrapped(f"   {finding.advice}", width)
        if len(verdict.findings) > MAX_FINDINGS:
            yield f"{len(verdict.findings) - MAX_FINDINGS} more with --json"
    elif any(direction.accesses.busy_us for direction in verdict.directions):
        yield "Nothing to report: no cause of slow I/O was found."
    else:
        yield "Not judged: no I/O with a time was recorded."
    yield from _critical(verdict)
    for text in joined_lines(verdict):
        yield from _wrapped(text, width)
    yield from _notes(verdict.not_judged, width)


def _head(verdict: JobVerdict) -> Iterator[str]:
    tables = verdict.tables
    application = plain(", ".join(sorted(set(texts(tables.logs, "application")))), 60)
    length = (tables.end_us - tables.start_us) / 1e6
    yield (
        f"Job {tables.job_id}: {application}, {counted(tables.processes, 'process', 'processes')}, "
        f"{length:,.0f} s from {zoned(tables.start_us / 1e6)}"
        + (f", {counted(len(tables.logs), 'log')}" if len(tables.logs) > 1 else "")
    )


def _row(direction: DirectionVerdict) -> tuple[str, ...]:
    accesses = direction.accesses
    share = direction.top_share
    return (
        f"{accesses.module} {accesses.direction}",
        figure(direction.bytes / 2**20),
        figure(accesses.busy_us / 1e6),
        figure(direction.lower_us / 1e6),
        figure(accesses.span_us / 1e6),
        figure(direction.mib_per_second),
        figure(direction.by_slowest),
        f"{accesses.timed.size:,}",
        f"{accesses.path.place.size:,}",
        DASH if share is None else f"{share:.0%}",
    )


def _critical(verdict: JobVerdict) -> Iterator[str]:
    timed = [direction for direction in verdict.directions if direction.accesses.busy_us]
    if not timed:
        return
    busiest = max(timed, key=lambda direction: direction.bytes)
    accesses, path = busiest.accesses, busiest.accesses.path
    yield ""
    yield f"Critical files ({accesses.module} {accesses.direction}), by exclusive time:"
    longest = sorted(range(path.place.size), key=lambda at: -int(path.exclusive[at]))
    for at in longest[:MAX_CRITICAL]:
        place = int(path.place[at])
        rank = f"rank {accesses.rank[place]}" if accesses.rank[place] >= 0 else "all ranks"
        name = _tail(accesses.text(place, "name"))
        yield f"  {seconds(int(path.exclusive[at])):>7} s  {name}  ({rank})"
    yield f"  on average: {', '.join(factor_words(busiest))}"


def factor_words(direction: DirectionVerdict) -> list[str]:
    """The contributing factors that are known."""
    record = direction.factors.record().items()
    return [_FACTORS[name].format(value) for name, value in record if value is not None]


def joined_lines(verdict: JobVerdict) -> Iterator[str]:
    """The joined facts as sentences."""
    for row in verdict.extra:
        if row["record"] == "step":
            yield f"Slurm: step {row['step']}, {row['nodes']} nodes, {row['ranks_per_node']} ranks a node."
        elif row["record"] == "coverage":
            yield (
                f"LMT: its {row['of']} {'wrote' if row['direction'] == 'write' else 'read'} "
                f"{row['lmt_bytes'] / 1024 / MIB:,.2f} GiB in that time, "
                f"{row['coverage']:.1%} of it this job's."
            )
        elif row["record"] == "alarm":
            name = f"{row['component']} ({row['metric']})"
            yield f"Laggard had an alarm on {name} at that time: {row['severity']:.1f} times its peers."


def _tail(name: str) -> str:
    shown = plain(name, len(name))
    return shown if len(shown) <= _NAME_CHARS else f"...{shown[3 - _NAME_CHARS :]}"


def _notes(not_judged: Sequence[NotJudged], width: int | None) -> Iterator[str]:
    """Rules without a verdict, those of one reason together."""
    rules: dict[str, list[str]] = {}
    for gap in not_judged:
        rules.setdefault(gap.reason, []).append(gap.rule)
    if not rules:
        return
    yield ""
    yield "Not judged:"
    for reason, several in list(rules.items())[:MAX_NOT_JUDGED]:
        yield from _wrapped(f"  {', '.join(several)}: {reason}", width)
    if len(rules) > MAX_NOT_JUDGED:
        yield f"  {len(rules) - MAX_NOT_JUDGED} more with --json"


def _wrapped(text: str, width: int | None) -> list[str]:
    """`text` in lines of the terminal, further ones indented like the first; whole in a pipe."""

    if width is None:
        return [text]
    indent = " " * (len(text) - len(text.lstrip()) + (3 if text[:1].isdigit() else 2))
    return textwrap.wrap(text, max(width, 40), subsequent_indent=indent, break_long_words=False)
