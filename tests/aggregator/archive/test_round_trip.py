"""What the writer takes the reader gives, whatever the counters, gaps and schemas."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.archive.retention import compact
from laggard_aggregator.archive.writer import ArchiveWriter
from tests.support.builders.archives import START_NS, assert_same, run_of


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    flush_after=st.sets(st.integers(0, 7), max_size=2),
    compacted=st.booleans(),
)
def test_batches_come_back_in_their_order_to_the_bit(
    seed: int, flush_after: set[int], compacted: bool
) -> None:
    run = run_of(seed)
    with tempfile.TemporaryDirectory() as folder:
        writer = ArchiveWriter(Path(folder), "site", START_NS)
        for taken in run:
            writer.batch(taken)
            if taken.lsn in flush_after:
                writer.flush()
        writer.flush()
        if compacted:
            compact(Path(folder), START_NS + 10 * 86_400 * 10**9)
        got = list(ArchiveReader(Path(folder)).batches())
    assert [run_ns for run_ns, _ in got] == [START_NS] * len(run)
    for (_, found), expected in zip(got, run, strict=True):
        assert_same(found, expected)
