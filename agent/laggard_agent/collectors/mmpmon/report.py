"""Output of `mmpmon -p` (request `fs_io_s`) and of `mmdiag --waiters -Y`, in one file.

Lines of mmpmon are pairs of words, `_fs_io_s_ _n_ 10.0.0.1 ... _fs_ scratch ... _br_ 4096 _rdc_ 1` (IBM's
Administration Guide, "Display I/O statistics per mounted file system"). Lines of mmdiag have colons, below a
line `mmdiag:waiters:HEADER:...` that names the columns; colons in values are `%3A`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from laggard_agent.collectors.interface import printable
from laggard_common.trace_formats.kernel_text import number
from laggard_common.wire.limits import MAX_NAME_CHARS
from laggard_common.wire.schema import Component

KEYS = {
    "_br_": "read_bytes",
    "_bw_": "written_bytes",
    "_rdc_": "reads",
    "_wc_": "writes",
    "_oc_": "opens",
    "_cc_": "closes",
    "_dir_": "readdirs",
    "_iu_": "inode_updates",
}
IDLE = ("EventsExporterSenderThread", "FsckClientReaperThread")
"""Threads that wait while all is well."""
LONG_IO_MS, LONG_MS = 1_000, 60_000
_MOST_MS = 2**53
_FOR_DISKS = "for I/O completion"


@dataclass(slots=True)
class Waiters:
    """Threads that wait, and the longest wait in ms; `io`: those for a disk. `long`: above LONG_MS."""

    number: int = 0
    io: int = 0
    long: int = 0
    long_io: int = 0
    longest_ms: int = 0
    longest_io_ms: int = 0

    def add(self, wait_ms: int, *, is_io: bool) -> None:
        """Counts a thread."""
        self.number += 1
        self.long += wait_ms > LONG_MS
        self.longest_ms = max(self.longest_ms, wait_ms)
        if is_io:
            self.io += 1
            self.long_io += wait_ms > LONG_IO_MS
            self.longest_io_ms = max(self.longest_io_ms, wait_ms)


@dataclass(slots=True)
class MmpmonReport:
    """Counters by file system; `waiters` is None where mmdiag said nothing. `odd`: lines not understood."""

    file_systems: dict[str, tuple[Component, dict[str, int | None]]] = field(default_factory=dict)
    waiters: Waiters | None = None
    odd: int = 0


def parse_report(data: bytes) -> MmpmonReport:
    """The values of a report. A line without an end was cut off, and is left out."""
    report, columns = MmpmonReport(), []
    for line in data.rpartition(b"\n")[0].decode("utf-8", "replace").splitlines():
        words = line.split(":")
        if line.startswith("_fs_io_s_ "):
            report.odd += not _note_counters(report, line.split())
        elif words[:3] == ["mmdiag", "waiters", "HEADER"]:
            columns, report.waiters = words, Waiters()
        elif words[:2] == ["mmdiag", "waiters"]:
            report.odd += not _note_waiter(report, columns, words)
    return report


def _note_counters(report: MmpmonReport, words: Sequence[str]) -> bool:
    """Notes a line of mmpmon; whether it was understood. One with another return code has no counters."""
    values = dict(zip(words[1::2], words[2::2], strict=False))
    if values.get("_rc_", "0") != "0":
        return True
    name = printable(values.get("_fs_", ""))[:MAX_NAME_CHARS]
    row = {field: number(values.get(key, "")) for key, field in KEYS.items()}
    if not name:
        return False
    cluster = printable(values.get("_cl_", ""))[:MAX_NAME_CHARS]
    component = Component(name, name, (("cluster", cluster),) if cluster else ())
    report.file_systems[name] = component, row
    return None not in row.values()


def _note_waiter(report: MmpmonReport, columns: Sequence[str], words: Sequence[str]) -> bool:
    """Notes a line of mmdiag; whether it was understood."""
    values = dict(zip(columns, words, strict=False))
    wait_ms = _milliseconds(values.get("waitTime", ""))
    if report.waiters is None or wait_ms is None or not values.get("threadName"):
        return False
    if values["threadName"] not in IDLE:
        reasons = (values.get("auxReason", ""), values.get("condVarReason", ""))
        report.waiters.add(wait_ms, is_io=any(_FOR_DISKS in reason for reason in reasons))
    return True


def _milliseconds(text: str) -> int | None:
    try:
        value = Decimal(text) * 1000
        return int(value) if 0 <= value < _MOST_MS else None
    except ArithmeticError:
        return None
