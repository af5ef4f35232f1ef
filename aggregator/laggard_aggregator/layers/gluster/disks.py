"""Disks of a brick's server: a copy of /proc/diskstats from before, and one from after."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from laggard_aggregator.layers.gluster.counters import DATA, GlusterLayer
from laggard_common.errors import InputError
from laggard_common.trace_formats.kernel_text import MANY_REQUESTS, disk_line

_SECTOR_BYTES = 512


def matches(first: bytes) -> bool:
    """True when the first bytes are of such a copy."""
    line = first.partition(b"\n")[0]
    return line[:1] in b" 0123456789" and bool(disk_line(line)[0])


def layers(copies: Sequence[tuple[Path, str]], remarks: list[str]) -> Iterator[GlusterLayer]:
    """The disks with requests between the copies, in the order in which counters rose. Raises InputError.

    `remarks` gets a line about disks whose requests have no times, which are left out.
    """
    if not copies:
        return
    if len(copies) != 2:
        raise InputError(str(copies[0][0]), f"expected two copies of /proc/diskstats, got {len(copies)}")
    before, after = sorted(
        (_counters(text) for _, text in copies), key=lambda counters: sum(map(sum, counters.values()))
    )
    for name, later in after.items():
        risen = [b - a for a, b in zip(before.get(name, later), later, strict=True)]
        reads, sectors_read, read_ms, writes, sectors_written, write_ms = risen
        if min(risen) < 0 or not reads + writes:
            continue
        if reads + writes >= MANY_REQUESTS and not read_ms + write_ms:
            remarks.append(
                f"{name}: {reads + writes:,} requests without times: left out, its members are compared"
            )
            continue
        fops = {
            fop: (calls, ms * 1e6 / calls)
            for fop, calls, ms in zip(DATA, (reads, writes), (read_ms, write_ms), strict=True)
            if calls
        }
        yield GlusterLayer("disk", name, fops, (sectors_read + sectors_written) * _SECTOR_BYTES)


def _counters(text: str) -> dict[str, list[int]]:
    """Of each disk: reads, sectors, milliseconds; writes, sectors, milliseconds."""
    lines = map(disk_line, text.encode().splitlines())
    known = {name.decode(): [value or 0 for value in row] for name, row in lines if name}
    return {name: [*values[:1], *values[2:5], *values[6:8]] for name, values in known.items()}
