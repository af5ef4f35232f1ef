"""Selection of block devices that are peers, and their identity over reboots, from /sys/block.

Not peers: partitions (they are not in /sys/block), members of md, LVM, dm-crypt or multipath (they have
holders; the device above stands for them), NVMe path devices (hidden), partitions of dm devices. loop, ram,
zram, sr and fd are opt-in. A device that the operator includes by name is a peer in any case.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from laggard_agent.collectors.interface import attribute, choice, note_name
from laggard_common.wire.limits import MAX_NAME_CHARS
from laggard_common.wire.schema import Component

_OPT_IN = re.compile(r"(?:loop|ram|zram|sr|fd)\d+")
_NVME_PATH = re.compile(r"nvme\d+c\d+n\d+")
_SECTOR_BYTES = 512
_IDENTITIES = ("wwid", "device/wwid", "dm/uuid", "md/uuid", "serial", "device/serial")


class BlockDevices:
    """The components among kernel names. `sysfs` None: /sys/block filters nothing, names are identities.

    `include` and `exclude`: patterns of whole names; without any `include` every real disk is selected. A
    known device that has left /sys/block since its name was read keeps its identity.
    """

    def __init__(self, sysfs: Path | None, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> None:
        self._block = None if sysfs is None else sysfs / "block"
        self._chosen = choice(include, exclude)
        self._components: dict[bytes, Component] = {}

    def components(self, names: Iterable[bytes]) -> dict[bytes, Component]:
        """Component of each selected name, in order, as /sys/block is now."""
        found = {}
        taken: set[str] = set()
        there = frozenset() if self._block is None else frozenset(_names_in(str(self._block)))
        for raw in names:
            name = raw.decode("ascii", "replace")
            folder = name.replace("/", "!")  # as in `cciss/c0d0`
            device = _Device(f"{self._block}/{folder}", folder) if folder in there else None
            component = self._components.get(raw) if device is None else None
            if component is None and self._is_peer(name, device):
                component = _component(name, device, taken)
            if component is not None:
                taken.add(component.id)
                found[raw] = component
        self._components = found
        return found

    def _is_peer(self, name: str, device: "_Device | None") -> bool:
        chosen = self._chosen(name)
        if chosen is not None:
            return chosen
        if _OPT_IN.fullmatch(name) or _NVME_PATH.fullmatch(name):
            return False
        if self._block is None:
            return True
        return device is not None and device.is_peer()


class _Device:
    """The attributes of one device in sysfs. One listing finds absent attributes without an open of each."""

    def __init__(self, path: str, folder: str) -> None:
        self._path = path
        self._folder = folder
        self._entries = frozenset(_names_in(path))

    def is_peer(self) -> bool:
        """False for a device that is hidden, a partition, or a member of another device."""
        note_name(self._path, is_folder=True)
        return not (
            self.text("hidden") == "1" or self.text("dm/uuid").startswith("part") or self._is_member()
        )

    def identity(self) -> str:
        """The most permanent ID of the device, empty when it has none."""
        return next(filter(None, map(self.text, _IDENTITIES)), "")

    def labels(self) -> Iterable[tuple[str, str]]:
        """The class of a disk: model (of a multipath device that of the first path), rotational, bytes."""
        model = self.text("device/model") or next(filter(None, self._models_below()), "")
        if model:
            yield "model", model
        rotational = self.text("queue/rotational")
        if rotational:
            yield "rotational", rotational
        sectors = self.text("size")
        if sectors.isdecimal():
            yield "size", str(int(sectors) * _SECTOR_BYTES)

    def text(self, name: str) -> str:
        """An attribute with single blanks, empty when absent."""
        if name.partition("/")[0] not in self._entries:
            return ""
        return attribute(f"{self._path}/{name}")

    def _models_below(self) -> Iterable[str]:
        if "slaves" in self._entries:
            for slave in sorted(_names_in(f"{self._path}/slaves")):
                yield attribute(f"{self._path}/slaves/{slave}/device/model")

    def _is_member(self) -> bool:
        """True when md, LVM, dm-crypt or multipath uses the disk or one of its partitions."""
        if "holders" in self._entries and _has_entries(f"{self._path}/holders"):
            return True
        for entry in self._entries:
            partition = f"{self._path}/{entry}"
            if entry.startswith(self._folder) and os.path.exists(f"{partition}/partition"):  # noqa: PTH110
                note_name(f"{partition}/partition")
                if _has_entries(f"{partition}/holders"):
                    return True
        return False


def _component(name: str, device: _Device | None, taken: set[str]) -> Component:
    """The component of a device; two paths to one LUN without multipath stay two components."""
    shown = name[:MAX_NAME_CHARS]
    if device is None:
        return Component(shown, shown)
    identity = device.identity() or shown
    if identity in taken:
        identity = f"{identity}@{shown}"
    return Component(identity[:MAX_NAME_CHARS], shown, tuple(device.labels()))


def _names_in(folder: str) -> Sequence[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - strings are wanted
    except OSError:
        return ()


def _has_entries(folder: str) -> bool:
    names = _names_in(folder)
    if names:
        note_name(f"{folder}/{names[0]}", is_folder=True)
    return bool(names)
