"""Block devices above others, and which of them count the I/O that passes through them.

Some do not: md has no times on older kernels, the head of NVMe's native multipath no counters on most, and
`queue/iostats` switches them off. Devices without requests of their own count on older kernels although it
says 0.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from laggard_agent.collectors.diskstats.sysfs_device import SysfsDevice
from laggard_common.trace_formats.kernel_text import MANY_REQUESTS

NVME_PATH = re.compile(r"(nvme\d+)c\d+(n\d+)")
_SOME_REQUESTS = 100
_SOME_MS = 10
_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Usage:
    """Requests of a device since boot, and the milliseconds that they took."""

    requests: int
    ms: int


class Layers:
    """The devices above and below each of `devices`; `usage`: by kernel name, empty where all count.

    Partitions that dm makes stand for nobody: devices above them are above their disk.
    """

    def __init__(self, devices: Mapping[str, SysfsDevice], usage: Mapping[str, Usage]) -> None:
        self._devices = devices
        self._usage = usage
        told = {name: device.holders for name, device in devices.items()}
        partitions = {name for name, device in devices.items() if device.is_dm_partition()}
        self._holders = {
            name: [upper for held in own for upper in (told[held] if held in partitions else [held])]
            for name, own in told.items()
            if name not in partitions
        }
        self._members: dict[str, list[str]] = defaultdict(list)
        for name, holders in self._holders.items():
            for holder in dict.fromkeys(holders):
                self._members[holder].append(name)
        self._paths: dict[str, list[str]] = defaultdict(list)
        for name in usage:
            if match := NVME_PATH.fullmatch(name):
                self._paths[match[1] + match[2]].append(name)

    def is_represented(self, name: str, depth: int = 0) -> bool:
        """Whether a device above `name`, or one above that, counts in its place."""
        return depth < _DEPTH and any(
            self._represents(holder) or self.is_represented(holder, depth + 1)
            for holder in self._holders.get(name, ())
        )

    def replacements(self, name: str) -> list[str]:
        """The members of `name` that count because `name` does not."""
        if self._represents(name):
            return []
        return [member for member in self._members.get(name, ()) if not self.is_represented(member)]

    def parts(self, name: str) -> tuple[str, ...]:
        """The devices whose sums are the counters of `name`: itself, or its paths where it does not count."""
        paths = self._one_disk_below(name)
        return tuple(paths) if paths and not self._counts(name) else (name,)

    def counts_nothing(self, name: str) -> bool:
        """Whether the kernel does not count the I/O of a disk (`queue/iostats`)."""
        device = self._devices.get(name)
        if device is None or device.has_iostats() or self.parts(name) != (name,):
            return False
        return device.is_hardware() or not self._counts(name)

    def lacks_times(self, name: str) -> bool:
        """Whether requests are counted and their times are not."""
        return self._lacks_times(self._sum(self.parts(name)), self._members.get(name, []))

    def undecided_until(self, name: str) -> int:
        """Number of requests at which this may be another answer; 0 when it is known that `name` counts."""
        own, device = self._usage.get(name), self._devices.get(name)
        if own is None or own.ms:
            return 0
        may_count_nothing = name in self._paths or (device is not None and not device.has_iostats())
        steps = (*((1,) if may_count_nothing else ()), _SOME_REQUESTS, MANY_REQUESTS)
        return next((requests for requests in steps if own.requests < requests), 0)

    def _represents(self, name: str) -> bool:
        return self._counts(name) or bool(self._one_disk_below(name))

    def _counts(self, name: str) -> bool:
        """Whether the device has counters and times of its own, or may have, as it is idle."""
        own, device = self._usage.get(name), self._devices.get(name)
        if own is None:
            return True
        paths = self._paths.get(name)
        if paths:
            return own.requests > 0 and not self._lacks_times(own, paths)
        members = self._members.get(name, [])
        if not own.requests:
            switched_off = device is not None and not device.has_iostats()
            return not (switched_off and self._sum(members).requests >= _SOME_REQUESTS)
        return not self._lacks_times(own, members)

    def _one_disk_below(self, name: str) -> list[str]:
        """The paths to one and the same disk, of a multipath device."""
        device = self._devices.get(name)
        if name in self._paths:
            return self._paths[name]
        return self._members.get(name, []) if device is not None and device.is_multipath() else []

    def _lacks_times(self, own: Usage, below: list[str] | tuple[str, ...]) -> bool:
        some = own.requests >= _SOME_REQUESTS and self._sum(below).ms >= _SOME_MS
        return not own.ms and (some or own.requests >= MANY_REQUESTS)

    def _sum(self, names: list[str] | tuple[str, ...]) -> Usage:
        known = [self._usage[name] for name in names if name in self._usage]
        return Usage(sum(usage.requests for usage in known), sum(usage.ms for usage in known))
