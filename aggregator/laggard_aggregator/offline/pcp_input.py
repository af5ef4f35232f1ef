"""CSV of Performance Co-Pilot (`pmrep -o csv`, `pcp2csv`) as peer groups: a column per metric and disk.

The header (`pcp_header`) has `Host,Interval,` before it in extended CSV, and lines with `#` may come first.
Counters as the kernel has them (`pmrep -r`) become the metrics of /proc/diskstats; otherwise pmrep prints
rates, and its own `disk.dev.await` is needed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from laggard_aggregator.detect.interface import FloatArray, IntArray
from laggard_aggregator.files.compressed import open_input
from laggard_aggregator.files.cut_rows import CutRow
from laggard_aggregator.metrics.block import BLOCK
from laggard_aggregator.metrics.definition import Differences
from laggard_aggregator.offline.checked_values import CheckedValues
from laggard_aggregator.offline.csv_columns import CsvColumns
from laggard_aggregator.offline.csv_input import ONE_GROUP, Labels, reason, stem
from laggard_aggregator.offline.csv_times import MISSING, TimeColumn
from laggard_aggregator.offline.pcp_header import PcpColumn, PcpHeader, read_header
from laggard_aggregator.offline.regrid import Rows
from laggard_aggregator.offline.sample_grid import NS
from laggard_common.errors import InputError

_BLOCK_BYTES = 16 << 20
_NULLS = ["", "?", "N/A", "n/a", "NA", "NaN", "nan", "NULL", "null", "None"]
_DISKS = ("disk.dev.", "disk.dm.")
_DEFAULTS = ("await", "svctm")
_COUNTERS = {
    "rd_ios": ("read", 1.0),
    "wr_ios": ("write", 1.0),
    "dc_ios": ("discard", 1.0),
    "rd_ms": ("read_rawactive", 1.0),
    "wr_ms": ("write_rawactive", 1.0),
    "dc_ms": ("discard_rawactive", 1.0),
    "io_ms": ("avactive", 1.0),
    "rd_sectors": ("read_bytes", 2.0),
    "wr_sectors": ("write_bytes", 2.0),
    "dc_sectors": ("discard_bytes", 2.0),
}
"""Counters of /proc/diskstats: PCP's name, and how many there are in one of PCP's (of kB, say)."""

_Series = tuple[str, IntArray, dict[str, FloatArray]]
"""A component, the times of its samples in ns, and its metrics and loads by name."""


def read_pcp(
    paths: Sequence[Path],
    columns: CsvColumns,
    interval_seconds: float,
    remarks: list[str] | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Iterator[Rows]:
    """The disks in `paths`: one group, or one for each file's stem with `group_by` `file`.

    The metrics of `columns` are columns such as `disk.dev.util`; by default `await`, or `svctm` where a file
    lacks the times of reads and writes. `interval_seconds`: detection interval to which operations are
    scaled. Components are `host/disk` in extended CSV, else `stem/disk` of several files. `remarks` gets
    lines about values that are left out. Raises InputError.
    """
    metrics = columns.metrics if columns.metrics != CsvColumns().metrics else ()
    load = {columns.load_name: columns.load} if metrics and columns.load_name and columns.load else {}
    asked = dict(zip(metrics, metrics, strict=True)) | load
    groups: dict[str, list[_Series]] = defaultdict(list)
    for path in paths:
        group = stem(path) if columns.group_by == "file" else ONE_GROUP
        node, time_ns, disks = _read(path, list(asked.values()), columns.zone, remarks, advance)
        node = node or (stem(path) if group == ONE_GROUP and len(paths) > 1 else "")
        seconds = np.diff(time_ns) / NS
        good = (time_ns[:-1] != MISSING) & (seconds > 0)
        for disk, own in disks.items():
            if metrics:
                values = {name: own[column][1:] for name, column in asked.items()}
            else:
                values = _values(own, seconds, interval_seconds)
            times = time_ns[1:] - np.diff(time_ns) // 2
            readings = {name: column[good] for name, column in values.items()}
            groups[group].append((f"{node}/{disk}" if node else disk, times[good], readings))
    for group in sorted(groups):
        chosen = metrics or _chosen(groups[group], paths[0])
        yield _rows(group, groups[group], chosen)


def _rows(group: str, series: Sequence[_Series], metrics: Sequence[str]) -> Rows:
    names, times, values = zip(*series, strict=True)
    labels = Labels()
    components, place = labels.ordered(labels.encode(pa.array(names, pa.string())))
    common = [name for name in values[0] if name not in _DEFAULTS and all(name in own for own in values)]
    column = {name: np.concatenate([own[name] for own in values]) for name in (*metrics, *common)}
    return Rows(
        group=group,
        components=components,
        component=np.repeat(place, [device_times.size for device_times in times]),
        time_ns=np.concatenate(times),
        metrics={name: column[name] for name in metrics},
        load={name: column[name] for name in common if name not in metrics},
        weight="operations" if "operations" in common else None,
    )


def _chosen(series: Sequence[_Series], path: Path) -> tuple[str]:
    """The metric that all disks have, at any time. Raises InputError without one."""
    for name in _DEFAULTS:
        known = [own[name] for _, _, own in series if name in own]
        if len(known) == len(series) and any(np.isfinite(values).any() for values in known):
            return (name,)
    raise InputError(str(path), "neither disk.dev.await nor counters as pmrep -r prints them; see --metric")


def _values(
    own: Mapping[str, FloatArray], seconds: FloatArray, interval_seconds: float
) -> dict[str, FloatArray]:
    """Metrics and loads (M,) of a disk from its columns (M + 1,); NaN where a counter is missing or fell."""
    columns = {"await": own["await"][1:]} if "await" in own else {}
    counters = {name: own[pcp] * factor for name, (pcp, factor) in _COUNTERS.items() if pcp in own}
    if not all((values[np.isfinite(values)] % 1 == 0).all() for values in counters.values()):
        return columns  # rates
    rises = {name: np.diff(values) for name, values in counters.items()}
    for name in BLOCK.optional:
        if name not in rises or np.isnan(counters[name]).all():  # the kernel has none
            rises[name] = np.zeros_like(seconds)
    differences = Differences(tuple(rises), np.nan_to_num(np.column_stack(list(rises.values()))), seconds)
    metrics, load = BLOCK.kept(_DEFAULTS)
    for name, metric in (metrics | dict(load)).items():
        if name not in columns and all(counter in rises for counter in metric.needs):
            known = np.all([rises[counter] >= 0 for counter in (*metric.needs, *BLOCK.optional)], axis=0)
            with np.errstate(divide="ignore", invalid="ignore"):
                scale = interval_seconds / seconds if metric.amount else 1.0
                columns[name] = np.where(known, metric.derive(differences) * scale, np.nan)
    return columns


def _read(
    path: Path,
    asked: Sequence[str],
    zone: ZoneInfo | None,
    remarks: list[str] | None,
    advance: Callable[[int], None],
) -> tuple[str, IntArray, dict[str, dict[str, FloatArray]]]:
    """The host, if the file names it, the times (T,) in ns, and by disk its columns (T,): those `asked`."""
    header = read_header(path)
    disks: dict[str, dict[str, PcpColumn]] = defaultdict(dict)
    kind = next((kind for kind in _DISKS if any(c.metric.startswith(kind) for c in header.columns)), "")
    known = {"await", *(pcp for pcp, _ in _COUNTERS.values())}
    for column in header.columns:
        name = column.metric if asked else column.metric.removeprefix(kind)
        is_raw = name == "await" or not column.is_rate
        if column.instance and name in (asked or known) and (asked or is_raw):
            disks[column.instance][name] = column
    whole = {disk: own for disk, own in disks.items() if all(name in own for name in asked)}
    if not whole:
        metrics = {column.metric for column in header.columns} or {*header.names} - {
            "Host",
            "Interval",
            "Time",
        }
        has = ", ".join(sorted(metrics)[:12]) or "none but the time"
        raise InputError(str(path), f"no column {' or '.join(asked) or 'disk.dev.*'} of a disk, it has {has}")
    numbers = [column.name for own in whole.values() for column in own.values()]
    texts = [name for name in ("Host", "Time") if name in header.names]
    said: list[str] = []
    opened = open_input(path, advance, lambda text: said.append(f"{path}: {text}"))
    table, cut = _table(path, header, texts, numbers, opened)
    if not table.num_rows:
        raise InputError(str(path), "no rows below the header")
    clock = TimeColumn(path, zone)
    time_ns = clock.parse(_with_zone(table["Time"].combine_chunks()), 0)
    checks = {name: CheckedValues(path, name) for name in numbers}
    raw = {name: np.asarray(table[name].to_numpy(), np.float64) for name in numbers}
    values = {name: checks[name].checked(column, 0) for name, column in raw.items()}
    if remarks is not None:
        remarks += [*said, *clock.remarks(), *cut.remarks()]
        remarks += [remark for check in checks.values() for remark in check.remarks()]
    host = table["Host"][0].as_py() if "Host" in texts else ""
    scaled = {
        disk: {name: values[column.name] * (1.0 if asked else column.scale) for name, column in own.items()}
        for disk, own in whole.items()
    }
    return host or "", time_ns, scaled


def _table(
    path: Path,
    header: PcpHeader,
    texts: Sequence[str],
    numbers: Sequence[str],
    opened: AbstractContextManager[BinaryIO],
) -> tuple[pa.Table, CutRow]:
    with opened as file:
        cut = CutRow(path, file)
        try:
            table = pyarrow.csv.read_csv(
                pa.PythonFile(cut.file, "r"),
                read_options=pyarrow.csv.ReadOptions(
                    skip_rows=header.skipped, block_size=_BLOCK_BYTES, use_threads=False
                ),
                parse_options=pyarrow.csv.ParseOptions(delimiter=header.separator),
                convert_options=pyarrow.csv.ConvertOptions(
                    include_columns=[*texts, *numbers],
                    column_types=dict.fromkeys(texts, pa.string()) | dict.fromkeys(numbers, pa.float64()),
                    strings_can_be_null=True,
                    null_values=_NULLS,
                ),
            )
        except pa.ArrowInvalid as exc:
            raise InputError(str(path), reason(exc)) from exc
        except pa.ArrowKeyError as exc:
            raise InputError(str(path), "the header: a name that goes over lines") from exc
    return table, cut


def _with_zone(times: pa.Array) -> pa.Array:
    """Times with the zone as in ISO 8601: extended CSV has it as ` UTC+2` or ` UTC-5:30`."""
    # The replacement \10 is group 1 and a zero.
    for pattern, zone in ((r" UTC([+-])(\d)(:|$)", r" UTC\10\2\3"), (r" UTC([+-]\d\d)$", r"\1:00")):
        times = pc.replace_substring_regex(times, pattern, zone)
    return pc.replace_substring_regex(times, " UTC", "")
