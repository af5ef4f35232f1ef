"""Results of the latest windows in memory, for pages and for plots in mails.

Each group and metric has one column per window, up to `max_cells` in total; beyond it the largest history
loses its oldest window, so that small groups keep theirs. Columns are immutable, so that a thread may read
those returned on the event loop. The history is lost with the process; the archive keeps the same for longer.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.alarms.alarms import AlarmEvent
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.detect.interface import FloatArray, GroupWindow, Window
from laggard_aggregator.status import shadows

MAX_WINDOWS = 192
"""A day, at 7.5 minutes from one window to the next."""
MAX_CELLS = 8_000_000
"""Components times windows of all histories: 13 bytes each."""
MAX_SAMPLES = 4_000_000
"""Values of the latest window kept per group, and four times as many in total: 4 bytes each."""
MAX_TRANSITIONS = 10_000
BAND = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Quantiles of a group's values that make the band on a chart.

Each is one of the values, the next one towards the median, so that a single straggler does not widen the
band.
"""

ABSENT, UNJUDGED, NORMAL, ANOMALOUS = range(4)
"""State of a component in a window."""


class Members:
    """Components in the order of a column's arrays.

    Places are cached for the latest members only: they take four times a column's memory.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self._latest = True
        self._places: Mapping[str, int] | None = None

    def place(self, name: str) -> int:
        """The place of a component, -1 where it is not there."""
        places = self._places
        if places is None and not self._latest:
            return self.names.index(name) if name in self.names else -1
        if places is None:
            places = self._places = {name: at for at, name in enumerate(self.names)}
        return places.get(name, -1)

    def superseded(self) -> None:
        """Drops the cached places, as there are newer members."""
        self._latest, self._places = False, None


@dataclass(frozen=True, slots=True)
class MemberColumn:
    """One window of a group and metric. `state` (C,) uint8: by component.

    `members`: one object for consecutive windows with the same ones.
    """

    start: float
    end: float
    members: Members
    state: NDArray[np.uint8]

    @property
    def names(self) -> tuple[str, ...]:
        """The components."""
        return self.members.names


@dataclass(frozen=True, slots=True)
class Column(MemberColumn):
    """The verdicts on one window; arrays (C,) as in Verdicts, `state` one of ABSENT to ANOMALOUS.

    `band`: the quantiles BAND of the observed values of the group's components, without parents; NaN without
    values.
    """

    observed: NDArray[np.float32]
    reference: NDArray[np.float32]
    severity: NDArray[np.float32]
    score: NDArray[np.float32]
    band: tuple[float, ...]
    note: str

    def factors(self, worse: int) -> FloatArray:
        """Times slower of each component (C,), as `window_factors`."""
        return window_factors(self.observed, self.reference, self.severity, worse)


def window_factors(
    observed: NDArray[Any], reference: NDArray[Any], severity: NDArray[Any], worse: int = 1
) -> FloatArray:
    """Times slower in windows by themselves, as `quotient`; `severity`, the average, where that is unknown.

    `worse`: side of the metric; 0: the larger of both ways. NaN without a severity.
    """
    own, peers = observed.astype(np.float64), reference.astype(np.float64)
    with np.errstate(all="ignore"):
        ratio = own / peers
        factors = np.maximum(ratio, 1 / ratio) if worse == 0 else ratio ** float(worse)
    known = (own > 0) & (peers > 0) & np.isfinite(factors) & np.isfinite(severity)
    return np.where(known, factors, severity)


AnyColumn = TypeVar("AnyColumn", bound=MemberColumn)


def places(columns: Sequence[Column], component: str) -> list[int]:
    """The place of `component` in each column, -1 where it is absent."""
    place_in = {members: members.place(component) for members in {column.members for column in columns}}
    return [place_in[column.members] for column in columns]


@dataclass(frozen=True, slots=True)
class ComponentHistory:
    """One component over the kept windows, oldest first; arrays (N,), NaN where it was absent.

    `band` (N, len(BAND)).
    """

    start: FloatArray
    end: FloatArray
    state: NDArray[np.uint8]
    observed: FloatArray
    reference: FloatArray
    severity: FloatArray
    score: FloatArray
    band: FloatArray

    def factors(self, worse: int) -> FloatArray:
        """Times slower in each window by itself (N,), as `quotient`; the average's where that is unknown.

        `worse`: side of the metric; 0: the larger of both ways.
        """
        return window_factors(self.observed, self.reference, self.severity, worse)


@dataclass
class WindowHistory:
    """The histories of all groups and metrics, the samples of latest windows, and alarm events."""

    max_cells: int = MAX_CELLS
    max_samples: int = MAX_SAMPLES
    transitions: deque[AlarmEvent] = field(default_factory=lambda: deque(maxlen=MAX_TRANSITIONS))
    _columns: dict[tuple[str, str], deque[Column]] = field(default_factory=dict)
    _shadows: dict[tuple[str, str], deque[MemberColumn]] = field(default_factory=dict)
    _cells: int = 0
    _samples: dict[str, GroupWindow] = field(default_factory=dict)

    def judged(self, judgements: Iterable[Judgement], window: Window | None = None) -> None:
        """Adds the judgements of a window, and the window's samples where given."""
        for judgement in judgements:
            self.transitions.extend(judgement.transitions)
            self._append(self._columns, judgement, _column)
            if judgement.shadow is not None:
                self._append(self._shadows, judgement, _shadow_column)
        while self._cells > self.max_cells:
            courses: list[deque[Any]] = [*self._columns.values(), *self._shadows.values()]
            self._drop_oldest(max(courses, key=_size))
        if isinstance(window, GroupWindow):
            self._keep(window)

    def drop_shadows(self) -> None:
        """Drops the windows of shadows, which may be other detectors from now on."""
        self._cells -= sum(len(column.names) for kept in self._shadows.values() for column in kept)
        self._shadows.clear()

    @classmethod
    def of_columns(cls, columns: Mapping[tuple[str, str], Iterable[Column]]) -> "WindowHistory":
        """A history of columns by group and metric, oldest first, as of a range of the archive."""
        return cls(_columns={key: deque(course) for key, course in columns.items()})

    def between(self, start: float, end: float) -> "WindowHistory":
        """The windows that end in a range, without samples; itself where there are none."""
        kept = {
            key: inside
            for key, columns in self._columns.items()
            if (inside := deque(column for column in columns if start <= column.end <= end))
        }
        return WindowHistory(transitions=self.transitions, _columns=kept) if kept else self

    def frozen(self) -> "WindowHistory":
        """A copy for a thread, without later changes."""
        return WindowHistory(
            transitions=self.transitions.copy(),
            _columns={key: kept.copy() for key, kept in self._columns.items()},
            _shadows={key: kept.copy() for key, kept in self._shadows.items()},
            _samples=dict(self._samples),
        )

    def columns(self, group: str, metric: str) -> tuple[Column, ...]:
        """The kept windows of a group and metric, oldest first."""
        return tuple(self._columns.get((group, metric), ()))

    def shadow_columns(self, group: str, metric: str) -> tuple[MemberColumn, ...]:
        """The kept windows that a shadow judged too, oldest first; `state` as of `shadows.compare`."""
        return tuple(self._shadows.get((group, metric), ()))

    def course(self, group: str, metric: str, component: str) -> ComponentHistory:
        """One component over the kept windows of its group."""
        columns = self.columns(group, metric)
        both = list(zip(columns, places(columns, component), strict=True))

        def of(name: str) -> FloatArray:
            return np.array([getattr(c, name)[at] if at >= 0 else np.nan for c, at in both], dtype=np.float64)

        return ComponentHistory(
            start=np.array([column.start for column in columns], dtype=np.float64),
            end=np.array([column.end for column in columns], dtype=np.float64),
            state=np.array([c.state[at] if at >= 0 else ABSENT for c, at in both], dtype=np.uint8),
            observed=of("observed"),
            reference=of("reference"),
            severity=of("severity"),
            score=of("score"),
            band=np.array([column.band for column in columns], dtype=np.float64).reshape(-1, len(BAND)),
        )

    def samples(self, group: str) -> GroupWindow | None:
        """The group's latest window, float32 without loads; None beyond the limit, or for functions."""
        return self._samples.get(group)

    def _keep(self, window: GroupWindow) -> None:
        self._samples.pop(window.group, None)
        if _values(window) > self.max_samples:
            return
        metrics = {name: values.astype(np.float32) for name, values in window.metrics.items()}
        self._samples[window.group] = replace(
            window, metrics=cast(Mapping[str, FloatArray], metrics), load={}
        )
        while sum(map(_values, self._samples.values())) > 4 * self.max_samples:
            del self._samples[next(iter(self._samples))]

    def _append(
        self,
        courses: dict[tuple[str, str], deque[AnyColumn]],
        judgement: Judgement,
        make: Callable[[Judgement, Members | None], AnyColumn],
    ) -> None:
        kept = courses.setdefault((judgement.group, judgement.metric), deque())
        while kept and kept[-1].end >= judgement.end:  # judged again, as after a reload
            self._cells -= len(kept.pop().names)
        kept.append(make(judgement, kept[-1].members if kept else None))
        self._cells += len(kept[-1].names)
        if len(kept) > MAX_WINDOWS:
            self._drop_oldest(kept)

    def _drop_oldest(self, columns: deque[AnyColumn]) -> None:
        self._cells -= len(columns.popleft().names)


def _values(window: GroupWindow) -> int:
    return sum(values.size for values in window.metrics.values())


def _size(columns: deque[Any]) -> int:
    """Approximate number of cells of a history, 0 only without a window."""
    return len(columns) * max(len(columns[0].names), 1) if columns else 0


def _column(judgement: Judgement, before: Members | None) -> Column:
    """The column of a judgement; it shares unchanged members with the previous one."""
    verdicts = judgement.verdicts
    names = judgement.components
    judged, anomalous = verdicts.judged, verdicts.judged & verdicts.anomalous
    peers = judgement.levels.count(judgement.levels[0]) if names else 0  # parents follow the components
    observed = verdicts.observed[:peers][np.isfinite(verdicts.observed[:peers])]
    return Column(
        start=judgement.start,
        end=judgement.end,
        members=_members(names, before),
        state=np.where(anomalous, ANOMALOUS, np.where(judged, NORMAL, UNJUDGED)).astype(np.uint8),
        observed=_single(verdicts.observed),
        reference=_single(np.where(judged, verdicts.reference, np.nan)),
        severity=_single(np.where(judged, verdicts.severity, np.nan)),
        score=_single(np.where(judged, verdicts.score, np.nan)),
        band=tuple(bands(observed[:, None])[0].tolist()),
        note=verdicts.note,
    )


def _shadow_column(judgement: Judgement, before: Members | None) -> MemberColumn:
    """The column of a judgement that has a shadow."""
    names, state = shadows.compare(judgement)
    return MemberColumn(judgement.start, judgement.end, _members(names, before), state)


def _members(names: tuple[str, ...], before: Members | None) -> Members:
    """`before` if it has these names."""
    if before is not None and before.names == names:
        return before
    if before is not None:
        before.superseded()
    return Members(names)


def bands(values: FloatArray) -> FloatArray:
    """The quantiles BAND of each column of `values` (C, N): (N, len(BAND)), NaN for an empty column."""
    ordered = np.sort(np.where(np.isfinite(values), values, np.nan), axis=0).T  # NaN last
    known = np.isfinite(ordered).sum(axis=1)
    quantiles = np.full((len(ordered), len(BAND)), np.nan)
    some = known > 0
    for at, share in enumerate(BAND):
        place = share * (known[some] - 1)
        low, high = np.floor(place).astype(np.int64), np.ceil(place).astype(np.int64)
        if share < 0.5:
            low = high
        elif share > 0.5:
            high = low
        rows = ordered[some]
        pair = np.take_along_axis(rows, np.stack([low, high], axis=1), axis=1)
        quantiles[some, at] = pair.mean(axis=1)
    return quantiles


def _single(values: FloatArray) -> NDArray[np.float32]:
    limit = float(np.finfo(np.float32).max)
    return np.clip(values, -limit, limit).astype(np.float32)
