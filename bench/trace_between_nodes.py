"""Second pass over the trace records of a job's nodes: `python -m bench.trace_between_nodes`.

The eight patterns of `bench.iotrace` by 64 to 1,024 processes, 16 on a node, each with times of its own:
bytes of the records that the first pass leaves (encoded, not compressed: Beacon's measure, appendix A), of
these as the nodes send them (zstd), of Parquet with the same records sorted by process (deltas, zstd), and of
the blocks. `no times` is a block of the same records at time 0. Every block is read back.

`--restore 10000000` makes blocks of random and adversarial records, and compares each with what comes back.
`--merge 3000000` has the aggregator's pass merge so many records of one job from an archive, and read them.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from numpy.typing import NDArray

from bench.iotrace import KIB, MIB
from bench.machine import machine
from laggard_agent.tools.iotrace.fold import fold
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.join.trace_documents import RECORD_COLUMNS as COLUMNS
from laggard_aggregator.jobs.traces.job_traces import JobTraces
from laggard_aggregator.jobs.traces.merged_block import MAX_RECORDS, merged, restored, table_of
from laggard_aggregator.jobs.traces.trace_pass import TracePass
from laggard_common.wire.limits import MAX_TICKS
from laggard_common.wire.trace_codec import batches
from laggard_common.wire.trace_document import TraceDocument, encode_document
from laggard_common.wire.trace_records import MAX_POSITION, Folded, TraceRecord
from tests.support.builders.job_tables import EPOCH
from tests.support.builders.traced_site import ADMIN, TracedSite

Call = tuple[str, str, str, int | None, int]
"""Descriptor within the process, path, operation, offset, size."""

NODE_PROCESSES = 16
PATTERNS = (
    "sequential",
    "strided",
    "N-1 interleaved",
    "random",
    "small metadata",
    "checkpoint",
    "mixed",
    "restart",
)
_START_NS = 1_763_650_000 * 10**9


def job(pattern: str, processes: int, unit_ns: int, seed: int) -> list[list[Folded]]:
    """Folded records of each node; times are multiples of `unit_ns`."""
    chance = random.Random(seed)
    return [
        list(fold(_node(pattern, first, processes, unit_ns, chance)))
        for first in range(0, processes, NODE_PROCESSES)
    ]


def _node(
    pattern: str, first: int, processes: int, unit_ns: int, chance: random.Random
) -> Iterator[TraceRecord]:
    """Calls of a node's processes among each other."""
    base, now_ns = chance.randrange(2000, 30_000), _START_NS + chance.randrange(10**7)
    queues = [list(_calls(pattern, first + i, processes, chance)) for i in range(NODE_PROCESSES)]
    order = [i for i, calls in enumerate(queues) for _ in calls]
    chance.shuffle(order)
    following = [iter(calls) for calls in queues]
    for i in order:
        descriptor, path, operation, offset, size = next(following[i])
        now_ns += 20_000 + chance.randrange(300_000)
        yield TraceRecord(
            f"cn-{first // NODE_PROCESSES + 1:04d}",
            operation,
            f"{base + i}:{descriptor}",
            offset,
            size,
            now_ns // unit_ns * unit_ns,
            path,
        )


def _calls(pattern: str, rank: int, processes: int, chance: random.Random) -> Iterator[Call]:
    """What one process does: the pattern of `bench.iotrace` with fewer calls."""
    if pattern == "sequential":
        yield from _file("3", "/scratch/in.dat", _stretch("read", rank * 256 * MIB, MIB, 256))
    elif pattern == "strided":
        starts = [(row * processes + rank) * 512 * KIB for row in range(128)]
        rows = [call for start in starts for call in _stretch("read", start, 64 * KIB, 8)]
        yield from _file("3", "/scratch/grid.nc", rows)
    elif pattern == "N-1 interleaved":
        starts = [(segment * processes + rank) * 4 * MIB for segment in range(64)]
        segments = [call for start in starts for call in _stretch("write", start, 512 * KIB, 8)]
        yield from _file("7", "/scratch/shared.h5", segments)
    elif pattern == "random":
        reads = [("read", block * 4 * KIB, 4 * KIB) for block in _blocks(256, chance)]
        yield from _file("5", "/scratch/table.db", reads)
    elif pattern == "small metadata":
        for i in range(50):
            parts = [("stat", None, 0), *_stretch("read", 0, KIB, 3), ("read", 3 * KIB, 1 + i * 7919 % 1023)]
            yield from _file("3", f"/scratch/cfg/{i:04d}.xml", parts)
    elif pattern == "checkpoint":
        parts = [("write", 0, 4 * KIB), *_stretch("write", 4 * KIB, MIB, 64), ("fsync", None, 0)]
        yield from _file("9", f"/scratch/ckpt/{rank:04d}", parts)
    elif pattern == "mixed":
        yield from _file("3", "/in", _stretch("read", rank * 64 * MIB, MIB, 64))
        yield from _file("4", "/table", [("read", b * 8 * KIB, 8 * KIB) for b in _blocks(64, chance)])
        yield from _file("5", f"/log.{rank}", [("write", None, 80 + i % 2) for i in range(32)])
    else:
        end = 4 * KIB + 64 * MIB
        parts = [("read", 0, 4 * KIB), *_stretch("read", 4 * KIB, MIB, 64)]
        parts += [("read", end, 300 * KIB), ("read", end + 300 * KIB, 0)]
        yield from _file("6", f"/scratch/ckpt/{rank:04d}", parts)


def _file(descriptor: str, path: str, calls: Sequence[tuple[str, int | None, int]]) -> Iterator[Call]:
    for operation, offset, size in [("open", None, 0), *calls, ("close", None, 0)]:
        yield descriptor, path, operation, offset, size


def _stretch(operation: str, offset: int, size: int, count: int) -> list[tuple[str, int | None, int]]:
    return [(operation, offset + i * size, size) for i in range(count)]


def _blocks(count: int, chance: random.Random) -> Iterator[int]:
    """Numbers of blocks, none behind the other."""
    block = 0
    for _ in range(count):
        block = (block + 2 + chance.randrange((1 << 24) - 2)) % (1 << 24)
        yield block


def documents_bytes(nodes: Sequence[Sequence[Folded]]) -> tuple[int, int]:
    """Bytes of the documents of all nodes, as encoded and compressed as they are sent, without envelopes."""
    log = "/var/log/iotrace/77/app.trace@1763650000000000000"
    compressor = zstandard.ZstdCompressor(level=3)
    parts = [part for node in nodes for part in batches(node)]
    encoded = [encode_document(TraceDocument("77", log, 1, 0, 1 << 18, part)) for part in parts]
    return sum(map(len, encoded)), sum(len(compressor.compress(each)) for each in encoded)


def parquet_bytes(table: pa.Table) -> int:
    """Bytes of the column chunks of one row group, sorted by process and time; no footer."""
    table = table.sort_by([(name, "ascending") for name in ("host", "descriptor", "first_ns")])
    numbers = COLUMNS.names[4:]
    file = io.BytesIO()
    pq.write_table(
        table,
        file,
        row_group_size=MAX_RECORDS,
        compression="zstd",
        compression_level=19,
        use_dictionary=COLUMNS.names[:4],
        column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        write_statistics=False,
    )
    found = pq.ParquetFile(file).metadata
    groups = [found.row_group(at) for at in range(found.num_row_groups)]
    return sum(group.column(at).total_compressed_size for group in groups for at in range(len(COLUMNS)))


def block_bytes(table: pa.Table) -> int:
    """Bytes of the blocks of a table, each of which is read back and compared."""
    return sum(len(_checked_block(table.slice(at, MAX_RECORDS))) for at in range(0, len(table), MAX_RECORDS))


def _checked_block(table: pa.Table) -> bytes:
    block = merged(table)
    order = [(name, "ascending") for name in COLUMNS.names]
    if not restored(block).sort_by(order).equals(table.combine_chunks().sort_by(order)):
        raise SystemExit("a block has other records than it was made of")
    return block


def ratios(processes: Sequence[int], seed: int) -> Iterator[str]:
    """Lines of the table, in Markdown. Ratios: folded to block, sent to block."""
    yield "| times in | processes | pattern | records | folded | sent | Parquet | block | ratios | no times |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for unit_ns, unit in ((1, "ns"), (1000, "us (strace)"), (100_000, "0.1 ms (Darshan)")):
        for n in processes:
            found = []
            for pattern in PATTERNS:
                nodes = job(pattern, n, unit_ns, seed)
                table = table_of([record for node in nodes for record in node])
                zero = pa.array(np.zeros(len(table), np.int64))
                timeless = table.set_column(7, COLUMNS.field(7), zero).set_column(8, COLUMNS.field(8), zero)
                folded, sent = documents_bytes(nodes)
                block = block_bytes(table)
                found.append((folded / block, sent / block))
                bytes_of = f"{folded:,} | {sent:,} | {parquet_bytes(table):,} | {block:,}"
                rest = f"{folded / block:.2f}, {sent / block:.2f} | {block_bytes(timeless):,}"
                yield f"| {unit} | {n} | {pattern} | {len(table):,} | {bytes_of} | {rest} |"
            of_all = [
                f"**{statistics.median(each):.2f}** ({min(each):.2f})" for each in zip(*found, strict=True)
            ]
            yield f"| {unit} | {n} | **median** (least) | | | | | | {', '.join(of_all)} | |"


def restore(count: int, seed: int) -> Iterator[str]:
    """Makes and reads `count` random and adversarial records, block by block."""
    rng = np.random.default_rng(seed)
    spent, made, size = 0.0, 0, 0
    while made < count:
        table = _hostile(rng, int(min(MAX_RECORDS, count - made)))
        started = time.process_time()
        size += len(_checked_block(table))
        spent += time.process_time() - started
        made += len(table)
    yield f"{made:,} random and adversarial records restored, seed {seed}"
    yield f"{size / made:.1f} bytes and {spent / made * 1e6:.1f} us of CPU each"


def _hostile(rng: np.random.Generator, n: int) -> pa.Table:
    """Records of all ranges: widths, repeats, signs of differences, and texts are drawn for each block."""

    def numbers() -> NDArray[np.int64]:
        return rng.integers(0, MAX_POSITION, n) >> int(rng.integers(0, 63))

    def texts(form: str) -> list[str]:
        distinct = int(rng.choice([1, 3, 1000, 1 << 40]))
        return [form.format(each) for each in rng.integers(0, distinct, n).tolist()]

    count = np.maximum(numbers() >> 32, 1)
    offset = numbers()
    size = np.minimum(numbers(), (MAX_POSITION - offset) // count)
    edges = rng.random(n) < 0.01
    size[edges], count[edges], offset[edges] = 0, 1, MAX_POSITION
    first = numbers()
    last = np.where(rng.random(n) < 0.5, first, numbers())
    columns = {
        "host": texts("cn-{}"),
        "operation": texts("op{}"),
        "descriptor": texts(str(rng.choice(["{}", "{}:3", "7:{}", ":{}:", "\u00e9{}:0"]))),
        "path": texts("/a/{}"),
        "offset": pa.array(offset, mask=rng.random(n) < rng.choice([0.0, 0.1, 1.0])),
        "size": size,
        "count": count,
        "first_ns": first,
        "last_ns": last,
    }
    return pa.table(columns, schema=COLUMNS)


def merge(count: int, seed: int) -> Iterator[str]:
    """Writes an archive with `count` records of one job, merges them, and reads its modes, each apart."""
    with tempfile.TemporaryDirectory() as folder:
        site = TracedSite(Path(folder))
        nodes = [f"cn-{n:04d}" for n in range(64)]
        site.job(nodes=nodes)
        chance, written = random.Random(seed), 0
        begins = dict.fromkeys(nodes, 0)
        while written < count:
            node = nodes[written // MAX_TICKS % len(nodes)]
            records = [_strided(node, written + at, chance) for at in range(MAX_TICKS)]
            begin = begins[node]
            begins[node] += MAX_TICKS
            site.sent(TraceDocument("77", "/log@1", 1, begin, begins[node], records), node=node)
            written += MAX_TICKS
        site.queries().close()
        for step in (_merge, _modes):
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                yield pool.submit(step, Path(folder), written).result()


def _strided(node: str, number: int, chance: random.Random) -> Folded:
    at_ns = round(EPOCH * 1e9) + 10**11 + number * 1000 + chance.randrange(900)
    return Folded(
        node, "write", f"{number % 16}:3", number * MIB, KIB, 8, at_ns, at_ns + 700, "/scratch/out.h5"
    )


def _merge(folder: Path, count: int) -> str:
    index, before, now_ns = JobIndex(folder), _peak_mib(), round((EPOCH + 20 * 86400) * 1e9)
    started = time.process_time()
    assert TracePass(folder, "s", index).run(now_ns) == 1
    return f"{count:,} records merged: {_spent(started, count)}, {_peak_mib() - before:.0f} MiB"


def _modes(folder: Path, count: int) -> str:
    queries, before, started = JobQueries(JobIndex(folder)), _peak_mib(), time.process_time()
    (job,) = queries.find(ADMIN, "77")
    assert JobTraces(folder, queries).modes(job)
    return f"modes by {count:,} merged records: {_spent(started, count)}, {_peak_mib() - before:.0f} MiB"


def _spent(started: float, count: int) -> str:
    return f"{(time.process_time() - started) / count * 1e6:.1f} us of CPU each"


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Prints the table, or what was restored or merged."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--processes", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--restore", type=int, metavar="N", help="restore N random and adversarial records")
    parser.add_argument("--merge", type=int, metavar="N", help="merge N records of one job from an archive")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    seed = options.seed
    if options.restore:
        lines = restore(options.restore, seed)
    elif options.merge:
        lines = merge(options.merge, seed)
    else:
        lines = ratios(options.processes, seed)
    for line in lines:
        print(line, flush=True)
    print(f"\nseed {options.seed}; {machine('zstandard', 'pyarrow')}")


if __name__ == "__main__":
    main()
