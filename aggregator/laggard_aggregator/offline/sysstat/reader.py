"""Disk statistics of sysstat as peer groups: activity files, JSON and text of sadf, sar and iostat.

sar and sadf hold only the combined await; iostat's of reads and of writes are combined likewise. Values are
averages over the interval of the file, with two decimals.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from laggard_aggregator.files.compressed import open_input
from laggard_aggregator.offline.csv_input import ONE_GROUP, Labels, stem
from laggard_aggregator.offline.regrid import Rows
from laggard_aggregator.offline.sample_grid import NS
from laggard_aggregator.offline.sysstat.activity_file import MAGIC, printed
from laggard_aggregator.offline.sysstat.disk_sample import (
    COLUMNS,
    METRIC,
    DiskSample,
    NotMeasuredError,
    is_partition,
    measured,
)
from laggard_aggregator.offline.sysstat.printed_text import is_text, read_text
from laggard_aggregator.offline.sysstat.report import Report
from laggard_aggregator.offline.sysstat.sadf_json import is_json, read_json
from laggard_aggregator.offline.sysstat.sadf_xml import is_xml, read_xml
from laggard_common.errors import InputError
from laggard_common.trace_formats.kernel_text import MANY_REQUESTS

_LAST_SECOND = 9.2e9
_HEAD_BYTES = 4096

_Value = tuple[str, int, tuple[float, ...]]
"""Component, time in ns, and one value for each of COLUMNS."""


def is_sysstat(head: bytes) -> bool:
    """True for the begin of a file in one of sysstat's forms."""
    return head[:2] in MAGIC or is_json(head) or is_xml(head) or is_text(head)


def read_sysstat(
    paths: Sequence[Path],
    interval_seconds: float,
    by_file: bool = False,
    *,
    zone: ZoneInfo | None = None,
    remarks: list[str] | None = None,
) -> Iterator[Rows]:
    """Await and load of every disk in `paths`: one group, or one for each file's stem with `by_file`.

    `interval_seconds`: detection interval to which operation counts are scaled. `zone`: of local times.
    Components are `node/device`; partitions are left out. A sample belongs to the interval that it ends.
    `remarks` gets a line about each kind of sample that is left out. Raises InputError when sadf is not
    there, does not know the file, or finds no disks in it.
    """
    groups: dict[str, list[_Value]] = defaultdict(list)
    for path in paths:
        report = Report(path, zone)
        values = list(_values(report, interval_seconds))
        lines = list(report.remarks())
        if not values:
            lines = [*report.left_out(), *lines]
            why = lines[0].removeprefix(f"{path}: ") if lines else "sadc -S DISK records them"
            raise InputError(str(path), f"no disk statistics in this file ({why})")
        groups[stem(path) if by_file else ONE_GROUP] += values
        if remarks is not None:
            remarks += lines
    for group in sorted(groups):
        names, times, rows = zip(*groups[group], strict=True)
        labels = Labels()
        components, component = labels.ordered(labels.encode(pa.array(names, pa.string())))
        columns = dict(zip(COLUMNS, np.array(rows, dtype=np.float64).T.copy(), strict=True))
        yield Rows(
            group=group,
            components=components,
            component=component,
            time_ns=np.array(times, dtype=np.int64),
            metrics={METRIC: columns.pop(METRIC)},
            load=columns,
            weight="operations",
        )


def _values(report: Report, interval_seconds: float) -> Iterator[_Value]:
    """Latency and load of a file's samples, without partitions and devices whose requests have no times."""
    samples = list(_samples(report))
    devices: dict[str, set[str]] = defaultdict(set)
    for sample in samples:
        devices[sample.host].add(sample.device)
    partitions = {
        (host, device) for host, known in devices.items() for device in known if is_partition(device, known)
    }
    judged: list[tuple[DiskSample, tuple[float, ...]]] = []
    for sample in samples:
        if (sample.host, sample.device) in partitions:
            continue
        try:
            values = measured(sample, interval_seconds)
        except NotMeasuredError as exc:
            report.leave_out(f"{sample.device}: {exc}", sample.where)
            continue
        if not 0 < sample.seconds <= sample.end < _LAST_SECOND:
            report.leave_out("its time is none of a sample", sample.where)
            continue
        judged.append((sample, values))
    untimed = _untimed(judged, interval_seconds)
    for (_, device), requests in untimed.items():
        report.remark(f"{device}: {requests:,.0f} requests without times: not judged, its members are")
    for sample, values in judged:
        if (sample.host, sample.device) not in untimed:
            middle_ns = round(sample.end * 2 - sample.seconds) * (NS // 2)
            yield f"{sample.host}/{sample.device}", middle_ns, values


def _untimed(
    judged: Iterable[tuple[DiskSample, tuple[float, ...]]], interval_seconds: float
) -> dict[tuple[str, str], float]:
    """Requests by host and device, of those whose many requests never took any time."""
    requests: dict[tuple[str, str], float] = defaultdict(float)
    timed = set()
    for sample, (await_ms, operations, *_) in judged:
        key = sample.host, sample.device
        if operations > 0:
            requests[key] += operations / interval_seconds * sample.seconds
        if await_ms > 0:
            timed.add(key)
    return {key: total for key, total in requests.items() if total >= MANY_REQUESTS and key not in timed}


def _samples(report: Report) -> Iterator[DiskSample]:
    with open_input(report.path, cut=report.remark) as file:
        data = file.read()
    if data[:2] in MAGIC:
        return read_json(printed(report), report)
    if is_json(data[:_HEAD_BYTES]):
        return read_json(data, report)
    if is_xml(data[:_HEAD_BYTES]):
        return read_xml(data, report)
    return read_text(data.decode(errors="replace"), report)
