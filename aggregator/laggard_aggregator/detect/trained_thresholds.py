"""Trained thresholds of groups, and the settings that they hold for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from laggard_aggregator.detect.settings import ByMetric, DetectSettings


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Results of training. They hold for the detector's version, and for windows like those of the training.

    `trained`: ISO 8601 UTC. `sources`: names of the inputs. `groups`: thresholds by group, in the detector's
    own unit. `options`, `tables`: values that the thresholds hold for (`registry.Training`), tables by name
    and group.
    """

    detector: str
    version: int
    trained: str
    sources: Sequence[str]
    interval_seconds: float
    window_samples: int
    groups: Mapping[str, ByMetric]
    options: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, ByMetric]] = field(default_factory=dict)

    def applied(self, settings: DetectSettings, group: str) -> DetectSettings:
        """`settings` with the thresholds of `group`, or all of them where it was not trained by its name."""
        tables = {name: groups.get(group) or _merged(groups) for name, groups in self.tables.items()}
        thresholds = self.groups.get(group) or _merged(self.groups)
        return replace(settings, thresholds=thresholds, options={**self.options, **tables})

    def mismatches(self, settings: DetectSettings, version: int) -> list[str]:
        """Respects in which these are not for `settings` and this detector version; empty when they are."""
        pairs = (
            ("detector", self.detector, settings.detector),
            ("version", self.version, version),
            ("interval_seconds", self.interval_seconds, settings.interval_seconds),
            ("window_samples", self.window_samples, settings.window_samples),
        )
        return [
            f"{name}: trained with {own}, to be used with {other}"
            for name, own, other in pairs
            if own != other
        ]


def _merged(groups: Mapping[str, ByMetric]) -> ByMetric:
    merged: dict[str, dict[str, float]] = {}
    for by_metric in groups.values():
        for metric, by_component in by_metric.items():
            merged.setdefault(metric, {}).update(by_component)
    return merged
