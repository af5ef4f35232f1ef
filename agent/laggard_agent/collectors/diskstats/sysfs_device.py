"""One block device in sysfs: identifiers, labels, and the devices above it."""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from laggard_agent.collectors.interface import attribute, note_name

_SECTOR_BYTES = 512
_IDENTIFIERS = ("wwid", "device/wwid", "dm/uuid", "md/uuid", "serial", "device/serial")
_SERIALS = ("serial", "device/serial")
_FIRMWARE = ("device/rev", "device/firmware_rev")
_SCSI_HOST = re.compile(r"/([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])/(?:[a-z]+[0-9]+/)?host[0-9]+/")
_VOLUME_GROUP = re.compile(r"(?:[^-]|--)+(?=-[^-])")


@dataclass(frozen=True, slots=True)
class Facts:
    """The lasting properties of a device: another device under the same name has others.

    `identifiers`: the most permanent first. `sequence`: the kernel's number of the device since boot
    (`diskseq`, from Linux 5.15), empty without. `kind`: size, model and serial number of hardware, each empty
    when unknown.
    """

    identifiers: tuple[str, ...] = ()
    sequence: str = ""
    kind: tuple[str, str, str] = ("", "", "")


class SysfsDevice:
    """The attributes of one device, each read at most once.

    One listing finds absent attributes without an open of each.
    """

    def __init__(self, path: str, folder: str) -> None:
        self._path = path
        self._folder = folder
        self._entries = frozenset(names_in(path))
        self._texts: dict[str, str] = {}

    def is_hidden(self) -> bool:
        """Whether it is a path to a device that has a name of its own."""
        note_name(self._path, is_folder=True)
        return self._text("hidden") == "1"

    def is_dm_partition(self) -> bool:
        """Whether it is a partition of another device of dm, as kpartx makes them."""
        return self._text("dm/uuid").startswith("part")

    def is_multipath(self) -> bool:
        """Whether it is dm's device over several paths to one disk."""
        return self._text("dm/uuid").startswith("mpath-")

    def has_iostats(self) -> bool:
        """False where `queue/iostats` is 0."""
        return self._text("queue/iostats") != "0"

    def is_hardware(self) -> bool:
        """Whether a driver serves it, not md or dm."""
        return "device" in self._entries

    @cached_property
    def holders(self) -> list[str]:
        """Kernel names of md, LVM, dm-crypt and multipath devices that use it or one of its partitions."""
        held = self._holders_of(self._path) if "holders" in self._entries else []
        for entry in sorted(self._entries):
            partition = f"{self._path}/{entry}"
            if entry.startswith(self._folder) and os.path.exists(f"{partition}/partition"):  # noqa: PTH110
                note_name(f"{partition}/partition")
                held += self._holders_of(partition)
        return held

    def facts(self) -> Facts:
        """The lasting properties."""
        identifiers = tuple(filter(None, map(self._text, _IDENTIFIERS)))
        if self._entries & {"dm", "md"}:  # a UUID of software, unique whatever the size
            return Facts(identifiers, self._text("diskseq"))
        kind = (self._text("size"), self._model(), next(filter(None, map(self._text, _SERIALS)), ""))
        return Facts(identifiers, self._text("diskseq"), kind)

    def labels(self) -> Iterable[tuple[str, str]]:
        """The class of a disk, and attributes that it shares with others; unknown ones are left out.

        `model` and `firmware` (of a multipath device those of the first path), `rotational`, `size` in bytes;
        `adapter`: PCI address of its SCSI host adapter; `pool`: its volume group, or the array that uses it.
        """
        model = self._model()
        if model:
            yield "model", model
        rotational = self._text("queue/rotational")
        if rotational:
            yield "rotational", rotational
        sectors = self._text("size")
        if sectors.isdecimal():
            yield "size", str(int(sectors) * _SECTOR_BYTES)
        shared = {"firmware": self._firmware(), "adapter": self._adapter(), "pool": self._pool()}
        yield from ((name, value) for name, value in shared.items() if value)

    def _model(self) -> str:
        return self._text("device/model") or self._text_below("device/model")

    def _firmware(self) -> str:
        own = map(self._text, _FIRMWARE)
        return next(filter(None, own), "") or next(filter(None, map(self._text_below, _FIRMWARE)), "")

    def _adapter(self) -> str:
        """The PCI function above the SCSI host, from the path of the device."""
        if "device" not in self._entries:
            return ""
        host = _SCSI_HOST.search(os.path.realpath(f"{self._path}/device"))
        return host[1] if host else ""

    def _pool(self) -> str:
        if self._text("dm/uuid").startswith("LVM-"):
            group = _VOLUME_GROUP.match(self._text("dm/name"))
            return group[0].replace("--", "-") if group else ""
        arrays = {name for name in self.holders if name.startswith("md")}
        return arrays.pop() if len(arrays) == 1 else ""

    def _text(self, name: str) -> str:
        """An attribute with single blanks, empty when absent."""
        if name.partition("/")[0] not in self._entries:
            return ""
        if name not in self._texts:
            self._texts[name] = attribute(f"{self._path}/{name}")
        return self._texts[name]

    def _text_below(self, name: str) -> str:
        """The attribute of the first device below that has it, empty without one."""
        own = (attribute(f"{self._path}/slaves/{slave}/{name}") for slave in self._slaves)
        return next(filter(None, own), "")

    @cached_property
    def _slaves(self) -> Sequence[str]:
        return sorted(names_in(f"{self._path}/slaves")) if "slaves" in self._entries else ()

    @staticmethod
    def _holders_of(path: str) -> list[str]:
        names = sorted(names_in(f"{path}/holders"))
        for name in names:
            note_name(f"{path}/holders/{name}", is_folder=True)
        return [name.replace("!", "/") for name in names]


def names_in(folder: str) -> Sequence[str]:
    """The names in a folder; none where it is absent or unreadable."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - strings are wanted
    except OSError:
        return ()
