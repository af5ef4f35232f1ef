"""`laggard mine init`: converts Darshan, Slurm and LMT sources into a store, each once."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pyarrow as pa

from laggard_aggregator.mining.convert import open_converted
from laggard_aggregator.mining.lmt_input import lmt_tables
from laggard_aggregator.mining.readers import ReadTask, log_key, reader_pool
from laggard_aggregator.mining.slurm_input import slurm_tables
from laggard_aggregator.mining.store import Source, StoreWriter
from laggard_aggregator.mining.tables import OF_A_LOG
from laggard_common.daemon.file_lock import take_lock
from laggard_common.errors import InputError

BATCH_LOGS: Final = 500
_SUFFIXES: Final = (".darshan", ".darshan.gz", ".darshan_partial")


@dataclass(frozen=True, slots=True)
class MineSources:
    """Sources of a store. `low_us`, `high_us`: jobs that began outside are not converted. Zones: of times
    without."""

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
        opened.enter_context(take_lock(directory, "another laggard mine init is running"))
        writer = opened.enter_context(closing(StoreWriter(directory)))
        report = BuildReport()
        _add_tables(
            writer, "slurm", sources.slurm, report, lambda path: slurm_tables(path, sources.slurm_zone)
        )
        _add_tables(writer, "lmt", sources.lmt, report, lambda path: lmt_tables(path, sources.lmt_zone))
        _add_logs(writer, sources, report, readers, progress)
        return report


def _add_tables(
    writer: StoreWriter,
    kind: str,
    paths: Sequence[Path],
    report: BuildReport,
    read: Callable[[Path], dict[str, pa.Table]],
) -> None:
    known = writer.store.sources(kind)
    for path in sorted(paths):
        source = _source(path)
        before = known.get(source.path)
        if before is not None and before.key == source.key and before.error is None:
            report.known += 1
            continue
        report.read += 1
        tables = read(path)  # an error ends the command: the user named this file
        writer.commit(kind, [source], {name: [table] for name, table in tables.items()})
        report.converted += 1


def _add_logs(
    writer: StoreWriter,
    sources: MineSources,
    report: BuildReport,
    readers: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    known = writer.store.sources("darshan")
    pending = []
    for path in logs_below(sources.darshan):
        try:
            source = _source(path)
        except InputError as exc:  # gone, or not ours to read
            report.skipped.append(str(exc))
            continue
        before = known.get(source.path)
        if before is None or before.key != source.key:
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
    if not pending:
        return
    with reader_pool(readers) as pool:
        for at in range(0, len(pending), BATCH_LOGS):
            batch = pending[at : at + BATCH_LOGS]
            with TemporaryDirectory(dir=writer.converting) as directory:
                tasks = []
                for number, source in enumerate(batch):
                    target = Path(directory) / str(number)
                    target.mkdir()
                    tasks.append(ReadTask(Path(source.path), source.log, target))
                done: list[Source] = []
                kept: list[Path] = []
                for source, task, error in zip(batch, tasks, pool.convert(tasks), strict=True):
                    report.read += 1
                    done.append(_converted(source, task, error, sources=sources, report=report, kept=kept))
                    if progress is not None:
                        progress(at + len(done), len(pending))
                kept.sort(key=_order)
                writer.commit("darshan", done, {table: _opened(kept, table) for table in OF_A_LOG})


def _converted(
    source: Source,
    task: ReadTask,
    error: str | None,
    *,
    sources: MineSources,
    report: BuildReport,
    kept: list[Path],
) -> Source:
    if error is not None:
        report.skipped.append(error)
        return Source(source.path, source.size, source.mtime_ns, source.log, error=error)
    start = open_converted(task.directory, "darshan_job")["start_us"][0].as_py()
    if sources.is_outside(start):
        report.outside += 1
        return Source(source.path, source.size, source.mtime_ns, source.log, outside_us=start)
    report.converted += 1
    kept.append(task.directory)
    return source


def _order(directory: Path) -> tuple[int, int, int]:
    job = open_converted(directory, "darshan_job").to_pylist()[0]
    return job["job_id"], job["start_us"], job["log"]


def _opened(directories: Iterable[Path], table: str) -> Iterator[pa.Table]:
    """The rows of each log, with the start of its job, by which all its tables are partitioned."""
    for directory in directories:
        start = open_converted(directory, "darshan_job")["start_us"][0].as_py()
        yield open_converted(directory, table).replace_schema_metadata({"start_us": str(start)})


def logs_below(paths: Iterable[Path]) -> list[Path]:
    """Logs among `paths` and in the folders of `paths`, sorted. Raises InputError for a path that is not
    there."""
    found = set()
    for path in paths:
        if path.is_dir():
            found |= {each for each in path.rglob("*") if each.name.endswith(_SUFFIXES) and each.is_file()}
        elif path.exists():
            found.add(path)
        else:
            raise InputError(str(path), "no such file or directory")
    return sorted(each.absolute() for each in found)


def _source(path: Path) -> Source:
    with InputError.from_os_errors(path):
        status = path.stat()
    where = str(path.absolute())
    log = log_key(where, status.st_size, status.st_mtime_ns)
    return Source(where, status.st_size, status.st_mtime_ns, log)
