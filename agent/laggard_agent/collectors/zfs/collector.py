"""The collector `zfs`: pools and datasets by kstats, vdevs by a report that root writes."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, TypeVar

from laggard_agent.collectors.interface import ABSENT, Context, Reading, printable, read_file, unreadable
from laggard_agent.collectors.registry import register
from laggard_agent.collectors.report_file import ReportFile
from laggard_agent.collectors.rows import (
    ColumnTable,
    Counters,
    OnceLogged,
    OwnRow,
    gauges,
    named,
    raise_first,
)
from laggard_agent.collectors.zfs.kstat import (
    DATASET,
    IO_COLUMNS,
    TX_ASSIGN,
    NotKstatError,
    parse_dataset,
    parse_io,
    parse_tx_assign,
)
from laggard_agent.collectors.zfs.report import BIN_FIELDS, COUNTERS, Vdevs, parse_report
from laggard_common.config import between, checked
from laggard_common.errors import CollectError
from laggard_common.wire.limits import MAX_NAME_CHARS
from laggard_common.wire.schema import Component, Field, FieldKind

_UNITS = {"read_bytes": "bytes", "written_bytes": "bytes", "queue_us": "us", "disk_us": "us"}


def _fields(*names: str) -> tuple[Field, ...]:
    return tuple(Field(name, unit=_UNITS.get(name, "1")) for name in names)


POOL_FIELDS = (*_fields(*IO_COLUMNS.values(), *TX_ASSIGN), *gauges("not_online"))
DATASET_FIELDS = _fields(*DATASET.values())
VDEV_FIELDS = (
    *_fields(*COUNTERS.values()),
    *_fields(*(name for names in BIN_FIELDS.values() for name in names)),
    *gauges("not_online"),
)
STATE_FIELDS = (*_fields("slow_ios"), *gauges("sits_out"))
NODE_FIELDS = (
    *gauges("pools", "datasets", "vdevs"),
    Field("report_age", FieldKind.GAUGE, "s"),
    *gauges("left_out", "files_failed", "values_not_understood"),
)
DATASETS_EVERY_NS = 10 * 1_000_000_000
"""Each dataset is a file of its own."""
MOST_POOLS = 64
_OBJSET = re.compile(r"objset-0x[0-9a-f]{1,16}")

T = TypeVar("T")
Rows = Mapping[Component, Counters]


@dataclass(frozen=True, slots=True)
class ZfsSettings:
    """`[zfs]`. `max_datasets`, `max_vdevs`: with a row. `report`: the file of the vdevs, may be absent."""

    max_datasets: int = field(default=256, metadata=checked(between(0, 4096)))
    max_vdevs: int = field(default=512, metadata=checked(between(0, 4096)))
    report: Path = Path("/run/zpool-report.txt")


@register
class Zfs:
    """Reads the folder of each pool in `<procfs>/spl/kstat/zfs`; datasets every 10 s."""

    name = "zfs"
    settings = ZfsSettings
    sources: ClassVar = {
        "zfs_pool": POOL_FIELDS,
        "zfs_dataset": DATASET_FIELDS,
        "zfs_vdev": VDEV_FIELDS,
        "zfs_vdev_state": STATE_FIELDS,
        "zfs": NODE_FIELDS,
    }

    def __init__(self, settings: ZfsSettings, context: Context) -> None:
        self._settings = settings
        self._root = context.roots.procfs / "spl" / "kstat" / "zfs"
        self._context = context
        self._report: ReportFile[Vdevs] = ReportFile(settings.report, parse_report)
        self._datasets: Rows = {}
        self._datasets_odd = 0
        self._datasets_failed: list[CollectError] = []
        self._datasets_at_ns = 0
        self._tables = {
            source: ColumnTable(source, fields) for source, fields in self.sources.items() if source != "zfs"
        }
        self._own = OwnRow(self.name, NODE_FIELDS)
        self._nothing, self._odd = OnceLogged(self.name), OnceLogged(self.name)

    def read(self) -> Iterator[Reading]:
        """Pools, datasets, vdevs, then the node's own row. Raises CollectError after all of them."""
        at = self._context.now()
        failures: list[CollectError] = []
        pools = self._folders(failures)
        pool_rows, odd = {}, 0
        for pool in pools[:MOST_POOLS]:
            row, not_understood = self._pool(pool, failures)
            odd += not_understood
            if row:
                pool_rows[named(pool)] = row
        if self._context.monotonic_ns() >= self._datasets_at_ns:
            self._datasets_at_ns = self._context.monotonic_ns() + DATASETS_EVERY_NS
            self._look_at_datasets(pools[:MOST_POOLS])
        failures += self._datasets_failed
        report, age = self._report.read(at, failures)
        odd += self._datasets_odd + len(report.odd)
        vdevs: Rows = dict(report.vdevs.values())
        states: Rows = {named(name): row for name, row in report.states.items()}
        most = self._settings.max_vdevs
        for source, rows, limit in (
            ("zfs_pool", pool_rows, MOST_POOLS),
            ("zfs_dataset", self._datasets, self._settings.max_datasets),
            ("zfs_vdev", vdevs, most),
            ("zfs_vdev_state", states, most),
        ):
            chosen = [(component, row, False) for component, row in list(rows.items())[:limit]]
            if chosen:
                yield self._tables[source].table(at, chosen)
        left_out = max(0, len(pools) - MOST_POOLS) + max(0, len(vdevs) - most)
        left_out += max(0, len(self._datasets) - self._settings.max_datasets)
        counts = len(pool_rows), len(self._datasets), len(vdevs)
        yield self._own.of(at, *counts, age, left_out, len(failures), odd)
        is_absent = not (pools or vdevs or failures)
        self._nothing.update(is_absent, f"no pool in {self._root}: the module zfs is not loaded, or has none")
        self._odd.update(bool(odd), f"{odd} values or lines not understood")
        raise_first(failures)

    def _folders(self, failures: list[CollectError]) -> list[str]:
        """The names of the pools."""
        try:
            with os.scandir(self._root) as entries:
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError as exc:
            if exc.errno not in ABSENT:
                failures.append(unreadable(self._root, exc))
            return []
        return sorted(name for name in names if name.isprintable() and len(name) <= MAX_NAME_CHARS)

    def _pool(self, pool: str, failures: list[CollectError]) -> tuple[Counters, int]:
        """A pool's values, and how many of its files were not understood. Old releases have no `state`."""
        odd, row = 0, {}
        folder = self._root / pool
        state = self._file(folder / "state", bytes.strip, failures)
        if state:
            row["not_online"] = int(state != b"ONLINE")
        try:
            row |= self._file(folder / "io", parse_io, failures) or {}
        except NotKstatError:
            odd += 1
        try:
            counts, odd_lines = self._file(folder / "dmu_tx_assign", parse_tx_assign, failures) or ({}, 0)
            row |= counts
            odd += odd_lines
        except NotKstatError:
            odd += 1
        return row, odd

    def _look_at_datasets(self, pools: list[str]) -> None:
        """Reads the datasets of all pools, up to one more than have a row."""
        rows: dict[Component, Counters] = {}
        self._datasets_failed, self._datasets_odd = [], 0
        for pool in pools:
            try:
                names = sorted(path.name for path in (self._root / pool).iterdir())
            except OSError as exc:
                if exc.errno not in ABSENT:
                    self._datasets_failed.append(unreadable(self._root / pool, exc))
                continue
            for name in filter(_OBJSET.fullmatch, names):
                if len(rows) > self._settings.max_datasets:
                    break
                try:
                    dataset = self._file(self._root / pool / name, parse_dataset, self._datasets_failed)
                except NotKstatError:
                    self._datasets_odd += 1
                    continue
                if dataset is not None:
                    rows[named(printable(dataset[0])[:MAX_NAME_CHARS])] = dataset[1]
        self._datasets = rows

    @staticmethod
    def _file(path: Path, parse: Callable[[bytes], T], failures: list[CollectError]) -> T | None:
        """The values of a file; None without one, or if it is one of `failures`. Raises NotKstatError."""
        try:
            return parse(read_file(path))
        except CollectError as exc:
            code = exc.__cause__.errno if isinstance(exc.__cause__, OSError) else None
            if code not in ABSENT:
                failures.append(exc)
            return None
