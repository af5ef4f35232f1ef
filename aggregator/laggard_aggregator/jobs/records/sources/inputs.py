"""Files with job metadata, plain or compressed, as tables of kind `jobs`."""

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import pyarrow as pa

from laggard_aggregator.files.compressed import open_input
from laggard_aggregator.jobs.records.local_times import LocalTimes
from laggard_aggregator.jobs.records.model import ReadReport
from laggard_aggregator.jobs.records.settle import records, settled
from laggard_aggregator.jobs.records.sources.flux import flux_records
from laggard_aggregator.jobs.records.sources.jsonl import jsonl_records
from laggard_aggregator.jobs.records.sources.pbs import pbs_records
from laggard_aggregator.jobs.records.sources.sacct_json import json_records
from laggard_aggregator.jobs.records.sources.sacct_text import sacct_tables
from laggard_common.errors import InputError

_ROWS_AT_ONCE: Final = 50_000
FORMATS: Final = ("sacct", "jsonl", "pbs", "flux")

RecordReader = Callable[[BinaryIO, str, LocalTimes, ReadReport], Iterator[Mapping[str, Any]]]

_READERS: Final[Mapping[str, RecordReader]] = {
    "sacct_json": json_records,
    "jsonl": jsonl_records,
    "pbs": pbs_records,
    "flux": flux_records,
}


def job_tables(
    path: Path, form: str, cluster: str, times: LocalTimes, report: ReadReport
) -> Iterator[pa.Table]:
    """Yields the records of a file in portions. `form`: one of FORMATS. Raises InputError, with the path."""
    with opened(path, report.doubt) as file:
        yield from stream_tables(file, form, cluster, times, report)


def is_json(file: io.BufferedReader) -> bool:
    """Whether a file begins like a JSON object, also behind white space."""
    return file.peek(64)[:64].lstrip()[:1] == b"{"


@contextmanager
def opened(path: Path, cut: Callable[[str], None]) -> Iterator[io.BufferedReader]:
    """A file, also one of gzip, xz or zstd, as far as it goes.

    `cut` is called when compressed data is cut short. Raises InputError, with the path also for those of the
    block.
    """
    try:
        with open_input(path, cut=cut) as file:
            yield io.BufferedReader(cast(Any, file))
    except InputError as exc:
        raise InputError(str(path), exc.reason) if not exc.path else exc from exc


def stream_tables(
    file: io.BufferedReader, form: str, cluster: str, times: LocalTimes, report: ReadReport
) -> Iterator[pa.Table]:
    """Yields the records of an open file in portions, with the columns of kind `jobs`."""
    if form == "sacct":
        if not is_json(file):
            for table in sacct_tables(file, cluster, times, report):
                yield settled(table)
            return
        form = "sacct_json"
    waiting: list[Mapping[str, Any]] = []
    for portion in _READERS[form](file, cluster, times, report):
        waiting.append(portion)
        report.records += 1
        if len(waiting) >= _ROWS_AT_ONCE:
            yield settled(records(waiting))
            waiting = []
    if waiting:
        yield settled(records(waiting))
