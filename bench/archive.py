"""How fast the archive takes counters and merges its files, how large they are, how fast a replay reads them.

    python -m bench.archive [--fields-of-one-node]

Counters grow as those of busy disks do: operations at some hundred a second that vary, sectors with them,
milliseconds in proportion; every fourth field stands still, as merges and discards mostly do.
"""

import argparse
import dataclasses
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.machine import machine
from laggard_aggregator.archive import retention
from laggard_aggregator.archive import writer as archive_writer
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.archive.retention import compact
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.windows.counter_block import Block
from laggard_common.wire.schema import Component, Field, Schema

START_NS = 1_800_000_000 * 10**9
DAY_NS = 86_400 * 10**9
CASES = (
    # nodes, components, fields, ticks a batch, batches a node
    ("storage: 64 disks x 17, 60 s", 8, 64, 17, 60, 10),
    ("storage: 64 disks x 17, 5 s", 16, 64, 17, 5, 60),
    ("compute: 3 x 12, 10 s", 2000, 3, 12, 10, 6),
    ("compute: 1 x 8, 260 s", 300, 1, 8, 260, 6),
)


def batches(nodes: int, components: int, fields: int, ticks: int, each: int) -> Iterator[Batch]:
    """Batches of all nodes in turn."""
    chance = np.random.default_rng(1)
    schemas = [_schema(f"node-{n}", components, fields) for n in range(nodes)]
    totals = chance.integers(0, 2**40, (nodes, components, fields))
    pace = chance.integers(1, 2000, (components, fields))
    pace[:, ::4] = 0
    for at in range(each):
        for n, schema in enumerate(schemas):
            grown = chance.poisson(pace, (ticks, components, fields))
            values = totals[n] + np.cumsum(grown, axis=0)
            totals[n] = values[-1]
            tick_ns = START_NS + (at * ticks + np.arange(ticks, dtype=np.int64)) * 10**9
            yield Batch(
                lsn=at * nodes + n,
                site="site",
                role="storage",
                stream=schema.stream,
                seq=at,
                received_ns=int(tick_ns[-1]) + 10**8,
                schema=schema,
                counters=Block(
                    indexes=np.arange(components, dtype=np.int64),
                    values=values,
                    present=None,
                    tick_ns=tick_ns,
                    read_ns=tick_ns + chance.integers(0, 2000, ticks) * 1000,
                    idle=0,
                ),
                late=np.zeros(ticks, dtype=np.bool_),
            )


def _schema(node: str, components: int, fields: int) -> Schema:
    return Schema(
        node=node,
        source="diskstats",
        stream=node.encode().ljust(16, b"-")[:16],
        epoch=1,
        interval_ns=10**9,
        batch_ticks=60,
        fields=tuple(Field(f"counter_{f}") for f in range(fields)),
        components=tuple(Component(f"wwn-{node}-{c}", f"sd{c}") for c in range(components)),
    )


def _wide(taken: Batch, lsn: int, fields: int) -> Batch:
    """A batch of another node at the same time, of one component with fields of its own."""
    schema = _schema("wide", 1, fields)
    own = tuple(Field(f"own_{f}") for f in range(fields))
    ticks = taken.counters.tick_ns.size
    counters = dataclasses.replace(
        taken.counters,
        indexes=np.zeros(1, dtype=np.int64),
        values=np.full((ticks, 1, fields), lsn, dtype=np.int64),
    )
    return dataclasses.replace(
        taken,
        lsn=lsn,
        schema=dataclasses.replace(schema, fields=own),
        stream=schema.stream,
        counters=counters,
    )


def fields_of_one_node() -> None:
    """Prints the cost of many nodes' rows beside a node with further fields, without the bound on them."""
    archive_writer.MAX_NEW_SHARED_FIELDS = archive_writer.MAX_NEW_FIELDS
    nodes, components, fields, ticks, each = 50, 64, 17, 5, 24
    made = list(batches(nodes, components, fields, ticks, each))
    rows = sum(taken.counters.tick_ns.size * taken.counters.indexes.size for taken in made)
    print(f"{rows:,} rows of {nodes} nodes, {components} disks x {fields}; one batch in {nodes} of another\n")
    print("| its fields | written, CPU s | merged, CPU s | MB |\n|---:|---:|---:|---:|")
    for more in (0, 256, 1024, 2000):
        with tempfile.TemporaryDirectory() as folder:
            begun = time.process_time()
            archive = ArchiveWriter(Path(folder), "site", START_NS)
            for at, taken in enumerate(made):
                archive.batch(dataclasses.replace(taken, lsn=2 * at))
                if more and at % nodes == 0:
                    archive.batch(_wide(taken, 2 * at + 1, more))
            archive.flush()
            wrote = time.process_time() - begun
            begun = time.process_time()
            retention.compact(Path(folder), START_NS + 3 * 86_400 * 10**9)
            merged = time.process_time() - begun
            size = sum(path.stat().st_size for path in Path(folder).rglob("*.parquet"))
        assert not archive.refused_rows
        print(f"| {more:,} | {wrote:.2f} | {merged:.2f} | {size / 1e6:.1f} |")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--fields-of-one-node", action="store_true", help="cost of a node with many fields of its own"
    )
    if parser.parse_args().fields_of_one_node:
        fields_of_one_node()
        print(f"\nCPU seconds of one process, zstd and fsync included. {machine('pyarrow', 'numpy')}.")
        return
    print(
        "| | Mrows/s written | nodes a core (1 s) | Mrows/s merged | bytes a row | bytes a node's sample "
        "| Mrows/s replayed |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, nodes, components, fields, ticks, each in CASES:
        made = list(batches(nodes, components, fields, ticks, each))
        rows = sum(taken.counters.tick_ns.size * taken.counters.indexes.size for taken in made)
        with tempfile.TemporaryDirectory() as folder:
            begun = time.process_time()
            writer = ArchiveWriter(Path(folder), "site", START_NS)
            for taken in made:
                writer.batch(taken)
            writer.flush()
            wrote = time.process_time() - begun
            begun = time.process_time()
            again = sum(1 for _ in ArchiveReader(Path(folder)).batches())
            read = time.process_time() - begun
            size = sum(path.stat().st_size for path in Path(folder).rglob("*.parquet"))
            begun = time.process_time()
            compact(Path(folder), START_NS + 2 * DAY_NS)
            merged = time.process_time() - begun
        assert again == len(made)
        print(
            f"| {name} | {rows / wrote / 1e6:.2f} | {rows / wrote / components:,.0f} "
            f"| {rows / merged / 1e6:.2f} | {size / rows:.1f} "
            f"| {size / (rows / components):.0f} | {rows / read / 1e6:.2f} |"
        )
    print(f"\nCPU seconds of one process, zstd and fsync included. {machine('pyarrow', 'numpy')}.")


if __name__ == "__main__":
    main()
