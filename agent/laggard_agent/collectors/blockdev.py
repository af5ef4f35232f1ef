"""Which block devices are peers, and their identity over reboots, from /sys/block and not from their names.

Not peers: partitions (they are not in /sys/block), members of md, LVM, dm-crypt or multipath (they have
holders; the device above stands for them), NVMe path devices (hidden), partitions of dm devices. loop, ram,
zram, sr and fd are opt-in. What the operator includes by name is taken whatever it is.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from laggard_agent.collectors.base import read_file
from laggard_agent.collectors.names import any_of
from laggard_agent.collectors.recording import note_name
from laggard_common.errors import CollectError
from laggard_common.limits import MAX_NAME_CHARS
from laggard_common.schema import Component

_OPT_IN = re.compile(r"(?:loop|ram|zram|sr|fd)\d+")
_NVME_PATH = re.compile(r"nvme\d+c\d+n\d+")
_RESCAN_NS = 60 * 1_000_000_000
_SECTOR_BYTES = 512
_IDENTITIES = ("wwid", "device/wwid", "dm/uuid", "md/uuid", "serial", "device/serial")


@dataclass(frozen=True, slots=True)
class Choice:
    """`[diskstats]` include and exclude: whole names must match; `include` empty means every real disk."""

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()


class BlockDevices:
    """The components among kernel names. `sysfs` None: nothing is filtered by /sys/block, names are identity.

    /sys/block is looked at when a name comes or goes, and once a minute (members and identities change late).
    """

    def __init__(self, sysfs: Path | None, choice: Choice, monotonic_ns: Callable[[], int]) -> None:
        self._block = None if sysfs is None else sysfs / "block"
        self._include = any_of(choice.include)
        self._exclude = any_of(choice.exclude)
        self._monotonic_ns = monotonic_ns
        self._names: tuple[bytes, ...] | None = None
        self._rescan_at_ns = 0
        self._components: dict[bytes, Component] = {}

    def components(self, names: tuple[bytes, ...]) -> dict[bytes, Component]:
        """The component of each of `names` that is one, in order; the same object while nothing changes."""
        now = self._monotonic_ns()
        if names != self._names or (self._block is not None and now >= self._rescan_at_ns):
            self._names = names
            self._rescan_at_ns = now + _RESCAN_NS
            components = self._scan(names)
            if list(components.items()) != list(self._components.items()):
                self._components = components
        return self._components

    def _scan(self, names: Iterable[bytes]) -> dict[bytes, Component]:
        found = {}
        taken: set[str] = set()
        for raw in names:
            name = raw.decode("ascii", "replace")
            if self._is_peer(name):
                component = self._component(name, taken)
                taken.add(component.id)
                found[raw] = component
        return found

    def _is_peer(self, name: str) -> bool:
        if self._exclude is not None and self._exclude(name):
            return False
        if self._include is not None:
            return self._include(name)
        if _OPT_IN.fullmatch(name) or _NVME_PATH.fullmatch(name):
            return False
        if self._block is None:
            return True
        device = self._block / _sysfs_name(name)
        if not device.is_dir():
            return False
        note_name(device, is_folder=True)
        return not (
            _text(device / "hidden") == "1"
            or _text(device / "dm/uuid").startswith("part")
            or _is_member(device)
        )

    def _component(self, name: str, taken: set[str]) -> Component:
        """The device by its most lasting name; two paths to one LUN without multipath stay two components."""
        shown = name[:MAX_NAME_CHARS]
        if self._block is None:
            return Component(shown, shown)
        device = self._block / _sysfs_name(name)
        identity = next((text for at in _IDENTITIES if (text := _text(device / at))), shown)
        if identity in taken:
            identity = f"{identity}@{shown}"
        return Component(identity[:MAX_NAME_CHARS], shown, tuple(_labels(device)))


def _sysfs_name(name: str) -> str:
    """Kernel names with a slash, as in `cciss/c0d0`, have an exclamation mark in sysfs."""
    return name.replace("/", "!").strip(".") or "!"


def _is_member(device: Path) -> bool:
    """True when md, LVM, dm-crypt or multipath stands above the disk or above one of its partitions."""
    if _has_entries(device / "holders"):
        return True
    for partition in device.glob("*/partition"):
        note_name(partition)
        if _has_entries(partition.parent / "holders"):
            return True
    return False


def _has_entries(folder: Path) -> bool:
    try:
        first = next(folder.iterdir(), None)
    except OSError:
        return False
    if first is not None:
        note_name(first, is_folder=True)
    return first is not None


def _labels(device: Path) -> Iterable[tuple[str, str]]:
    """What tells the class of a disk: model (of the first path, for multipath), rotational, size in bytes."""
    model = _text(device / "device/model") or next(
        (text for path in sorted(device.glob("slaves/*/device/model")) if (text := _text(path))), ""
    )
    if model:
        yield "model", model
    rotational = _text(device / "queue/rotational")
    if rotational:
        yield "rotational", rotational
    sectors = _text(device / "size")
    if sectors.isdecimal():
        yield "size", str(int(sectors) * _SECTOR_BYTES)


def _text(path: Path) -> str:
    """An attribute with its blanks run together, empty when there is none."""
    try:
        words = read_file(path).decode("ascii", "replace").split()
    except CollectError:
        return ""
    text = " ".join(words)
    return text[:MAX_NAME_CHARS] if text.isprintable() else ""
