"""Peer groups and their members.

Configured groups come first. Any other component of a comparable source goes into the automatic group of its
role, source and class, so that upgraded hardware is not compared with old (Intrepid, Table 2), and of its
file system, volume or service.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from laggard_aggregator.detect import registry
from laggard_aggregator.detect.settings import OF_FUNCTIONS, DetectSettings
from laggard_aggregator.metrics.definition import SourceMetrics
from laggard_aggregator.metrics.registry import COMPARED_AS, FUNCTIONS
from laggard_aggregator.metrics.sums import JoinedMetrics
from laggard_common.wire.schema import Component

_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class PeerGroup:
    """A peer group and its detection settings.

    `role` is empty for any role. `one_node`: an automatic group of a kind that a site may have very many of,
    such as one within one node.
    """

    name: str
    source: str
    role: str
    metrics: tuple[str, ...]
    detect: DetectSettings
    automatic: bool = False
    one_node: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A configured group: all components of its source and role whose `node/name` or key matches in full.

    For a source of sums the name of the sum matches: `node/source`, or `*/id`.
    """

    group: PeerGroup
    components: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class ConfiguredMembership:
    """Membership by rules, with automatic groups for other components; constant over time.

    Rules of a detector that needs no peers leave their components in the automatic groups.

    `functions`: as `default`, for sources whose components are functions.
    """

    rules: Sequence[Rule]
    default: DetectSettings = field(default_factory=DetectSettings)
    functions: DetectSettings = OF_FUNCTIONS

    def groups_of(
        self,
        node: str,
        role: str,
        source: str,
        component: Component,
        at: float,  # noqa: ARG002 - these rules do not change with time
    ) -> tuple[PeerGroup, ...]:
        """The groups of all matching rules, or the automatic one, for each kind of comparison."""
        if source in FUNCTIONS:
            functions = FUNCTIONS[source]
            claimed = self._claimed(
                source, role, (shown_name(node, component), component_key(node, component))
            )
            if not _without_peers(claimed) or role not in functions.roles:
                return claimed
            return (_automatic(source, role, functions.defaults, self.functions), *claimed)
        return tuple(
            group
            for known in COMPARED_AS.get(source, ())
            for group in self._compared_as(known, node, role, component)
        )

    def _compared_as(
        self, known: SourceMetrics, node: str, role: str, component: Component
    ) -> tuple[PeerGroup, ...]:
        key = component_key(node, component)
        names: tuple[str, ...] = (shown_name(node, component), key)
        shared = _shared(known, node, component)
        if isinstance(known, JoinedMetrics):
            names, shared = (known.name_of(key),), ()
        claimed = self._claimed(known.source, role, names)
        if not _without_peers(claimed) or not known.defaults or (known.roles and role not in known.roles):
            return claimed
        one_node = known.one_node or known.many_groups
        automatic = _automatic(known.source, role, known.defaults, self.default, *shared, one_node=one_node)
        return (automatic, *claimed)

    def _claimed(self, source: str, role: str, names: Collection[str]) -> tuple[PeerGroup, ...]:
        """The groups of a source's rules that match one of a component's names."""
        return tuple(
            rule.group
            for rule in self.rules
            if rule.group.source == source
            and rule.group.role in ("", role)
            and any(map(rule.components.fullmatch, names))
        )


def _without_peers(groups: Collection[PeerGroup]) -> bool:
    """Whether none of `groups` compares its members as peers, so that an automatic group does."""
    return all(registry.find(group.detect.detector).by_itself for group in groups)


def _automatic(
    source: str,
    role: str,
    metrics: tuple[str, ...],
    detect: DetectSettings,
    *shared: str,
    one_node: bool = False,
) -> PeerGroup:
    """The automatic group of components that have source, role and `shared` properties in common."""
    name = "/".join(filter(None, (role, source, *shared)))
    return PeerGroup(name, source, role, metrics, detect, automatic=True, one_node=one_node)


def component_key(node: str, component: Component) -> str:
    """The permanent ID of a component: with its node, unless it may move between nodes."""
    return component.id if moves(component) else f"{node}/{component.id}"


def shown_name(node: str, component: Component) -> str:
    """The current name of the component."""
    return component.name if moves(component) else f"{node}/{component.name}"


def component_class(component: Component) -> str:
    """Model, kind and size in one word, such as `ST4000NM0035_hdd_4.0TB`; empty if unknown."""
    labels = dict(component.labels)
    kind = {"1": "hdd", "0": "ssd"}.get(labels.get("rotational", ""), "")
    parts = (_UNSAFE.sub("_", labels.get("model", "").strip()), kind, _size(labels.get("size", "")))
    return "_".join(filter(None, parts))


def moves(component: Component) -> bool:
    """Whether the component may move between nodes, as an OST does in a failover.

    With a slash in its ID or name it may not, regardless of its label: without the node in front it could
    pose as `other-node/sda`.
    """
    return ("scope", "site") in component.labels and "/" not in component.id + component.name


def _shared(source: SourceMetrics, node: str, component: Component) -> tuple[str, ...]:
    """The common properties of automatic peers of `component` besides role and source."""
    labels = dict(component.labels)
    common = (_UNSAFE.sub("_", labels.get(name, "")) for name in source.peers)
    return (node if source.one_node else "", component_class(component), *common)


def _size(text: str) -> str:
    """Bytes to two figures, so that a few blocks do not make another class."""
    if not (text.isascii() and text.isdigit() and len(text) < 25) or int(text) == 0:
        return ""
    size = float(f"{int(text):.1e}")
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000:
            return f"{size:.3g}{unit}"
        size /= 1000
    return f"{size:.3g}PB"
