"""Next steps of an operator for a component: commands and a hint, for pages and mails.

Commands only look. A name that is not plain (letters, digits and . _ : + -) has none: names come from the
network, and an operator must never paste text that a node chose. Names with slashes are in no command.
"""

import re

from laggard_aggregator.metrics.definition import KERNEL_MESSAGES, NextStep
from laggard_aggregator.metrics.registry import FUNCTIONS, SOURCES, next_steps
from laggard_aggregator.metrics.sums import JoinedMetrics

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:+-]{0,127}", re.ASCII)

Command = tuple[str, str]
"""The subject that a command shows, and the command."""

_OF_NODES = (
    NextStep("load, memory, disks", "ssh {node} vmstat 5 6"),
    NextStep("its disks", "ssh {node} iostat -x 5"),
    KERNEL_MESSAGES,
)

OF_GROUPS = {
    "group": "The whole group is slower than in its own past at the same load: look at what its members "
    "share (switch, controllers, a change of software), and whether the users' work has changed.",
    "split": "Two sides of the group differ: look at what the slower side shares (server, controller, links, "
    "load), and since when.",
}


def commands(source: str, level: str, name: str) -> tuple[Command, ...]:
    """Commands to run about a component of that source and level.

    `name`: current name: `node/device`, a node, or something that belongs to no node.
    """
    if level in ("controller", "couplet", "group", "split"):
        return ()
    chosen = _OF_NODES if level == "node" and not _compares_nodes(source) else next_steps(source)
    node, slash, device = name.partition("/")
    if not slash:
        device = node
    if "/" in device and any("{device}" in step.run for step in chosen):
        return ()
    if not all(map(_PLAIN.fullmatch, (node, *device.split("/")))):
        return ()
    return tuple((step.shows, step.run.format(node=node, device=device)) for step in chosen)


def _compares_nodes(source: str) -> bool:
    """Whether the components of a source are nodes."""
    known = SOURCES.get(source)
    return source in FUNCTIONS or (isinstance(known, JoinedMetrics) and known.by_node)


def hint(source: str, level: str, name: str, slow_siblings: int, siblings: int) -> str:
    """Where the fault most likely lies, in a sentence.

    `siblings`: how many other components of its node are compared with the same peers, and how many of them
    were anomalous in the latest window.
    """
    node = name.partition("/")[0]
    if source in FUNCTIONS:
        return (
            "Its functions use CPU time that its peers' do not: the largest differences show where it goes."
        )
    if level in OF_GROUPS:
        return OF_GROUPS[level]
    if level != "component":
        kind = "server" if level == "node" else level
        return (
            f"Nearly everything on this {kind} is slow: look at the {kind} itself, its links and its load "
            "before any single device."
        )
    if not siblings:
        return "Nothing else of the same node is compared here: look at the component, then at its node."
    if not slow_siblings:
        others = "the other one beside it is" if siblings == 1 else f"the other {siblings} beside it are"
        return f"Only this one of {node} is slow, {others} not: look at the component itself."
    return (
        f"{slow_siblings} of {siblings} others of {node} are slow too: look at what they share, "
        "the node, its controller and its links."
    )
