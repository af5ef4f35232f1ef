"""Rules on which files a job waited for: many of one process one after another, and a single slow one."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.jobs.darshan.findings import MIB, IoFinding, done, rate, seconds
from laggard_aggregator.jobs.darshan.job_tables import ALL_RANKS, Accesses, JobTables
from laggard_aggregator.status.formatting import plain

LEAST_SERIES: Final = 8
"""Files of one process that are a series."""
LEAST_PROCESSES: Final = 4
"""Processes of a job; fewer have little to share."""
LEAST_SERIES_SHARE: Final = 0.5
"""Share of the time with I/O in which only the process with the series is active."""
MOST_OVERLAP: Final = 1.25
"""Lengths of a series' files together, as a multiple of the time that it took."""
LEAST_FILES: Final = 4
"""Fewest files of a direction among which one can be slower than the others."""
LEAST_FILE_SHARE: Final = 0.9
MOST_BYTES_SHARE: Final = 0.5
LEAST_FACTOR: Final = 2.0
"""Ratio by which a single file is slower than the others, by rates."""
LEAST_BUSY_US: Final = 1_000_000


def critical_file_findings(tables: JobTables, accesses: Accesses) -> Iterator[IoFinding]:
    """Files in series and a single slow file of a module and direction (IOMiner, section IV)."""
    if accesses.busy_us >= LEAST_BUSY_US and tables.processes >= LEAST_PROCESSES:
        yield from _series(tables, accesses)
        yield from _single(tables, accesses)


def _series(tables: JobTables, accesses: Accesses) -> Iterator[IoFinding]:
    """The process that goes through most files, if all others wait for it."""
    own = accesses.timed[accesses.rank[accesses.timed] > ALL_RANKS]
    if not own.size:
        return
    process = np.stack([accesses.logs[own], accesses.rank[own]])
    processes, number, counts = np.unique(process, axis=1, return_inverse=True, return_counts=True)
    most = int(counts.argmax())
    mine = own[number.ravel() == most]
    files = int(np.unique(accesses.file_id[mine]).size)
    chosen = _chosen(accesses, mine)
    waited = accesses.waited_us(chosen)
    length = int((accesses.end[mine] - accesses.start[mine]).sum())
    took = int(accesses.end[mine].max() - accesses.start[mine].min())
    share = waited / accesses.busy_us
    if files < LEAST_SERIES or share < LEAST_SERIES_SHARE or length > MOST_OVERLAP * took:
        return
    rank, direction = int(processes[1, most]), accesses.direction
    factor = float(min(files, tables.processes))
    text = (
        f"rank {rank} {done(direction)} {files:,} files one after another while the other "
        f"{tables.processes - 1:,} processes {done(direction)} nothing: {share:.0%} of the "
        f"{seconds(accesses.busy_us)} s."
    )
    advice = f"Let every process {direction} some of the files, or {direction} them together with MPI-IO."
    yield IoFinding(tables.job_id, direction, "serial files", f"rank {rank}", factor, share, text, advice)


def _single(tables: JobTables, accesses: Accesses) -> Iterator[IoFinding]:
    """The file for which nearly all of the time was waited, if its bytes do not explain that."""
    timed = accesses.timed[accesses.bytes[accesses.timed] > 0]
    files, number = np.unique(accesses.file_id[timed], return_inverse=True)
    if files.size < LEAST_FILES:
        return
    place = int(np.bincount(number, accesses.weight_us[timed]).argmax())
    chosen = _chosen(accesses, timed[number == place])
    share = accesses.waited_us(chosen) / accesses.busy_us
    moved, every = float(accesses.bytes[chosen].sum()), float(accesses.bytes[timed].sum())
    others = timed[number != place]
    own_rate = moved / float((accesses.end[chosen] - accesses.start[chosen]).sum())
    usual = accesses.bytes[others] / (accesses.end[others] - accesses.start[others])
    factor = float(np.median(usual)) / own_rate
    if share < LEAST_FILE_SHARE or moved > MOST_BYTES_SHARE * every or factor < LEAST_FACTOR:
        return
    name = plain(accesses.text(int(np.flatnonzero(chosen)[0]), "name").rpartition("/")[2], 60)
    direction = accesses.direction
    text = (
        f"one of {files.size:,} files, {name}, took {share:.0%} of the {seconds(accesses.busy_us)} s with "
        f"{moved / every:.0%} of the bytes: {rate(own_rate / MIB * 1e6)} MiB/s, {factor:.1f} times slower "
        "than the others."
    )
    advice = "Look at where it lies and who else uses it (lfs getstripe), and at its requests."
    yield IoFinding(tables.job_id, direction, "single file", name, factor, share, text, advice)


def _chosen(accesses: Accesses, places: NDArray[np.int64]) -> NDArray[np.bool_]:
    chosen = np.zeros(accesses.bytes.size, np.bool_)
    chosen[places] = True
    return chosen
