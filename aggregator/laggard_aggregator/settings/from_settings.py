"""Builds peer groups with their detectors and thresholds, and the topology, from settings."""

import re
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

from laggard_aggregator.detect import registry
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.detect.trained_thresholds import Thresholds
from laggard_aggregator.groups.membership import ConfiguredMembership, PeerGroup, Rule
from laggard_aggregator.groups.topology import Branch, Topology
from laggard_aggregator.settings import thresholds_file
from laggard_aggregator.settings.aggregator import AggregatorSettings, DetectTable, PeakTable, TopologyTable
from laggard_common.errors import ConfigError


def membership(settings: AggregatorSettings) -> ConfiguredMembership:
    """The peer groups of `settings`. Raises ConfigError for missing or mismatched thresholds."""
    files: dict[str, Thresholds] = {}
    rules = []
    for table in settings.group:
        detect = _detect(settings.detect_of(table), table.name, files)
        detect = replace(detect, rotating=table.rotating)
        group = PeerGroup(table.name, table.source, table.role, table.metrics, detect)
        rules.append(Rule(group, re.compile(table.components)))
    for name, peak in settings.peaks:
        group = PeerGroup(name, peak.source, peak.role, (peak.metric,), _of_peak(settings.detect, peak))
        rules.append(Rule(group, re.compile(peak.component)))
    functions = replace(settings.detect, **settings.of_functions)
    return ConfiguredMembership(
        tuple(rules), _detect(settings.detect, "", files), _detect(functions, "", files)
    )


def topology(tables: Sequence[TopologyTable]) -> Topology:
    """The topology of `[[topology]]`."""
    return Topology([Branch(table.expression, table.parents) for table in tables])


def _detect(table: DetectTable, group: str, files: dict[str, Thresholds]) -> DetectSettings:
    """The group's settings, and those of its shadow. `files`: thresholds that were read before."""
    same = {own.name for own in fields(DetectTable)} & {own.name for own in fields(DetectSettings)}
    plain = DetectSettings(**{name: getattr(table, name) for name in same - {"thresholds", "shadow"}})
    settings = _trained(plain, table.thresholds, group, files)
    if not table.shadow:
        return settings
    shadow = _trained(replace(plain, detector=table.shadow), table.shadow_thresholds, group, files)
    return replace(settings, shadow=shadow)


def _of_peak(table: DetectTable, peak: PeakTable) -> DetectSettings:
    """The settings of a `[[peak]]`: the intervals and windows of `[detect]`. Its minutes confirm it."""
    return DetectSettings(
        detector="peak",
        interval_seconds=table.interval_seconds,
        window_samples=table.window_samples,
        shift_samples=table.shift_samples,
        confirm=1,
        options=peak.options,
    )


def _trained(settings: DetectSettings, path: str, group: str, files: dict[str, Thresholds]) -> DetectSettings:
    """`settings` with the thresholds in the file at `path`, if its detector has some."""
    detector = registry.find(settings.detector)
    if detector.training is None or not path:
        return settings
    if path not in files:
        files[path] = thresholds_file.load(Path(path))
    trained = files[path]
    mismatches = trained.mismatches(settings, detector.version)
    if mismatches:
        raise ConfigError(path, mismatches)
    return trained.applied(settings, group)
