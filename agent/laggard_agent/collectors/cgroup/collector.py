"""Collector `cgroup`: Slurm's jobs on this node, and their I/O, CPU time and memory."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from laggard_agent.collectors.cgroup.counters import (
    CounterFile,
    Devices,
    GoodLines,
    NotUnderstoodError,
    Values,
    parse_blkio,
    parse_cpu_stat,
    parse_cpuacct,
    parse_io_stat,
    parse_number,
)
from laggard_agent.collectors.cgroup.folders import JobFolder, SlurmTree
from laggard_agent.collectors.interface import Context, Reading, note_name
from laggard_agent.collectors.registry import register
from laggard_agent.collectors.rows import OnceLogged, OwnRow, RowCache, gauges, raise_first
from laggard_common.config import between, checked, each, regex
from laggard_common.errors import CollectError
from laggard_common.wire.codec import Row
from laggard_common.wire.schema import Component, Field, FieldKind, FieldType

FIELDS = (
    Field("cgroup_id", FieldKind.GAUGE),
    Field("seen_since", FieldKind.GAUGE, "s", FieldType.F64),
    Field("uid", FieldKind.GAUGE),
    *(Field("read_bytes", unit="bytes"), Field("written_bytes", unit="bytes")),
    *(Field("read_ios"), Field("write_ios"), Field("cpu_us", unit="us")),
    Field("memory_bytes", FieldKind.GAUGE, "bytes"),
)
NODE_FIELDS = gauges("jobs", "jobs_left_out", "files_failed", "values_not_understood")

_OPEN_JOBS = 64  # with at most four open files each
_RETRIES = 10
_RARE = 10
_NOWHERE = Path("/nonexistent")


@dataclass(frozen=True, slots=True)
class CgroupSettings:
    """`[cgroup]`: regular expressions on names of block devices, as of `[diskstats]`."""

    include: tuple[str, ...] = field(default=(), metadata=checked(each(regex)))
    exclude: tuple[str, ...] = field(default=(), metadata=checked(each(regex)))
    max_jobs: int = field(default=256, metadata=checked(between(1, 4096)))


class _Counter:
    """A file of a job and its values; unchanged bytes are not parsed again.

    A missing file is tried again for the first samples of a job, as its folders in the trees of v1 are made
    one after another, then no more: the controller is not enabled.
    """

    def __init__(
        self, path: str, parse: Callable[[bytes], GoodLines], width: int, *, stay_open: bool
    ) -> None:
        self._file = CounterFile(path, stay_open=stay_open)
        self._parse = parse
        self._unknown = (None,) * width
        self._data: bytes | None = None
        self._tries = _RETRIES
        self.values: Values = self._unknown
        self.odd: Sequence[bytes] = ()
        self.is_missing = False

    def read(self, failures: list[CollectError]) -> bool:
        """Updates `values`; True when they may have changed."""
        try:
            data = self._file.read() if self._tries else None
        except CollectError as exc:
            failures.append(exc)
            data = None
        self.is_missing = data is None and self._tries > 0
        if data is None:
            self._tries -= self._tries > 0
        elif data == self._data:
            return False
        else:
            self._tries = _RETRIES
        self._data = data
        self.values, self.odd = self._unknown, ()
        try:
            if data is not None:
                self.values, self.odd = self._parse(data)
        except NotUnderstoodError:
            self.odd = (data or b"",)
        return True

    @property
    def first_odd(self) -> str:
        """The file and the first of its lines that was not understood."""
        return f"{self._file.path}: {self.odd[0].strip()[:60].decode('ascii', 'replace')!r}"


class _Job:
    """A job and its files. `seen_since`: epoch seconds; None for a job older than the collector.

    Its bytes are read at each sample, the other files at every tenth.
    """

    def __init__(
        self, folder: JobFolder, seen_since: float | None, counters: Sequence[_Counter], turn: int
    ) -> None:
        self.folder = folder
        node = (("slurm_node", folder.node),) if folder.node else ()
        self.component = Component(folder.id, folder.id, (("job", folder.job), *node))
        self.counters = counters
        self._head = (folder.inode, seen_since, folder.uid)
        self._turn = turn
        self._row: Row = ()

    def read(self, failures: list[CollectError]) -> Row:
        """The row now; values whose file cannot be read are None."""
        first, *others = self.counters
        changed = first.read(failures)
        if not self._row or self._turn == 0:
            self._turn = _RARE
            changed |= sum(other.read(failures) for other in others) > 0
        self._turn -= 1
        if changed:
            values = (value for counter in self.counters for value in counter.values)
            self._row = (*self._head, *values)
        return self._row


@register
class Cgroup:
    """Reads `<sysfs>/fs/cgroup`: a row for each job of Slurm that has processes on this node.

    Components are jobs and come and go. A job that leaves and returns (a requeue) has another `cgroup_id`.
    """

    name = "cgroup"
    settings = CgroupSettings
    sources: ClassVar = {"cgroup": FIELDS, "cgroup_node": NODE_FIELDS}

    def __init__(self, settings: CgroupSettings, context: Context) -> None:
        sysfs = context.roots.sysfs or _NOWHERE
        self._root = sysfs / "fs" / "cgroup"
        self._tree = SlurmTree(self._root)
        self._devices = Devices(sysfs, settings.include, settings.exclude)
        self._most = settings.max_jobs
        self._context = context
        self._jobs: dict[str, _Job] = {}
        self._components: tuple[Component, ...] = ()
        self._first = True
        self._folders: Sequence[JobFolder] | None = None
        self._left_out = 0
        self._rows = RowCache("cgroup")
        self._own = OwnRow("cgroup_node", NODE_FIELDS, "cgroup")
        self._nothing = OnceLogged(self.name)
        self._odd = OnceLogged(self.name)

    def read(self) -> Iterator[Reading]:
        """Jobs, then the node's own row. Raises CollectError at the end for the first unreadable file."""
        at, now_ns = self._context.now(), self._context.monotonic_ns()
        self._devices.update(now_ns)
        failures: list[CollectError] = []
        self._update(self._tree.jobs(now_ns), at)
        rows = [job.read(failures) for job in self._jobs.values()]
        if any([job.counters[0].is_missing for job in self._jobs.values()]):  # noqa: C419 - faster as a list
            self._update(self._tree.jobs(now_ns, again=True), at)
            failures.clear()
            rows = [job.read(failures) for job in self._jobs.values()]
        if rows:
            yield self._rows.reading(at, FIELDS, self._components, rows)
        counters = [counter for job in self._jobs.values() for counter in job.counters]
        odd = [counter for counter in counters if counter.odd]
        not_understood = sum([len(counter.odd) for counter in odd])
        yield self._own.of(at, len(rows), self._left_out, len(failures), not_understood)
        first = odd[0].first_odd if odd else ""
        self._odd.update(bool(odd), f"{not_understood} lines not understood, the first: {first}")
        self._nothing.update(not self._tree.exists, f"no control groups of Slurm in {self._root}")
        raise_first(failures)

    def _update(self, folders: Sequence[JobFolder], at_ns: int) -> None:
        """Adds and removes jobs where the folders are not the same as before."""
        if folders is self._folders:
            return
        before = self._jobs
        now = {folder.id: folder for folder in folders}
        jobs = {id_: job for id_, job in before.items() if now.get(id_) == job.folder}
        new = sorted(folder for id_, folder in now.items() if id_ not in jobs)
        for folder in new[: self._most - len(jobs)]:
            note_name(folder.path, is_folder=True)
            seen_since = None if self._first else at_ns / 1e9
            counters = self._counters(folder, stay_open=len(jobs) < _OPEN_JOBS)
            jobs[folder.id] = _Job(folder, seen_since, counters, turn=len(jobs) % _RARE)
        if new or len(jobs) != len(before):
            self._components = tuple(job.component for job in jobs.values())
        self._jobs, self._first, self._folders = jobs, False, folders
        self._left_out = len(now) - len(jobs)

    def _counters(self, folder: JobFolder, *, stay_open: bool) -> list[_Counter]:
        """The files of a job: I/O (in v1 bytes and requests), CPU time, memory."""
        chosen = self._devices.chosen
        files: tuple[tuple[str, Callable[[bytes], GoodLines], int], ...]
        if folder.uid is None:
            files = (
                (f"{folder.path}/io.stat", lambda data: parse_io_stat(data, chosen), 4),
                (f"{folder.path}/cpu.stat", parse_cpu_stat, 1),
                (f"{folder.path}/memory.current", parse_number, 1),
            )
        else:
            tree = f"{self._root}/{{}}/{folder.below}"
            blkio = f"{tree.format('blkio')}/blkio.throttle.{{}}_recursive"

            def read_or_write(data: bytes) -> GoodLines:
                return parse_blkio(data, chosen, counts=self._devices.blkio_counts)

            files = (
                (blkio.format("io_service_bytes"), read_or_write, 2),
                (blkio.format("io_serviced"), read_or_write, 2),
                (f"{tree.format('cpuacct')}/cpuacct.usage", parse_cpuacct, 1),
                (f"{tree.format('memory')}/memory.usage_in_bytes", parse_number, 1),
            )
        return [_Counter(path, parse, width, stay_open=stay_open) for path, parse, width in files]
