"""The queue of packed messages, beside a deque."""

import os
from collections import deque
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.ingest.batches import Message
from laggard_aggregator.ingest.ingest_queue import BLOCK_BYTES, OffheapQueue

TIMES = st.integers(0, 2**63 - 1)
SHORT = st.tuples(
    st.one_of(st.text(max_size=300), st.just("\ufffd" * 65_535)), st.binary(max_size=300), TIMES
)
LONG = st.tuples(st.text(max_size=3), st.integers(0, 2 * BLOCK_BYTES).map(bytes), TIMES)


@given(steps=st.lists(st.one_of(SHORT, LONG, st.integers(1, 20)), max_size=60))
def test_it_gives_what_a_deque_would_give(steps: list[Message | int]) -> None:
    queue, naive = OffheapQueue(), deque[Message]()
    for step in [*steps, 60]:
        if isinstance(step, int):
            for _ in range(min(step, len(naive))):
                assert queue.popleft() == naive.popleft()
        else:
            queue.append(step)
            naive.append(step)
        assert len(queue) == len(naive)
    with pytest.raises(IndexError):
        queue.popleft()
    assert not queue._blocks


def test_what_thousands_of_messages_took_is_given_back_though_others_live_on() -> None:
    queue, kept = OffheapQueue(), []
    begun = resident_bytes()
    for number in range(200_000):
        queue.append((f"laggard/1/site/storage/oss-{number}/data/diskstats", bytes(200), number))
        if number % 500 == 0:
            kept.append(f"{number:050}")  # where it would keep a whole arena of the interpreter
    full = resident_bytes()
    while len(queue):
        queue.popleft()
    assert full - begun > 40_000_000
    assert resident_bytes() - begun < 4_000_000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
