"""The report for a terminal: the candidates in sentences, a table of layers, a table of boundaries."""

from collections.abc import Iterator

from laggard_aggregator.layers.matching import MatchKind
from laggard_aggregator.layers.search import LayerFinding, held_times
from laggard_aggregator.layers.stack import Stack
from laggard_aggregator.status.text_table import TableColumn, text_table

_LAYERS = (
    TableColumn("layer"),
    TableColumn("requests", right=True),
    TableColumn("MiB", right=True),
    TableColumn("mean KiB", right=True),
    TableColumn("max KiB", right=True, dispensable=6),
    TableColumn("streams", right=True, dispensable=7),
    TableColumn("runs", right=True, dispensable=5),
    TableColumn("run KiB", right=True),
    TableColumn("busy/max", right=True),
    TableColumn("busy s", right=True, dispensable=3),
    TableColumn("MiB/s", right=True),
    TableColumn("mean us", right=True),
    TableColumn("to issue", right=True),
    TableColumn("below", right=True),
    TableColumn("to callback", right=True),
    TableColumn("unmatched", right=True),
    TableColumn("unexplained", right=True, dispensable=4),
)
_BOUNDARIES = (
    TableColumn("from"),
    TableColumn("to"),
    TableColumn("by"),
    TableColumn("nested", right=True),
    TableColumn("earlier", right=True),
    TableColumn("hit", right=True),
    TableColumn("later", right=True),
    TableColumn("partial", right=True, dispensable=2),
    TableColumn("hole", right=True, dispensable=3),
    TableColumn("none", right=True),
    TableColumn("held us", right=True),
    TableColumn("held share", right=True),
)
COLUMNS_EXPLAINED = (
    "busy/max: average concurrency while busy / maximum. to issue, below, to callback: mean us "
    "between the events "
    "ADMIT, ISSUE, COMPLT, CALLBACK."
)
KINDS_EXPLAINED = (
    "nested: the lower request was admitted within. earlier: it was in flight before (read-ahead). hit: it "
    "was complete "
    "before. later: write-back. none: no lower request (a cache hit or lost events)."
)


def report_lines(stack: Stack, findings: list[LayerFinding], width: int | None = None) -> Iterator[str]:
    """The lines of the report; `width` as `text_table` has it."""
    yield from verdict_lines(findings)
    yield ""
    yield from text_table(_LAYERS, [_layer_row(stack, at) for at in range(len(stack.layers))], width)
    yield COLUMNS_EXPLAINED
    if stack.boundaries:
        yield ""
        yield from text_table(
            _BOUNDARIES, [_boundary_row(stack, at) for at in range(len(stack.boundaries))], width
        )
        yield KINDS_EXPLAINED
    if stack.remarks:
        yield ""
        yield from (f"note: {remark}" for remark in stack.remarks)


def layer_table(stack: Stack) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the table of layers."""
    rows = [_layer_row(stack, at) for at in range(len(stack.layers))]
    return [column.heading for column in _LAYERS], rows


def boundary_table(stack: Stack) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the table of boundaries."""
    rows = [_boundary_row(stack, at) for at in range(len(stack.boundaries))]
    return [column.heading for column in _BOUNDARIES], rows


def verdict_lines(findings: list[LayerFinding]) -> Iterator[str]:
    """The candidates as sentences."""
    if not findings:
        yield "No candidate: by the limits of the search, no layer delays or serialises the I/O."
    for finding in findings:
        share = finding.share
        of_time = "" if share is None else f", {min(share, 1.0):.0%} of the application's I/O time"
        yield f"Candidate: {finding.candidate} ({finding.kind}{of_time})"
        yield f"  {finding.text}"
        yield f"  {finding.advice}"


def _layer_row(stack: Stack, at: int) -> list[str]:
    layer, measured, times = stack.layers[at], stack.characteristics[at], stack.breakdowns[at]
    concurrency, order = measured.concurrency, measured.sequentiality
    unmatched, unexplained = stack.unmatched_ratio(at), stack.unexplained_ratio(at)
    return [
        layer.label,
        f"{measured.requests:,}",
        f"{measured.bytes / (1 << 20):,.1f}",
        f"{measured.mean_request_bytes / 1024:,.1f}",
        f"{measured.max_request_bytes / 1024:,.1f}",
        f"{order.streams:,}",
        f"{len(order.run_bytes):,}",
        f"{order.mean_run_bytes / 1024:,.1f}",
        f"{concurrency.mean_busy:.2f} / {concurrency.most}",
        f"{concurrency.busy_seconds:.4f}",
        f"{measured.mib_per_second_busy:,.1f}",
        f"{measured.mean_residence_us:,.1f}",
        _optional(times.admit_issue),
        _optional(times.issue_complt),
        _optional(times.complt_callback),
        "-" if unmatched is None else percent(unmatched),
        "-" if unexplained is None else percent(unexplained),
    ]


def _boundary_row(stack: Stack, at: int) -> list[str]:
    boundary = stack.boundaries[at]
    matching = boundary.matching
    before, after, share = held_times(stack, boundary)
    kinds = (
        MatchKind.NESTED,
        MatchKind.EARLIER,
        MatchKind.HIT,
        MatchKind.LATER,
        MatchKind.PARTIAL,
        MatchKind.HOLE,
        MatchKind.NONE,
    )
    linked = bool(boundary.linked.any())
    return [
        stack.layers[boundary.upper].label,
        stack.layers[boundary.lower].label,
        "refused" if boundary.refused else matching.by,
        *(percent(boundary.share(kind)) for kind in kinds),
        f"{before + after:,.1f}" if linked else "-",
        percent(share) if linked else "-",
    ]


def percent(value: float) -> str:
    """A share in per cent; 100 only for all, 0 only for none."""
    if 0 < value < 0.0005 or 0.9995 < value < 1:
        return f"{value:.3%}"
    return f"{value:.1%}"


def _optional(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"
