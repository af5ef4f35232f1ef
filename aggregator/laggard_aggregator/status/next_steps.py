"""What an operator looks at next, by what the component is: for pages and mails.

Commands only look. A name that is not a plain one (letters, digits and . _ : + -) is in none: names come from
the network, and nobody must be made to paste what a node chose.
"""

import re
from collections.abc import Mapping

from laggard_aggregator.metrics.functions import FUNCTIONS

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:+-]{0,127}", re.ASCII)

Command = tuple[str, str]
"""What it shows, and what to type."""

_KERNEL = ("what the kernel says", "ssh {node} journalctl --dmesg --since -2d --priority warning")
_BY_SOURCE: Mapping[str, tuple[Command, ...]] = {
    "diskstats": (
        ("the disk now, beside its neighbours", "ssh {node} iostat -x 5"),
        ("its own error counters", "ssh {node} sudo smartctl -x /dev/{device}"),
        _KERNEL,
    ),
    "lustre_ost": (
        ("sizes and times of its disk I/O", "lctl get_param obdfilter.{device}.brw_stats"),
        ("how full it is", "lfs df | grep {device}"),
    ),
    "lustre_mdt": (
        ("its operations", "lctl get_param mdt.{device}.md_stats"),
        ("how full it is", "lfs df | grep {device}"),
    ),
    "lustre_osc": (("its requests", "ssh {node} lctl get_param osc.{device}*.rpc_stats"), _KERNEL),
    "lustre_mdc": (("its requests", "ssh {node} lctl get_param mdc.{device}*.rpc_stats"), _KERNEL),
    "gluster_brick": (("the bricks' state", "gluster volume status all detail"),),
    "tcp": (
        ("drops and errors of its ports", "ssh {node} ip -s link"),
        ("retransmits by connection", "ssh {node} ss -ti"),
        _KERNEL,
    ),
    "server": (
        ("its disks", "ssh {node} iostat -x 5"),
        ("drops and errors of its ports", "ssh {node} ip -s link"),
        _KERNEL,
    ),
    "tcp_destination": (("the way there", "mtr -rwc 20 {device}"),),
    "fnprofile": (("where its CPU time goes", "ssh {node} sudo perf top"), _KERNEL),
    "fntrace": (("what it does", "ssh {node} top -b -n 1"), _KERNEL),
}
_OF_NODES: tuple[Command, ...] = (
    ("load, memory, disks", "ssh {node} vmstat 5 6"),
    ("its disks", "ssh {node} iostat -x 5"),
    _KERNEL,
)


def commands(source: str, level: str, name: str) -> tuple[Command, ...]:
    """What to run about a component of that source and level.

    `name`: of the day: `node/device`, a node, or something that belongs to no node.
    """
    chosen = (
        _OF_NODES if level == "node" and source not in ("tcp", *FUNCTIONS) else _BY_SOURCE.get(source, ())
    )
    if level in ("controller", "couplet"):
        chosen = ()
    node, slash, device = name.partition("/")
    if not slash:
        device = node
    if not (_PLAIN.fullmatch(node) and _PLAIN.fullmatch(device)):
        return ()
    return tuple((what, line.format(node=node, device=device)) for what, line in chosen)


def hint(source: str, level: str, name: str, slow_siblings: int, siblings: int) -> str:
    """Where the fault most likely lies, in a sentence.

    `siblings`: how many other components of its node are compared with the same peers, and how many of them
    were anomalous in the latest window.
    """
    node = name.partition("/")[0]
    if source in FUNCTIONS:
        return "Its functions take what its peers' do not: the largest differences say what it is busy with."
    if level != "component":
        kind = "server" if level == "node" else level
        return (
            f"Nearly all that this {kind} carries is slow: look at the {kind} itself, its links and its load "
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
