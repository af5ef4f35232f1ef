"""Reports as one HTML file without a network: parallel coordinates of jobs (IOMiner Fig. 11, 12), one job."""

import itertools
import json
import math
from functools import cache
from importlib import resources
from typing import Any, Final

import jinja2
import pyarrow as pa

from laggard_aggregator.jobs.darshan.findings import seconds
from laggard_aggregator.jobs.darshan.job_list import JobFilter
from laggard_aggregator.jobs.darshan.job_tables import texts
from laggard_aggregator.jobs.darshan.screen import factor_words, joined_lines
from laggard_aggregator.jobs.darshan.verdict import JobVerdict
from laggard_aggregator.status import formatting
from laggard_aggregator.status.formatting import plain, zoned

MAX_LINES: Final = 5000
"""More jobs than this are drawn as densities between the axes."""
MAX_JOBS: Final = 200_000
MAX_APPLICATIONS: Final = 12
"""Applications with a colour of their own; the others share one."""
MAX_CRITICAL: Final = 200
_BINS: Final = 48
_AXES: Final = {
    "mib_per_second": "MiB/s",
    "small": "small",
    "nonconsecutive": "non-consec",
    "collective": "collective",
    "osts": "OSTs",
    "processes_per_ost": "proc/OST",
    "metadata": "metadata",
    "processes": "processes",
    "node_count": "nodes",
}
_SHARES: Final = ("small", "nonconsecutive", "collective", "metadata")
"""Axes from 0 to 1; the others are logarithmic."""


def jobs_report(table: pa.Table, wanted: JobFilter) -> str:
    """Parallel coordinates of the rows of `job_list`, with brushing, and the slowest jobs as a table."""
    rows = table.slice(0, MAX_JOBS).to_pylist()
    is_density = len(rows) > MAX_LINES
    applications = [] if is_density else _applications(rows)  # bands have one colour
    shown = {name: label for name, label in _AXES.items() if any(row.get(name) is not None for row in rows)}
    axes = []
    for name, label in shown.items():
        is_log = name not in _SHARES
        low, high = _range([row[name] for row in rows if row.get(name) is not None], is_log=is_log)
        axes.append({"name": name, "label": label, "log": is_log, "low": low, "high": high})
    data: dict[str, Any] = {
        "axes": axes,
        "applications": applications,
        "jobs": [
            [
                row["job_id"],
                _place(applications, row["application"]),
                *(_short(row.get(name)) for name in shown),
            ]
            for row in rows
        ],
    }
    if is_density:
        data["density"] = _density(data["jobs"], axes)
        data["bins"] = _BINS
        data["jobs"] = []
    return _render(
        "jobs.html",
        title=f"{len(table):,} jobs, {wanted.direction}s",
        direction=wanted.direction,
        count=len(table),
        shown=min(len(rows), 50),
        slowest=[row | {"application": plain(row["application"] or "", 60)} for row in rows[:50]],
        data=_embedded(data),
        is_density=is_density,
        most=MAX_LINES,
    )


def job_report(verdict: JobVerdict) -> str:
    """The verdict on a job with a picture of its critical path."""
    tables = verdict.tables
    length = max(tables.end_us - tables.start_us, 1)
    lanes = []
    for direction in verdict.directions:
        path = direction.accesses.path
        longest = sorted(range(path.place.size), key=lambda at: -int(path.exclusive[at]))[:MAX_CRITICAL]
        bars = [
            {
                "left": round(100 * (int(path.start[at]) - tables.start_us) / length, 3),
                "width": max(round(100 * int(path.exclusive[at]) / length, 3), 0.05),
                "title": f"{_name(direction.accesses.text(int(path.place[at]), 'name'))}, "
                f"{seconds(int(path.exclusive[at]))} s",
            }
            for at in longest
        ]
        lanes.append(
            {
                "direction": direction,
                "bars": bars,
                "critical": longest[:10],
                "factors": ", ".join(factor_words(direction)),
            }
        )
    return _render(
        "job.html",
        title=f"Job {tables.job_id}",
        verdict=verdict,
        tables=tables,
        application=plain(", ".join(sorted(set(texts(tables.logs, "application")))), 80),
        start=zoned(tables.start_us / 1e6),
        length=f"{length / 1e6:,.0f}",
        lanes=lanes,
        joined=list(joined_lines(verdict)),
        is_judged=any(direction.accesses.busy_us for direction in verdict.directions),
        name=_name,
        seconds=seconds,
    )


def _applications(rows: list[dict[str, Any]]) -> list[str]:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["application"] or ""] = counts.get(row["application"] or "", 0) + 1
    most = sorted(counts, key=lambda name: (-counts[name], name))[:MAX_APPLICATIONS]
    return [plain(name, 40) for name in most] + (["others"] if len(counts) > MAX_APPLICATIONS else [])


def _place(applications: list[str], name: str | None) -> int:
    shown = plain(name or "", 40)
    return applications.index(shown) if shown in applications else max(len(applications) - 1, 0)


def _short(value: Any) -> float | int | None:
    """Four significant digits."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value if isinstance(value, int) else float(f"{float(value):.4g}")


def _range(values: list[float], *, is_log: bool) -> tuple[float, float]:
    """Ends of an axis: 0 to 1, or powers of ten around the positive values."""
    if not is_log:
        return 0.0, 1.0
    known = [value for value in values if value > 0]
    low = 10.0 ** math.floor(math.log10(min(known, default=1.0)))
    return low, max(10.0 ** math.ceil(math.log10(max(known, default=10.0))), low * 10.0)


def _height(value: float, axis: dict[str, Any]) -> float:
    """Place of a value on its axis, 0 to 1."""
    low, high = axis["low"], axis["high"]
    if axis["log"]:
        return float(math.log(max(value, low) / low) / math.log(high / low))
    return float(min(max((value - low) / (high - low), 0.0), 1.0))


def _density(jobs: list[list[Any]], axes: list[dict[str, Any]]) -> list[list[int]]:
    """Counts of jobs between bins of neighbouring axes: axis, bin, bin of the next axis, count."""
    counts: dict[tuple[int, int, int], int] = {}
    for row in jobs:
        places = [
            None if value is None else min(int(_height(value, axis) * _BINS), _BINS - 1)
            for value, axis in zip(row[2:], axes, strict=True)
        ]
        for at, (a, b) in enumerate(itertools.pairwise(places)):
            if a is not None and b is not None:
                counts[at, a, b] = counts.get((at, a, b), 0) + 1
    return [[*key, count] for key, count in sorted(counts.items())]


def _embedded(data: Any) -> str:
    """JSON that ends no script element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _name(name: str) -> str:
    shown = plain(name, len(name))
    return shown if len(shown) <= 80 else "..." + shown[-77:]


def _render(template: str, **values: Any) -> str:
    return _templates().get_template(template).render(words=formatting, **values)


@cache
def _templates() -> jinja2.Environment:
    files = resources.files("laggard_aggregator.jobs.darshan") / "templates"
    loader = jinja2.FunctionLoader(lambda name: (files / name).read_text(encoding="utf-8"))
    return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
