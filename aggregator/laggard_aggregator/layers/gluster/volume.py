"""The files of one volume's counters, as layers from the clients down to the disks."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from laggard_aggregator.layers.gluster import disks, levels, profiles, statedumps
from laggard_aggregator.layers.gluster.counters import GlusterLayer
from laggard_aggregator.layers.readers.text_lines import content
from laggard_common.errors import InputError

_LARGEST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Volume:
    """Layers of a volume from the top.

    `whole`: clients and bricks, each as one layer; `clients` and `bricks`: by process its translators.
    `remarks`: lines about the files.
    """

    whole: list[GlusterLayer]
    clients: dict[str, list[GlusterLayer]]
    bricks: dict[str, list[GlusterLayer]]
    disks: list[GlusterLayer]
    remarks: list[str]

    @property
    def layers(self) -> list[GlusterLayer]:
        """All of them, clients first."""
        within = [*self.clients.values(), *self.bricks.values()]
        return [*self.whole, *(layer for process in within for layer in process), *self.disks]


def matches(first: bytes) -> bool:
    """True when the first bytes are of one of these formats."""
    return profiles.matches(first) or statedumps.matches(first) or disks.matches(first)


def read(paths: Sequence[Path]) -> Volume:
    """The layers in the files. Raises InputError."""
    whole: list[GlusterLayer] = []
    remarks: list[str] = []
    dumps: list[tuple[Path, str]] = []
    copies: list[tuple[Path, str]] = []
    for path in paths:
        raw = content(path, _LARGEST_BYTES + 1)
        if not matches(raw[:65536]) or len(raw) > _LARGEST_BYTES:
            raise InputError(str(path), "has no counters of a gluster volume, unlike the other files")
        text = raw.decode(errors="replace")
        if statedumps.matches(raw):
            dumps.append((path, text))
        elif profiles.matches(raw[:65536]):
            whole += profiles.layers(text, path, remarks)
        else:
            copies.append((path, text))
    clients: dict[str, list[GlusterLayer]] = {}
    bricks: dict[str, list[GlusterLayer]] = {}
    for process in statedumps.processes(dumps):
        passed = list(levels.layers(process))
        (bricks if process.is_brick else clients)[process.name] = passed
    volume = Volume(whole, clients, bricks, list(disks.layers(copies, remarks)), remarks)
    if not any(layer.calls for layer in volume.layers if layer.layer != "disk"):
        raise InputError(str(paths[0]), "has no reads or writes: was latency-measurement on?")
    whole.sort(key=lambda layer: layer.layer != "client")
    return volume
