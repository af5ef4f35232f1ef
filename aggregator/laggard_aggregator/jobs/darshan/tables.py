"""Columns of the store's tables; docs/mining.md explains them.

Times are int64 microseconds since the epoch (UTC); null where there was no such operation. Darshan's unsigned
64-bit record ids are bit-cast to int64.
"""

from typing import Final

import pyarrow as pa

OST_WORDS: Final = 32
"""Words of an OST bitmap: OST ids below 2048."""
SIZE_BINS: Final = (
    "0_100",
    "100_1K",
    "1K_10K",
    "10K_100K",
    "100K_1M",
    "1M_4M",
    "4M_10M",
    "10M_100M",
    "100M_1G",
)
"""Darshan's bins of request sizes, all but the last (`1G_PLUS`)."""
SMALL_BINS: Final = SIZE_BINS[:5]
SMALL_BYTES: Final = 1 << 20
"""Requests below are small. The paper leaves it open."""
DIRECTIONS: Final = ("read", "write")
WORD_COLUMNS: Final = tuple(f"ost_word_{word:02d}" for word in range(OST_WORDS))


def _columns(*columns: tuple[pa.DataType, str]) -> list[pa.Field]:
    return [pa.field(name, kind) for kind, names in columns for name in names.split()]


_INT, _TEXT = pa.int64(), pa.string()

DARSHAN_JOB: Final = pa.schema(
    _columns(
        (_INT, "log job_id uid start_us end_us run_us processes"),
        (_TEXT, "path application command log_version modules partial"),
        (_INT, "files bytes_read bytes_written reads writes"),
        (_INT, "posix_requests sequential_reads sequential_writes"),
        (_INT, "posix_files mpiio_files collective_files"),
    )
)
"""One row a log. Bytes, reads and writes are those of POSIX and STDIO; `posix_requests` and the sequential
ones those of POSIX. `modules` and `partial` are separated by commas."""

DARSHAN_FILE: Final = pa.schema(
    _columns(
        (_INT, "log job_id"),
        (_TEXT, "module"),
        (_INT, "file_id rank"),
        (_TEXT, "name mount file_system"),
        (_INT, "processes opens reads writes bytes_read bytes_written"),
        (
            _INT,
            "consecutive_reads consecutive_writes sequential_reads sequential_writes small_reads "
            "small_writes",
        ),
        (
            _INT,
            "read_start_us read_end_us write_start_us write_end_us read_time_us write_time_us meta_time_us",
        ),
        (_INT, "slowest_rank slowest_time_us slowest_bytes fastest_time_us"),
        (pa.float64(), "time_variance bytes_variance"),
        (_INT, "collective_reads collective_writes mpiio"),
        (_INT, "stripe_size stripe_count stripe_offset"),
        (_INT, " ".join(WORD_COLUMNS)),
    )
)
"""One row a record of POSIX, STDIO and MPI-IO; `rank` -1: a record of a file that all ranks shared."""

JOB_OST: Final = pa.schema(_columns((_INT, "log job_id file_id"), (_TEXT, "mount"), (_INT, "ost stripes")))
"""One row a file and OST. `stripes`: the file's stripe count."""

DXT: Final = pa.schema(
    _columns(
        (_INT, "log job_id"),
        (_TEXT, "module"),
        (_INT, "rank"),
        (_TEXT, "node"),
        (_INT, "file_id"),
        (_TEXT, "operation"),
        (_INT, "offset length start_us end_us"),
    )
)
"""One row a traced request; `operation`: read or write."""

SLURM_JOB: Final = pa.schema(
    _columns(
        (_INT, "job_id"),
        (_TEXT, "job user name state"),
        (_INT, "start_us end_us node_count"),
        (_TEXT, "nodes"),
    )
)
SLURM_STEP: Final = pa.schema(
    _columns(
        (_INT, "job_id"), (_TEXT, "step name state"), (_INT, "start_us end_us node_count"), (_TEXT, "nodes")
    )
)
LMT: Final = pa.schema(
    _columns((_TEXT, "file_system ost"), (_INT, "ost_index start_us end_us bytes_read bytes_written"))
)
"""One row an OST and interval of two readings, with the bytes of that interval."""
LMT_TOTAL: Final = pa.schema(
    _columns((_INT, "job_id"), (_TEXT, "file_system"), (_INT, "start_us end_us bytes_read bytes_written"))
)
"""One row a run, with all bytes of its file system from `start_us` to `end_us`: TOKIO's summaries."""

TABLES: Final = {
    "darshan_job": DARSHAN_JOB,
    "darshan_file": DARSHAN_FILE,
    "job_ost": JOB_OST,
    "dxt": DXT,
    "slurm_job": SLURM_JOB,
    "slurm_step": SLURM_STEP,
    "lmt": LMT,
    "lmt_total": LMT_TOTAL,
}
OF_A_LOG: Final = ("darshan_job", "darshan_file", "job_ost", "dxt")
"""The tables that a Darshan log fills."""
