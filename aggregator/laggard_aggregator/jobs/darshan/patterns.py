"""Rules on how a job does its I/O: its contributing factors on the critical path, and advice."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.jobs.darshan.factors import FactorColumns
from laggard_aggregator.jobs.darshan.findings import MIB, MIN_SHARE, IoFinding, NotJudged, done, rate, seconds
from laggard_aggregator.jobs.darshan.job_tables import UNKNOWN, Accesses, JobTables, integers
from laggard_aggregator.status.formatting import plain

MIN_FACTOR: Final = 0.5
"""Share of a file's requests from which a pattern is a cause."""
MIN_REQUESTS: Final = 100
"""Fewer requests on the critical files say nothing about a pattern."""
LARGE_REQUEST: Final = 4 * MIB
"""Non-consecutive requests of at least this mean size cost a file system little."""
SLOW_REQUEST_US: Final = 1000.0
"""Consecutive small requests that take less were merged by the operating system."""
CONTENTION: Final = 3.0
"""Processes an OST, as in the paper."""
OST_MIB_PER_SECOND: Final = 200.0
"""Rate expected of one OST: striping limits a file that reaches it, or that has no other cause."""
MAX_OST_MIB_PER_SECOND: Final = 1500.0
"""Faster rates an OST come from caches."""
MAX_STRIPES: Final = 8
"""A file on more OSTs is striped already."""
MIN_BUSY_US: Final = 1_000_000
"""Striping is not judged for I/O of less than a second."""
MIN_METADATA: Final = 0.5
MIN_METADATA_OF_LOG: Final = 0.9
METADATA_OF_RUN_LIMIT: Final = 1.5
MIN_METADATA_SECONDS: Final = 0.1
MIN_METADATA_OF_RUN: Final = 0.01

_METADATA_ADVICE: Final = "Open files once, put many small files into few large ones, keep stat out of loops."


def pattern_findings(
    tables: JobTables, accesses: Accesses, factors: FactorColumns
) -> Iterator[IoFinding | NotJudged]:
    """Non-consecutive and small requests, and too few OSTs, on the critical files."""
    if not accesses.busy_us:
        return
    critical = np.zeros(accesses.bytes.size, np.bool_)
    critical[accesses.path.place] = True
    if accesses.requests[critical].sum() < MIN_REQUESTS:
        count = int(accesses.requests[critical].sum())
        reason = f"only {count} requests on the critical files, {MIN_REQUESTS} are needed"
        yield NotJudged(tables.job_id, f"pattern of requests ({accesses.direction})", reason)
        findings: list[IoFinding] = []
    elif not (accesses.consecutive[critical] != UNKNOWN).any():
        reason = f"{accesses.module} records have neither sizes nor order of requests"
        yield NotJudged(tables.job_id, f"pattern of requests ({accesses.direction})", reason)
        findings = []
    else:
        findings = list(_requests(tables, accesses, factors, critical))
    yield from findings
    yield from _striping(tables, accesses, factors, critical, has_cause=bool(findings))


def _requests(
    tables: JobTables, accesses: Accesses, factors: FactorColumns, critical: NDArray[np.bool_]
) -> Iterator[IoFinding]:
    mean_bytes = accesses.bytes / np.maximum(accesses.requests, 1)
    with np.errstate(invalid="ignore"):
        scattered = critical & (factors.nonconsecutive >= MIN_FACTOR) & (mean_bytes < LARGE_REQUEST)
        small = critical & ~scattered & (factors.small >= MIN_FACTOR)
    small &= accesses.time_us >= SLOW_REQUEST_US * np.maximum(accesses.requests, 1)
    for kind, chosen in (("nonconsecutive", scattered), ("small", small)):
        share = accesses.share(chosen)
        if share < MIN_SHARE or accesses.requests[chosen].sum() < MIN_REQUESTS:
            continue
        weight = accesses.requests[chosen]
        factor = float(np.average(getattr(factors, kind)[chosen], weights=weight))
        size = accesses.bytes[chosen].sum() / weight.sum()
        micros = accesses.time_us[chosen].sum() / weight.sum()
        per_second = float(accesses.bytes.sum()) / MIB / (accesses.busy_us / 1e6)
        words = (
            "did not start where the one before had ended" if kind == "nonconsecutive" else "were below 1 MiB"
        )
        text = (
            f"{factor:.0%} of {int(weight.sum()):,} {accesses.direction} requests {words}, on files that "
            f"took {share:.0%} of the time: {_size(size)} and {micros:,.0f} us a request, "
            f"{rate(per_second)} MiB/s in all."
        )
        advice = _advice(accesses, chosen, kind)
        yield IoFinding(tables.job_id, accesses.direction, kind, None, factor, share, text, advice)


def _advice(accesses: Accesses, chosen: NDArray[np.bool_], kind: str) -> str:
    call = "MPI_File_write_all" if accesses.direction == "write" else "MPI_File_read_all"
    mpiio = np.nan_to_num(accesses.rows["mpiio"].to_numpy())[chosen] > 0
    is_collective = accesses.collective[chosen] > 0
    if mpiio.any() and not is_collective.all():
        return f"Use collective I/O ({call}, H5FD_MPIO_COLLECTIVE) so that a few ranks make large requests."
    if mpiio.any():
        return "Collective I/O is on; give it larger buffers (ROMIO hint cb_buffer_size)."
    if kind == "nonconsecutive":
        return f"Access the file in order of offset, or in larger pieces; with MPI, collective I/O ({call})."
    return "Collect data in a buffer and move at least 1 MiB a request; do not flush after each one."


def _striping(
    tables: JobTables,
    accesses: Accesses,
    factors: FactorColumns,
    critical: NDArray[np.bool_],
    *,
    has_cause: bool,
) -> Iterator[IoFinding]:
    """Files that more processes use at once than their OSTs serve well."""
    with np.errstate(invalid="ignore"):
        crowded = critical & (factors.processes_per_ost > CONTENTION) & (accesses.bytes > 0)
    if not crowded.any():
        return
    length = np.maximum(accesses.end - accesses.start, 1)
    per_ost = accesses.bytes / MIB / (length / 1e6) / np.maximum(accesses.stripes, 1)
    crowded &= (per_ost < MAX_OST_MIB_PER_SECOND) & (accesses.stripes <= MAX_STRIPES)
    if has_cause:
        crowded &= per_ost >= OST_MIB_PER_SECOND
    share = accesses.share(crowded)
    if share < MIN_SHARE or accesses.busy_us < MIN_BUSY_US:
        return
    weight = accesses.weight_us
    factor = float(np.average(factors.processes_per_ost[crowded], weights=weight[crowded]))
    place = int(np.flatnonzero(crowded)[np.argmax(weight[crowded])])
    stripes, processes = int(accesses.stripes[place]), int(accesses.processes[place])
    ost = int(integers(accesses.rows, "stripe_offset")[place])
    name = plain(accesses.text(place, "name").rpartition("/")[2], 60)
    where = f"OST {ost} alone" if stripes == 1 else f"{stripes} OSTs"
    text = (
        f"{processes:,} processes {done(accesses.direction)} {name} on {where}, at "
        f"{rate(float(per_ost[place]))} MiB/s an OST; files with {factor:,.0f} processes an OST took "
        f"{share:.0%} of the {seconds(accesses.busy_us)} s."
    )
    more = min(max(stripes * 8, 8), processes)
    advice = f"Stripe its directory over more OSTs before the run: lfs setstripe -c {more} DIRECTORY."
    component = f"OST{ost}" if stripes == 1 else None
    yield IoFinding(tables.job_id, accesses.direction, "striping", component, factor, share, text, advice)


def metadata_findings(tables: JobTables, all_accesses: list[Accesses]) -> Iterator[IoFinding | NotJudged]:
    """A job whose I/O calls spend their time on opens, stats and the like; of all modules and directions.

    Of a job with a log a process, the logs that do are named even where the job as a whole does not. The
    share is of the critical time and the time in metadata calls, of one process, together.
    """
    logs = metadata_by_log(all_accesses).values()
    meta, every = sum(log.metadata_us for log in logs), sum(log.every_us for log in logs)
    length = max(tables.end_us - tables.start_us, 1)
    if not every:
        return
    a_process = meta / max(tables.processes, 1)
    if a_process > METADATA_OF_RUN_LIMIT * length:
        reason = "opens and stats took longer than the run, by the log: its times cannot be right"
        yield NotJudged(tables.job_id, "metadata", reason)
        return
    busiest = max(all_accesses, key=lambda accesses: accesses.busy_us)
    least = max(MIN_METADATA_SECONDS * 1e6, MIN_METADATA_OF_RUN * length)
    factor = meta / every
    if factor >= MIN_METADATA and a_process >= least:
        took = a_process
        text = (
            f"{factor:.0%} of the time in I/O calls went to opens, stats, seeks and closes: "
            f"{seconds(a_process)} s a process."
        )
    else:
        heavy = [log for log in logs if log.every_us and log.share >= MIN_METADATA_OF_LOG]
        in_heavy = sum(log.metadata_us for log in heavy)
        if len(logs) == 1 or not heavy or in_heavy < MIN_METADATA_SECONDS * 1e6 * len(heavy):
            return
        took = max(log.metadata_us for log in heavy)
        factor = in_heavy / sum(log.every_us for log in heavy)
        text = (
            f"{len(heavy)} of {len(logs)} processes spent {factor:.0%} of their time in I/O calls on "
            f"opens, stats, seeks and closes: {seconds(took)} s of the one that took longest."
        )
    share = took / (took + busiest.busy_us)
    yield IoFinding(tables.job_id, busiest.direction, "metadata", None, factor, share, text, _METADATA_ADVICE)


class CallTimes(NamedTuple):
    """Time of one log in metadata calls, and in all I/O calls."""

    metadata_us: int
    every_us: int

    @property
    def share(self) -> float:
        """Share of metadata calls; there must be some time."""
        return self.metadata_us / self.every_us


def metadata_by_log(all_accesses: list[Accesses]) -> dict[int, CallTimes]:
    """Times of the calls by log: those of POSIX; of STDIO in logs without POSIX."""
    times: dict[int, CallTimes] = {}
    for module in ("STDIO", "POSIX"):
        of_module = [accesses for accesses in all_accesses if accesses.module == module]
        logs, place = np.unique(of_module[0].logs, return_inverse=True)
        meta = np.bincount(place, of_module[0].meta_us, logs.size).astype(np.int64)
        total = meta + sum(
            np.bincount(place, accesses.time_us, logs.size).astype(np.int64) for accesses in of_module
        )
        times |= {
            log: CallTimes(own, every)
            for log, own, every in zip(logs.tolist(), meta.tolist(), total.tolist(), strict=True)
        }
    return times


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024 or unit == "MiB":
            return f"{count:,.3g} {unit}" if count < 1000 else f"{count:,.0f} {unit}"
        count /= 1024
    raise AssertionError
