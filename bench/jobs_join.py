"""Cost and accuracy of rollups and of the join of jobs.

    python -m bench.jobs_join [--nodes N] [--minutes M] [--seed S]

Nodes send one component of eight counters a second, in batches of ten samples, as in `bench.scale`; jobs
follow one another on them. The generator knows of each byte which job moved it, in Python integers, and
shares nothing with the join. Costs are CPU time of this process by reading, to be held against the
aggregator's own (docs/scaling.md).
"""

import argparse
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.machine import machine
from laggard_aggregator.archive import layout, retention
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.jobs.join.accounts import JoinedJob
from laggard_aggregator.jobs.join.scan import Join
from laggard_aggregator.jobs.join.server_jobs import JobIdFormat
from laggard_aggregator.jobs.join.summary import series_rows, summary_row
from laggard_aggregator.jobs.rollups.rollup_pass import RollupPass
from laggard_aggregator.jobs.tables import JOB_SERIES
from laggard_aggregator.windows.counter_block import Block
from laggard_common.wire.schema import Component, Field, Schema
from tests.aggregator.jobs.job_archives import job_batch
from tests.naive_jobs import NaiveReading

SECOND = 10**9
START_NS = 1_800_000_000 * SECOND
TICKS = 10
FIELDS = (
    *("read_bytes_sum", "write_bytes_sum", "read_bytes_samples", "write_bytes_samples"),
    *("open_samples", "close_samples", "getattr_samples", "statfs_samples"),
)
SERVER_SECONDS = 10
GAP_PERCENT = 5
"""Nodes with a gap of two minutes."""


class Truth:
    """Jobs, and the bytes that each moved on each node, by second."""

    def __init__(self, nodes: int, seconds: int, chance: random.Random) -> None:
        self.jobs: list[JoinedJob] = []
        self.moved: Counter[tuple[str, int]] = Counter()
        self.by_second: Counter[tuple[int, int, int]] = Counter()
        self.rates = np.zeros((nodes, seconds, 2), dtype=np.int64)
        self.gaps: dict[int, tuple[int, int]] = {}
        first = 0
        while first < nodes:
            width = min(chance.choice([1, 1, 2, 2, 8, 8, 64]), nodes - first)
            self._history(range(first, first + width), seconds, chance)
            first += width
        for node in chance.sample(range(nodes), nodes * GAP_PERCENT // 100):
            begin = chance.randrange(seconds // 2)
            self.gaps[node] = begin, begin + 120

    def _history(self, nodes: range, seconds: int, chance: random.Random) -> None:
        at = 0.0
        while at < seconds - 2:
            end = min(at + chance.choice([0.5, 30.0, 300.0, 1800.0]) * (0.5 + chance.random()), seconds - 1.0)
            start_ns, end_ns = (START_NS + round(each * SECOND) for each in (at, end))
            key = f"c/{len(self.jobs)}/0"
            held = tuple((f"cn{node:05d}", start_ns, end_ns) for node in nodes)
            number = len(self.jobs)
            self.jobs.append(JoinedJob(key, number, start_ns, end_ns, held, 4 * len(nodes)))
            for node in nodes:
                self._work(key, number, node, (at, end), chance)
            at = end + chance.choice([0.0, 0.25, 20.0])

    def _work(
        self, key: str, number: int, node: int, span: tuple[float, float], chance: random.Random
    ) -> None:
        """Phases of reading or writing, as bytes in each second; parts of seconds at both ends."""
        at, end = span
        while at < end:
            until = min(at + chance.uniform(1, 120), end)
            rate, place = chance.choice([0, 0, chance.randrange(10**9)]), chance.randrange(2)
            moment = at
            while moment < until:
                stop = min(float(int(moment) + 1), until)
                amount = int(rate * (stop - moment))
                self.rates[node, int(moment), place] += amount
                self.moved[key, place] += amount
                self.by_second[number, int(moment), place] += amount
                moment = stop
            at = until


def batches(truth: Truth, nodes: int, seconds: int) -> Iterator[Batch]:
    """Batches of all nodes, in the order of time."""
    fields = tuple(Field(name) for name in FIELDS)
    schemas = [
        Schema(
            f"cn{node:05d}",
            "lustre_llite",
            node.to_bytes(16),
            1,
            SECOND,
            TICKS,
            fields,
            (Component("fs", "fs"),),
        )
        for node in range(nodes)
    ]
    values = np.zeros((nodes, len(FIELDS)), dtype=np.int64)
    noise = np.random.default_rng(1)
    lsn = 0
    for first in range(0, seconds, TICKS):
        ticks = START_NS + (first + 1 + np.arange(TICKS, dtype=np.int64)) * SECOND
        for node in range(nodes):
            rises = np.zeros((TICKS, len(FIELDS)), dtype=np.int64)
            rises[:, :2] = truth.rates[node, first : first + TICKS]
            rises[:, 2:4] = rises[:, :2] // 1_048_576
            rises[:, 4:] = noise.integers(0, 5, (TICKS, 4))
            counted = values[node] + np.cumsum(rises, axis=0)
            values[node] = counted[-1]
            begin, end = truth.gaps.get(node, (-1, -1))
            if begin <= first < end:
                continue
            lsn += 1
            block = Block(np.zeros(1, np.int64), counted[:, None, :], None, ticks, ticks, 0)
            received = int(ticks[-1]) + SECOND // 10
            yield Batch(
                lsn,
                "site",
                "compute",
                schemas[node].stream,
                lsn,
                received,
                schemas[node],
                block,
                np.zeros(TICKS, np.bool_),
            )


def server_batches(truth: Truth, chance: random.Random) -> Iterator[Batch]:
    """Entries of the jobs on two of eight OSTs each, every 10 s until 10 minutes after the last change.

    Writes come up to 5 s late, as clients write back; an entry begins with the job's first bytes.
    """
    late: dict[int, Counter[tuple[int, int]]] = {}
    for (number, second, place), amount in truth.by_second.items():
        arrives = second + (chance.randrange(6) if place else 0)
        late.setdefault(number, Counter())[arrives, place] += amount
    for number, amounts in late.items():
        seconds = [second for second, _ in amounts]
        halves: list[list[NaiveReading]] = [[], []]
        sums = [0, 0]
        for at in range(min(seconds), max(seconds) + 600):
            for place in (0, 1):
                sums[place] += amounts.get((at, place), 0)
            if at % SERVER_SECONDS or not any(sums):
                continue
            time_ms = START_NS // 1_000_000 + (at + 1) * 1000
            for half, readings in enumerate(halves):
                own = {name: (each + half) // 2 for name, each in zip(FIELDS, sums, strict=False)}
                readings.append(NaiveReading(time_ms, time_ms, own))
        for half, readings in enumerate(halves):
            target = f"fs-OST{(number + half) % 8:04x}:{number}"
            for first in range(0, len(readings), 60):
                part, lsn = readings[first : first + 60], 10**7 + number * 1000 + first + half
                yield job_batch("oss0", target, part, lsn=lsn, received_ns=START_NS, source="lustre_job_ost")


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=512)
    parser.add_argument("--minutes", type=int, default=120)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    nodes, seconds = options.nodes, options.minutes * 60
    print(f"{machine('numpy', 'pyarrow')}; seed {options.seed}")
    chance = random.Random(options.seed)
    truth = Truth(nodes, seconds, chance)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        writer = ArchiveWriter(directory, "site", START_NS)
        readings = 0
        for batch in batches(truth, nodes, seconds):
            writer.batch(batch)
            readings += TICKS
        for batch in server_batches(truth, chance):
            writer.batch(batch)
            readings += len(batch.late)
        writer.flush()
        retention.compact(directory, START_NS + (seconds + 7200) * SECOND)
        print(f"{nodes} nodes, {options.minutes} minutes, {readings:,} readings, {len(truth.jobs)} jobs")
        rollups(directory, readings, seconds)
        joins(directory, truth, readings)


def rollups(directory: Path, readings: int, seconds: int) -> None:
    """Cost and size of series60, and of one question to it."""
    before = time.process_time()
    done = RollupPass(directory).run(START_NS + (seconds + 7200) * SECOND, 30)
    spent = time.process_time() - before
    size = sum(path.stat().st_size for path in directory.glob("kind=series60/**/*.parquet"))
    each = f"{done.rows:,} rows of {size / done.rows:.1f} bytes"
    print(f"series60: {spent / readings * 1e6:.2f} us of CPU a reading, {each}")
    began = time.perf_counter()
    table = ArchiveReader(directory).table("series60", "lustre_llite", ["node", "minute", "read_bytes_sum"])
    minutes = table.filter(pc.equal(table["node"].cast(pa.string()), "cn00001")).num_rows
    taken = (time.perf_counter() - began) * 1e3
    print(f"series60: all nodes' minutes, {minutes} of each, read in {taken:.0f} ms")


def joins(directory: Path, truth: Truth, readings: int) -> None:
    """Cost and size of the join, and how close it is to the truth."""
    before = time.process_time()
    join = Join(directory, "site", truth.jobs, format_=JobIdFormat("%j"))
    accounts = join.run()
    spent = time.process_time() - before
    print(f"join: {spent / readings * 1e6:.2f} us of CPU a reading")
    for least, most in ((1, 8), (9, 10**6)):
        some = [each for each in accounts if least <= len(each.job.held) <= most and each.job.seconds >= 600]
        rows = [row for account in some for row in series_rows(account, 0)]
        if rows:
            columns = [
                pa.array([row[field.name] for row in rows], pa.string()).dictionary_encode()
                if pa.types.is_dictionary(field.type)
                else pa.array([row[field.name] for row in rows], field.type)
                for field in JOB_SERIES
            ]
            table = pa.table(columns, schema=JOB_SERIES)
            path = layout.write_part(directory, layout.stamp(least), (least, least), JOB_SERIES, [table])
            minutes = sum(each.job.seconds for each in some) / 60
            size = f"{path.stat().st_size / minutes:.1f} bytes a job-minute, {minutes:,.0f} job-minutes"
            print(f"job_series, jobs of {least} to {most} nodes and 10 minutes or more: {size}")
    true = [np.array([float(truth.moved[job.key, place]) for job in truth.jobs]) for place in (0, 1)]
    summaries = [summary_row(account, 0) for account in accounts]
    names = ("read_bytes", "written_bytes")
    found = [np.array([row[name] or 0.0 for row in summaries]) for name in names]
    gone = {f"cn{node:05d}" for node in truth.gaps}
    whole = np.array([not gone & {node for node, _, _ in job.held} for job in truth.jobs])
    sums = [max(float(each[whole].sum()), 1.0) for each in (*true, *found)]
    print(
        f"conservation, {whole.sum()} jobs without a gap: read {sums[2] / sums[0] - 1:+.6%}, "
        f"written {sums[3] / sums[1] - 1:+.6%} of the true bytes"
    )
    names = ("server_read_bytes", "server_written_bytes")
    served = [np.array([row[name] or 0.0 for row in summaries]) for name in names]
    off = [each.sum() / every.sum() - 1 for each, every in zip(served, true, strict=True)]
    print(f"servers, all {len(summaries)} jobs: read {off[0]:+.6%}, written {off[1]:+.6%} of the true bytes")
    both = true[0] + true[1]
    chosen = whole & (both > 2e8)
    errors = np.abs((found[0] + found[1] - both)[chosen] / both[chosen])
    print(
        f"by job above 200 MB: {(errors <= 0.001).mean():.1%} within 0.1 %, median {np.median(errors):.4%}, "
        f"largest {errors.max():.3%}"
    )
    parts = join.conserved
    held = float((parts.job + parts.shared + parts.free).sum())
    every = float(truth.rates.sum())
    print(
        f"all bytes: job {parts.job.sum() / every:.4%}, shared {parts.shared.sum() / every:.4%}, "
        f"unaccounted {parts.free.sum() / every:.4%}, unknown {1 - held / every:.4%}"
    )


if __name__ == "__main__":
    main()
