import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.ingest import dedup_state
from laggard_aggregator.ingest.dedup_state import SeqRanges


@given(st.lists(st.integers(0, 40)))
def test_ranges_are_the_set_of_what_was_added(seqs: list[int]) -> None:
    kept, seen = SeqRanges(), set[int]()
    for now, seq in enumerate(seqs, 1):
        assert kept.add(seq, now) == (seq not in seen)
        seen.add(seq)
    covered = [seq for low, high in kept.as_tuples() for seq in range(low, high + 1)]
    assert covered == sorted(seen)
    assert all(seq in kept for seq in seen)
    assert not any(seq in kept for seq in set(range(42)) - seen)
    for (_, end), (start, _) in zip(kept.as_tuples(), kept.as_tuples()[1:], strict=False):
        assert start > end + 1


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12))))
def test_consecutive_ones_are_added_as_one_after_the_other(runs: list[tuple[int, int]]) -> None:
    together, single = SeqRanges(), SeqRanges()
    for now, (first, count) in enumerate(runs, 1):
        seqs = range(first, first + count)
        assert together.add_all(seqs, now) == [single.add(seq, now) for seq in seqs]
        assert together.as_tuples() == single.as_tuples()
    assert [together.declare(now, 5) for now in range(80)] == [single.declare(now, 5) for now in range(80)]


@given(st.permutations(range(12)))
def test_any_order_of_a_whole_ends_as_one_range(order: list[int]) -> None:
    kept = SeqRanges()
    for seq in order:
        kept.add(seq)
    assert kept.as_tuples() == ((0, 11),)
    assert kept.declare(10**30, 0) == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20))))
def test_what_is_taken_back_may_come_again(steps: list[tuple[bool, int]]) -> None:
    kept, seen = SeqRanges(), set[int]()
    for now, (adds, seq) in enumerate(steps, 1):
        if adds:
            assert kept.add(seq, now) == (seq not in seen)
            seen.add(seq)
        else:
            kept.remove(seq)
            seen.discard(seq)
        covered = [each for low, high in kept.as_tuples() for each in range(low, high + 1)]
        assert covered == sorted(seen)
        assert SeqRanges.restore(kept.state()).state() == kept.state()


@pytest.mark.parametrize(
    "state",
    [
        ((0,), (), ()),
        ((5,), (4,), (0,)),
        ((0, 2), (1, 3), (0, 0)),
        ((3, 0), (4, 1), (0, 0)),
        ((-1,), (4,), (0,)),
        ((0,), (2**64,), (0,)),
        ((0.5,), (4,), (0,)),
    ],
)
def test_ranges_that_are_none_are_refused(state: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ValueError, match="ranges"):
        SeqRanges.restore(state)


def test_a_restored_gap_is_declared_when_it_would_have_been() -> None:
    kept = SeqRanges()
    kept.add(5, now_ns=100)
    kept.add(9, now_ns=200)
    assert kept.declare(now_ns=250, horizon_ns=100) == 0
    kept = SeqRanges.restore(kept.state())
    assert kept.declare(now_ns=300, horizon_ns=100) == 3
    assert SeqRanges.restore(kept.state()).declare(now_ns=900, horizon_ns=100) == 0


def test_a_gap_is_declared_once_after_the_horizon() -> None:
    kept = SeqRanges()
    kept.add(5, now_ns=100)
    kept.add(9, now_ns=200)
    assert kept.declare(now_ns=250, horizon_ns=100) == 0
    assert kept.declare(now_ns=300, horizon_ns=100) == 3
    assert kept.declare(now_ns=900, horizon_ns=100) == 0


def test_what_came_before_the_first_message_is_no_gap() -> None:
    kept = SeqRanges()
    kept.add(1000, now_ns=1)
    assert kept.declare(now_ns=10**18, horizon_ns=1) == 0


def test_a_gap_split_in_two_keeps_its_age() -> None:
    kept = SeqRanges()
    kept.add(0, now_ns=100)
    kept.add(10, now_ns=200)
    kept.add(5, now_ns=290)
    assert kept.declare(now_ns=300, horizon_ns=100) == 8


def test_a_backlog_in_front_of_live_data_opens_its_gap_when_it_begins_to_come() -> None:
    kept = SeqRanges()
    kept.add(100, now_ns=100)
    kept.add(10, now_ns=500)
    assert kept.declare(now_ns=550, horizon_ns=100) == 0
    assert kept.declare(now_ns=600, horizon_ns=100) == 89


def test_memory_is_bounded_by_giving_up_the_oldest_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup_state, "MAX_RANGES", 4)
    kept = SeqRanges()
    missing = 0
    for seq in range(0, 20, 2):
        kept.add(seq, now_ns=1)
        missing += kept.give_up()
    assert kept.as_tuples() == ((0, 12), (14, 14), (16, 16), (18, 18))
    assert missing == 6


def test_the_largest_seqs_are_taken() -> None:
    kept = SeqRanges()
    assert kept.add(2**64 - 1)
    assert kept.add(2**64 - 2)
    assert kept.as_tuples() == ((2**64 - 2, 2**64 - 1),)
