"""What an operator runs next, by what the component is. Commands only look; names in them are quoted.

A name that is not a plain one (letters, digits and . _ : + -) is in no command on a node: names come from the
network, and a mail must not make anybody paste what a node chose.
"""

import re
import shlex
from collections.abc import Mapping

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
    "fnprofile": (("where its CPU time goes", "ssh {node} sudo perf top"), _KERNEL),
}
_OF_NODES: tuple[Command, ...] = (
    ("load, memory, disks", "ssh {node} vmstat 5 6"),
    ("its disks", "ssh {node} iostat -x 5"),
    _KERNEL,
)


def commands(source: str, level: str, name: str, page: str) -> tuple[Command, ...]:
    """What to run about a component of that source and level; `page` is where the aggregator is reached.

    `name`: of the day: `node/device`, a node, or something that belongs to no node.
    """
    chosen = (
        _OF_NODES if level == "node" and source not in ("tcp", "fnprofile") else _BY_SOURCE.get(source, ())
    )
    if level in ("controller", "couplet"):
        chosen = ()
    node, slash, device = name.partition("/")
    if not slash:
        device = node
    plain = _PLAIN.fullmatch(node) and _PLAIN.fullmatch(device)
    found = [(what, line.format(node=node, device=device)) for what, line in chosen if plain]
    return (*found, ("all stragglers, live", f"laggard top --url {shlex.quote(page)}"))
