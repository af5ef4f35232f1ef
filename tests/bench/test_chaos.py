"""The account of the chaos bench: it finds what is lost and what is there twice."""

from bench.chaos.account import Account, by_batch, by_clock
from bench.chaos.ground_truth import Seen
from bench.chaos.processes import Life

KEY = ("oss-1", b"s" * 16)
SEEN = {seq: Seen(1000 + seq, tuple(range(500 * seq, 500 * seq + 500, 100))) for seq in range(3)}
ALL = {tick: [5000] for tick in range(0, 1500, 100)}


def of_batches(archived: dict[int, list[int]], seen: dict[int, Seen] | None = None) -> Account:
    made = Account()
    by_batch(KEY, SEEN if seen is None else seen, archived, made)
    return made


def test_what_is_archived_once_is_right() -> None:
    assert of_batches(ALL) == Account()
    assert of_batches(ALL, {}) == Account()


def test_a_sample_that_was_seen_and_is_not_archived_is_lost_when_it_was_seen() -> None:
    made = of_batches({tick: came for tick, came in ALL.items() if tick not in {500, 600, 1000}})
    assert made.lost == [(1001, 2), (1002, 1)]
    assert made.between("lost", 1000, 1002) == 2
    assert made.problems == ["oss-1, stream 737373: lost 2 batches of 1 to 2"]
    assert of_batches({}).between("lost", 0, 2000) == 15


def test_a_sample_that_is_archived_twice_is_counted_unless_a_clock_went_back() -> None:
    made = of_batches(ALL | {500: [5000, 6000], 9900: [5000, 6000]})
    assert sorted(made.twice) == [(6000, 1), (6000, 1)]
    assert made.problems == ["oss-1, stream 737373: 2 samples are there twice"]
    again = SEEN | {3: Seen(1003, SEEN[1].ticks_ns)}
    assert of_batches(ALL | {tick: [5000, 6000] for tick in SEEN[1].ticks_ns}, again) == Account()
    assert of_batches(ALL, again).lost == [(1003, 5)]


def test_samples_that_no_batch_has_are_lost_unless_the_agent_says_that_it_missed_them() -> None:
    came = {tick: [1] for tick in range(0, 2000, 100) if tick not in (300, 400, 900)}
    life = Life(1, 0, 2000)
    for missed, lost in ((3, 0), (1, 2), (0, 3)):
        made = Account()
        by_clock("oss-1", life, came, 100, missed, made)
        assert made.between("lost", 0, 10) == lost
        assert bool(made.problems) == bool(lost)
