r"""Vdevs, as `zpool_influxdb` and `zpool get -Hp` print them into one file.

Of zpool_influxdb (OpenZFS's cmd/zpool_influxdb) are read `zpool_stats` and `zpool_latency` of vdevs with a
path, in InfluxDB's line protocol: `zpool_stats,name=tank,state=ONLINE,path=/dev/sda1,vdev=root/raidz-0/disk-1
alloc=0u,... 1700000000000000000`. A bucket's `le` is the lower bound of its times (HISTO in
include/sys/fs/zfs.h), and counts its own times alone.

Of `zpool get -Hp -o name,property,value slow_ios,sit_out POOL all-vdevs` the lines `sda\tslow_ios\t3`, below
a line `pool\tPOOL`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from laggard_agent.collectors.interface import printable
from laggard_agent.collectors.zfs.bins import bin_of, fields_of
from laggard_common.trace_formats.kernel_text import number
from laggard_common.wire.limits import MAX_NAME_CHARS
from laggard_common.wire.schema import Component

HISTOGRAMS = ("disk_read", "disk_write", "total_read", "total_write")
COUNTERS = {
    "read_ops": "reads",
    "write_ops": "writes",
    "read_bytes": "read_bytes",
    "write_bytes": "written_bytes",
    "read_errors": "read_errors",
    "write_errors": "write_errors",
    "checksum_errors": "checksum_errors",
}
BIN_FIELDS = {name: tuple(fields_of(name)) for name in HISTOGRAMS}
_SWITCH = {b"on": 1, b"off": 0}
_TAGS = re.compile(rb"zpool_\w+,(?:.*?,)??(?:le=([^,]*),)?(name=.*)")
_VALUE = re.compile(rb"([a-z_]+)=([0-9]+)[ui]")
_STATE = re.compile(rb",state=ONLINE,")
_BOUND = re.compile(rb"([0-9]{1,4})\.([0-9]{6})")
_LEAST_POWER = 10
"""zpool_influxdb prints le in microseconds: below 2^10 ns all is in one bucket."""


@dataclass(slots=True)
class Vdevs:
    """Of each vdev with a path its component and values; of each name that `zpool get` told, its values.

    `odd`: lines of either that were not understood. `by_tags`: rows of `vdevs` by the text of their tags.
    """

    vdevs: dict[str, tuple[Component, dict[str, int | None]]] = field(default_factory=dict)
    states: dict[str, dict[str, int | None]] = field(default_factory=dict)
    odd: list[bytes] = field(default_factory=list)
    by_tags: dict[bytes, dict[str, int | None] | None] = field(default_factory=dict)


def parse_report(data: bytes) -> Vdevs:
    """The values of a report. A line without an end was cut off, and is left out."""
    report, pool = Vdevs(), b""
    for line in data.rpartition(b"\n")[0].splitlines():
        measurement = line.partition(b",")[0]
        if b"\t" in line:
            words = line.split(b"\t")
            if len(words) == 2 and words[0] == b"pool":
                pool = words[1]
            elif len(words) != 3 or not pool or not _note_state(report, pool, *words):
                report.odd.append(line)
        elif measurement in (b"zpool_stats", b"zpool_latency") and not _note_vdev(report, line):
            report.odd.append(line)
    return report


def _note_state(report: Vdevs, pool: bytes, name: bytes, key: bytes, value: bytes) -> bool:
    """Notes a property of a vdev; whether it was understood. A vdev without one has `-`."""
    values = {"slow_ios": number(value)} if key == b"slow_ios" else {"sits_out": _SWITCH.get(value)}
    if key not in (b"slow_ios", b"sit_out"):
        return False
    if value == b"-":
        return True
    report.states.setdefault(_name(pool, name), {}).update(values)
    return None not in values.values()


def _note_vdev(report: Vdevs, line: bytes) -> bool:
    """Notes a line of zpool_influxdb; whether it was understood. A vdev without a path is not a device."""
    words = line.rsplit(b" ", 2)
    match = _TAGS.fullmatch(words[0])
    if match is None or len(words) != 3:
        return False
    le, tags = match.groups()
    if tags not in report.by_tags:
        report.by_tags[tags] = _row_of(report, tags)
    row = report.by_tags[tags]
    if row is None:
        return True
    numbers = dict(_VALUE.findall(words[1]))
    if le is None:
        row["not_online"] = int(_STATE.search(tags) is None)
        row |= {field: number(numbers.get(name.encode(), b"")) for name, field in COUNTERS.items()}
        return all(row[field] is not None for field in COUNTERS.values())
    power = _power(le)
    if power is None:
        return False
    known = True
    for name, fields in BIN_FIELDS.items():
        field, count = fields[bin_of(power + 1)], number(numbers.get(name.encode(), b""))
        before = row.get(field, 0)
        row[field] = None if before is None or count is None else before + count
        known &= count is not None
    return known


def _row_of(report: Vdevs, text: bytes) -> dict[str, int | None] | None:
    """The row of the device with these tags; None for one without a path."""
    tags = dict(_pairs(text))
    if not {b"name", b"vdev", b"path"} <= tags.keys():
        return None
    component = _component(tags[b"name"], tags[b"path"], tags[b"vdev"])
    return report.vdevs.setdefault(component.id, (component, {}))[1]


def _power(le: bytes) -> int | None:
    """The power of two of a bucket's lower bound in ns, None for anything else. The last is 2^36."""
    match = _BOUND.fullmatch(le)
    if match is None:
        return 36 if le == b"+Inf" else None
    nanoseconds = (int(match[1]) * 10**6 + int(match[2])) * 1000
    # Rounded to microseconds and from a float, so the nearest power is meant.
    return max((nanoseconds * 2 // 3).bit_length(), _LEAST_POWER)


def _component(pool: bytes, path: bytes, vdev: bytes) -> Component:
    """A device of a pool; its label `vdev`: the part of the pool that it is in, as `raidz-0`."""
    parent = PurePosixPath(_text(vdev)).parent
    name = _name(pool, PurePosixPath(_text(path)).name.encode())
    labels = {"pool": _text(pool), "vdev": parent.name if parent.name != "root" else ""}
    return Component(name, name, tuple((key, value) for key, value in labels.items() if value))


def _name(pool: bytes, vdev: bytes) -> str:
    return f"{_text(pool)}/{_text(vdev)}"[:MAX_NAME_CHARS]


def _text(word: bytes) -> str:
    return printable(word.decode("utf-8", "replace"))[:MAX_NAME_CHARS]


def _pairs(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    """`key=value` of a list with commas; backslashes before blanks, commas and equals signs are removed."""
    for part in re.split(rb"(?<!\\),", text):
        key, equals, value = part.partition(b"=")
        if equals:
            yield key, re.sub(rb"\\([ ,=\\])", rb"\1", value)
