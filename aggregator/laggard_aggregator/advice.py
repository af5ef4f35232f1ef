"""What to look at next on a slow component: for the page and for mails. The commands only look.

Names come from nodes: what could be more to a shell than a word stands in no command.
"""

import re
from dataclasses import dataclass

from laggard_aggregator.metrics.functions import FUNCTIONS

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,127}", re.ASCII)
_BLOCK = ("iostat -x 1 5 {it}", "smartctl -a /dev/{it}", "dmesg -T | grep -w {it} | tail -20")
_OST = (
    "lctl get_param obdfilter.{it}.brw_stats",
    "lctl get_param obdfilter.{it}.job_stats",
    "lctl get_param obdfilter.{it}.kbytesavail",
)
_MDT = ("lctl get_param mdt.{it}.md_stats", "lctl get_param mdt.{it}.job_stats")
_HOST = ("dmesg -T | tail -50", "iostat -x 1 5", "sar -n DEV,EDEV 1 5", "top -b -n 1 | head -20")
_ON_COMPONENT = {
    "diskstats": _BLOCK,
    "lustre_ost": _OST,
    "lustre_mdt": _MDT,
    "lustre_osc": ("lctl get_param osc.{it}*.rpc_stats", "lctl get_param osc.{it}*.import"),
    "lustre_mdc": ("lctl get_param mdc.{it}*.rpc_stats", "lctl get_param mdc.{it}*.import"),
    "gluster_brick": ("gluster volume status", "iostat -x 1 5", "dmesg -T | tail -50"),
    "tcp": ("ss -tin", "ip -s link", "sar -n ETCP 1 5"),
    "tcp_destination": ("ss -tin dst {it}", "mtr -rwc 20 {it}"),
    "fnprofile": ("perf top -a", "top -b -n 1 | head -20"),
    "fntrace": ("top -b -n 1 | head -20", "iostat -x 1 5"),
}
_OF_FUNCTIONS = (
    "What its functions take differs from its peers: the largest differences say what it is busy with."
)


@dataclass(frozen=True, slots=True)
class Advice:
    """`hint`: where the fault most likely lies and why, in a sentence; `node`: where to type `commands`.

    `node` is empty when the component belongs to none, or none that could be typed.
    """

    hint: str
    node: str
    commands: tuple[str, ...]


def advise(source: str, level: str, name: str, slow_siblings: int, siblings: int) -> Advice:
    """Where to look next, for the component that is called `name` today.

    `siblings`: how many other components of its node are compared with the same peers, and how many of them
    were anomalous in the latest window.
    """
    node, slash, device = name.partition("/")
    if not slash:
        node, device = ("", name) if level == "component" and "lustre" in source else (name, "")
    by_functions = source in FUNCTIONS
    patterns = _ON_COMPONENT.get(source, _HOST) if level == "component" or by_functions else _HOST
    safe = bool(_WORD.fullmatch(device))
    commands = tuple(p.format(it=device) for p in patterns if safe or "{it}" not in p)
    hint = _OF_FUNCTIONS if by_functions else _hint(level, node, slow_siblings, siblings)
    return Advice(hint, node if _WORD.fullmatch(node) else "", commands)


def _hint(level: str, node: str, slow_siblings: int, siblings: int) -> str:
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
