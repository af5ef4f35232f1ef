"""Disks of a brick's server: a copy of /proc/diskstats from before, and one from after."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from laggard_aggregator.layers.gluster.counters import DATA, GlusterLayer
from laggard_common.errors import InputError

_LINE = re.compile(r" *[0-9]{1,10} +[0-9]{1,10} +(\S{1,128})((?: +[0-9]{1,20}){11,40}) *")
_SECTOR_BYTES = 512


def matches(first: bytes) -> bool:
    """True when the first bytes are of such a copy."""
    return _LINE.fullmatch(first.decode(errors="replace").partition("\n")[0]) is not None


def layers(copies: Sequence[tuple[Path, str]]) -> Iterator[GlusterLayer]:
    """The disks with requests between the copies, in the order in which counters rose. Raises InputError."""
    if not copies:
        return
    if len(copies) != 2:
        raise InputError(str(copies[0][0]), f"expected two copies of /proc/diskstats, got {len(copies)}")
    before, after = sorted(
        (_counters(text) for _, text in copies), key=lambda each: sum(map(sum, each.values()))
    )
    for name, later in after.items():
        risen = [b - a for a, b in zip(before.get(name, later), later, strict=True)]
        reads, sectors_read, read_ms, writes, sectors_written, write_ms = risen
        if min(risen) < 0 or not reads + writes:
            continue
        fops = {
            fop: (calls, ms * 1e6 / calls)
            for fop, calls, ms in zip(DATA, (reads, writes), (read_ms, write_ms), strict=True)
            if calls
        }
        yield GlusterLayer("disk", name, fops, (sectors_read + sectors_written) * _SECTOR_BYTES)


def _counters(text: str) -> dict[str, list[int]]:
    """Of each disk: reads, sectors, milliseconds; writes, sectors, milliseconds."""
    rows = (found for line in text.splitlines() if (found := _LINE.fullmatch(line)))
    known = {found[1]: [int(value) for value in found[2].split()] for found in rows}
    return {name: [*values[:1], *values[2:5], *values[6:8]] for name, values in known.items()}
