"""Signs and known paths, as `location` needs them, of the judgements of all groups."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from laggard_aggregator.alarms.alarms import Key
from laggard_aggregator.alarms.factors import factor_now
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.groups.membership import PeerGroup
from laggard_aggregator.groups.topology import Topology
from laggard_aggregator.metrics.registry import FUNCTIONS, SOURCES, unit, worse
from laggard_aggregator.status.location import WIDE, Location, Paths, Sign, locate, target_of
from laggard_aggregator.status.straggler_list import Standing

_TIMES = ("us", "ms", "s")
"""Units of times."""


def located(
    rows: Iterable[Standing],
    judgements: Iterable[Judgement],
    groups: Mapping[str, PeerGroup],
    topology: Topology,
    hosts: Mapping[str, str],
) -> dict[Key, Location]:
    """The located cause of each slow one of `rows`, by group, component and metric.

    `hosts`: the nodes of components that may move. Empty without stragglers, at no cost.
    """
    sources = {name: group.source for name, group in groups.items()}
    all_signs = list(signs(rows, sources))
    if not any(sign.confirmed for sign in all_signs):
        return {}
    return locate(all_signs, paths(all_signs, judgements, sources, topology, hosts))


def signs(rows: Iterable[Standing], sources: Mapping[str, str]) -> Iterator[Sign]:
    """The slow and the anomalous ones of `rows` by metrics with a worse side above. `sources`: by group."""
    for row in rows:
        source = sources.get(row.group, "")
        place = _place(source)
        if (
            not place
            or not (row.slow or row.anomalous)
            or (source in SOURCES and worse(source, row.metric) < 1)
        ):
            continue
        severity = row.severity if row.anomalous or row.alarm is None else row.alarm.worst_severity
        if place in ("inside", "forwarder") or not _is_time(source, row.metric):
            severity = math.nan
        now = factor_now(row, 1) if math.isfinite(severity) else math.nan
        yield Sign(row.key, row.name, place, row.level, severity, row.slow, now)


def paths(
    signs: Sequence[Sign],
    judgements: Iterable[Judgement],
    sources: Mapping[str, str],
    topology: Topology,
    hosts: Mapping[str, str],
) -> Paths:
    """The paths by the latest windows of all groups."""
    wide = {sign.component for sign in signs if sign.level in WIDE}
    awaits, times, clients = dict[str, float](), dict[str, float](), Counter[str]()
    carried: dict[str, set[str]] = {parent: set() for parent in wide}
    servers = {**_configured(signs, topology), **hosts}
    known = Paths(servers)
    concerned = {name for sign in signs for name in (known.node(sign), sign.component.partition("/")[0])}
    done: set[tuple[str, tuple[str, ...]]] = set()
    for judged in judgements:
        place, source = _place(sources.get(judged.group, "")), sources.get(judged.group, "")
        if place not in ("disk", "server", "target"):
            continue
        own = judged.components[: judged.levels.count("component")]
        if place == "target":
            if (source, own) not in done:
                clients.update(target_of(name) for name in own)
            done.add((source, own))
            continue
        factors, is_time = awaits if place == "disk" else times, _is_time(source, judged.metric)
        for name, factor in zip(own, judged.verdicts.severity.tolist(), strict=False):
            node = servers.get(name, name.partition("/")[0])
            if is_time:
                factors[node] = _larger(factors.get(node, math.nan), factor)
            if wide and node in concerned:
                for parent in wide.intersection(topology.parents_of(name).values()):
                    carried[parent].add(node)
    return Paths(servers, times, awaits, clients, carried)


def _configured(signs: Iterable[Sign], topology: Topology) -> Mapping[str, str]:
    """The configured nodes of the targets and addresses that `signs` are about."""
    servers: dict[str, str] = {}
    for sign in signs:
        node, _, rest = sign.component.partition("/")
        name = (
            target_of(sign.component) if sign.place == "target" else rest if node == "*" else sign.component
        )
        server = topology.parents_of(sign.component if node == "*" else name).get("node", "")
        if server and "/" not in name:
            servers[name] = server
    return servers


def _larger(first: float, other: float) -> float:
    """The larger of two factors; NaN only if both are."""
    return other if math.isnan(first) or other > first else first


def _is_time(source: str, metric: str) -> bool:
    """Whether a metric is a time: more is worse."""
    return source in SOURCES and unit(source, metric) in _TIMES and worse(source, metric) > 0


def _place(source: str) -> str:
    known = SOURCES.get(source) or FUNCTIONS.get(source)
    return known.place if known is not None else ""
