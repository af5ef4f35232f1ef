"""A verdict held against the truth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.accuracy.load_grid.judge import Verdict
from bench.accuracy.load_grid.scenario import Windows
from bench.accuracy.load_grid.series import Episode, Part, Series

DAY_SECONDS, HOUR_SECONDS = 86400.0, 3600.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Counts of one run.

    `ill`: episodes of faults; `found`: those whose component is called a straggler, with an alarm raised
    during the episode. `delays`: seconds from a fault's begin to its first alarm; `clearing`: windows from
    its end, if the series goes on, to the end of its alarm (infinite if it stands at the end). `healthy`:
    component-spans without a fault; `healthy_days` the time of these. `named`: healthy components called
    stragglers; `alarmed`: components with an alarm while they had no fault, also those that were ill at
    another time. `parents`: levels and names above components that had an alarm. `notes`: windows not
    judged. `parts`: parts of the group that are slow together, `parts_told` those of which an alarm above
    components holds the name. `false_hours`: hours from the begin of the series to each alarm of a component
    that had no fault.
    """

    ill: int
    found: int
    delays: tuple[float, ...]
    clearing: tuple[float, ...]
    healthy: int
    healthy_days: float
    named: tuple[str, ...]
    alarmed: tuple[str, ...]
    parents: tuple[str, ...]
    notes: int
    parts: int = 0
    parts_told: int = 0
    false_hours: tuple[float, ...] = ()

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> "Outcome":
        """The outcome whose `asdict`, also by way of JSON, `record` is."""
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in record.items()}
        return cls(**values)


@dataclass(frozen=True, slots=True)
class _Span:
    """An alarm of a component from `raised` to `cleared`, infinite if it stands at the end."""

    component: str
    raised: float
    cleared: float


def outcome(series: Series, verdict: Verdict, windows: Windows) -> Outcome:
    """The counts of one run.

    An alarm belongs to a fault if it is raised between the fault's begin and a window and a shift after its
    end, the time in which windows still hold some of it.
    """
    spans = _spans(verdict)
    grace = windows.samples * windows.interval_seconds + windows.shift_seconds
    ill = {fault.component for fault in series.ill}
    total = series.latency.shape[1] * series.interval_seconds
    delays, clearing, found = [], [], 0
    for fault in series.ill:
        raised = [s for s in spans if s.component == fault.component and _raised_by(s, fault, grace)]
        found += bool(raised) and fault.component in verdict.stragglers
        if raised:
            delays.append(raised[0].raised - fault.begin)
        if raised and fault.end < total:
            clearing.append(max(raised[-1].cleared - fault.end, 0.0) / windows.shift_seconds)
    false = [
        span
        for span in spans
        if not any(f.component == span.component and _raised_by(span, f, grace) for f in series.ill)
    ]
    named = [name for name, level in verdict.stragglers.items() if level == "component" and name not in ill]
    parents = {f"{event.level}:{event.component}" for event in verdict.events if event.level != "component"}
    return Outcome(
        ill=len(series.ill),
        found=found,
        delays=tuple(delays),
        clearing=tuple(clearing),
        healthy=len(series.components) - len(ill),
        healthy_days=(len(series.components) - len(ill)) * total / DAY_SECONDS,
        named=tuple(sorted(named)),
        alarmed=tuple(sorted({span.component for span in false})),
        parents=tuple(sorted(parents)),
        notes=sum(verdict.notes.values()),
        parts=len(series.slow_parts),
        parts_told=sum(_is_told(part, verdict, grace) for part in series.slow_parts),
        false_hours=tuple(round(span.raised / HOUR_SECONDS, 2) for span in false),
    )


def _spans(verdict: Verdict) -> Sequence[_Span]:
    """The alarms of components, in the order in which they were raised."""
    standing: dict[str, float] = {}
    spans = []
    for event in verdict.events:
        if event.level != "component":
            continue
        if event.kind == "raised":
            standing[event.component] = event.at
        else:
            spans.append(_Span(event.component, standing.pop(event.component), event.at))
    spans += [_Span(component, raised, float("inf")) for component, raised in standing.items()]
    return sorted(spans, key=lambda span: span.raised)


def _is_told(part: Part, verdict: Verdict, grace: float) -> bool:
    """Whether an alarm above components names the part while it is slow."""
    return any(
        event.kind == "raised"
        and event.level != "component"
        and part.value in event.component
        and part.begin <= event.at <= part.end + grace
        for event in verdict.events
    )


def _raised_by(span: _Span, fault: Episode, grace: float) -> bool:
    return fault.begin <= span.raised <= fault.end + grace
