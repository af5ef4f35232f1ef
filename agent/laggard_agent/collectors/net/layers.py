"""Network interfaces above others (bonds, VLANs, bridges, macvlans, teams, tunnels): each byte counts once.

An interface that is made of others is left out, as those below it count the same bytes, unless it is hardware
itself (the failover pairs of virtual machines): then those below are left out. Tunnels are left out beside
hardware, through which their packets go; so are all without hardware of a node with Open vSwitch, whose
bridges do not name the interfaces below. An interface that the operator includes by name counts in any case.

From `/sys/class/net` (Documentation/ABI/testing/sysfs-class-net): `device` is a link that hardware has,
`lower_*`, `upper_*` and `master` link the layers.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from laggard_agent.collectors.interface import attribute, note_name

_TUNNEL_TYPES = frozenset({"768", "769", "776", "778", "823", "65534"})
"""ARPHRD_* of linux/if_arp.h: ipip, ip6tnl, sit, gre, ip6gre, and none (tun, WireGuard)."""
_TUNNEL_KINDS = frozenset({"DEVTYPE=vxlan", "DEVTYPE=geneve", "DEVTYPE=wireguard", "DEVTYPE=bareudp"})
_SWITCH = "ovs-system"
"""Open vSwitch's interface of the kernel, which all ports but those of its bridges are below."""


class Interfaces:
    """The interfaces that count. `sysfs` None: all that are chosen. `chosen`: the operator's choice."""

    def __init__(self, sysfs: Path | None, chosen: Callable[[str], bool | None]) -> None:
        self._class = None if sysfs is None else f"{sysfs}/class/net"
        self._chosen = chosen

    def counted(self, names: Iterable[str]) -> frozenset[str]:
        """Those of `names` that count, as the layers are now."""
        choices = {name: self._chosen(name) for name in names}
        candidates = [name for name, choice in choices.items() if choice is not False]
        if self._class is None:
            return frozenset(candidates)
        folders = self._linked(candidates, choices.keys())
        below = _layers(folders)
        hardware = {name for name in candidates if folders[name].is_hardware}
        left_out = {lower for name in hardware for lower in _all_below(name, below)}
        for name in candidates:
            if name not in hardware and (
                not _all_below(name, below).isdisjoint(candidates)
                or (hardware and not below[name] and (_SWITCH in choices or folders[name].is_tunnel()))
            ):
                left_out.add(name)
        return frozenset(name for name in candidates if choices[name] or name not in left_out)

    def _linked(self, names: Sequence[str], known: Collection[str]) -> dict[str, "_Folder"]:
        """The folders of `names`, and of the others in `known` that are above or below them."""
        folders: dict[str, _Folder] = {}
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name in known and name not in folders:
                folder = folders[name] = _Folder(f"{self._class}/{name}")
                waiting += [*folder.lower, *folder.upper]
        return folders


class _Folder:
    """The entries of an interface in sysfs."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._entries: Sequence[str] = os.listdir(path)  # noqa: PTH208 - strings are wanted
        except OSError:
            self._entries = ()
        self.is_hardware = "device" in self._entries
        if self.is_hardware:
            note_name(f"{path}/device", is_folder=True)
        self.lower = self._named("lower_")
        self.upper = [*self._named("upper_"), self._master()]

    def is_tunnel(self) -> bool:
        """Whether its packets go through another interface, wrapped."""
        if "tun_flags" in self._entries:
            note_name(f"{self._path}/tun_flags")
            return True
        return attribute(f"{self._path}/type") in _TUNNEL_TYPES or any(
            word in _TUNNEL_KINDS for word in attribute(f"{self._path}/uevent").split()
        )

    def _named(self, prefix: str) -> list[str]:
        """The interfaces that links of this prefix name."""
        names = [entry for entry in self._entries if entry.startswith(prefix)]
        for name in names:
            note_name(f"{self._path}/{name}", is_folder=True)
        return [name.removeprefix(prefix) for name in names]

    def _master(self) -> str:
        """The interface that it is a port or a part of, empty without one."""
        if "master" not in self._entries:
            return ""
        try:
            return os.path.basename(os.readlink(f"{self._path}/master"))  # noqa: PTH115, PTH119
        except OSError:  # a copy, which `lower_*` of the master describes
            return ""


def _layers(folders: Mapping[str, _Folder]) -> defaultdict[str, set[str]]:
    """The interfaces directly below each."""
    below: defaultdict[str, set[str]] = defaultdict(set)
    for name, folder in folders.items():
        below[name].update(folder.lower)
        for upper in folder.upper:
            below[upper].add(name)
    return below


def _all_below(name: str, below: Mapping[str, set[str]]) -> set[str]:
    lowers: set[str] = set()
    waiting = [name]
    while waiting:
        for lower in below.get(waiting.pop(), ()):
            if lower not in lowers:
                lowers.add(lower)
                waiting.append(lower)
    return lowers - {name}
