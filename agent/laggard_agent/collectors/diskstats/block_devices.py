"""Selection of block devices that are peers, each byte counted once, from /sys/block and their counters.

Not peers: partitions (they are not in /sys/block), hidden devices, members of md, LVM, dm-crypt or multipath
(the device above stands for them), partitions of dm devices. loop, ram, zram, sr, fd and zd (volumes of ZFS,
which does not tell the disks below them) are opt-in. A device that the operator includes by name is a peer in
any case.

A device that stands for others and does not count (`layers`) does not stand for them. The head of NVMe's
native multipath (nvme0n1) and dm-multipath then have the sums over their paths (nvme0c0n1); the members of
any other device are peers themselves.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from laggard_agent.collectors.diskstats.identities import Identities
from laggard_agent.collectors.diskstats.layers import NVME_PATH, Layers, Usage
from laggard_agent.collectors.diskstats.sysfs_device import Facts, SysfsDevice, names_in
from laggard_agent.collectors.interface import choice
from laggard_common.wire.limits import MAX_NAME_CHARS
from laggard_common.wire.schema import Component

_OPT_IN = re.compile(r"(?:loop|ram|zram|sr|fd|zd)\d+")


@dataclass(frozen=True, slots=True)
class Disk:
    """A selected device. `parts`: the kernel names over which its counters are sums, mostly its own.

    `facts`: of each part that is in sysfs; others belong to another device. `has_times` False: its requests
    are counted and their times are not. `undecided_until`: the number of requests from which on the selection
    may be another one, 0 for none.
    """

    component: Component
    parts: tuple[str, ...]
    facts: tuple[Facts, ...] = ()
    has_times: bool = True
    undecided_until: int = 0


class BlockDevices:
    """The peers among kernel names. `sysfs` None: /sys/block filters nothing, names are identities.

    `include` and `exclude`: patterns of whole names; without any `include` every real disk is selected. A
    known device that has left /sys/block since its name was read keeps its identity. `remarks`: by kernel
    name, the devices that do not count as they should, and the remedy.
    """

    def __init__(self, sysfs: Path | None, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> None:
        self._block = None if sysfs is None else sysfs / "block"
        self._chosen = choice(include, exclude)
        self._identities = Identities()
        self._disks: dict[str, Disk] = {}
        self.remarks: dict[str, str] = {}

    def select(self, usage: Mapping[str, Usage]) -> dict[str, Disk]:
        """The disk of each selected kernel name, in order, as /sys/block is now."""
        devices = self._devices(usage)
        layers = Layers(devices, usage)
        gone = {} if self._block is None else self._disks.keys() - devices.keys()
        names = [n for n in usage if n in gone or self._is_peer(n, devices.get(n), layers)]
        self.remarks = {name: text for name in usage if (text := self._remark(name, names, layers))}
        names = [name for name in names if not layers.counts_nothing(name)]
        parts = {name: layers.parts(name) for name in names}
        wanted = {part for own in parts.values() for part in own} | set(names)
        facts = {name: device.facts() for name, device in devices.items() if name in wanted}
        ids = self._identities.assign({n: None if n in gone else facts.get(n, Facts()) for n in names})
        before, self._disks = self._disks, {}
        for name in names:
            device = devices.get(name)
            shown = name[:MAX_NAME_CHARS]
            labels = () if device is None else tuple(device.labels())
            self._disks[name] = (
                before[name]
                if name in gone
                else Disk(
                    Component(ids[name], shown, labels),
                    parts[name],
                    tuple(facts[part] for part in parts[name] if part in facts),
                    has_times=not layers.lacks_times(name),
                    undecided_until=layers.undecided_until(name),
                )
            )
        return self._disks

    def is_peer(self, name: str) -> bool:
        """Whether `name` is a peer by /sys/block alone, where every device above others counts."""
        devices = self._devices((name,))
        if name not in devices:
            return False
        devices |= self._devices(devices[name].holders)  # of which partitions of dm stand for nobody
        return self._is_peer(name, devices[name], Layers(devices, {}))

    def _devices(self, names: Collection[str]) -> dict[str, SysfsDevice]:
        if self._block is None:
            return {}
        present = frozenset(names_in(str(self._block)))
        folders = {name: name.replace("/", "!") for name in names}  # as in `cciss/c0d0`
        return {
            name: SysfsDevice(f"{self._block}/{folder}", folder)
            for name, folder in folders.items()
            if folder in present
        }

    def _is_peer(self, name: str, device: SysfsDevice | None, layers: Layers) -> bool:
        chosen = self._chosen(name)
        if chosen is not None:
            return chosen
        if _OPT_IN.fullmatch(name) or NVME_PATH.fullmatch(name):
            return False
        if self._block is None:
            return True
        return (
            device is not None
            and not device.is_hidden()
            and not device.is_dm_partition()
            and not layers.is_represented(name)
            and not self._replacements(name, layers)
        )

    def _replacements(self, name: str, layers: Layers) -> list[str]:
        """The members that are compared in place of `name`, which does not count."""
        return [
            member
            for member in layers.replacements(name)
            if self._chosen(member) is not False and not _OPT_IN.fullmatch(member)
        ]

    def _remark(self, name: str, peers: Sequence[str], layers: Layers) -> str:
        if name in peers:
            if layers.counts_nothing(name):
                return (
                    f"{name} is left out: its I/O is not counted; "
                    f"echo 1 > /sys/block/{name.replace('/', '!')}/queue/iostats"
                )
            if layers.lacks_times(name):
                return f"{name} counts requests but not their times: it has no latency"
            return ""
        members = self._replacements(name, layers)
        if not members or self._chosen(name) is not None or layers.is_represented(name):
            return ""
        return f"{name} does not count the times of its requests: compared in its place: {', '.join(members)}"
