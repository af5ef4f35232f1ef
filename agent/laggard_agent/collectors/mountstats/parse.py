"""Parser of /proc/self/mountstats (statvers 1.0 and 1.1): NFS mounts, their operations and transports.

Kernel: `nfs_show_stats` in fs/nfs/super.c, `rpc_clnt_show_stats` in net/sunrpc/stats.c, `print_stats` of each
transport. Names of mounts keep the kernel's octal escapes (`\\040` is a blank).
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from laggard_common.trace_formats.kernel_text import MOST, number, numbers

OPERATION_COUNTERS = (
    *("ops", "ntrans", "timeouts", "bytes_sent", "bytes_recv"),
    *("queue_ms", "rtt_ms", "execute_ms", "errors"),
)
"""Columns of an operation's line; `errors` from Linux 5.3 on."""
BYTE_COUNTERS = (
    *("normal_read_bytes", "normal_write_bytes", "direct_read_bytes", "direct_write_bytes"),
    *("server_read_bytes", "server_write_bytes", "read_pages", "write_pages"),
)
EVENTS = (
    *("inode_revalidates", "dentry_revalidates", "data_invalidates", "attribute_invalidates"),
    *("vfs_open", "vfs_lookup", "vfs_access", "vfs_update_page", "vfs_read_page", "vfs_read_pages"),
    *("vfs_write_page", "vfs_write_pages", "vfs_getdents", "vfs_setattr", "vfs_flush", "vfs_fsync"),
    *("vfs_lock", "vfs_release", "congestion_waits", "truncations", "write_extensions", "silly_renames"),
    *("short_reads", "short_writes", "delays", "pnfs_reads", "pnfs_writes"),
)
TRANSPORT_COUNTERS = (
    *("xprt_connects", "xprt_sends", "xprt_recvs", "xprt_bad_xids", "xprt_backlog_utilization"),
)
"""Sums over the transports of a mount; `nconnect` makes several."""

_TRANSPORT_PLACES: Mapping[bytes, tuple[int | None, ...]] = {
    b"tcp": (2, 5, 6, 7, 9),
    b"rdma": (2, 5, 6, 7, 9),
    b"local": (1, 4, 5, 6, 8),
    b"udp": (None, 2, 3, 4, 6),
}
"""Columns of TRANSPORT_COUNTERS behind the protocol's name."""
_HEAD = re.compile(rb"device (\S+) mounted on (\S+) with fstype (nfs4?)(?: statvers=(\S+))?")
_OTHER_HEAD = re.compile(rb"(?:device .+|no device) mounted on .+ with fstype \S+.*")
_MOUNTINFO = re.compile(rb"\d+ \d+ (\d+:\d+) \S+ (\S+) .*? - nfs4? (\S+) ")
"""Number of the device, mount point and device (proc(5), /proc/PID/mountinfo)."""
_NEGATIVE = 2**63
"""Numbers from here on are negative: the kernel sums times as signed numbers."""
_STAT_VERSIONS = (b"1.0", b"1.1")
_OPERATION = re.compile(rb"([A-Z0-9_]{1,32}):((?: \d+){8,})")
_OPTION = re.compile(rb"\b(vers|proto)=([\w.]{1,32})")
_NOT_COUNTERS = (b"opts", b"age", b"caps", b"sec", b"nfsv4", b"impl_id", b"fsc", b"RPC iostats version")


@lru_cache(maxsize=512)
def counters_of(operation: str) -> tuple[str, ...]:
    """Names of the counters of an operation."""
    return tuple(f"{operation}_{counter}" for counter in OPERATION_COUNTERS)


class NotMountstatsError(ValueError):
    """The text has no line of a mount."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One NFS super block. `options`, `age_seconds` tell super blocks of one device apart.

    `values`: counters by name, without those that the kernel lacks; `operations`: names of those that have
    counted. `leftovers`: lines that were not understood. `statistics`: the bytes that `values` are parsed
    from.
    """

    device: bytes
    path: bytes
    options: bytes
    age_seconds: int
    values: Mapping[str, int]
    operations: Collection[str]
    leftovers: int
    statistics: bytes

    @property
    def details(self) -> dict[str, str]:
        """`vers` and `proto` of the mount options."""
        return {name.decode(): value.decode() for name, value in _OPTION.findall(self.options)}

    def is_like(self, other: "Mount") -> bool:
        """Whether both may be mount points of one super block, whose statistics are printed for each."""
        near = abs(self.age_seconds - other.age_seconds) <= 1
        return near and (self.device, self.options) == (other.device, other.options)


def parse(
    data: bytes, before: Sequence[Mount] = (), mountinfo: Callable[[], bytes] = bytes
) -> tuple[list[Mount], int]:
    """The NFS mounts in order, each super block once, and the number of lines not understood outside of them.

    `before`: mounts of the previous sample, whose values serve again where no statistic changed. `mountinfo`:
    reads the file of this name, by which mounts that look alike are told apart (`nosharecache`, mounted in
    one second). Raises NotMountstatsError.
    """
    mounts: list[Mount] = []
    numbers: Mapping[tuple[bytes, bytes], bytes] | None = None
    known = {mount.statistics: mount for mount in before}
    heads = 0
    lines = data.split(b"\n")
    torn = bool(lines.pop())  # a last number may lack digits
    starts = [at for at, line in enumerate(lines) if line.startswith((b"device ", b"no device "))]
    leftovers = torn + sum(map(bool, lines[: starts[0] if starts else None]))
    for at, end in pairwise([*starts, len(lines)]):
        head = _HEAD.fullmatch(lines[at])
        if head is not None and head[4] in _STAT_VERSIONS:
            mount = _mount(head[1], head[2], lines[at + 1 : end], known)
            alike = [other for other in mounts if mount.is_like(other)]
            if alike and numbers is None:
                numbers = device_numbers(mountinfo())
            if not any(_are_one(mount, other, numbers or {}) for other in alike):
                mounts.append(mount)
        elif head is None and _OTHER_HEAD.fullmatch(lines[at]):
            leftovers += sum(map(bool, lines[at + 1 : end]))
        else:
            leftovers += 1
            continue
        heads += 1
    if not heads:
        raise NotMountstatsError("no line is of a mount")
    return mounts, leftovers


def device_numbers(mountinfo: bytes) -> dict[tuple[bytes, bytes], bytes]:
    """The numbers of super blocks, such as `0:53`, by device and mount point; other lines are left out."""
    lines = (line for line in mountinfo.split(b"\n") if b" - nfs" in line)  # of thousands, few are
    return {(match[3], match[2]): match[1] for match in map(_MOUNTINFO.match, lines) if match}


def _are_one(mount: Mount, other: Mount, numbers: Mapping[tuple[bytes, bytes], bytes]) -> bool:
    """Whether mounts that are alike are one super block: unless both have numbers, which differ."""
    own, others = (numbers.get((block.device, block.path)) for block in (mount, other))
    return own is None or others is None or own == others


def _mount(device: bytes, path: bytes, lines: Sequence[bytes], known: Mapping[bytes, Mount]) -> Mount:
    options, age = b"", 0
    first = len(lines)
    for at, line in enumerate(lines):
        name, _, value = line.strip().partition(b":")
        if name == b"opts":
            options = value.strip()
        elif name == b"age":
            age = number(value.strip()) or 0
        elif name in (b"events", b"bytes", b"xprt", b"per-op statistics"):
            first = at
            break
    statistics = b"\n".join(lines[first:])
    before = known.get(statistics)
    if before is not None:
        return replace(before, device=device, path=path, options=options, age_seconds=age)
    values: dict[str, int] = {}
    operations: list[str] = []
    leftovers = sum(not _is_known(line) for line in lines[:first])
    for line in lines[first:]:
        leftovers += not _statistic(line.strip(), values, operations)
    leftovers += "READ_ops" not in values and "NULL_ops" not in values  # cut off before the operations
    return Mount(device, path, options, age, values, operations, leftovers, statistics)


def _is_known(line: bytes) -> bool:
    return not line or line.strip().partition(b":")[0] in _NOT_COUNTERS


def _statistic(line: bytes, values: dict[str, int], operations: list[str]) -> bool:
    """Adds the counters of one line to `values`; False for a line not understood."""
    operation = _OPERATION.fullmatch(line)
    name, _, rest = line.partition(b":")
    if name == b"xprt":
        return _transport(rest.split(), values)
    if operation is not None:
        counters = counters_of(name.decode())
    elif name in (b"events", b"bytes"):
        counters = EVENTS if name == b"events" else BYTE_COUNTERS
    else:
        return not line or name == b"per-op statistics" or name in _NOT_COUNTERS
    amounts = numbers(rest.split())
    if amounts is None:
        return False
    if operation is not None and any(amounts):
        operations.append(name.decode())
    counted = zip(counters, amounts, strict=False)  # lines of older kernels have fewer
    if max(amounts) < _NEGATIVE:
        values.update(counted)
        return True
    values.update((name, value) for name, value in counted if value < _NEGATIVE)
    return False


def _transport(words: Sequence[bytes], values: dict[str, int]) -> bool:
    protocol = words[0] if words else b""
    places = _TRANSPORT_PLACES.get(protocol.partition(b"-")[0])
    if places is None or len(words) - 1 <= max(place or 0 for place in places):
        return False
    for name, place in zip(TRANSPORT_COUNTERS, places, strict=True):
        if place is None:
            continue
        count = number(words[1 + place])
        if count is None:
            return False
        values[name] = min(values.get(name, 0) + count, MOST - 1)
    return True
