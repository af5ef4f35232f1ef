"""Registry of the sources that can be compared, and of their metrics.

Collectors declare them in their folders (`declared`); a module in this package may define more as `SOURCES`.
Nothing lists either.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import replace

from laggard_aggregator import metrics
from laggard_aggregator.metrics.declared import EvidenceTable, declarations
from laggard_aggregator.metrics.definition import FunctionMetrics, NextStep, SourceMetrics
from laggard_aggregator.metrics.sums import JoinedMetrics


def _defined() -> list[SourceMetrics]:
    """Sources of the modules in this package, by the modules' names."""
    names = sorted(module.name for module in pkgutil.iter_modules(metrics.__path__))
    own = __name__.rpartition(".")[2]
    modules = [importlib.import_module(f"{metrics.__name__}.{name}") for name in names if name != own]
    return [source for module in modules for source in getattr(module, "SOURCES", ())]


def _with_throughput(known: SourceMetrics) -> SourceMetrics:
    """`known` with the throughput of its load as a metric, which has no worse side."""
    if "throughput" not in known.load or "throughput" in known.metrics:
        return known
    return replace(known, metrics={**known.metrics, "throughput": known.load["throughput"]})


_DECLARED = declarations()
SOURCES: Mapping[str, SourceMetrics] = {
    known.source: _with_throughput(known)
    for known in (*_defined(), *(s.source() for file in _DECLARED for s in file.source))
}
FUNCTIONS: Mapping[str, FunctionMetrics] = {
    known.name: known for file in _DECLARED for known in file.functions
}
"""Sources whose components are functions."""
EVIDENCE: Mapping[str, EvidenceTable] = {known.source: known for file in _DECLARED for known in file.evidence}
"""Sources that are shown beside alarms."""

_SENT = {name for known in SOURCES.values() for name in getattr(known, "parts", {known.source: ()})}
COMPARED_AS: Mapping[str, tuple[SourceMetrics, ...]] = {
    sent: tuple(
        known
        for known in SOURCES.values()
        if sent in (known.parts if isinstance(known, JoinedMetrics) else (known.source,))
    )
    for sent in _SENT
}
"""Comparisons of the components of each source that agents send: by themselves and as parts of sums."""


def unit(source: str, metric: str) -> str:
    """The unit of a source's metric, empty when the metric is not known here."""
    known = FUNCTIONS.get(source) or SOURCES.get(source)
    return known.metrics[metric].unit if known is not None and metric in known.metrics else ""


def worse(source: str, metric: str) -> int:
    """The worse side of a source's metric as in `Compared`; 0 for functions, 1 when it is not known here."""
    if source in FUNCTIONS:
        return 0
    known = SOURCES.get(source)
    return known.metrics[metric].worse if known is not None and metric in known.metrics else 1


def next_steps(source: str) -> tuple[NextStep, ...]:
    """Commands that show more of a component of the source."""
    known = FUNCTIONS.get(source) or SOURCES.get(source)
    return known.next_steps if known is not None else ()
