"""`laggard mine init`: converts Darshan, Slurm and LMT sources into a store, each once."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pyarrow as pa

from laggard_aggregator.jobs.darshan.convert import open_converted
from laggard_aggregator.jobs.darshan.lmt_input import lmt_rows
from laggard_aggregator.jobs.darshan.readers import (
    ReadProblem,
    ReadTask,
    log_key,
    reader_pool,
    reader_version,
)
from laggard_aggregator.jobs.darshan.slurm_input import slurm_rows
from laggard_aggregator.jobs.darshan.store import Source, StoreWriter, check_is_store_or_empty
from laggard_aggregator.jobs.darshan.tables import OF_A_LOG
from laggard_aggregator.jobs.darshan.text_input import Rows
from laggard_common.daemon.file_lock import take_lock
from laggard_common.errors import InputError

BATCH_LOGS: Final = 500
BATCH_BYTES: Final = 4 << 30
_SUFFIXES: Final = (".darshan", ".darshan.gz", ".darshan_partial")


@dataclass(frozen=True, slots=True)
class MineSources:
    """Sources of a store. Zones: of times without.

    `low_us`, `high_us`: logs of jobs that began outside are not converted.
    """

    darshan: Sequence[Path] = ()
    slurm: Sequence[Path] = ()
    lmt: Sequence[Path] = ()
    slurm_zone: str | None = None
    lmt_zone: str | None = None
    low_us: int | None = None
    high_us: int | None = None

    def is_outside(self, start_us: int) -> bool:
        """True for a job that began outside the period."""
        return (self.low_us is not None and start_us < self.low_us) or (
            self.high_us is not None and start_us >= self.high_us
        )


@dataclass(slots=True)
class BuildReport:
    """Counts of sources, and a line for each that was skipped."""

    converted: int = 0
    known: int = 0
    outside: int = 0
    read: int = 0
    skipped: list[str] = field(default_factory=list)


def build(
    directory: Path,
    sources: MineSources,
    readers: int,
    progress: Callable[[int, int], None] | None = None,
) -> BuildReport:
    """Converts all sources that the store in `directory` does not have. Raises LaggardError."""
    with InputError.from_os_errors(directory), ExitStack() as opened:
        check_is_store_or_empty(directory)
        opened.enter_context(take_lock(directory, "another laggard mine init is running"))
        writer = opened.enter_context(closing(StoreWriter(directory)))
        report = BuildReport()
        _add_tables(writer, "slurm", sources.slurm, sources.slurm_zone, report)
        _add_tables(writer, "lmt", sources.lmt, sources.lmt_zone, report)
        _add_logs(writer, sources, report, readers, progress)
        return report


def _add_tables(
    writer: StoreWriter,
    kind: str,
    paths: Sequence[Path],
    zone: str | None,
    report: BuildReport,
) -> None:
    read = {"slurm": slurm_rows, "lmt": lmt_rows}[kind]
    known = writer.store.sources(kind)
    for path in sorted(paths):
        source = replace(_source(path), zone=zone)
        before = known.get(source.path)
        if before is not None and before.key == source.key:
            report.known += 1
            continue
        report.read += 1
        with TemporaryDirectory(dir=writer.converting) as directory:
            rows = read(path, zone, report.skipped)  # an error ends the command: the user named this file
            writer.commit(kind, [source], _spilled(rows, Path(directory)))
        report.converted += 1


def _spilled(rows: Rows, directory: Path) -> dict[str, list[pa.Table]]:
    """Portions of tables, written to `directory` and mapped from there."""
    parts: dict[str, list[pa.Table]] = {}
    for number, (table, part) in enumerate(rows):
        path = str(directory / f"{number}.arrow")
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, part.schema) as writer:
            writer.write_table(part)
        parts.setdefault(table, []).append(pa.ipc.open_file(pa.memory_map(path)).read_all())
    return parts


def _add_logs(
    writer: StoreWriter,
    sources: MineSources,
    report: BuildReport,
    readers: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    pending = _pending(writer, sources, report)
    if not pending:
        return
    converted = writer.store.converted_logs()
    batch = LogBatch(writer)
    with TemporaryDirectory(dir=writer.converting) as directory, reader_pool(readers) as pool:
        results = pool.convert(
            ReadTask(Path(source.path), source.log, _made(Path(directory) / str(number)))
            for number, source in enumerate(pending)
            if source.log not in converted
        )
        for at, source in enumerate(pending):
            if source.log in converted:  # the log is again as it was once
                report.known += 1
                batch.sources.append(source)
            else:
                report.read += 1
                task, problem = next(results)
                _add_log(batch, source, task, problem, sources=sources, report=report)
            if batch.is_full():
                batch.commit()
            if progress is not None:
                progress(at + 1, len(pending))
        batch.commit()


def _pending(writer: StoreWriter, sources: MineSources, report: BuildReport) -> list[Source]:
    """Logs that the store does not have as they are now."""
    known = writer.store.sources("darshan")
    reader = reader_version()
    pending = []
    for path in logs_below(sources.darshan):
        try:
            source = _source(path)
        except InputError as exc:  # gone, or not ours to read
            report.skipped.append(str(exc))
            continue
        before = known.get(source.path)
        if before is None or before.key != source.key or (before.error and before.reader != reader):
            pending.append(source)
        elif before.error is not None:
            report.known += 1
            report.skipped.append(before.error)
        elif before.outside_us is None:
            report.known += 1
        elif sources.is_outside(before.outside_us):
            report.known += 1
            report.outside += 1
        else:
            pending.append(source)
    return pending


class LogBatch:
    """Logs that are committed together: at most BATCH_LOGS, and about BATCH_BYTES of converted tables."""

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self.sources: list[Source] = []
        self._kept: list[Path] = []
        self._bytes = 0

    def keep(self, directory: Path) -> None:
        """Adds the tables of a log."""
        self._kept.append(directory)
        self._bytes += sum(path.stat().st_size for path in directory.iterdir())

    def is_full(self) -> bool:
        """True when it is to be committed. Depends on the logs alone, so that the files of a store do."""
        return len(self.sources) >= BATCH_LOGS or self._bytes >= BATCH_BYTES

    def commit(self) -> None:
        """Commits the logs, and removes their converted tables."""
        if not self.sources:
            return
        self._kept.sort(key=_order)
        rows = {table: _opened(self._kept, table) for table in OF_A_LOG}
        self._writer.commit("darshan", self.sources, rows)
        for directory in self._kept:
            shutil.rmtree(directory)
        self.sources, self._kept, self._bytes = [], [], 0


def _add_log(
    batch: LogBatch,
    source: Source,
    task: ReadTask,
    problem: ReadProblem | None,
    *,
    sources: MineSources,
    report: BuildReport,
) -> None:
    if problem is not None:
        report.skipped.append(problem.text)
        shutil.rmtree(task.directory)
        if problem.is_of_log:  # others are tried again by the next run
            batch.sources.append(replace(source, error=problem.text, reader=reader_version()))
        return
    start = open_converted(task.directory, "darshan_job")["start_us"][0].as_py()
    if sources.is_outside(start):
        report.outside += 1
        shutil.rmtree(task.directory)
        batch.sources.append(replace(source, outside_us=start))
        return
    report.converted += 1
    batch.sources.append(source)
    batch.keep(task.directory)


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _order(directory: Path) -> tuple[int, int, int]:
    job = open_converted(directory, "darshan_job").to_pylist()[0]
    return job["job_id"], job["start_us"], job["log"]


def _opened(directories: Iterable[Path], table: str) -> Iterator[pa.Table]:
    """The rows of each log, with the start of its job, by which all its tables are partitioned."""
    for directory in directories:
        start = open_converted(directory, "darshan_job")["start_us"][0].as_py()
        yield open_converted(directory, table).replace_schema_metadata({"start_us": str(start)})


def logs_below(paths: Iterable[Path]) -> list[Path]:
    """Logs among `paths` and in the folders of `paths`, sorted. Raises InputError for a missing path."""
    logs = set()
    for path in paths:
        if path.is_dir():
            logs |= {file for file in path.rglob("*") if file.name.endswith(_SUFFIXES) and file.is_file()}
        elif path.exists():
            logs.add(path)
        else:
            raise InputError(str(path), "no such file or directory")
    return sorted(log.absolute() for log in logs)


def _source(path: Path) -> Source:
    with InputError.from_os_errors(path):
        status = path.stat()
    where = str(path.absolute())
    log = log_key(where, status.st_size, status.st_mtime_ns)
    return Source(where, status.st_size, status.st_mtime_ns, log)
