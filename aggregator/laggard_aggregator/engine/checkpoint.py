"""The whole state of a core as sections of a snapshot, and a core out of such sections.

The first section says whose state it is; then come the nodes with their streams, and a section for each peer
group. A group that is configured otherwise now starts afresh, the others go on.
"""

import hashlib
import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from laggard_aggregator.detect.registry import VERSIONS
from laggard_aggregator.engine.machine import Core
from laggard_aggregator.groups.membership import ConfiguredMembership, PeerGroup
from laggard_aggregator.metrics.functions import FUNCTIONS
from laggard_aggregator.metrics.registry import SOURCES
from laggard_common.errors import ServiceError, StateError, WireError

_log = logging.getLogger(__name__)

VERSION = 1
"""Raised when a snapshot can not be read by the version before."""


@dataclass(frozen=True, slots=True)
class Head:
    """What a snapshot says of itself. `ordinal`: the last batch or close in it, of the run `run_ns`.

    `rules`: see `rules_of`. `taken_ns`: when it was taken, ns since the epoch.
    """

    site: str
    run_ns: int
    rules: str
    ordinal: int
    taken_ns: int


def capture(core: Core, run_ns: int, now_ns: int) -> list[dict[str, Any]]:
    """The sections of `core`, which nobody changes meanwhile. They hold no reference to what may change.

    Arrays are copied; that and walking the nodes takes tenths of a second at tens of thousands of nodes.
    """
    head = Head(core.intake.site, run_ns, rules_of(core), core.ordinals.last, now_ns)
    sections: list[dict[str, Any]] = [{"version": VERSION, **asdict(head)}, *core.intake.state()]
    for part in core.pipeline.state():
        name = part.get("group")
        if name is not None:
            part["group"] = _described(core.pipeline.groups[name])
        sections.append(part)
    return sections


def restore(core: Core, sections: Iterator[Any], path: str) -> Head:
    """Makes `core`, which is new, what was captured.

    Raises StateError, and the core is of no use then; ServiceError when it is the state of another site.
    """
    try:
        head = _head(next(sections))
        if head.site != core.intake.site:
            raise ServiceError(f"{path}: is the state of site {head.site!r}, not of {core.intake.site!r}")
        for section in sections:
            _section(core, section)
    except StopIteration as exc:
        raise StateError(path, "is not a snapshot: it is empty") from exc
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, WireError) as exc:
        raise StateError(path, f"is not a snapshot: {type(exc).__name__}: {exc}"[:300]) from exc
    core.pipeline.restored()
    core.ordinals.last = head.ordinal
    return head


def rules_of(core: Core) -> str:
    """What tells one way of grouping and judging from another: a digest."""
    membership = core.membership
    said = [
        [[_described(rule.group), rule.components.pattern] for rule in membership.rules],
        _digest(asdict(membership.default)),
        _digest(asdict(membership.functions)),
        [asdict(branch) for branch in core.topology.branches],
        core.pipeline.engine.alarms.after_seconds,
        core.pipeline.windows.lateness_ns,
    ]
    return _digest(said)


def _head(section: Any) -> Head:
    if section.pop("version") != VERSION:
        raise ValueError("another version of Laggard wrote it")
    head = Head(**section)
    if not all(type(n) is int and 0 <= n < 2**63 for n in (head.run_ns, head.ordinal, head.taken_ns)):
        raise ValueError("a head without numbers")
    return head


def _section(core: Core, section: Any) -> None:
    if "group" in section:
        group = _group_of(core.membership, section["group"])
        if group is None:
            _log.info("group %s is compared otherwise now, and starts afresh", section["group"]["name"])
        else:
            core.pipeline.restore_group(group, section)
    elif "origins" in section:
        core.pipeline.restore(section)
    else:
        core.intake.restore(section)


def _group_of(membership: ConfiguredMembership, kept: dict[str, Any]) -> PeerGroup | None:
    """The group that `kept` describes, None where there is none like it any more."""
    group, source = None, kept["source"]
    if not kept["automatic"]:
        group = next((rule.group for rule in membership.rules if rule.group.name == kept["name"]), None)
    elif source in SOURCES or source in FUNCTIONS:
        of_functions = source in FUNCTIONS
        group = PeerGroup(
            name=kept["name"],
            source=source,
            role=kept["role"],
            metrics=(FUNCTIONS[source] if of_functions else SOURCES[source]).defaults,
            detect=membership.functions if of_functions else membership.default,
            automatic=True,
            one_node=kept["one_node"],
        )
    return group if group is not None and _described(group) == kept else None


def _described(group: PeerGroup) -> dict[str, Any]:
    """What has to be the same for a group's state to go on: also what this version makes of its settings."""
    source = FUNCTIONS.get(group.source) or SOURCES[group.source]
    return {
        "name": group.name,
        "source": group.source,
        "role": group.role,
        "metrics": list(group.metrics),
        "counters": _digest(source.counters(group.metrics)),
        "detect": _digest(asdict(group.detect)),
        "detector": VERSIONS[group.detect.detector],
        "automatic": group.automatic,
        "one_node": group.one_node,
    }


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=dict).encode()).hexdigest()
