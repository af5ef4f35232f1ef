"""The machine's state as sections of a snapshot, and a machine restored from them.

The first section identifies the state; then come the nodes with their streams, and one section per peer
group. A group whose configuration changed starts without state, the others continue. So does a changed
shadow, without effect on its group.
"""

import hashlib
import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from laggard_aggregator.detect import registry
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.groups.membership import ConfiguredMembership, PeerGroup
from laggard_aggregator.metrics.registry import FUNCTIONS, SOURCES
from laggard_common.errors import LaterVersionError, ServiceError, StateError, WireError

_log = logging.getLogger(__name__)

VERSION = 2
"""Increased when earlier versions cannot read the snapshot: with each new field of an alarm or a section."""
_READ = (1, VERSION)  # alarms of the first have no `stops`


@dataclass(frozen=True, slots=True)
class Head:
    """Identity of a snapshot. `lsn`: the last batch or close in it, of the run `run_ns`.

    `rules`: `rules_of` the machine. `taken_ns`: time of the snapshot, ns since the epoch.
    """

    site: str
    run_ns: int
    rules: str
    lsn: int
    taken_ns: int


def capture(machine: Machine, run_ns: int, now_ns: int) -> list[dict[str, Any]]:
    """The sections of `machine`, which must not change meanwhile; they share no mutable object with it.

    Copying arrays and walking the nodes takes tenths of a second at tens of thousands of nodes.
    """
    head = {
        "version": VERSION,
        "site": machine.admission.site,
        "run_ns": run_ns,
        "rules": rules_of(machine),
        "ordinal": machine.sequence.last,
        "taken_ns": now_ns,
    }
    sections: list[dict[str, Any]] = [head, *machine.admission.state()]
    for part in machine.state():
        name = part.get("group")
        if name is not None:
            part["group"] = _described(machine.groups[name])
        sections.append(part)
    return sections


def restore(machine: Machine, sections: Iterator[Any], path: str) -> Head:
    """Restores a new `machine` from its sections.

    Raises StateError, after which the machine is unusable; LaterVersionError on a snapshot of a later
    version, ServiceError on the state of another site.
    """
    site = machine.admission.site
    try:
        first = next(sections)
        version = first["version"]
        if type(version) is int and version > VERSION:
            raise LaterVersionError(path)
        head = _head(first)
        if head.site != site:
            raise ServiceError(f"{path}: is the state of site {head.site!r}, not of {site!r}")
        for section in sections:
            _restore_section(machine, section)
    except StopIteration as exc:
        raise StateError(path, "is not a snapshot: it is empty") from exc
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, WireError) as exc:
        raise StateError(path, f"is not a snapshot: {type(exc).__name__}: {exc}"[:300]) from exc
    machine.finish_restore(head.lsn)
    return head


def rules_of(machine: Machine) -> str:
    """Digest of the configuration that verdicts depend on: grouping, detection, topology, alarms."""
    membership = machine.membership
    rules = [
        [[_described(rule.group), rule.components.pattern] for rule in membership.rules],
        _digest(membership.default.record()),
        _digest(membership.functions.record()),
        [asdict(branch) for branch in machine.topology.branches],
        machine.judge.alarms.after_seconds,
        machine.windows.lateness_ns,
    ]
    return _digest(rules)


def _head(section: Any) -> Head:
    if section.pop("version") not in _READ:
        raise ValueError("another version of Laggard wrote it")
    head = Head(lsn=section.pop("ordinal"), **section)
    if not all(type(n) is int and 0 <= n < 2**63 for n in (head.run_ns, head.lsn, head.taken_ns)):
        raise ValueError("a head without numbers")
    return head


def _restore_section(machine: Machine, section: Any) -> None:
    if "group" in section:
        group = _group_of(machine.membership, section["group"])
        if group is None:
            _log.info(
                "group %s: its configuration changed; it starts without history", section["group"]["name"]
            )
        else:
            if section["group"].get("shadow") != _described(group).get("shadow"):
                for series in section["engine"]:
                    series.pop("shadow", None)
            machine.restore_group(group, section)
    elif "origins" in section:
        machine.restore(section)
    else:
        machine.admission.restore(section)


def _group_of(membership: ConfiguredMembership, kept: dict[str, Any]) -> PeerGroup | None:
    """The group described by `kept`, None if its configuration changed, other than its shadow."""
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
    if group is None or not registry.find(group.detect.detector).restores(kept["detector"]):
        return None
    apart = {"shadow": None, "detector": None}
    return group if {**_described(group), **apart} == {**kept, **apart} else None


def _described(group: PeerGroup) -> dict[str, Any]:
    """Everything that must be unchanged for a group's state to be restored, code versions included.

    `shadow`, only where there is one: the same for the shadow's state.
    """
    source = FUNCTIONS.get(group.source) or SOURCES[group.source]
    shadow = group.detect.shadow
    of_shadow = {} if shadow is None else {"shadow": _detection(shadow)}
    detect, version = _detection(replace(group.detect, shadow=None))
    return {
        "name": group.name,
        "source": group.source,
        "role": group.role,
        "metrics": list(group.metrics),
        "counters": _digest(source.counters(group.metrics)),
        "detect": detect,
        "detector": version,
        "automatic": group.automatic,
        "one_node": group.one_node,
        **of_shadow,
    }


def _detection(detect: DetectSettings) -> list[Any]:
    """Digest of the settings, and version of the detector."""
    return [_digest(detect.record()), registry.find(detect.detector).version]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=dict).encode()).hexdigest()
