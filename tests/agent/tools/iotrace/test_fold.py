from collections import defaultdict
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from laggard_agent.tools.iotrace.fold import fold
from laggard_common.wire.trace_records import MAX_POSITION, Folded, TraceRecord
from tests.support.builders.iotrace import unfold

WRITE = TraceRecord("cn-17", "write", "1:3", 0, 100, 1000)


def writes(*offsets: int | None, descriptor: str = "1:3") -> list[TraceRecord]:
    return [
        replace(WRITE, offset=offset, descriptor=descriptor, time_ns=1000 + i)
        for i, offset in enumerate(offsets)
    ]


def shape(folded: list[Folded]) -> list[tuple[int | None, int]]:
    return [(f.offset, f.count) for f in folded]


def test_contiguous_records_become_one_that_keeps_first_and_last_time() -> None:
    (one,) = fold(writes(0, 100, 200))
    assert one == Folded("cn-17", "write", "1:3", 0, 100, 3, 1000, 1002)


def test_a_gap_a_step_back_and_a_repetition_end_a_run() -> None:
    assert shape(list(fold(writes(0, 200, 100, 100)))) == [(0, 1), (200, 1), (100, 1), (100, 1)]


def test_each_of_the_things_that_must_be_equal_ends_a_run() -> None:
    first, second = writes(0, 100)
    others = (
        replace(second, operation="read"),
        replace(second, descriptor="1:4"),
        replace(second, size=99),
        replace(second, node="cn-18"),
        replace(second, path="/other"),
        replace(second, offset=None),
    )
    for other in others:
        assert [f.count for f in fold([first, other])] == [1, 1]


def test_records_without_an_offset_continue_each_other() -> None:
    assert shape(list(fold(writes(None, None, 0, None)))) == [(None, 2), (0, 1), (None, 1)]


def test_records_without_bytes_fold_where_they_are() -> None:
    same = [replace(WRITE, size=0, offset=4096)] * 3
    assert shape(list(fold(same))) == [(4096, 3)]


def test_a_run_ends_before_its_bytes_pass_the_largest_position() -> None:
    size = MAX_POSITION // 2
    same = [replace(WRITE, size=size, offset=None)] * 5
    assert [f.count for f in fold(same)] == [2, 2, 1]
    assert [f.count for f in fold([replace(WRITE, size=size, offset=at) for at in (1, size + 1)])] == [2]
    assert [f.count for f in fold([replace(WRITE, size=size, offset=at) for at in (2, size + 2)])] == [1, 1]


def test_descriptors_among_each_other_have_a_run_each() -> None:
    a, b = writes(0, 100, 200), writes(0, 100, 200, descriptor="1:4")
    mixed = [record for pair in zip(a, b, strict=True) for record in pair]
    assert shape(list(fold(mixed))) == [(0, 3), (0, 3)]
    assert len(list(fold(mixed, max_open_runs=1))) == 6


def test_a_full_table_ends_the_run_that_grew_longest_ago() -> None:
    a, b, c = (writes(0, 100, descriptor=name) for name in "abc")
    folded = list(fold([a[0], b[0], a[1], c[0], b[1]], max_open_runs=2))
    assert [(f.descriptor, f.offset, f.count) for f in folded] == [
        ("b", 0, 1),
        ("a", 0, 2),
        ("c", 0, 1),
        ("b", 100, 1),
    ]


def test_a_clock_that_was_set_back_is_kept() -> None:
    first, second = writes(0, 100)
    (one,) = fold([first, replace(second, time_ns=5)])
    assert (one.first_ns, one.last_ns) == (1000, 5)
    assert [record.time_ns for record in unfold(one)] == [1000, 5]


records = st.builds(
    TraceRecord,
    node=st.sampled_from(["cn-1", "cn-2"]),
    operation=st.sampled_from(["read", "write"]),
    descriptor=st.sampled_from(["1:3", "1:4", "2:3"]),
    offset=st.none() | st.integers(0, 6).map(lambda i: i * 100),
    size=st.sampled_from([0, 100, 100, 100, 200]),
    time_ns=st.integers(0, 10**6),
    path=st.sampled_from(["", "/f"]),
)


@given(st.lists(records, max_size=60), st.integers(1, 5))
def test_unfolding_gives_back_every_record_of_every_descriptor(log: list[TraceRecord], runs: int) -> None:
    folded = list(fold(log, runs))
    before, after = defaultdict(list), defaultdict(list)
    for record in log:
        before[record.node, record.descriptor].append(replace(record, time_ns=0))
    for one in folded:
        for record in unfold(one):
            after[record.node, record.descriptor].append(replace(record, time_ns=0))
    assert after == before
    kept = sorted(time for f in folded for time in ({f.first_ns, f.last_ns} if f.count > 1 else [f.first_ns]))
    assert set(kept) <= {record.time_ns for record in log}


@given(st.lists(records, max_size=60))
def test_one_open_run_is_the_paper_to_the_letter(log: list[TraceRecord]) -> None:
    """Naively: compare each record with the one before it, and keep the whole order."""
    counts: list[int] = []
    for before, after in zip([None, *log], log, strict=False):
        continues = before is not None and replace(
            before, time_ns=0, offset=None if before.offset is None else before.offset + before.size
        ) == replace(after, time_ns=0)
        if continues:
            counts[-1] += 1
        else:
            counts.append(1)
    folded = list(fold(log, max_open_runs=1))
    assert [f.count for f in folded] == counts
    again = [replace(record, time_ns=0) for f in folded for record in unfold(f)]
    assert again == [replace(record, time_ns=0) for record in log]


@given(st.lists(records, min_size=1, max_size=60))
def test_first_and_last_times_are_those_of_the_records(log: list[TraceRecord]) -> None:
    position = 0
    for f in fold(log, max_open_runs=1):
        assert f.first_ns == log[position].time_ns
        assert f.last_ns == log[position + f.count - 1].time_ns
        times = [record.time_ns for record in unfold(f)]
        assert (times[0], times[-1]) == (f.first_ns, f.last_ns)
        position += f.count


def test_a_thousand_descriptors_in_turn() -> None:
    log = (replace(WRITE, descriptor=f"{i % 1000}:3", offset=i // 1000 * 100) for i in range(100_000))
    folded = list(fold(log, max_open_runs=1000))
    assert {f.count for f in folded} == {100}
    assert len(folded) == 1000
