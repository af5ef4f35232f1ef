"""Judges windows: detector, escalation, persistence, alarms. Used by the daemon and `laggard diagnose`.

No clock, no I/O. The windows of a group come in order of time; the caller orders the groups among each other.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.alarms.alarms import Alarm, AlarmBook, AlarmEvent, Persistence
from laggard_aggregator.alarms.rotation import Rotation, SlowTurn
from laggard_aggregator.detect import LEVEL_OF_GROUPS, LEVEL_OF_SPLITS, registry
from laggard_aggregator.detect.escalation import MIN_CHILDREN, blames_parent, escalate, joined, pairs
from laggard_aggregator.detect.interface import (
    MAX_CAUSES,
    STEADY,
    TOO_FEW,
    BoolArray,
    DutyCycle,
    FloatArray,
    FunctionWindow,
    GroupWindow,
    Level,
    Verdicts,
    Window,
    stop_text,
)
from laggard_aggregator.detect.own_history import GroupHistory
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.detect.split import (
    SideHistory,
    Split,
    begin_of,
    component_of,
    find_class,
    find_split,
    ordinary_members,
    verdict_on,
)
from laggard_aggregator.groups.topology import Topology


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of one group and metric in one window; arrays have one entry per component.

    The group's components come first, then the parents (servers, controllers, couplets) that were ever blamed
    in their place, the slower sides of a group that fell into two, then the group by its own name once it was
    slower than in its own past; `levels` names the kind of each. `split`: the sides of this window.
    `rotation`: `Rotation.text` as of now.
    `persistence`: accumulators; `straggler`: k of 2k - 1 confirmed; `since`: start of the episode. `shadow`:
    the judgement of the group's shadow detector on the same window, without transitions, as it raises no
    alarm; None without one.
    """

    group: str
    metric: str
    components: tuple[str, ...]
    start: float
    end: float
    verdicts: Verdicts
    persistence: NDArray[np.int64]
    straggler: BoolArray
    since: NDArray[np.float64]
    levels: tuple[str, ...]
    transitions: tuple[AlarmEvent, ...]
    shadow: "Judgement | None" = None
    split: Split | None = None
    rotation: str = ""


@dataclass(slots=True)
class _Series:
    """State of one group and metric.

    `suspects`: parents ever blamed, and their levels. `history`: judges the group as a whole;
    `sides`: typical values of its sides; `rotation`: its members' episodes.
    """

    detector: registry.AnyDetector
    persistence: Persistence
    suspects: dict[str, str] = field(default_factory=dict)
    shadow: "_Series | None" = None
    history: GroupHistory | None = None
    sides: SideHistory = field(default_factory=SideHistory)
    rotation: Rotation = field(default_factory=Rotation)

    def forget(self, components: Collection[str], parents: Collection[str]) -> set[str]:
        """Drops `components`, and suspects that are not among `parents`; returns both."""
        gone = {*components, *(suspect for suspect in self.suspects if suspect not in parents)}
        self.detector.forget(gone)
        self.persistence.forget(gone)
        self.rotation.forget(gone)
        self.suspects = {name: level for name, level in self.suspects.items() if name not in gone}
        return gone

    def state(self) -> dict[str, Any]:
        """State as plain data; those of the shadow and of the history only where there is one."""
        own = {
            "detector": self.detector.state(),
            "persistence": self.persistence.state(),
            "suspects": dict(self.suspects),
        }
        if self.history is not None:
            own["history"] = self.history.state()
        if sides := self.sides.state():
            own["sides"] = sides
        if rotation := self.rotation.state():
            own["rotation"] = rotation
        return own if self.shadow is None else {**own, "shadow": self.shadow.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores `state()`; a shadow or a history without a saved state starts without one."""
        self.detector.restore(state["detector"])
        self.persistence.restore(state["persistence"])
        self.suspects = dict(state["suspects"])
        if self.shadow is not None and "shadow" in state:
            self.shadow.restore(state["shadow"])
        if self.history is not None and "history" in state:
            self.history.restore(state["history"])
        if "sides" in state:
            self.sides.restore(state["sides"])
        if "rotation" in state:
            self.rotation.restore(state["rotation"])


@dataclass(frozen=True, slots=True)
class _AttributeLevels:
    """The attributes of a group: `columns` as agents sent them, `levels` with those of the topology."""

    components: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...]]
    levels: tuple[Level, ...]


class Judge:
    """Detectors, persistence and alarms of all groups. `groups`: settings by group name; more may be added.

    `topology` maps components to parents. `make` builds the detector of a metric from the group's settings.
    """

    def __init__(
        self,
        groups: Mapping[str, DetectSettings],
        after_seconds: float = 0.0,
        topology: Topology | None = None,
        make: Callable[[DetectSettings, str], registry.AnyDetector] = registry.make_detector,
    ) -> None:
        self._settings = dict(groups)
        self._make = make
        self._series: dict[tuple[str, str], _Series] = {}
        self._topology = topology or Topology()
        self._levels: dict[str, tuple[tuple[str, ...], tuple[Level, ...]]] = {}
        self._attributes: dict[str, _AttributeLevels] = {}
        self.alarms = AlarmBook(after_seconds)

    def add_group(self, name: str, settings: DetectSettings) -> None:
        """Adds a group; a known group keeps its settings and state."""
        self._settings.setdefault(name, settings)

    def history_samples(self, group: str, metric: str) -> int:
        """Number of samples before a window that the group's detector and its shadow need."""
        series = self._of(group, metric)
        shadow = 0 if series.shadow is None else series.shadow.detector.history_samples
        return max(series.detector.history_samples, shadow)

    def evaluate(self, window: Window) -> tuple[Judgement, ...]:
        """The judgement of each metric of `window`, in the order of `window.metrics`."""
        return tuple(self._judge(window, metric) for metric in window.metrics)

    def forget(
        self,
        group: str,
        components: Collection[str],
        left: Sequence[str],
        at: float,
        attributes: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    ) -> list[AlarmEvent]:
        """Drops the state of `components`; their alarms are cleared at `at`.

        `left`: the group's other components, `attributes`: theirs, as in GroupWindow. A parent or a side is
        dropped when too few children are left to blame it.
        """
        nodes = registry.find(self._settings[group].detector).compares == "functions"
        parents, kept = {group}, tuple(left)
        levels = self._levels_of(group, kept, nodes=nodes)
        for level in (*levels, *self._attributes_of(group, kept, attributes)):
            children = np.bincount(level.of[level.of >= 0], minlength=len(level.parents))
            blamable = [level.parents[at] for at in np.flatnonzero(children >= MIN_CHILDREN)]
            parents.update(blamable, map(component_of, blamable))
        cleared: list[AlarmEvent | None] = []
        for (name, metric), series in self._series.items():
            if name == group:
                gone = series.forget(components, parents)
                cleared += [self.alarms.clear((group, component, metric), at) for component in sorted(gone)]
                if series.shadow is not None:
                    series.shadow.forget(components, parents)
        return [transition for transition in cleared if transition is not None]

    def state(self, group: str) -> list[dict[str, Any]]:
        """State of a group by metric as plain data, without alarms."""
        return [
            {"metric": metric, **series.state()}
            for (name, metric), series in self._series.items()
            if name == group
        ]

    def restore(self, group: str, state: Sequence[Mapping[str, Any]]) -> None:
        """Restores `state(group)`. Raises ValueError on the state of another detector."""
        for kept in state:
            self._of(group, kept["metric"]).restore(kept)

    def _judge(self, window: Window, metric: str) -> Judgement:
        """The judgement with its alarm events. Only here alarms are updated, and never by a shadow."""
        series = self._of(window.group, metric)
        judged = self._verdicts(series, window, metric)
        shadow = None if series.shadow is None else self._verdicts(series.shadow, window, metric)
        alarming = judged.straggler
        if isinstance(window, GroupWindow):
            if metric in window.explanations:
                alarming = np.zeros_like(alarming)
            members = len(window.components)
            _follow_rotation(series.rotation, judged, members)
            judged = replace(judged, rotation=series.rotation.text(members))
            if self._settings[window.group].rotating:
                moves = [
                    name in series.rotation.open and series.rotation.moves_on(name)
                    for name in judged.components
                ]
                alarming = alarming & ~np.array(moves, dtype=np.bool_)
        return replace(judged, transitions=self._transitions(judged, alarming), shadow=shadow)

    def _verdicts(self, series: _Series, window: Window, metric: str) -> Judgement:
        """The judgement by `series`, without alarm events."""
        worse = window.worse.get(metric, 1) if isinstance(window, GroupWindow) else 0
        nodes = isinstance(window, FunctionWindow)
        levels = self._levels_of(window.group, window.components, nodes=nodes)
        attributes: tuple[Level, ...] = ()
        if isinstance(window, GroupWindow):
            attributes = self._attributes_of(window.group, window.components, window.attributes)
            window = replace(window, sides=(*pairs(levels), *attributes))
        shared = (*levels, *attributes)
        observed = series.detector.observe(window)
        split = None
        if observed.note not in ("", TOO_FEW) or observed.parted is not None:
            split = find_split(observed, shared, worse)
        elif not observed.note and not blames_parent(observed, levels):
            split = find_class(observed, attributes, worse)
        if isinstance(window, GroupWindow) and worse:
            begin = partial(begin_of, window=window, metric=metric, levels=shared)
            split = series.sides.observe(split, observed, shared, begin)
        if split is not None:
            alone = observed.anomalous
            if observed.parted is None:
                alone = alone & ~ordinary_members(observed, split, shared)
            observed = replace(observed, anomalous=alone)
            series.suspects[component_of(split.value)] = LEVEL_OF_SPLITS
        verdicts, parents = escalate(observed, levels, series.suspects)
        verdicts = _with_causes(verdicts, window.components, levels, parents)
        verdicts = _with_times(verdicts, observed.anomalous, window, levels, parents)
        sides = [name for name, level in series.suspects.items() if level == LEVEL_OF_SPLITS]
        if observed.note != TOO_FEW:
            slow = None if split is None else component_of(split.value)
            verdicts = joined(verdicts, [verdict_on(split if side == slow else None) for side in sides])
            parents = {**parents, **dict.fromkeys(sides, LEVEL_OF_SPLITS)}
        whole = series.history.observe(window) if series.history and isinstance(window, GroupWindow) else None
        if whole is not None and whole.anomalous.any():
            series.suspects[window.group] = LEVEL_OF_GROUPS
        if whole is not None and window.group in series.suspects:
            verdicts, parents = joined(verdicts, [whole]), {**parents, window.group: LEVEL_OF_GROUPS}
        components = (*window.components, *parents)
        by_ratio = (
            type(series.detector).distributions is None
        )  # others differ in ways that no ratio of means tells
        ratios = _log_ratios(verdicts, components, worse) if by_ratio else None
        rows = series.persistence.update(components, window.start, verdicts, ratios)
        return Judgement(
            group=window.group,
            metric=metric,
            components=components,
            start=window.start,
            end=window.end,
            verdicts=verdicts,
            persistence=series.persistence.accumulator[rows],
            straggler=series.persistence.faulty[rows],
            since=series.persistence.since[rows],
            levels=("node" if nodes else "component",) * len(window.components) + tuple(parents.values()),
            transitions=(),
            split=split,
        )

    def _transitions(self, judged: Judgement, alarming: BoolArray) -> tuple[AlarmEvent, ...]:
        """The alarms raised on stragglers that are `alarming`, and cleared on the other components.

        A metric that only explains raises none, and clears those of a checkpoint from before.
        """
        transitions = [self.alarms.update(_alarm(judged, c)) for c in np.flatnonzero(alarming)]
        stragglers = set(np.asarray(judged.components, dtype=object)[alarming])
        present = set(judged.components)
        for key in list(self.alarms.standing):
            group, component, metric = key
            if (group, metric) == (judged.group, judged.metric) and component in present - stragglers:
                transitions.append(self.alarms.clear(key, judged.end))
        return tuple(transition for transition in transitions if transition is not None)

    def _levels_of(self, group: str, components: tuple[str, ...], *, nodes: bool) -> tuple[Level, ...]:
        """The parents of a group's components, cached until the components change."""
        known = self._levels.get(group)
        if known is None or known[0] != components:
            levels = self._topology.levels_of_nodes if nodes else self._topology.levels
            known = self._levels[group] = (components, levels(components))
        return known[1]

    def _attributes_of(
        self, group: str, components: tuple[str, ...], columns: Mapping[str, tuple[str, ...]]
    ) -> tuple[Level, ...]:
        """The attributes of a group's components, cached until they change."""
        known = self._attributes.get(group)
        if known is None or known.components != components or known.columns != columns:
            levels = self._topology.attributes(components, columns)
            known = self._attributes[group] = _AttributeLevels(components, columns, levels)
        return known.levels

    def _of(self, group: str, metric: str) -> _Series:
        series = self._series.get((group, metric))
        if series is None:
            settings = self._settings[group]
            series = self._series[group, metric] = self._new_series(settings, metric)
            detector = registry.find(settings.detector)
            if detector.compares == "metrics" and not detector.by_itself:
                series.history = GroupHistory(metric, settings.interval_seconds)
            if settings.shadow is not None:
                series.shadow = self._new_series(settings.shadow, metric)
        return series

    def _new_series(self, settings: DetectSettings, metric: str) -> _Series:
        detector = self._make(settings, metric)
        return _Series(detector, Persistence(settings.confirm))


def _follow_rotation(rotation: Rotation, judged: Judgement, members: int) -> None:
    """Adds the window to the episodes of the group's first `members` components, which are its own."""
    slow = {
        name: SlowTurn(name, float(judged.since[row]), judged.end, float(judged.verdicts.severity[row]))
        for row in np.flatnonzero(judged.straggler[:members]).tolist()
        for name in (judged.components[row],)
    }
    if slow or rotation.open or rotation.finished:
        rotation.update(judged.components[:members], slow, judged.end)


def _with_causes(
    verdicts: Verdicts, components: Sequence[str], levels: Sequence[Level], parents: Mapping[str, str]
) -> Verdicts:
    """`verdicts` with the sum of the children's causes as causes of each blamed parent."""
    if not verdicts.causes:
        return verdicts
    causes, by_name = dict(verdicts.causes), {level.name: level for level in levels}
    for row, (parent, name) in enumerate(parents.items(), len(components)):
        if not verdicts.anomalous[row]:
            continue
        level, sums = by_name[name], dict[str, float]()
        for child in np.flatnonzero(level.of == level.parents.index(parent)).tolist():
            for cause, amount in verdicts.causes.get(components[child], ()):
                sums[cause] = sums.get(cause, 0.0) + amount
        causes[parent] = tuple(sorted(sums.items(), key=lambda cause: (-cause[1], cause[0]))[:MAX_CAUSES])
    return replace(verdicts, causes=causes)


def _with_times(
    verdicts: Verdicts,
    anomalous: BoolArray,
    window: Window,
    levels: Sequence[Level],
    parents: Mapping[str, str],
) -> Verdicts:
    """`verdicts` with the onset, the duty cycle and the stops of each blamed parent: its children's middle.

    `anomalous` (C,): children before escalation. A duty cycle and stops only where most of these have them.
    """
    if not verdicts.onsets and not verdicts.duty_cycles and not verdicts.stops:
        return verdicts
    onsets, cycles, stops = dict(verdicts.onsets), dict(verdicts.duty_cycles), dict(verdicts.stops)
    by_name = {level.name: level for level in levels}
    for row, (parent, name) in enumerate(parents.items(), len(window.components)):
        if not verdicts.anomalous[row]:
            continue
        level = by_name[name]
        slow = anomalous & (level.of == level.parents.index(parent))
        children = [window.components[c] for c in np.flatnonzero(slow)]
        onset = float(np.median([verdicts.onsets.get(child, window.start) for child in children]))
        if onset < window.start:
            onsets[parent] = onset
        known = [verdicts.duty_cycles[child] for child in children if child in verdicts.duty_cycles]
        if 2 * len(known) > len(children):
            share = float(np.median([suspect.share for suspect in known]))
            severity = float(np.median([suspect.severity for suspect in known]))
            cycles[parent] = DutyCycle(share, severity)
        stopping = [verdicts.stops[child] for child in children if child in verdicts.stops]
        if 2 * len(stopping) > len(children):
            stops[parent] = sorted(stopping, key=lambda tally: tally.count)[len(stopping) // 2]
    return replace(verdicts, onsets=onsets, duty_cycles=cycles, stops=stops)


def _log_ratios(verdicts: Verdicts, components: Sequence[str], worse: int) -> FloatArray | None:
    """Log ratios (C,) of the window's values to their reference, larger is worse; None without a side.

    NaN where the detector has no ratio, a value is unknown or not above 0, or stops are the evidence: between
    these a component is as its peers.
    """
    if not worse:
        return None
    own, peers = verdicts.observed, verdicts.reference
    known = np.isfinite(verdicts.severity) & (own > 0) & (peers > 0) & np.isfinite(own) & np.isfinite(peers)
    if verdicts.stops:
        known &= [name not in verdicts.stops for name in components]
    ratio: FloatArray = worse * np.log(np.where(known, own, np.nan)) - worse * np.log(
        np.where(known, peers, np.nan)
    )
    return ratio


def _alarm(judged: Judgement, c: np.intp) -> Alarm:
    v = judged.verdicts
    at_times = v.duty_cycles.get(judged.components[c], STEADY)
    return Alarm(
        group=judged.group,
        component=judged.components[c],
        metric=judged.metric,
        level=judged.levels[c],
        since=float(judged.since[c]),
        raised_at=judged.end,
        updated_at=judged.end,
        score=float(v.score[c]),
        severity=float(v.severity[c]),
        worst_severity=float(v.severity[c]),
        observed=float(v.observed[c]),
        reference=float(v.reference[c]),
        causes=v.causes.get(judged.components[c], ()),
        slow_share=at_times.share,
        slow_severity=at_times.severity,
        stops=stop_text(v, judged.components[c]),
    )
