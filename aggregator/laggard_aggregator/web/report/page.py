"""The report as HTML without scripts: style and pictures are part of the file, every name is escaped."""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from laggard_aggregator.jobs.access.visible_job import VisibleJob
from laggard_aggregator.jobs.loads.statistics import NON_TRIVIAL_BYTES, TopRow
from laggard_aggregator.jobs.traces.io_modes import MODES
from laggard_aggregator.status import formatting
from laggard_aggregator.web.report.contents import (
    DIRECTIONS,
    CentreReport,
    ModeVolumes,
    amplification,
    lost_seconds,
)
from laggard_aggregator.web.report.persistence import PersistenceOrder
from laggard_common import __version__
from laggard_common.visible import visible

MOST_RANKED: Final = 20
_MOST_HOURS: Final = 168
"""Rows of the table of hours: a week; of a longer time the last ones."""


def page(report: CentreReport, site: str) -> str:
    """The whole HTML document. `site`: its name."""
    return (
        _templates()
        .get_template("report.html")
        .render(
            report=report,
            site=site,
            version=__version__,
            non_trivial=formatting.size(NON_TRIVIAL_BYTES),
            modes=_mode_bars(report.modes),
            slow=[
                {
                    **_job(job),
                    "lost": lost_seconds(job),
                    **{name: job[name] for name in ("slowdown", "sentence")},
                }
                for job in report.slow
            ],
            amplified=[{**_job(job), "amplification": amplification(job)} for job in report.amplified],
            ranked=report.persistence.ranked[:MOST_RANKED],
            hours=report.persistence.hours[-_MOST_HOURS:],
            strips=_strips(report.persistence, report.start, report.end),
            tables=[("Application", report.applications), ("User", report.users)],
            words=formatting,
            hours_text=lambda row: formatting.DASH if row.core_hours is None else f"{row.core_hours:,.1f}",
            operations_text=_operations,
        )
    )


def _operations(row: TopRow) -> str:
    return formatting.DASH if row.metadata_operations is None else f"{row.metadata_operations:,.0f}"


def _mode_bars(modes: ModeVolumes) -> list[dict[str, Any]]:
    """A bar for each direction: shares of its bytes by mode, and the rows of the table."""
    bars = []
    for direction in DIRECTIONS:
        own = [volume for volume in modes.volumes if volume.direction == direction]
        total = sum(volume.amount for volume in own)
        if not total:
            continue
        at, parts = 0.0, Markup("")
        for volume in own:
            width = 1000 * volume.amount / total
            parts += Markup(
                '<rect class="m{}" x="{:.1f}" width="{:.1f}" height="24"><title>{} {:.1%}</title></rect>'
            ).format(MODES.index(volume.mode), at, width, volume.mode, volume.amount / total)
            at += width
        label = ", ".join(f"{volume.mode} {volume.amount / total:.0%}" for volume in own)
        picture = Markup(
            '<svg class="bar" viewBox="0 0 1000 24" preserveAspectRatio="none" role="img"'
            ' aria-label="{}">{}</svg>'
        ).format(f"{direction}s by mode: {label}", parts)
        rows = [
            {
                "mode": volume.mode,
                "place": MODES.index(volume.mode),
                "jobs": volume.jobs,
                "amount": volume.amount,
                "share": volume.amount / total,
                "mean": volume.amount / volume.jobs,
            }
            for volume in own
        ]
        bars.append({"direction": direction, "picture": picture, "rows": rows})
    return bars


def _strips(order: PersistenceOrder, start: float, end: float) -> dict[str, Markup]:
    """A bar over the hours for each ranked component: its height is its persistence among the shown ones."""
    ranked = order.ranked[:MOST_RANKED]
    most = max((component.persistence for component in ranked), default=1)
    first = start // 3600 * 3600
    hours = max(int(-(-(end - first) // 3600)), 1)
    strips = {}
    for component in ranked:
        bars = Markup("")
        for hour, count in sorted(order.courses[component.component].items()):
            height = 20 * count / most
            bars += Markup('<rect x="{}" y="{:.1f}" width="1" height="{:.1f}"/>').format(
                int((hour - first) // 3600), 20 - height, height
            )
        strips[component.component] = Markup(
            '<svg class="strip" viewBox="0 0 {} 20" preserveAspectRatio="none" role="img"'
            ' aria-label="{}">{}</svg>'
        ).format(hours, f"persistence of {visible(component.component)} by the hour", bars)
    return strips


def _job(job: VisibleJob) -> dict[str, Any]:
    names: Sequence[str] = ("job", "user", "account", "application", "start", "end", "node_count")
    return {name: job[name] for name in names}


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("laggard_aggregator.web.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = lambda text: visible(str(text))
    return environment
