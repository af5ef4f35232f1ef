"""Aggregates the judgements of a run by component, and by component and day (UTC)."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.alarms.alarms import Key
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.detect import LEVEL_OF_GROUPS
from laggard_aggregator.detect.interface import MIN_PEERS, TOO_FEW, FloatArray
from laggard_aggregator.detect.split import Split, component_of
from laggard_aggregator.status.formatting import counted

MAX_NAMED = 10
"""Components that one line names."""
Causes = tuple[tuple[str, float], ...]
"""Functions or metrics in which a component differs, largest first, with their amounts."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One component over a day or a whole run, all metrics together.

    `score`: the highest of any window, NaN where none was judged. `severity`: times slower than its peers,
    the geometric mean over its anomalous windows, or over all where none was; the worst of its metrics; NaN
    without a ratio. `first_alarm`: epoch seconds, None without one. `metrics`: those that raised an alarm.
    `persistence`: at the end. `causes`: by metric, as in Verdicts, of the latest window of the run that named
    some; `stops`: `StopTally.text` of the latest one with stops, else empty.
    """

    group: str
    component: str
    straggler: bool
    score: float
    severity: float
    windows: int
    anomalous_windows: int
    persistence: int
    level: str = "component"
    first_alarm: float | None = None
    metrics: tuple[str, ...] = ()
    day: str = ""
    causes: Mapping[str, Causes] = field(default_factory=dict)
    stops: str = ""


def straggler(tally: "Tally") -> NDArray[np.bool_]:
    """True for each component that was a straggler in the period of `tally`: a day or the whole run.

    Its alarm stood at any time, and its verdicts persisted: the accumulator reached 2k - 1, one full span of
    confirmation, while k windows of it are enough to raise the alarm.
    """
    mask: NDArray[np.bool_] = (tally.sums["standing"] > 0) & (tally.sums["peak"] >= 2 * tally.confirm - 1)
    return mask


_SUMS = np.dtype(
    [(name, np.int64) for name in ("windows", "anomalous", "standing", "persistence", "peak")]
    + [("score", np.float64), ("slowness", np.float64, 4)]
)
"""`slowness`: sum and number of the severities' logarithms, of anomalous and of all windows."""


@dataclass(slots=True)
class Tally:
    """Running sums over the windows of one group and metric, one row a component."""

    confirm: int
    rows: dict[str, int] = field(default_factory=dict)
    components: tuple[str, ...] = ()
    places: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    sums: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, dtype=_SUMS))

    def add(self, judged: Judgement, standing: NDArray[np.bool_]) -> None:
        """Adds one window. `standing` (C,): True where the alarm stands after it."""
        if judged.components != self.components:
            self._make_room(judged.components)
        verdicts, at, sums = judged.verdicts, self.places, self.sums
        counted, flagged = verdicts.judged, verdicts.judged & verdicts.anomalous
        sums["windows"][at] += counted
        sums["anomalous"][at] += flagged
        sums["standing"][at] += standing
        sums["persistence"][at] = judged.persistence
        sums["peak"][at] = np.maximum(sums["peak"][at], judged.persistence)
        sums["score"][at] = np.where(counted, np.fmax(sums["score"][at], verdicts.score), sums["score"][at])
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(verdicts.severity)
        for row, mask in enumerate((flagged, counted)):
            usable = mask & np.isfinite(logs)
            sums["slowness"][at, 2 * row] += np.where(usable, logs, 0.0)
            sums["slowness"][at, 2 * row + 1] += usable

    def severity(self) -> FloatArray:
        """Geometric means of the severities, of the anomalous windows where there are any; (C,)."""
        flagged, flags, all_, windows = self.sums["slowness"].T
        with np.errstate(invalid="ignore"):
            mean: FloatArray = np.exp(np.where(flags > 0, flagged / flags, all_ / windows))
        return mean

    def _make_room(self, components: tuple[str, ...]) -> None:
        for name in components:
            self.rows.setdefault(name, len(self.rows))
        self.components = components
        self.places = np.fromiter((self.rows[name] for name in components), dtype=np.intp)
        new = np.zeros(len(self.rows) - len(self.sums), _SUMS)
        self.sums = np.concatenate([self.sums, new])


@dataclass(frozen=True, slots=True)
class ConfirmedSplit:
    """A split whose slower side has an alarm. `since`: start of the episode, epoch seconds."""

    since: float
    split: Split


@dataclass(frozen=True, slots=True)
class UnjudgedWindows:
    """`windows` of a group and metric that were not judged as a whole, and why: `Verdicts.note`."""

    group: str
    metric: str
    note: str
    windows: int


class Findings:
    """Aggregates the judgements of one run. `confirm`: the k of 2k - 1 by group name.

    `windows` counts judgements. `splits`: confirmed sides of groups that fell into two, as they were first.
    """

    def __init__(self, confirm: Callable[[str], int]) -> None:
        self._confirm = confirm
        self.windows = 0
        self._notes: dict[tuple[str, str, str], int] = {}
        self._runs: dict[tuple[str, str], Tally] = {}
        self._days: dict[str, dict[tuple[str, str], Tally]] = {}
        self._standing: dict[tuple[str, str], set[str]] = {}
        self._first: dict[Key, float] = {}
        self._levels: dict[tuple[str, str], str] = {}
        self._causes: dict[tuple[str, str], dict[str, Causes]] = {}
        self._stops: dict[tuple[str, str], str] = {}
        self.splits: dict[Key, ConfirmedSplit] = {}
        self._rotations: dict[tuple[str, str], str] = {}

    def add(self, judged: Judgement) -> None:
        """Adds one judgement; judgements of a group and metric arrive in order of time."""
        key = (judged.group, judged.metric)
        self.windows += 1
        if judged.verdicts.note:
            why = (*key, judged.verdicts.note)
            self._notes[why] = self._notes.get(why, 0) + 1
        if judged.rotation:
            self._rotations[key] = judged.rotation
        own = judged.levels.count("component")
        for parent, level in zip(judged.components[own:], judged.levels[own:], strict=True):
            self._levels[judged.group, parent] = level
        for name, causes in judged.verdicts.causes.items():
            self._causes.setdefault((judged.group, name), {})[judged.metric] = causes
        self._stops.update(
            ((judged.group, name), tally.text()) for name, tally in judged.verdicts.stops.items()
        )
        standing = self._follow(judged)
        if judged.split is not None and (side := component_of(judged.split.value)) in standing:
            since = float(judged.since[judged.components.index(side)])
            self.splits.setdefault((judged.group, side, judged.metric), ConfirmedSplit(since, judged.split))
        mask = np.zeros(len(judged.components), dtype=np.bool_)
        if standing:
            mask[:] = [name in standing for name in judged.components]
        day = datetime.fromtimestamp(judged.start, UTC).date().isoformat()
        for tallies in (self._runs, self._days.setdefault(day, {})):
            tally = tallies.get(key)
            if tally is None:
                tally = tallies[key] = Tally(self._confirm(judged.group))
            tally.add(judged, mask)

    def not_judged(self) -> Iterator[UnjudgedWindows]:
        """The reasons why windows were not judged, by group and metric."""
        for (group, metric, note), windows in sorted(self._notes.items()):
            yield UnjudgedWindows(group, metric, note, windows)

    def remarks(self, idle: Mapping[str, Collection[str]], shown: Mapping[str, str]) -> Iterator[str]:
        """Lines about groups that slowed as a whole or fell into two sides, and those that were not judged.

        `idle`: inactive components by group. `shown`: current names, where they differ.
        """
        for finding in self.components():
            if finding.level == LEVEL_OF_GROUPS and finding.first_alarm is not None:
                slower = f"{finding.severity:.1f} times slower than in its own past"
                yield (
                    f"{finding.group}: the whole group was {slower} by {', '.join(finding.metrics)} in "
                    f"{counted(finding.anomalous_windows, 'window')}: its members are slow together"
                )
        for (group, _, metric), confirmed in self.splits.items():
            yield f"{group}: by {metric}, {confirmed.split.text()}"
        for (group, metric), text in self._rotations.items():
            yield f"{group}: by {metric}, {text}"
        notes: Counter[str] = Counter()
        for (*_, note), windows in self._notes.items():
            notes[note] += windows
        for note, windows in sorted(notes.items()):
            needed = f" (at least {MIN_PEERS} active peers are needed)" if note == TOO_FEW else ""
            yield f"{counted(windows, 'window')} not judged: {note}{needed}"
        for group, tallies in _by_group(self._runs):
            own = {name for _, tally in tallies for name in tally.rows if (group, name) not in self._levels}
            judged = {
                name for _, tally in tallies for name, row in tally.rows.items() if tally.sums["windows"][row]
            }
            still = own.intersection(idle.get(group, ())) - judged
            if still:
                yield f"{group}: {len(still)} of {counted(len(own), 'component')} idle in all windows"
            never = sorted(own - still - judged)
            if never and own & judged:
                more = f" and {len(never) - MAX_NAMED} more" if len(never) > MAX_NAMED else ""
                named = ", ".join(shown.get(name, name) for name in never[:MAX_NAMED])
                yield f"{group}: never judged, few samples or little I/O beside the peers': {named}{more}"
            if len(own) - len(still) < MIN_PEERS and not own & judged:
                has = f"{counted(len(own) - len(still), 'active component')}"
                yield f"{group}: not compared, it has {has}: at least {MIN_PEERS} peers are needed"

    def _follow(self, judged: Judgement) -> set[str]:
        """The components of the judgement's group and metric that have an alarm after it."""
        standing = self._standing.setdefault((judged.group, judged.metric), set())
        for transition in judged.transitions:
            alarm = transition.alarm
            if transition.kind == "raised":
                standing.add(alarm.component)
                self._first.setdefault(alarm.key, transition.at)
            else:
                standing.discard(alarm.component)
        return standing

    def components(self) -> Iterator[Finding]:
        """One finding a component over the whole run, ordered by group and component."""
        for group, tallies in _by_group(self._runs):
            yield from self._merged(group, tallies, "")

    def days(self) -> Iterator[Finding]:
        """One finding a component and day, ordered by day, group and component."""
        for day in sorted(self._days):
            for group, tallies in _by_group(self._days[day]):
                yield from self._merged(group, tallies, day)

    def _merged(self, group: str, tallies: Sequence[tuple[str, Tally]], day: str) -> Iterator[Finding]:
        columns = [(metric, tally, straggler(tally), tally.severity()) for metric, tally in tallies]
        for name in sorted({name for _, tally in tallies for name in tally.rows}):
            rows = [(m, t, s, v, t.rows[name]) for m, t, s, v in columns if name in t.rows]
            raised = {m: self._first[group, name, m] for m, *_ in rows if (group, name, m) in self._first}
            severities = [float(v[r]) for _, _, _, v, r in rows if np.isfinite(v[r])]
            windows = max(int(t.sums["windows"][r]) for _, t, _, _, r in rows)
            yield Finding(
                group=group,
                component=name,
                straggler=any(bool(s[r]) for _, _, s, _, r in rows),
                score=max(float(t.sums["score"][r]) for _, t, _, _, r in rows) if windows else float("nan"),
                severity=max(severities, default=float("nan")),
                windows=windows,
                anomalous_windows=max(int(t.sums["anomalous"][r]) for _, t, _, _, r in rows),
                persistence=max(int(t.sums["persistence"][r]) for _, t, _, _, r in rows),
                level=self._levels.get((group, name), "component"),
                first_alarm=min(raised.values(), default=None),
                metrics=tuple(raised),
                day=day,
                causes={} if day else self._causes.get((group, name), {}),
                stops="" if day else self._stops.get((group, name), ""),
            )


def _by_group(tallies: dict[tuple[str, str], Tally]) -> Iterator[tuple[str, list[tuple[str, Tally]]]]:
    groups: dict[str, list[tuple[str, Tally]]] = {}
    for (group, metric), tally in tallies.items():
        groups.setdefault(group, []).append((metric, tally))
    yield from sorted(groups.items())
