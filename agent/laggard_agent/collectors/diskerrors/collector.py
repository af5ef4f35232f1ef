"""The collector `diskerrors`: errors and timeouts of disks, and errors of the SAS links to them, from sysfs.

Of a SCSI or SATA disk the kernel counts commands that failed and that timed out (Linux's drivers/scsi/
scsi_sysfs.c, in hexadecimal); of a phy of SAS the errors of the link (drivers/scsi/scsi_transport_sas.c).
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from errno import EINVAL, EIO, ENODEV, ENXIO, EOPNOTSUPP
from pathlib import Path
from typing import ClassVar

from laggard_agent.collectors.diskstats.identities import Identities
from laggard_agent.collectors.diskstats.sysfs_device import SysfsDevice, names_in
from laggard_agent.collectors.interface import ABSENT, Context, Reading, read_file
from laggard_agent.collectors.registry import register
from laggard_agent.collectors.rows import OnceLogged, OwnRow, RowCache, gauges, raise_first
from laggard_common.config import between, checked
from laggard_common.errors import CollectError
from laggard_common.trace_formats.kernel_text import MOST, number
from laggard_common.wire.codec import Row
from laggard_common.wire.limits import MAX_NAME_CHARS
from laggard_common.wire.schema import Component, Field

_DISK_FILES = {"errors": "ioerr_cnt", "timeouts": "iotmo_cnt"}
_LINK_FILES = {
    "invalid_dwords": "invalid_dword_count",
    "sync_losses": "loss_of_dword_sync_count",
    "disparity_errors": "running_disparity_error_count",
    "phy_resets": "phy_reset_problem_count",
}
FIELDS = (*map(Field, (*_DISK_FILES, *_LINK_FILES)), *gauges("down"))
NODE_FIELDS = gauges("disks", "disks_left_out", "files_failed", "values_not_understood")
_MOST_FILE_BYTES = 4096
_HEXADECIMAL = re.compile(rb"0x[0-9a-fA-F]{1,16}")
_RUNNING = (b"running", b"live")
_PORT = re.compile(r"(.*/port-[0-9]+(?::[0-9]+)+)/")
_PHY = re.compile(r"phy-[0-9]+(?::[0-9]+)+")
_NOT_COUNTED = (*ABSENT, EINVAL, ENODEV, ENXIO, EOPNOTSUPP, EIO)
"""Errors of an adapter that does not count, or of a disk that is gone."""


def parse_count(data: bytes) -> int | None:
    """A counter, decimal or hexadecimal; None for anything else."""
    word = data.strip()
    if _HEXADECIMAL.fullmatch(word):
        value = int(word, 16)
        return value if value < MOST else None
    return number(word)


@dataclass(frozen=True, slots=True)
class DiskErrorsSettings:
    """`[diskerrors]`. `every_seconds`: between reads; a link's counters are a question to its adapter."""

    every_seconds: float = field(default=60.0, metadata=checked(between(1, 86_400)))
    max_disks: int = field(default=512, metadata=checked(between(1, 4096)))


@register
class DiskErrors:
    """Reads each device of `<sysfs>/block` that a driver serves. Rows stay as they are between reads.

    Without sysfs there is nothing to read.
    """

    name = "diskerrors"
    settings = DiskErrorsSettings
    sources: ClassVar = {"disk_errors": FIELDS, "diskerrors": NODE_FIELDS}

    def __init__(self, settings: DiskErrorsSettings, context: Context) -> None:
        self._settings = settings
        self._block = None if context.roots.sysfs is None else context.roots.sysfs / "block"
        self._context = context
        self._due_ns = 0
        self._found: dict[Component, Row] = {}
        self._identities = Identities()
        self._left_out = self._odd = 0
        self._failures: list[CollectError] = []
        self._rows = RowCache("disk_errors")
        self._own = OwnRow(self.name, NODE_FIELDS)
        self._nothing = OnceLogged(self.name)

    def read(self) -> Iterator[Reading]:
        """The disks, then the node's own row. Raises CollectError after both."""
        at = self._context.now()
        if self._context.monotonic_ns() >= self._due_ns:
            self._look()
            self._due_ns = self._context.monotonic_ns() + round(self._settings.every_seconds * 1e9)
        if self._found:
            yield self._rows.reading(at, FIELDS, tuple(self._found), list(self._found.values()))
        yield self._own.of(at, len(self._found), self._left_out, len(self._failures), self._odd)
        is_absent = not self._found and not self._failures
        self._nothing.update(is_absent, f"no disk with counters of errors in {self._block or 'sysfs'}")
        raise_first(self._failures)

    def _look(self) -> None:
        """Reads all disks."""
        self._failures, self._odd = [], 0
        names = sorted(names_in(str(self._block))) if self._block is not None else []
        rows = ((name, self._row(name)) for name in names if name.isprintable() and name.isascii())
        disks = {name: row for name, row in rows if row is not None}
        chosen = list(disks.items())[: self._settings.max_disks]
        self._left_out = len(disks) - len(chosen)
        facts = {name: SysfsDevice(f"{self._block}/{name}", name).facts() for name, _ in chosen}
        ids = self._identities.assign(facts)
        self._found = {
            Component(ids[name].replace("!", "/"), name[:MAX_NAME_CHARS].replace("!", "/")): row
            for name, row in chosen
        }

    def _row(self, name: str) -> Row | None:
        """The values of a device; None for one without any, such as loop0."""
        device = f"{self._block}/{name}/device"
        values = [self._count(f"{device}/{file}") for file in _DISK_FILES.values()]
        phys = _phys(device)
        for file in _LINK_FILES.values():
            known = [self._count(f"{phy}/{file}") for phy in phys]
            counts = [count for count in known if count is not None]
            values.append(sum(counts) if known and len(counts) == len(known) else None)
        state = self._file(f"{device}/state")
        values.append(None if state is None else int(state.strip() not in _RUNNING))
        return None if all(value is None for value in values) else tuple(values)

    def _count(self, path: str) -> int | None:
        data = self._file(path)
        value = None if data is None else parse_count(data)
        self._odd += data is not None and value is None
        return value

    def _file(self, path: str) -> bytes | None:
        try:
            return read_file(path, _MOST_FILE_BYTES)
        except CollectError as exc:
            code = exc.__cause__.errno if isinstance(exc.__cause__, OSError) else None
            if code not in _NOT_COUNTED:
                self._failures.append(exc)
            return None


def _phys(device: str) -> Sequence[str]:
    """The folders of the phys of the SAS port that a disk is on; none without one."""
    port = _PORT.match(os.path.realpath(device) + "/")
    if port is None:
        return ()
    return [
        str(Path(port[1], phy, "sas_phy", phy)) for phy in sorted(names_in(port[1])) if _PHY.fullmatch(phy)
    ]
